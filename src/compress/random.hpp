// Random numbers that are a function of a seed and a position and of nothing else, so that they can be drawn
// in any order, by vectors of any width.
#pragma once

#include <cstdint>

#include "base/hash.hpp"

namespace heddle {

constexpr std::uint64_t random64(std::uint64_t seed, std::uint64_t position) {
  return mix64(mix64(seed) ^ mix64(~position));
}

// For the 2^32 positions that have these upper bits: the lower ones go through a hash with these two keys
// (quantise.cpp).
struct RandomKey {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};
constexpr RandomKey random_key(std::uint64_t seed, std::uint64_t position) {
  const std::uint64_t key = random64(seed, position >> 32);
  return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}

}  // namespace heddle
