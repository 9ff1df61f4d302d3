// What a kernel is told: where the vectors are, and which part of them goes by whole 16 bytes.
#pragma once

#include <cstdint>

#include "gpu/kernels/portable.hpp"

namespace heddle::gpu::kernels {

inline constexpr unsigned kMostInputs = 64;
inline constexpr unsigned kMostOutputs = 64;
inline constexpr unsigned kThreads = 256;  // of a block
// Vectors that a thread has on their way from each input at once: four of two inputs are 128 bytes, and a
// multiprocessor full of threads has several times of it under way what memory takes to answer.
inline constexpr unsigned kInFlight = 4;
inline constexpr std::uint64_t kTileVectors = std::uint64_t{kThreads} * kInFlight;

// Passed by value, in the memory for constants. Elements are numbered from 0; first come `head` single ones,
// then `vectors` times what fits into 16 bytes, then single ones again. Where pointers are not congruent
// modulo 16 all are single.
struct FoldArguments {
  const unsigned char* inputs[kMostInputs];
  unsigned char* outputs[kMostOutputs];
  std::uint32_t n_inputs;
  std::uint32_t n_outputs;
  std::uint64_t count;
  std::uint64_t head;
  std::uint64_t vectors;
  std::uint64_t tiles;       // of kTileVectors, which come first
  std::uint32_t by_element;  // 0: single elements lie across their alignment, and are moved byte by byte
};

// Which thread of a launch this is.
struct Thread {
  std::uint64_t block;
  std::uint64_t blocks;
  unsigned index;  // in the block
};

}  // namespace heddle::gpu::kernels
