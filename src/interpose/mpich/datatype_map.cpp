#include "interpose/mpich/datatype_map.hpp"

#include <type_traits>

#include "engine/kernels/kernels.hpp"
#include "interpose/mpich/host_mpi.hpp"

namespace heddle::mpich {
namespace {

constexpr std::uint16_t bit(Op op) {
  return static_cast<std::uint16_t>(1u << static_cast<unsigned>(op));
}
constexpr std::uint16_t kArithmetic = bit(Op::sum) | bit(Op::prod);
constexpr std::uint16_t kOrder = bit(Op::min) | bit(Op::max);
constexpr std::uint16_t kLogic = bit(Op::land) | bit(Op::lor) | bit(Op::lxor);
constexpr std::uint16_t kBits = bit(Op::band) | bit(Op::bor) | bit(Op::bxor);
constexpr std::uint16_t kInteger = kArithmetic | kOrder | kLogic | kBits;
constexpr std::uint16_t kReal = kArithmetic | kOrder | kLogic;  // MPI has no logic on reals; this host does

template <typename T>
constexpr DType integer_type() {
  constexpr bool is_signed = std::is_signed_v<T>;
  if constexpr (sizeof(T) == 1) return is_signed ? DType::i8 : DType::u8;
  if constexpr (sizeof(T) == 2) return is_signed ? DType::i16 : DType::u16;
  if constexpr (sizeof(T) == 4) return is_signed ? DType::i32 : DType::u32;
  return is_signed ? DType::i64 : DType::u64;
}

// Not here, so left to the host: MPI_WCHAR, MPI_PACKED and pairs (no operation but pairs' own), MPI_REAL16
// and MPI_COMPLEX32 (their format depends on how the host was built), MPIX_C_FLOAT16 (the host rounds after
// every step).
constexpr TypeRow kTypes[] = {
    {MPI_CHAR, integer_type<char>(), kInteger},
    {MPI_SIGNED_CHAR, DType::i8, kInteger},
    {MPI_UNSIGNED_CHAR, DType::u8, kInteger},
    {MPI_BYTE, DType::u8, kBits},
    {MPI_SHORT, DType::i16, kInteger},
    {MPI_UNSIGNED_SHORT, DType::u16, kInteger},
    {MPI_INT, DType::i32, kInteger},
    {MPI_UNSIGNED, DType::u32, kInteger},
    {MPI_LONG, integer_type<long>(), kInteger},
    {MPI_UNSIGNED_LONG, integer_type<unsigned long>(), kInteger},
    {MPI_LONG_LONG_INT, DType::i64, kInteger},
    {MPI_UNSIGNED_LONG_LONG, DType::u64, kInteger},
    {MPI_FLOAT, DType::f32, kReal},
    {MPI_DOUBLE, DType::f64, kReal},
    {MPI_LONG_DOUBLE, DType::f80, kReal},
    {MPI_INT8_T, DType::i8, kInteger},
    {MPI_INT16_T, DType::i16, kInteger},
    {MPI_INT32_T, DType::i32, kInteger},
    {MPI_INT64_T, DType::i64, kInteger},
    {MPI_UINT8_T, DType::u8, kInteger},
    {MPI_UINT16_T, DType::u16, kInteger},
    {MPI_UINT32_T, DType::u32, kInteger},
    {MPI_UINT64_T, DType::u64, kInteger},
    {MPI_AINT, integer_type<MPI_Aint>(), kInteger},
    {MPI_OFFSET, integer_type<MPI_Offset>(), kInteger},
    {MPI_COUNT, integer_type<MPI_Count>(), kInteger},
    {MPI_C_BOOL, DType::u8, kLogic},
    {MPI_C_FLOAT_COMPLEX, DType::c32, kArithmetic},
    {MPI_C_DOUBLE_COMPLEX, DType::c64, kArithmetic},
    {MPI_C_LONG_DOUBLE_COMPLEX, DType::c80, kArithmetic},
    {MPI_CXX_BOOL, DType::u8, kLogic},
    {MPI_CXX_FLOAT_COMPLEX, DType::c32, kArithmetic},
    {MPI_CXX_DOUBLE_COMPLEX, DType::c64, kArithmetic},
    {MPI_CXX_LONG_DOUBLE_COMPLEX, DType::c80, kArithmetic},
    {MPI_CHARACTER, integer_type<char>(), kInteger},
    {MPI_LOGICAL, DType::i32, kLogic},
    {MPI_INTEGER, DType::i32, kInteger},
    {MPI_INTEGER1, DType::i8, kInteger},
    {MPI_INTEGER2, DType::i16, kInteger},
    {MPI_INTEGER4, DType::i32, kInteger},
    {MPI_INTEGER8, DType::i64, kInteger},
    {MPI_REAL, DType::f32, kReal},
    {MPI_REAL4, DType::f32, kReal},
    {MPI_REAL8, DType::f64, kReal},
    {MPI_DOUBLE_PRECISION, DType::f64, kReal},
    {MPI_COMPLEX, DType::c32, kArithmetic},
    {MPI_COMPLEX8, DType::c32, kArithmetic},
    {MPI_COMPLEX16, DType::c64, kArithmetic},
    {MPI_DOUBLE_COMPLEX, DType::c64, kArithmetic},
};

}  // namespace

DatatypeMap::DatatypeMap(bool logical_is_c) {
  for (const TypeRow& type : kTypes) {
    // A library built for other sizes (long double of 8 bytes, 8-byte default integers) has another handle or
    // null.
    if (!is_predefined_type(type.handle) || predefined_type_size(type.handle) != dtype_size(type.type))
      continue;
    if (type.handle == MPI_LOGICAL && !logical_is_c) continue;
    TypeRow& row = rows_[static_cast<unsigned>(type.handle) % kRows];
    row = type;
    for (int i = 0; i < kOpCount; ++i) {
      const Op op = static_cast<Op>(i);
      if (fold_kernel(type.type, op) == nullptr) row.operations &= static_cast<std::uint16_t>(~bit(op));
    }
  }
}

}  // namespace heddle::mpich
