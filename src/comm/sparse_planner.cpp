#include "comm/sparse_planner.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "sparse/message.hpp"
#include "sparse/profile.hpp"
#include "sparse/wire.hpp"

namespace heddle {
namespace {

// Estimates, of a core of today; what they decide between differs by far more than they are off.
constexpr double kCodeNs = 1.2;     // to write an entry for the wire, and to read it
constexpr double kFoldNs = 1.8;     // to merge an entry
constexpr double kScatterNs = 1.2;  // to put an entry into a vector, and to take it out

// Of n entries at random in a dimension, in the smallest form (docs/sparse.md).
double wire_bytes(double n, double dimension, double value_bytes) {
  if (n < 1) return static_cast<double>(kFirstMessage);
  const double gap = std::max(1.0, dimension / n);
  // A byte for every seven bits of what lies between two entries.
  const double delta = (static_cast<double>(std::bit_width(static_cast<std::uint64_t>(gap))) + 6) / 7;
  const double index = gap <= 1 ? 0 : std::min(delta, gap / 8);
  return n * (value_bytes + index) + (n / kChunkEntries + 1) * static_cast<double>(kChunkHeader) +
         static_cast<double>(kFirstMessage);
}

// Rounded down to half a power of two.
std::uint64_t half_octave(std::uint64_t n) {
  if (n < 2) return n;
  const std::uint64_t power = std::bit_floor(n);
  return n >= power + power / 2 ? power + power / 2 : power;
}

}  // namespace

const SparseChoice& SparsePlanner::choose(int ranks, const SparseCall& call, double distinct) {
  const Key key{half_octave(call.dimension), half_octave(call.total), static_cast<int>(distinct * 16),
                call.type, call.may_be_dense};
  const auto [at, added] = choices_.try_emplace(key);
  if (added) {
    at->second = price(ranks, key);
    report(key, at->second);
  }
  return at->second;
}

SparseChoice SparsePlanner::price(int ranks, const Key& key) const {
  const auto& [indices, entries, sixteenths, type, may_be_dense] = key;
  const auto dimension = static_cast<double>(indices);
  const auto total = static_cast<double>(entries);
  const auto width = static_cast<double>(dtype_size(type));
  const double distinct = std::min(1.0, (sixteenths + 0.5) / 16);
  const auto met = [&](int m) { return std::min(expected_entries(distinct, total, ranks, m), dimension); };
  const auto costs_of = [&](int priced) {
    StreamCosts costs;
    costs.code_ns_per_entry = kCodeNs;
    costs.fold_ns_per_entry = kFoldNs;
    for (int m = 0; m <= priced; ++m) {
      // On a smaller machine that stands for this one each rank stands for several.
      const double n = met(static_cast<int>(std::int64_t{m} * ranks / priced));
      costs.entries.push_back(n);
      costs.bytes.push_back(wire_bytes(n, dimension, width));
    }
    return costs;
  };
  SparseChoice best;
  best.streams.price_ns = std::numeric_limits<double>::infinity();
  std::vector<Choice> candidates = selector_.candidates(Collective::allreduce, 0, true);
  // One that is another's twin here leaves the choice free.
  const auto is_forced = [&](const Choice& c) { return c.algorithm == preferences_.forced_sparse; };
  if (std::ranges::any_of(candidates, is_forced))
    std::erase_if(candidates, [&](const Choice& c) { return !is_forced(c); });
  for (Choice& candidate : candidates) {
    candidate.price_ns = selector_.price_of_streams(candidate, costs_of);
    if (candidate.price_ns < best.streams.price_ns) best.streams = candidate;
  }
  best.dense_ns = std::numeric_limits<double>::infinity();
  if (may_be_dense) {
    const std::size_t bytes = indices * dtype_size(type);
    const Result<Selection> dense = selector_.select(Collective::allreduce, bytes, false);
    if (dense.ok())
      best.dense_ns = selector_.price_of(dense->choice, bytes) + (total / ranks + met(ranks)) * kScatterNs;
  }
  best.dense = may_be_dense && (preferences_.forced_dense || (preferences_.forced_sparse == nullptr &&
                                                              best.dense_ns < best.streams.price_ns));
  return best;
}

void SparsePlanner::report(const Key& key, const SparseChoice& choice) const {
  if (rank_ != 0 || !log_.wants(LogLevel::info)) return;
  const auto& [indices, entries, sixteenths, type, may_be_dense] = key;
  std::string text = fmt::format(
      "sparse allreduce of about {} entries of {} in dimension {}, {}% of them different: ", entries,
      dtype_name(type), indices, (2 * sixteenths + 1) * 100 / 32);
  const std::string streams =
      fmt::format("{} at {:.1f} us", choice.streams.algorithm->name, choice.streams.price_ns / 1e3);
  if (!may_be_dense) {
    text += streams;
  } else {
    const std::string dense = fmt::format("dense at {:.1f} us", choice.dense_ns / 1e3);
    text += choice.dense ? dense + "; next " + streams : streams + "; next " + dense;
  }
  log_.info(text);
}

}  // namespace heddle
