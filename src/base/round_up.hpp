// Whole portions of something.
#pragma once

#include <cstddef>

namespace heddle {

// How many portions of `each` hold `n`.
constexpr std::size_t div_up(std::size_t n, std::size_t each) {
  return (n + each - 1) / each;
}

// The least multiple of `to` that is not less than `n`.
constexpr std::size_t round_up(std::size_t n, std::size_t to) {
  return div_up(n, to) * to;
}

}  // namespace heddle
