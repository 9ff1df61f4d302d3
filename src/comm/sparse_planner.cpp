#include "comm/sparse_planner.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "sparse/message.hpp"
#include "sparse/profile.hpp"
#include "sparse/wire.hpp"

namespace heddle {
namespace {

// Estimates, of a core of today; what they decide between mostly differs by far more than they are off.
constexpr double kCodeNs = 1.2;         // to write an entry for the wire, and to read it
constexpr double kHandNs = 0.4;         // to copy one to where other ranks reach it
constexpr double kFoldNs = 2;           // to merge one
constexpr double kCopyNs = 1;           // to copy one of the result
constexpr double kScatterNs = 7;        // to put one into a vector larger than the cache
constexpr double kTakeNs = 4;           // to take one out
constexpr double kVectorNs = 1.0 / 14;  // to look through, or clear, a byte of a vector

// What is done to streams or vectors before and after they travel; k entries here, n in the result.
double around_streams(SparseForm form, double k, double n, double vector_bytes) {
  switch (form) {
    case SparseForm::entries:
      return n * kCopyNs;
    case SparseForm::vector:
      return vector_bytes * kVectorNs + n * kScatterNs;
    case SparseForm::in_place:
    case SparseForm::coded:
      break;
  }
  return vector_bytes * kVectorNs + k * kTakeNs + n * kScatterNs;
}
double around_dense(SparseForm form, double k, double vector_bytes) {
  return form == SparseForm::in_place ? 0 : vector_bytes * kVectorNs + k * kScatterNs;
}

// BitmapExchange: k entries here, n in the result.
double bitmaps_cost(int ranks, double dimension, double k, double n) {
  constexpr double kMeetNs = 10e3;     // to tell where things are, and to meet
  constexpr double kIndexNs = 0.30;    // of the dimension: to go through the bitmaps
  constexpr double kOperandNs = 0.04;  // likewise, for each rank
  constexpr double kGiveNs = 0.4;      // to mark an entry and to give its value
  constexpr double kWriteNs = 0.45;    // to write one of the result
  return kMeetNs + dimension * (kIndexNs + kOperandNs * ranks) + k * kGiveNs + n * kWriteNs;
}

// Whether they take little memory beside n entries of the result, as all that is kept should: two bitmaps are
// 16 bytes for each entry where there is one in 64 indices. Forced or not. Of a page each they are small
// anyway.
bool are_bitmaps_small(double dimension, double n) {
  constexpr double kIndicesToAnEntry = 64;
  constexpr double kOnAPage = 8 * 4096;
  return dimension <= kOnAPage || n * kIndicesToAnEntry >= dimension;
}

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
  Kind kind{call, static_cast<int>(distinct * 16)};
  kind.call.dimension = half_octave(call.dimension);
  kind.call.total = half_octave(call.total);
  const auto [at, added] = choices_.try_emplace(kind);
  if (added) {
    at->second = price(ranks, kind);
    report(kind, at->second);
  }
  return at->second;
}

SparseChoice SparsePlanner::price(int ranks, const Kind& kind) const {
  const SparseCall& call = kind.call;
  const auto dimension = static_cast<double>(call.dimension);
  const auto total = static_cast<double>(call.total);
  const auto width = static_cast<double>(dtype_size(call.type));
  const double distinct = std::min(1.0, (kind.sixteenths + 0.5) / 16);
  const auto met = [&](int m) { return std::min(expected_entries(distinct, total, ranks, m), dimension); };
  const auto costs_of = [&](int priced) {
    StreamCosts costs;
    costs.code_ns_per_entry = call.handed ? kHandNs : kCodeNs;
    costs.fold_ns_per_entry = kFoldNs;
    for (int m = 0; m <= priced; ++m) {
      // On a smaller machine that stands for this one each rank stands for several.
      const double n = met(static_cast<int>(std::int64_t{m} * ranks / priced));
      costs.entries.push_back(n);
      costs.bytes.push_back(wire_bytes(call.handed ? 0 : n, dimension, width));
    }
    return costs;
  };
  SparseChoice best;
  best.streams.price_ns = std::numeric_limits<double>::infinity();
  std::vector<Choice> candidates = selector_.candidates_for_streams();
  // One that is another's twin here leaves the choice free.
  const auto is_forced = [&](const Choice& c) { return c.algorithm == preferences_.forced_sparse; };
  if (std::ranges::any_of(candidates, is_forced))
    std::erase_if(candidates, [&](const Choice& c) { return !is_forced(c); });
  for (Choice& candidate : candidates) {
    candidate.price_ns = selector_.price_of_streams(candidate, costs_of, best.streams.price_ns);
    if (candidate.price_ns < best.streams.price_ns) best.streams = candidate;
  }
  best.streams.price_ns += around_streams(call.form, total / ranks, met(ranks), dimension * width);
  best.dense_ns = std::numeric_limits<double>::infinity();
  if (call.may_be_dense) {
    const std::size_t bytes = call.dimension * dtype_size(call.type);
    const Result<Selection> dense = selector_.select(Collective::allreduce, bytes, false);
    if (dense.ok())
      best.dense_ns = selector_.price_of(dense->choice, bytes) +
                      around_dense(call.form, total / ranks, dimension * width);
    // The price of a team is a guess on the high side.
    if (call.handed) best.dense_ns *= 0.87;
  }
  // Vectors that are there anyhow, and half full, gain nothing from streams: where the price says so it
  // compares a dense algorithm of many messages, forced or on links that were busy when they were measured,
  // with streams of few.
  const bool full = call.form == SparseForm::in_place && total > ranks * dimension / 2;
  best.dense = call.may_be_dense &&
               (preferences_.forced_dense ||
                (preferences_.forced_sparse == nullptr && (full || best.dense_ns < best.streams.price_ns)));
  best.bitmaps_ns = std::numeric_limits<double>::infinity();
  const bool may_be_bitmaps = call.may_be_bitmaps && are_bitmaps_small(dimension, met(ranks));
  if (may_be_bitmaps) best.bitmaps_ns = bitmaps_cost(ranks, dimension, total / ranks, met(ranks));
  best.bitmaps = may_be_bitmaps && (preferences_.forced_bitmaps || (preferences_.forced_sparse == nullptr &&
                                                                    best.bitmaps_ns < best.streams.price_ns));
  return best;
}

void SparsePlanner::report(const Kind& kind, const SparseChoice& choice) const {
  if (rank_ != 0 || !log_.wants(LogLevel::info)) return;
  const SparseCall& call = kind.call;
  std::string text = fmt::format(
      "sparse allreduce of about {} entries of {} on all ranks, in dimension {}, {}% of them different: ",
      call.total, dtype_name(call.type), call.dimension, (2 * kind.sixteenths + 1) * 100 / 32);
  const std::string streams =
      fmt::format("{} at {:.1f} us", choice.streams.algorithm->name, choice.streams.price_ns / 1e3);
  if (call.may_be_bitmaps && !std::isfinite(choice.bitmaps_ns)) {
    text += streams;
    if (preferences_.forced_bitmaps) text += "; no bitmaps, which would be larger than the entries";
  } else if (call.may_be_bitmaps) {
    const std::string bitmaps = fmt::format("bitmaps at {:.1f} us", choice.bitmaps_ns / 1e3);
    text += choice.bitmaps ? bitmaps + "; next " + streams : streams + "; next " + bitmaps;
  } else if (!call.may_be_dense) {
    text += streams;
  } else {
    const std::string dense = fmt::format("dense at {:.1f} us", choice.dense_ns / 1e3);
    text += choice.dense ? dense + "; next " + streams : streams + "; next " + dense;
  }
  log_.info(text);
}

}  // namespace heddle
