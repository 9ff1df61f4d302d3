// Element types and reduction operations, and the one signature every reduction kernel has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace heddle {

// Storage types. MPI's many names map onto these (MPI_LOGICAL is i32, MPI_BYTE is u8, ...); which operations
// a *name* allows is the business of whoever maps it.
enum class DType : std::uint8_t {
  i8,
  i16,
  i32,
  i64,
  u8,
  u16,
  u32,
  u64,
  f16,
  bf16,
  f32,
  f64,
  f80,  // f80 is x86 long double, 16 bytes in memory
  c32,
  c64,
  c80,  // complex of f32, f64, long double
  e4m3,
  e5m2,  // OCP's floats of 8 bits; e4m3 has no infinities
};
inline constexpr int kDTypeCount = 18;

// Logical and bitwise operations are for integers, logical ones give 0 or 1; min and max are not for complex.
enum class Op : std::uint8_t { sum, prod, min, max, land, lor, lxor, band, bor, bxor };
inline constexpr int kOpCount = 10;

constexpr std::size_t dtype_size(DType type) {
  switch (type) {
    case DType::i8:
    case DType::u8:
    case DType::e4m3:
    case DType::e5m2:
      return 1;
    case DType::i16:
    case DType::u16:
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::i32:
    case DType::u32:
    case DType::f32:
      return 4;
    case DType::i64:
    case DType::u64:
    case DType::f64:
    case DType::c32:
      return 8;
    case DType::f80:
    case DType::c64:
      return 16;
    case DType::c80:
      return 32;
  }
  return 0;
}
const char* dtype_name(DType type);
const char* op_name(Op op);

// A number of what a fold does, for ranks to compare; 0: not told. Signed and unsigned integers have the same
// one: programs mix them, and get what they expect where no value is negative.
using FoldKind = std::uint8_t;
constexpr FoldKind fold_kind(DType type, Op op) {
  constexpr int kUnsigned = static_cast<int>(DType::u8);
  const int number = static_cast<int>(type);
  const bool is_unsigned = number >= kUnsigned && number <= static_cast<int>(DType::u64);
  return static_cast<FoldKind>(1 + static_cast<int>(op) * kDTypeCount +
                               (is_unsigned ? number - kUnsigned : number));
}
// Of what ranks tell each other before a sparse or compressed sum, and in a split: such a call meets no other
// one.
inline constexpr FoldKind kSplitAgreement = 252;
inline constexpr FoldKind kSparseAgreement = 253;
inline constexpr FoldKind kSparseRequestAgreement = 254;
inline constexpr FoldKind kCompressedAgreement = 255;
static_assert(kOpCount * kDTypeCount < kSplitAgreement);
// "sum of float32", "sum of int32 or uint32". Not of an agreement.
std::string fold_kind_name(FoldKind kind);

// Folds `inputs[0] op inputs[1] op ... op inputs[n_inputs-1]`, in that order, element by element, for `count`
// elements, and stores the result in `out` and, when `out2` is not null, also in `out2`.
// Floats of 8 and 16 bits accumulate in fp32 and round once, at the store; those of 8 bits saturate there
// (fold_kernel). n_inputs >= 1. No pointer needs alignment. `out` and `out2` may each be exactly one of the
// inputs; any other overlap is undefined. Never allocates, never fails, may be called from any thread.
using FoldFn = void (*)(void* out, void* out2, const void* const* inputs, unsigned n_inputs,
                        std::size_t count);

}  // namespace heddle
