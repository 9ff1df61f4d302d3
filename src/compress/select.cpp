#include "compress/select.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "compress/kernels.hpp"
#include "compress/random.hpp"

namespace heddle {
namespace {

// What entries are compared by: the bits of the magnitude, with one key for all NaNs.
constexpr std::uint32_t kNanKey = compress::kInfinityBits + 1;
std::uint32_t key_of(float value) {
  return std::min(std::bit_cast<std::uint32_t>(value) & compress::kMagnitudeBits, kNanKey);
}

// The threshold that only keys above this one reach; 2^31 is reached by none.
std::uint32_t threshold_above(std::uint32_t key) {
  return key >= kNanKey ? compress::kMagnitudeBits + 1 : key + 1;
}

constexpr std::size_t kSample = 65536;
// Shorter vectors are not sampled: a pass over them costs no more.
constexpr std::size_t kSampleFrom = 16 * kSample;
// Samples above the threshold for an estimate that is off by less than a half in all but few cases.
constexpr double kTrustedRank = 64;

bool needs_wide(std::uint64_t n) {
  return n > std::uint64_t{1} << 32;
}

// The k-th largest of the keys, 1 <= k <= their number, by three rounds over histograms of 11, 10 and 10
// bits.
std::uint32_t kth_largest(const float* values, std::size_t n, std::size_t k) {
  std::uint32_t prefix = 0;
  for (const auto& [shift, bits] : {std::pair{20U, 11U}, {10U, 10U}, {0U, 10U}}) {
    std::array<std::size_t, 2048> histogram{};
    const std::uint32_t mask = (1U << bits) - 1;
    const std::uint32_t fixed = prefix >> shift >> bits;
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t digits = key_of(values[i]) >> shift;
      if (digits >> bits == fixed) ++histogram[digits & mask];
    }
    std::uint32_t digit = mask;
    for (; histogram[digit] < k; --digit)
      k -= histogram[digit];
    prefix |= digit << shift;
  }
  return prefix;
}

// Entries not below a rising threshold.
template <class Index>
struct Candidates {
  explicit Candidates(std::size_t capacity) : indices(capacity), values(capacity) {}

  // Leaves the k largest of more than k, and returns the least of their keys.
  std::uint32_t cut(std::size_t k) {
    const std::uint32_t least = kth_largest(values.data(), count, k);
    std::size_t equal = k;
    for (std::size_t i = 0; i < count; ++i)
      equal -= static_cast<std::size_t>(key_of(values[i]) > least);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t key = key_of(values[i]);
      if (key < least || (key == least && equal == 0)) continue;
      equal -= static_cast<std::size_t>(key == least);
      indices[kept] = indices[i];
      values[kept++] = values[i];
    }
    count = kept;
    return least;
  }

  // All entries from the threshold up; where they are too many for the room the k largest of them. True in
  // the second case.
  bool fill(const float* from, std::size_t n, std::size_t k, std::uint32_t threshold) {
    bool was_cut = false;
    count = 0;
    for (std::size_t at = 0; at < n;) {
      const compress::Collected found = compress::collect(from, at, n, threshold, indices.data() + count,
                                                          values.data() + count, values.size() - count);
      count += found.taken;
      at = found.next;
      if (at == n) break;
      // Whatever equals the least of the k comes later in the vector than they, and loses to them.
      threshold = threshold_above(cut(k));
      was_cut = true;
    }
    if (was_cut && count > k) cut(k);
    return was_cut;
  }

  std::vector<Index> indices;
  std::vector<float> values;
  std::size_t count = 0;
};

// The key of the given rank, 1 for the largest, in a sample with one value drawn from each of kSample equal
// parts; 1 at the least.
std::uint32_t sampled_key(const float* values, std::size_t n, std::uint64_t seed, std::size_t rank) {
  std::vector<float> sample(kSample);
  const std::size_t part = n / kSample;
  for (std::size_t i = 0; i < kSample; ++i)
    sample[i] = values[i * part + random64(seed, i) % part];
  return std::max(1U, kth_largest(sample.data(), kSample, std::min(rank, kSample)));
}

double expected_rank(std::size_t n, std::size_t k) {
  return static_cast<double>(k) / static_cast<double>(n) * static_cast<double>(kSample);
}

template <class Index>
void store(Candidates<Index>&& found, SelectedEntries& selection) {
  found.indices.resize(found.count);
  found.values.resize(found.count);
  if constexpr (sizeof(Index) == 8) {
    selection.indices.wide = std::move(found.indices);
  } else {
    selection.indices.narrow = std::move(found.indices);
  }
  selection.indices.is_wide = sizeof(Index) == 8;
  selection.values = std::move(found.values);
}

