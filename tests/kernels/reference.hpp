// What the kernels should compute, written one element at a time with no vector code in sight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "base/dtype.hpp"

namespace heddle::test {

using Bytes = std::vector<std::uint8_t>;

// Whether the pair has a meaning (what fold_kernel must give a kernel for).
bool is_valid(DType type, Op op);

// Left fold of inputs[0..n_inputs), `count` elements each.
Bytes reference_fold(DType type, Op op, const std::vector<const std::uint8_t*>& inputs, std::size_t count);

// Element `index` of `got` equals that of `want`: the same bits, or both NaN. The padding of long double is
// ignored.
bool same_element(DType type, const std::uint8_t* got, const std::uint8_t* want, std::size_t index);

// Random elements, about one in four of them special (extremes, zeros of both signs, infinities, NaNs,
// subnormals).
Bytes random_elements(DType type, std::size_t count, std::mt19937_64& random);
// The special values alone.
Bytes special_elements(DType type);

// Conversions by definition rather than by bit tricks. Rounding is to nearest even; what is too large for 8
// bits, but not infinite, becomes the largest number there is.
float f16_to_float(std::uint16_t half);
float bf16_to_float(std::uint16_t brain);
float e4m3_to_float(std::uint8_t code);
float e5m2_to_float(std::uint8_t code);
std::uint16_t float_to_f16(float value);
std::uint16_t float_to_bf16(float value);
std::uint8_t float_to_e4m3(float value);
std::uint8_t float_to_e5m2(float value);

inline constexpr DType kAllTypes[] = {DType::i8,  DType::i16,  DType::i32, DType::i64, DType::u8,
                                      DType::u16, DType::u32,  DType::u64, DType::f16, DType::bf16,
                                      DType::f32, DType::f64,  DType::f80, DType::c32, DType::c64,
                                      DType::c80, DType::e4m3, DType::e5m2};
inline constexpr Op kAllOps[] = {Op::sum, Op::prod, Op::min,  Op::max, Op::land,
                                 Op::lor, Op::lxor, Op::band, Op::bor, Op::bxor};

}  // namespace heddle::test
