// The fold of two values, the left one and the right one, with the bits of the host's folds
// (src/engine/kernels):
//   sum, prod   IEEE 754, rounded to nearest, subnormal numbers kept. Of two NaNs the left one's payload
//               survives; a NaN made of numbers is quiet, negative beside x86 and positive beside Arm. GPUs
//               have one NaN for all, hence the branch that is never taken.
//   max, min    b > a ? b : a and b < a ? b : a, which give the left one on a tie or where either is NaN
//   integers    wrap around
// A complex product is C's, with infinities recovered (C11, annex G). It is NaN where the host's is; which
// NaN, C does not say.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "gpu/kernels/portable.hpp"

namespace heddle::gpu::kernels {

// ---- Floating point

// Of a NaN made of numbers by the host's processor.
#if defined(__aarch64__)
inline constexpr std::uint64_t kSignOfMadeNan = 0;
#else
inline constexpr std::uint64_t kSignOfMadeNan = 1;
#endif

// Constants, since device code may not call std::numeric_limits.
template <typename T>
struct Format;
template <>
struct Format<float> {
  using Word = std::uint32_t;
  static constexpr Word kQuietBit = 0x00400000U;
  static constexpr Word kMadeNan = 0x7FC00000U | Word{kSignOfMadeNan} << 31;
  static constexpr float kLargest = std::numeric_limits<float>::max();
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
};
template <>
struct Format<double> {
  using Word = std::uint64_t;
  static constexpr Word kQuietBit = 0x0008000000000000U;
  static constexpr Word kMadeNan = 0x7FF8000000000000U | Word{kSignOfMadeNan} << 63;
  static constexpr double kLargest = std::numeric_limits<double>::max();
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
};

// What a sum or product of `a` and `b` is that is NaN.
template <typename T>
HEDDLE_HOST_DEVICE T nan_of(T a, T b) {
  using Word = typename Format<T>::Word;
  constexpr Word kMadeNan = Format<T>::kMadeNan;
  if (!is_nan(a) && !is_nan(b)) return bits_as<T>(kMadeNan);
  return bits_as<T>(bits_as<Word>(is_nan(a) ? a : b) | Format<T>::kQuietBit);
}

// Of numbers, `plain` does what `apply` does, and of a NaN it makes a NaN. kRounds: the result may be another
// number than the two.
struct FloatSum {
  static constexpr bool kRounds = true;
  template <typename T>
  HEDDLE_HOST_DEVICE static T apply(T a, T b) {
    const T sum = a + b;
    return is_nan(sum) ? nan_of(a, b) : sum;
  }
  template <typename T>
  HEDDLE_HOST_DEVICE static T plain(T a, T b) {
    return a + b;
  }
};

struct FloatProd {
  static constexpr bool kRounds = true;
  template <typename T>
  HEDDLE_HOST_DEVICE static T apply(T a, T b) {
    const T product = a * b;
    return is_nan(product) ? nan_of(a, b) : product;
  }
  template <typename T>
  HEDDLE_HOST_DEVICE static T plain(T a, T b) {
    return a * b;
  }
};

// Of floating-point numbers and of integers.
struct Max {
  static constexpr bool kRounds = false;
  template <typename T>
  HEDDLE_HOST_DEVICE static T apply(T a, T b) {
    return b > a ? b : a;
  }
  template <typename T>
  HEDDLE_HOST_DEVICE static T plain(T a, T b) {
    return apply(a, b);
  }
};

struct Min {
  static constexpr bool kRounds = false;
  template <typename T>
  HEDDLE_HOST_DEVICE static T apply(T a, T b) {
    return b < a ? b : a;
  }
  template <typename T>
  HEDDLE_HOST_DEVICE static T plain(T a, T b) {
    return apply(a, b);
  }
};

// ---- Integers, unsigned

// Wide enough that nothing is promoted to a signed int, which may not wrap around.
template <typename T>
using Wide = std::conditional_t<sizeof(T) < 4, std::uint32_t, T>;

struct IntegerSum {
  template <typename T>
  HEDDLE_HOST_DEVICE static T apply(T a, T b) {
    return static_cast<T>(Wide<T>{a} + Wide<T>{b});
  }
};

struct IntegerProd {
  template <typename T>
  HEDDLE_HOST_DEVICE static T apply(T a, T b) {
    return static_cast<T>(Wide<T>{a} * Wide<T>{b});
  }
};

// Of integers of either sign and of floating-point numbers.
struct AnySum {
  template <typename T>
  HEDDLE_HOST_DEVICE static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using Word = std::make_unsigned_t<T>;
      return static_cast<T>(IntegerSum::apply(static_cast<Word>(a), static_cast<Word>(b)));
    } else {
      return FloatSum::apply(a, b);
    }
  }
};

struct LogicalAnd {
  template <typename T>
  HEDDLE_HOST_DEVICE static T apply(T a, T b) {
    return static_cast<T>(a != 0 && b != 0);
  }
};

