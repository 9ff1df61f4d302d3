// Which kernel folds which elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/dtype.hpp"

namespace heddle::gpu::kernels {

// A source file, and a binary, of kernels.
enum class Family : std::uint8_t { floats, halves, fp8, integers, bits, sparse, exchange };

struct Choice {
  const char* name;  // of the kernel, without "heddle_"
  Family family;
  std::size_t bytes;      // of one of the kernel's elements
  std::size_t alignment;  // with which the device loads one at once
  std::size_t parts;      // of the kernel's elements in one of the caller's
};

// Nothing where the pair has no meaning, and for x86's long double, which GPUs do not have.
std::optional<Choice> choose(DType type, Op op);
// Moves bytes.
Choice copy_choice();

}  // namespace heddle::gpu::kernels