template <class Index>
SelectedEntries exact(const float* values, std::size_t n, std::size_t k) {
  k = std::min(k, n);
  if (k == 0) return {};
  Candidates<Index> found(std::min(2 * k, n) + 1024);
  std::uint32_t threshold = 1;
  if (n >= kSampleFrom && k < n / 4) {
    // Four standard deviations more than expected, so that a second pass is rare.
    const double rank = expected_rank(n, k);
    threshold = sampled_key(values, n, n, static_cast<std::size_t>(rank + 4 * std::sqrt(rank)) + 4);
  }
  if (!found.fill(values, n, k, threshold) && found.count < k && threshold > 1) found.fill(values, n, k, 1);
  if (found.count > k) found.cut(k);
  SelectedEntries selection;
  store(std::move(found), selection);
  return selection;
}

template <class Index>
SelectedEntries sampled(const float* values, std::size_t n, std::size_t k, std::uint64_t seed) {
  const double rank = expected_rank(n, k);
  if (n < kSampleFrom || k >= n / 4 || rank < kTrustedRank) return exact<Index>(values, n, k);
  const std::size_t most = k + k / 2;
  Candidates<Index> found(most + 64);
  found.fill(values, n, k, sampled_key(values, n, seed, static_cast<std::size_t>(rank)));
  if (found.count > most) found.cut(k);
  if (found.count < k - k / 2) return exact<Index>(values, n, k);
  SelectedEntries selection;
  store(std::move(found), selection);
  return selection;
}

// A number below `bound`, each equally likely but for 2^-64 of it: the upper half of the product of 64 random
// bits and the bound.
std::uint64_t below(std::uint64_t random, std::uint64_t bound) {
  const std::uint64_t r0 = random & 0xFFFFFFFFU;
  const std::uint64_t r1 = random >> 32;
  const std::uint64_t b0 = bound & 0xFFFFFFFFU;
  const std::uint64_t b1 = bound >> 32;
  const std::uint64_t middle = r1 * b0 + ((r0 * b0) >> 32);
  const std::uint64_t low = (middle & 0xFFFFFFFFU) + r0 * b1;
  return r1 * b1 + (middle >> 32) + (low >> 32);
}

// Positions in a table with open addressing; 2^64 - 1 is none.
class PositionSet {
 public:
  explicit PositionSet(std::size_t count) : slots_(std::bit_ceil(2 * count + 1), kFree) {}
  bool insert(std::uint64_t position) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = static_cast<std::size_t>(mix64(position)) & mask;
    for (; slots_[slot] != kFree; slot = (slot + 1) & mask)
      if (slots_[slot] == position) return false;
    slots_[slot] = position;
    return true;
  }

 private:
  static constexpr std::uint64_t kFree = std::numeric_limits<std::uint64_t>::max();
  std::vector<std::uint64_t> slots_;
};

template <class Index>
std::vector<Index> random_positions(std::uint64_t n, std::size_t k, std::uint64_t seed) {
  std::vector<Index> positions;
  positions.reserve(k);
  PositionSet drawn(k);
  for (std::uint64_t last = n - k; last < n; ++last) {
    std::uint64_t position = below(random64(seed, last), last + 1);
    if (!drawn.insert(position)) {
      position = last;
      drawn.insert(position);
    }
    positions.push_back(static_cast<Index>(position));
  }
  std::sort(positions.begin(), positions.end());
  return positions;
}

}  // namespace

SelectedEntries top_k(const float* values, std::size_t n, std::size_t k) {
  return needs_wide(n) ? exact<std::uint64_t>(values, n, k) : exact<std::uint32_t>(values, n, k);
}

SelectedEntries top_k_sampled(const float* values, std::size_t n, std::size_t k, std::uint64_t seed) {
  return needs_wide(n) ? sampled<std::uint64_t>(values, n, k, seed)
                       : sampled<std::uint32_t>(values, n, k, seed);
}

Indices random_k(std::uint64_t n, std::size_t k, std::uint64_t seed) {
  k = static_cast<std::size_t>(std::min<std::uint64_t>(k, n));
  Indices indices;
  indices.is_wide = needs_wide(n);
  if (indices.is_wide) {
    indices.wide = random_positions<std::uint64_t>(n, k, seed);
  } else {
    indices.narrow = random_positions<std::uint32_t>(n, k, seed);
  }
  return indices;
}

std::vector<float> gather(const float* values, const Indices& indices) {
  std::vector<float> gathered(indices.size());
  for (std::size_t i = 0; i < gathered.size(); ++i)
    gathered[i] = values[indices[i]];
  return gathered;
}

}  // namespace heddle