struct LogicalOr {
  template <typename T>
  HEDDLE_HOST_DEVICE static T apply(T a, T b) {
    return static_cast<T>((a | b) != 0);
  }
};

struct LogicalXor {
  template <typename T>
  HEDDLE_HOST_DEVICE static T apply(T a, T b) {
    return static_cast<T>((a != 0) != (b != 0));
  }
};

struct BitAnd {
  template <typename T>
  HEDDLE_HOST_DEVICE static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};

struct BitOr {
  template <typename T>
  HEDDLE_HOST_DEVICE static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};

struct BitXor {
  template <typename T>
  HEDDLE_HOST_DEVICE static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// ---- Integers of 8 and 16 bits, several in a word. kTop has the top bit of each set.

template <std::uint32_t kTop>
struct PackedSum {
  HEDDLE_HOST_DEVICE static std::uint32_t apply(std::uint32_t a, std::uint32_t b) {
    // No carry out of a number: its top bits are added by themselves.
    return ((a & ~kTop) + (b & ~kTop)) ^ ((a ^ b) & kTop);
  }
};

// 1 for each number that is not 0.
template <std::uint32_t kTop>
HEDDLE_HOST_DEVICE std::uint32_t packed_truth(std::uint32_t word) {
  constexpr unsigned kToBottom = kTop == 0x80808080U ? 7 : 15;
  return ((((word & ~kTop) + ~kTop) | word) & kTop) >> kToBottom;
}

template <std::uint32_t kTop>
struct PackedLogicalAnd {
  HEDDLE_HOST_DEVICE static std::uint32_t apply(std::uint32_t a, std::uint32_t b) {
    return packed_truth<kTop>(a) & packed_truth<kTop>(b);
  }
};

template <std::uint32_t kTop>
struct PackedLogicalOr {
  HEDDLE_HOST_DEVICE static std::uint32_t apply(std::uint32_t a, std::uint32_t b) {
    return packed_truth<kTop>(a | b);
  }
};

template <std::uint32_t kTop>
struct PackedLogicalXor {
  HEDDLE_HOST_DEVICE static std::uint32_t apply(std::uint32_t a, std::uint32_t b) {
    return packed_truth<kTop>(a) ^ packed_truth<kTop>(b);
  }
};

// ---- Complex numbers (sums are sums of their parts)

struct ComplexProd {
  template <typename C>
  HEDDLE_HOST_DEVICE static C apply(C left, C right) {
    const C product = formula(left, right);
    if (!is_nan(product.re) || !is_nan(product.im)) return product;
    return recovered(left, right, product);
  }

 private:
  template <typename T>
  HEDDLE_HOST_DEVICE static T times(T a, T b) {
    return FloatProd::apply(a, b);
  }
  template <typename C>
  HEDDLE_HOST_DEVICE static C formula(C a, C b) {
    return {FloatSum::apply(times(a.re, b.re), -times(a.im, b.im)),
            FloatSum::apply(times(a.re, b.im), times(a.im, b.re))};
  }
  template <typename T>
  HEDDLE_HOST_DEVICE static bool is_infinite(T x) {
    return std::fabs(x) > Format<T>::kLargest;
  }
  template <typename T>
  HEDDLE_HOST_DEVICE static T zero_if_nan(T x) {
    return is_nan(x) ? std::copysign(T{0}, x) : x;
  }
  template <typename C>
  HEDDLE_HOST_DEVICE static bool has_infinity(C z) {
    return is_infinite(z.re) || is_infinite(z.im);
  }
  // An infinite number as a direction.
  template <typename T>
  HEDDLE_HOST_DEVICE static T boxed(T x) {
    return std::copysign(is_infinite(x) ? T{1} : T{0}, x);
  }
  template <typename C>
  HEDDLE_HOST_DEVICE static C boxed_number(C z) {
    return {boxed(z.re), boxed(z.im)};
  }
  template <typename C>
  HEDDLE_HOST_DEVICE static C without_nan(C z) {
    return {zero_if_nan(z.re), zero_if_nan(z.im)};
  }

  // Both parts came out as NaN although a factor, or a product of parts, may be infinite.
  template <typename C>
  HEDDLE_HOST_DEVICE static C recovered(C a, C b, C product) {
    const bool infinite_factor = has_infinity(a) || has_infinity(b);
    const bool overflowed = is_infinite(a.re * b.re) || is_infinite(a.im * b.im) ||
                            is_infinite(a.re * b.im) || is_infinite(a.im * b.re);
    if (!infinite_factor && !overflowed) return product;
    if (has_infinity(a)) {
      a = boxed_number(a);
      b = without_nan(b);
    }
    if (has_infinity(b)) {
      b = boxed_number(b);
      a = without_nan(a);
    }
    if (!infinite_factor) {
      a = without_nan(a);
      b = without_nan(b);
    }
    const C direction = formula(a, b);
    constexpr auto kInfinity = Format<std::remove_cv_t<decltype(product.re)>>::kInfinity;
    return {times(kInfinity, direction.re), times(kInfinity, direction.im)};
  }
};

}  // namespace heddle::gpu::kernels
