// Every kernel, by family: X(name, element, operation). A family is a source file and a binary of its own.
// Pairs of a type and an operation that give the same bits share a kernel (kernels.cpp says which): sums of
// signed and unsigned integers, the parts of complex sums, the bytes of bitwise operations.
#pragma once

#include "gpu/kernels/elements.hpp"
#include "gpu/kernels/operations.hpp"

// (clang-format would indent it a little further each time.)
// clang-format off
#define HEDDLE_ARITHMETIC(X, suffix, Element, Sum, Prod) \
  X(sum_##suffix, Element, Sum) X(prod_##suffix, Element, Prod) \
  X(min_##suffix, Element, Min) X(max_##suffix, Element, Max)
#define HEDDLE_SIZED_INTEGER(X, bits) \
  HEDDLE_ARITHMETIC(X, u##bits, Plain<std::uint##bits##_t>, IntegerSum, IntegerProd) \
  X(min_i##bits, Plain<std::int##bits##_t>, Min) X(max_i##bits, Plain<std::int##bits##_t>, Max)
#define HEDDLE_LOGICAL(X, bits) \
  X(land_u##bits, Plain<std::uint##bits##_t>, LogicalAnd) X(lor_u##bits, Plain<std::uint##bits##_t>, LogicalOr) \
  X(lxor_u##bits, Plain<std::uint##bits##_t>, LogicalXor)

#define HEDDLE_FLOAT_KERNELS(X) \
  HEDDLE_ARITHMETIC(X, f32, Plain<float>, FloatSum, FloatProd) \
  HEDDLE_ARITHMETIC(X, f64, Plain<double>, FloatSum, FloatProd) \
  X(prod_c32, Complex<float>, ComplexProd) X(prod_c64, Complex<double>, ComplexProd)
#define HEDDLE_HALF_KERNELS(X) \
  HEDDLE_ARITHMETIC(X, f16, Half, FloatSum, FloatProd) \
  HEDDLE_ARITHMETIC(X, bf16, BrainFloat, FloatSum, FloatProd)
#define HEDDLE_FP8_KERNELS(X) \
  HEDDLE_ARITHMETIC(X, e4m3, E4M3, FloatSum, FloatProd) \
  HEDDLE_ARITHMETIC(X, e5m2, E5M2, FloatSum, FloatProd)
#define HEDDLE_INTEGER_KERNELS(X) \
  HEDDLE_SIZED_INTEGER(X, 8) HEDDLE_SIZED_INTEGER(X, 16) HEDDLE_SIZED_INTEGER(X, 32) HEDDLE_SIZED_INTEGER(X, 64)
#define HEDDLE_BIT_KERNELS(X) \
  HEDDLE_LOGICAL(X, 8) HEDDLE_LOGICAL(X, 16) HEDDLE_LOGICAL(X, 32) HEDDLE_LOGICAL(X, 64) \
  X(band_u8, Plain<std::uint8_t>, BitAnd) X(bor_u8, Plain<std::uint8_t>, BitOr) X(bxor_u8, Plain<std::uint8_t>, BitXor) \
  X(copy_u8, Plain<std::uint8_t>, Copy)
// clang-format on
