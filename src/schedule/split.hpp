// Splitting `count` elements into `parts` near-equal consecutive parts: the first count % parts are one
// longer.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

struct Split {
  std::size_t quotient;
  std::size_t remainder;

  constexpr Split(std::size_t count, std::uint32_t parts)
      : quotient(count / parts), remainder(count % parts) {}

  // First element of part `i`; begin(parts) is the count.
  constexpr std::size_t begin(std::size_t i) const { return i * quotient + (i < remainder ? i : remainder); }
  // Elements in parts [i, i+n).
  constexpr std::size_t length(std::size_t i, std::size_t n) const { return begin(i + n) - begin(i); }
  // The most elements any `n` consecutive parts hold.
  constexpr std::size_t longest(std::size_t n) const {
    return n * quotient + (n < remainder ? n : remainder);
  }
};

}  // namespace heddle
