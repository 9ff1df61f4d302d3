// Codecs of float whose codes GPUs write and read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace heddle::gpu {

// By the bits of a code: qsgd8, qsgd4, and qsgd2, of which ternary is another name; sign; and f16 or bf16
// (src/compress/codec.hpp).
struct Quantiser {
  unsigned bits = 8;            // of a code: 8, 4, 2, 1 or 16
  std::uint64_t bucket = 1024;  // values that share a scale, where codes have less than 16 bits; 0: all
  std::uint64_t seed = 0;       // of the random rounding, of 8, 4 and 2 bits
  bool is_bf16 = false;         // of 16 bits; else f16

  // Of n values. Without a scale: so many as a block takes at once.
  std::uint64_t bucket_length(std::size_t n) const {
    const std::uint64_t wanted = bits == 16 ? 1024 : bucket;
    return wanted == 0 ? n : std::min<std::uint64_t>(wanted, n);
  }
  std::size_t coded_bytes(std::size_t n) const {
    if (n == 0) return 0;
    const std::size_t scales = bits == 16 ? 0 : bits == 1 ? 2 : 1;
    const auto of_bucket = [&](std::size_t values) {
      return scales * sizeof(float) + (values * bits + 7) / 8;
    };
    const std::size_t length = bucket_length(n);
    return n / length * of_bucket(length) + (n % length != 0 ? of_bucket(n % length) : 0);
  }
};

}  // namespace heddle::gpu
