// Random numbers that are a function of a seed and a position and of nothing else, so that they can be drawn in any order, by
// vectors of any width.
#pragma once

#include <cstdint>

namespace heddle {

// The output function of SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA'14).
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

constexpr std::uint64_t random64(std::uint64_t seed, std::uint64_t position) {
  return mix64(mix64(seed) ^ mix64(~position));
}

// What stochastic rounding draws for the 2^32 positions that have these upper bits: mix32() of the lower ones.
struct RandomKey {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};
constexpr RandomKey random_key(std::uint64_t seed, std::uint64_t position) {
  const std::uint64_t key = random64(seed, position >> 32);
  return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}

// C. Wellons' triple32 (github.com/skeeto/hash-prospector), keyed before its first and its second step: one key alone would
// let two seeds draw the same numbers in another order.
constexpr std::uint32_t mix32(RandomKey key, std::uint32_t position) {
  std::uint32_t x = position ^ key.first;
  x = (x ^ (x >> 17)) * 0xED5AD4BBU;
  x += key.second;
  x = (x ^ (x >> 11)) * 0xAC4C1B51U;
  x = (x ^ (x >> 15)) * 0x31848BABU;
  return x ^ (x >> 14);
}

}  // namespace heddle
