// How a fold is divided into 16-byte vectors, single elements and blocks: arithmetic on addresses and counts,
// on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/kernels/arguments.hpp"

namespace heddle::gpu::kernels {

struct Launch {
  FoldArguments arguments;
  unsigned blocks;  // of kThreads threads; 0: there is nothing to do
};

// Of `count` elements of `bytes` bytes, which the device loads at once where they are aligned to `alignment`.
// No pointer needs any alignment. At most kMostInputs inputs and kMostOutputs outputs; each output is an
// input, or overlaps none.
Launch lay_out(std::span<const void* const> inputs, std::span<void* const> outputs, std::uint64_t count,
               std::size_t bytes, std::size_t alignment, unsigned multiprocessors);

}  // namespace heddle::gpu::kernels
