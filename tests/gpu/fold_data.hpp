// Elements to fold on GPUs and on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

#include "../kernels/reference.hpp"
#include "base/dtype.hpp"

namespace heddle::test {

// What a type is made of: of two parts are the complex ones.
DType part_of(DType type);

// Of a type that GPUs have. Numbers, so that a fold of many is one: what rounds, carries and wraps around.
Bytes calm_elements(DType type, std::size_t count, std::mt19937_64& random);
// One in four is special (reference.hpp), and one in 64 parts a NaN of any payload, quiet or not.
Bytes wild_elements(DType type, std::size_t count, std::mt19937_64& random);

// Of a vector of `type`: the same bytes. Where `any_nan` (products of complex numbers, whose NaNs C leaves
// open): or both NaN, part by part.
bool same_elements(DType type, const std::uint8_t* got, const std::uint8_t* want, std::size_t count,
                   bool any_nan);

// Vectors of float that kernels of sparse ones find hard, or not.
enum class Kind { normal, wild, few_values, one_value, mostly_zero, zeros, falling };
inline constexpr int kKinds = 7;

// As they lie in memory.
Bytes floats(Kind kind, std::size_t n, std::mt19937_64& random);

}  // namespace heddle::test
