// What a warp notes of what it finds in a batch (batches.hpp): places, in their order.
#pragma once

#include <cstdint>

#include "gpu/kernels/batches.hpp"

namespace heddle::gpu::kernels {

inline constexpr unsigned kStaged = 1024;  // places in a warp's part: all of a batch, at least
static_assert(kBatchVectors * sizeof(Vector) / sizeof(std::uint16_t) <= kStaged);
static_assert(kMostBatches * kBatchVectors * sizeof(Vector) / sizeof(std::uint16_t) <= 65536);

// How many are set of each eight, eight bits each.
HEDDLE_DEVICE inline std::uint32_t count_each(Places places) {
  std::uint32_t counts = places - (places >> 1 & 0x55555555U);
  counts = (counts & 0x33333333U) + (counts >> 2 & 0x33333333U);
  return (counts + (counts >> 4)) & 0x0F0F0F0FU;
}

// Numbers of a batch's vectors, 16 bits each.
struct ByVector {
  std::uint32_t low;
  std::uint32_t high;

  // Each of which is less than 256.
  HEDDLE_DEVICE static ByVector of(std::uint32_t counts) {
    return {permuted(counts, 0, 0x4140), permuted(counts, 0, 0x4342)};
  }
  HEDDLE_DEVICE std::uint64_t all() const { return low | std::uint64_t{high} << 32; }
};

// How many each lane has, and all lanes have. before[l]: what lanes before it have, of each vector; gives
// what all have.
template <unsigned kEach>
HEDDLE_DEVICE ByVector count_before(const Warp& warp, const OfLane<Places>& places,
                                    OfLane<ByVector>& before) {
  OfLane<std::uint32_t> counts;
  warp.alone([&](unsigned lane) { counts[lane] = count_each(places[lane]); });
  if constexpr (kEach * kWarp < 256) {
    const std::uint32_t all = warp.scan(counts);
    warp.alone([&](unsigned lane) { before[lane] = ByVector::of(counts[lane]); });
    return ByVector::of(all);
  } else {
    OfLane<std::uint32_t> low;
    OfLane<std::uint32_t> high;
    warp.alone([&](unsigned lane) {
      low[lane] = ByVector::of(counts[lane]).low;
      high[lane] = ByVector::of(counts[lane]).high;
    });
    const ByVector all{warp.scan(low), warp.scan(high)};
    warp.alone([&](unsigned lane) { before[lane] = {low[lane], high[lane]}; });
    return all;
  }
}

HEDDLE_DEVICE inline unsigned lowest(Places places) {
  return ones((places & (0U - places)) - 1);
}

// `numbered(lane, bit of a place, number)` for all places of a batch, in the order of vectors, lanes and
// bits, from `first` on. Gives the number behind the last.
template <unsigned kEach, class Numbered>
HEDDLE_DEVICE std::uint32_t number_places(const Warp& warp, const OfLane<Places>& places, std::uint32_t first,
                                          Numbered numbered) {
  if (warp.ballot([&](unsigned lane) { return places[lane] != 0; }) == 0) return first;
  OfLane<ByVector> before;
  const ByVector all = count_before<kEach>(warp, places, before);
  // Of all numbers the lower 16 bits.
  const std::uint32_t second = first + (all.low & 0xFFFFU);
  const std::uint32_t third = second + (all.low >> 16);
  const std::uint32_t fourth = third + (all.high & 0xFFFFU);
  const std::uint64_t begin =
      (ByVector{(first & 0xFFFFU) | second << 16, (third & 0xFFFFU) | fourth << 16}).all();
  warp.alone([&](unsigned lane) {
    std::uint64_t next = begin + before[lane].all();
    for (Places left = places[lane]; left != 0; left &= left - 1) {
      const unsigned bit = lowest(left);
      const unsigned field = bit / kSpan * 16;
      numbered(lane, bit, static_cast<std::uint32_t>(next >> field) & 0xFFFFU);
      next += std::uint64_t{1} << field;
    }
  });
  return fourth + (all.high >> 16);
}

// Notes which places of a batch, the part's number `batch`, are set, behind `count` others, as far as there
// is room.
template <typename Bits>
HEDDLE_DEVICE std::uint32_t note_places(const Warp& warp, const OfLane<Places>& places, std::uint32_t batch,
                                        std::uint32_t count, std::uint16_t* staged) {
  constexpr unsigned kEach = Share<Bits>::kEach;
  return number_places<kEach>(warp, places, count, [=](unsigned lane, unsigned bit, std::uint32_t number) {
    const unsigned vector = batch * kBatchVectors + bit / kSpan * kWarp + lane;
    if (number < kStaged) staged[number] = static_cast<std::uint16_t>(vector * kEach + bit % kSpan);
  });
}

}  // namespace heddle::gpu::kernels
