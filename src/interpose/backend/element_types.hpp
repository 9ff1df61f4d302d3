// The C++ types of what MPI's datatypes hold.
#pragma once

#include <complex>
#include <cstdint>

#include "base/dtype.hpp"

namespace heddle::backend {

// Of a complex number, the type of its parts.
template <typename T>
struct RealOf {
  using type = T;
};
template <typename T>
struct RealOf<std::complex<T>> {
  using type = T;
};

// What `visit` makes of an element of the type that is meant; of the types that MPI has not, `otherwise`.
template <typename Returned, class Visit>
Returned with_type(DType type, Returned otherwise, Visit visit) {
  switch (type) {
    case DType::i8:
      return visit(std::int8_t{});
    case DType::i16:
      return visit(std::int16_t{});
    case DType::i32:
      return visit(std::int32_t{});
    case DType::i64:
      return visit(std::int64_t{});
    case DType::u8:
      return visit(std::uint8_t{});
    case DType::u16:
      return visit(std::uint16_t{});
    case DType::u32:
      return visit(std::uint32_t{});
    case DType::u64:
      return visit(std::uint64_t{});
    case DType::f32:
      return visit(float{});
    case DType::f64:
      return visit(double{});
    case DType::f80:
      return visit(static_cast<long double>(0));
    case DType::c32:
      return visit(std::complex<float>{});
    case DType::c64:
      return visit(std::complex<double>{});
    case DType::c80:
      return visit(std::complex<long double>{});
    case DType::f16:
    case DType::bf16:
    case DType::e4m3:
    case DType::e5m2:
      break;
  }
  return otherwise;
}

}  // namespace heddle::backend
