#include "sparse/profile.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/hash.hpp"

namespace heddle {
namespace {

constexpr std::size_t kQuantiles = 255;

// Of (index, weight) pairs in order of index.
std::vector<std::uint64_t> quantiles_of(const std::vector<std::pair<std::uint64_t, double>>& weighted) {
  double total = 0;
  for (const auto& [index, weight] : weighted)
    total += weight;
  std::vector<std::uint64_t> quantiles;
  double below = 0;
  for (const auto& [index, weight] : weighted) {
    below += weight;
    while (quantiles.size() < kQuantiles &&
           below * static_cast<double>(kQuantiles + 1) >= total * static_cast<double>(quantiles.size() + 1))
      quantiles.push_back(index + 1);
  }
  return quantiles;
}

// How many of `quantiles` lie in the fullest of a few regions which those of `other` fill equally.
std::size_t fullest(const std::vector<std::uint64_t>& quantiles, const std::vector<std::uint64_t>& other) {
  constexpr std::size_t kRegions = 8;
  std::size_t most = 0;
  auto from = quantiles.begin();
  for (std::size_t region = 1; region < kRegions; ++region) {
    const auto to = std::lower_bound(from, quantiles.end(), other[region * other.size() / kRegions]);
    most = std::max(most, static_cast<std::size_t>(to - from));
    from = to;
  }
  return std::max(most, static_cast<std::size_t>(quantiles.end() - from));
}

// Different indices among m draws of k out of n.
double met(double n, double k, int m) {
  double missed = 1;
  for (double factor = k >= n ? 0 : 1 - k / n; m > 0; m /= 2, factor *= factor)
    missed *= m % 2 != 0 ? factor : 1;
  return n * (1 - missed);
}

}  // namespace

// Among the samples below the least of the ranks' largest hashes every rank shows all it has: those are a
// fair sample of all indices (Z. Bar-Yossef, T. Jayram, R. Kumar, D. Sivakumar, L. Trevisan, RANDOM 2002, for
// the union of several sets).
Profile Profile::of_samples(const Agreement& agreement) {
  if (!agreement.has_samples()) return {};
  std::uint64_t most = UINT64_MAX;
  std::vector<std::pair<std::uint64_t, double>> weighted;
  for (int rank = 0; rank < agreement.ranks(); ++rank) {
    const std::vector<std::uint64_t> samples = agreement.samples(rank);
    const auto shown = static_cast<double>(samples.size());
    if (samples.size() < agreement.count(rank)) most = std::min(most, mix64(samples.back()));
    for (const std::uint64_t index : samples)
      weighted.emplace_back(index, static_cast<double>(agreement.count(rank)) / shown);
  }
  std::sort(weighted.begin(), weighted.end());
  double all = 0;
  double different = 0;
  for (std::size_t i = 0; i < weighted.size(); ++i) {
    if (mix64(weighted[i].first) > most) continue;
    all += 1;
    different += i == 0 || weighted[i].first != weighted[i - 1].first ? 1 : 0;
  }
  Profile profile;
  if (all > 0) profile.distinct_ = different / all;
  profile.quantiles_ = quantiles_of(weighted);
  return profile;
}

Profile Profile::of_result(std::span<const SparseView> parts, std::uint64_t total, std::uint64_t dimension) {
  std::size_t count = 0;
  for (const SparseView& part : parts)
    count += part.count;
  Profile profile;
  if (count == 0 || dimension == 0) return profile;
  profile.distinct_ = static_cast<double>(count) / static_cast<double>(total);
  std::size_t passed = 0;
  for (const SparseView& part : parts) {
    // Quantile q is the index of entry (q + 1) * count / (kQuantiles + 1).
    for (std::size_t q = profile.quantiles_.size(); q < kQuantiles; ++q) {
      const std::size_t at = (q + 1) * count / (kQuantiles + 1);
      if (at >= passed + part.count) break;
      profile.quantiles_.push_back(part.index(at - passed));
    }
    passed += part.count;
  }
  return profile;
}

std::vector<std::uint64_t> Profile::cuts(std::uint64_t dimension, std::uint32_t chunks) const {
  std::vector<std::uint64_t> cuts;
  const double pieces = static_cast<double>(quantiles_.size() + 1);
  const auto border = [&](std::size_t i) {
    if (i == 0) return std::uint64_t{0};
    return i > quantiles_.size() ? dimension : std::min(quantiles_[i - 1], dimension);
  };
  for (std::uint32_t c = 0; c <= chunks; ++c) {
    const double at = pieces * c / chunks;
    const auto piece = static_cast<std::size_t>(at);
    const std::uint64_t begin = border(piece);
    const std::uint64_t width = border(piece + 1) - begin;
    const auto within =
        static_cast<std::uint64_t>(static_cast<double>(width) * (at - static_cast<double>(piece)));
    cuts.push_back(begin + std::min(within, width));
  }
  cuts.back() = dimension;
  return cuts;
}

Profile Profile::after(const Profile& before) && {
  constexpr std::size_t kUneven = 3;
  moves_ = !before.quantiles_.empty() &&
           fullest(quantiles_, before.quantiles_) > kUneven * fullest(quantiles_, quantiles_);
  return std::move(*this);
}

double expected_entries(double distinct, double total, int p, int m) {
  const double k = total / p;
  if (m <= 1 || k <= 0) return k * m;
  const double all = distinct * total;
  // N lies between k, where all draw the same, and where p draws hardly meet.
  double low = k;
  double high = k * p * 1e6;
  if (met(high, k, p) <= all) return k * m;
  for (int i = 0; i < 60; ++i) {
    const double middle = std::sqrt(low * high);
    (met(middle, k, p) < all ? low : high) = middle;
  }
  return met(high, k, m);
}

}  // namespace heddle
