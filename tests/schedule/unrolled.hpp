// What the interpreter runs: a rank's program with its repeats written out, and the numbers that it adds.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "schedule/schedule.hpp"

namespace heddle::test {

// One element: three answers at once. `sum` tells which contributions are in it, how often; `matrix` in which
// order; `bits` is from an operation that is neither commutative nor associative, so it tells expressions
// apart.
struct Number {
  std::uint64_t sum = 0;
  std::array<std::uint64_t, 4> matrix{};
  std::uint64_t bits = 0;
  bool operator==(const Number&) const = default;
};

inline std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

inline Number op(const Number& a, const Number& b) {
  const auto& m = a.matrix;
  const auto& n = b.matrix;
  return {a.sum + b.sum,
          {m[0] * n[0] + m[1] * n[2], m[0] * n[1] + m[1] * n[3], m[2] * n[0] + m[3] * n[2],
           m[2] * n[1] + m[3] * n[3]},
          mixed(a.bits * 3 + mixed(b.bits + 0x9e3779b97f4a7c15ull))};
}

// What is thrown where a schedule does what none may.
struct Wrong {
  std::string what;
};

// One step of the unrolled program.
struct Flat {
  Step step;
  std::uint32_t chunk = 0;
  std::uint32_t unit = 0;
};

std::vector<Flat> unroll(const Schedule& s);

}  // namespace heddle::test
