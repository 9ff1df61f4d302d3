#include "reference.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <type_traits>

namespace heddle::test {
namespace {

template <typename T>
struct Tag {
  using type = T;
};
struct F16 {
  std::uint16_t bits;
};
struct BF16 {
  std::uint16_t bits;
};
struct E4M3 {
  std::uint8_t bits;
};
struct E5M2 {
  std::uint8_t bits;
};

// Calls `body` with the C++ type for `type`.
template <class Body>
auto with_type(DType type, Body body) {
  switch (type) {
    case DType::i8:
      return body(Tag<std::int8_t>());
    case DType::i16:
      return body(Tag<std::int16_t>());
    case DType::i32:
      return body(Tag<std::int32_t>());
    case DType::i64:
      return body(Tag<std::int64_t>());
    case DType::u8:
      return body(Tag<std::uint8_t>());
    case DType::u16:
      return body(Tag<std::uint16_t>());
    case DType::u32:
      return body(Tag<std::uint32_t>());
    case DType::u64:
      return body(Tag<std::uint64_t>());
    case DType::f16:
      return body(Tag<F16>());
    case DType::bf16:
      return body(Tag<BF16>());
    case DType::e4m3:
      return body(Tag<E4M3>());
    case DType::e5m2:
      return body(Tag<E5M2>());
    case DType::f32:
      return body(Tag<float>());
    case DType::f64:
      return body(Tag<double>());
    case DType::f80:
      return body(Tag<long double>());
    case DType::c32:
      return body(Tag<std::complex<float>>());
    case DType::c64:
      return body(Tag<std::complex<double>>());
    case DType::c80:
      break;
  }
  return body(Tag<std::complex<long double>>());
}

template <typename T>
inline constexpr bool kIsComplex = false;
template <typename T>
inline constexpr bool kIsComplex<std::complex<T>> = true;

// Types that are folded in float.
float widen(F16 x) {
  return f16_to_float(x.bits);
}
float widen(BF16 x) {
  return bf16_to_float(x.bits);
}
float widen(E4M3 x) {
  return e4m3_to_float(x.bits);
}
float widen(E5M2 x) {
  return e5m2_to_float(x.bits);
}
void narrow(float value, F16* to) {
  to->bits = float_to_f16(value);
}
void narrow(float value, BF16* to) {
  to->bits = float_to_bf16(value);
}
void narrow(float value, E4M3* to) {
  to->bits = float_to_e4m3(value);
}
void narrow(float value, E5M2* to) {
  to->bits = float_to_e5m2(value);
}
template <typename T>
inline constexpr bool kIsNarrow =
    std::is_same_v<T, F16> || std::is_same_v<T, BF16> || std::is_same_v<T, E4M3> || std::is_same_v<T, E5M2>;

template <typename T>
T read(const std::uint8_t* from, std::size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
void write(std::uint8_t* to, std::size_t index, const T& value) {
  std::memcpy(to + index * sizeof(T), &value, sizeof(T));
}

template <typename T>
T integer_op(Op op, T a, T b) {
  const auto bits = [](T value) { return static_cast<std::uint64_t>(static_cast<std::int64_t>(value)); };
  const std::uint64_t x = bits(a);
  const std::uint64_t y = bits(b);
  switch (op) {
    case Op::sum:
      return static_cast<T>(x + y);
    case Op::prod:
      return static_cast<T>(x * y);
    case Op::min:
      return b < a ? b : a;
    case Op::max:
      return b > a ? b : a;
    case Op::land:
      return static_cast<T>(a != 0 && b != 0);
    case Op::lor:
      return static_cast<T>(a != 0 || b != 0);
    case Op::lxor:
      return static_cast<T>((a != 0) != (b != 0));
    case Op::band:
      return static_cast<T>(x & y);
    case Op::bor:
      return static_cast<T>(x | y);
    case Op::bxor:
      return static_cast<T>(x ^ y);
  }
  return T{};
}

template <typename T>
T real_op(Op op, T a, T b) {
  switch (op) {
    case Op::sum:
      return a + b;
    case Op::prod:
      return a * b;
    case Op::min:
      return b < a ? b : a;
    default:
      return b > a ? b : a;
  }
}

template <typename T>
T fold_element(Op op, const std::vector<const std::uint8_t*>& inputs, std::size_t i) {
  T value = read<T>(inputs[0], i);
  if (inputs.size() == 1) return value;
  if constexpr (kIsNarrow<T>) {
    float wide = widen(value);
    for (std::size_t k = 1; k < inputs.size(); ++k)
      wide = real_op(op, wide, widen(read<T>(inputs[k], i)));
    narrow(wide, &value);
    return value;
  } else {
    for (std::size_t k = 1; k < inputs.size(); ++k) {
      const T next = read<T>(inputs[k], i);
      if constexpr (std::is_integral_v<T>) {
        value = integer_op(op, value, next);
      } else if constexpr (kIsComplex<T>) {
        value = op == Op::sum ? value + next : value * next;
      } else {
        value = real_op(op, value, next);
      }
    }
    return value;
  }
}

template <typename T>
bool same_real(T got, T want) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want);
  return got == want && std::signbit(got) == std::signbit(want);
}

template <typename T>
bool same_value(T got, T want) {
  if constexpr (kIsComplex<T>) {
    return same_real(got.real(), want.real()) && same_real(got.imag(), want.imag());
  } else if constexpr (kIsNarrow<T>) {
    return same_real(widen(got), widen(want));
  } else if constexpr (std::is_integral_v<T>) {
    return got == want;
  } else {
    return same_real(got, want);
  }
}

template <typename T>
std::vector<T> specials() {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_integral_v<T>) {
    const auto top = static_cast<T>(T{1} << (sizeof(T) * 8 - 2));
    return {0,  1, static_cast<T>(-1), 2, 3, Limits::min(), Limits::max(), static_cast<T>(Limits::min() + 1),
            top};
  } else if constexpr (std::is_same_v<T, F16>) {
    return {{0},      {0x8000}, {0x3C00}, {0xBC00}, {0x7C00}, {0xFC00},
            {0x7E01}, {0xFE55}, {0x7D0F}, {0x7BFF}, {1},      {0x83FF}};
  } else if constexpr (std::is_same_v<T, BF16>) {
    return {{0},      {0x8000}, {0x3F80}, {0xBF80}, {0x7F80}, {0xFF80},
            {0x7FC1}, {0xFFD5}, {0x7F8F}, {0x7F7F}, {1},      {0x807F}};
  } else if constexpr (std::is_same_v<T, E4M3>) {
    return {{0}, {0x80}, {0x38}, {0xB8}, {0x7E}, {0xFE}, {0x7F}, {0xFF}, {1}, {0x87}};
  } else if constexpr (std::is_same_v<T, E5M2>) {
    return {{0}, {0x80}, {0x3C}, {0xBC}, {0x7C}, {0xFC}, {0x7E}, {0xFF}, {0x7D}, {0x7B}, {1}, {0x83}};
  } else if constexpr (kIsComplex<T>) {
    std::vector<T> all;
    for (auto re : specials<typename T::value_type>())
      for (auto im : specials<typename T::value_type>())
        all.emplace_back(re, im);
    return all;
  } else {
    const char* const payload = "5";
    const T other_nan = static_cast<T>(std::is_same_v<T, float> ? nanf(payload) : nan(payload));
    return {T{0},
            -T{0},
            T{1},
            T{-1},
            Limits::infinity(),
            -Limits::infinity(),
            Limits::max(),
            Limits::lowest(),
            Limits::min(),
            Limits::denorm_min(),
            Limits::quiet_NaN(),
            -other_nan};
  }
}

template <typename T>
T random_element(std::mt19937_64& random) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(random());
  } else if constexpr (std::is_same_v<T, F16>) {
    return T{static_cast<std::uint16_t>((random() & 0x8FFF) |
                                        0x3000)};  // around one, so that sums and products round
  } else if constexpr (std::is_same_v<T, BF16>) {
    return T{static_cast<std::uint16_t>((random() & 0x83FF) | 0x3C00)};
  } else if constexpr (std::is_same_v<T, E4M3>) {
    return T{static_cast<std::uint8_t>((random() & 0x9F) | 0x20)};
  } else if constexpr (std::is_same_v<T, E5M2>) {
    return T{static_cast<std::uint8_t>((random() & 0x8F) | 0x30)};
  } else if constexpr (kIsComplex<T>) {
    const auto re = random_element<typename T::value_type>(random);
    return T(re, random_element<typename T::value_type>(random));
  } else {
    std::normal_distribution<T> normal(T{0}, T{10});
    return normal(random);
  }
}

}  // namespace

bool is_valid(DType type, Op op) {
  switch (type) {
    case DType::f16:
    case DType::bf16:
    case DType::e4m3:
    case DType::e5m2:
    case DType::f32:
    case DType::f64:
    case DType::f80:
      return op == Op::sum || op == Op::prod || op == Op::min || op == Op::max;
    case DType::c32:
    case DType::c64:
    case DType::c80:
      return op == Op::sum || op == Op::prod;
    default:
      return true;
  }
}

Bytes reference_fold(DType type, Op op, const std::vector<const std::uint8_t*>& inputs, std::size_t count) {
  Bytes result(count * dtype_size(type));
  with_type(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::size_t i = 0; i < count; ++i)
      write(result.data(), i, fold_element<T>(op, inputs, i));
  });
  return result;
}

bool same_element(DType type, const std::uint8_t* got, const std::uint8_t* want, std::size_t index) {
  return with_type(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return same_value(read<T>(got, index), read<T>(want, index));
  });
}

Bytes special_elements(DType type) {
  return with_type(type, [](auto tag) {
    using T = typename decltype(tag)::type;
    const auto all = specials<T>();
    Bytes bytes(all.size() * sizeof(T));
    for (std::size_t i = 0; i < all.size(); ++i)
      write(bytes.data(), i, all[i]);
    return bytes;
  });
}

Bytes random_elements(DType type, std::size_t count, std::mt19937_64& random) {
  return with_type(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto special = specials<T>();
    Bytes bytes(count * sizeof(T));
    for (std::size_t i = 0; i < count; ++i) {
      const bool pick_special = random() % 4 == 0;
      write(bytes.data(), i, pick_special ? special[random() % special.size()] : random_element<T>(random));
    }
    return bytes;
  });
}

namespace {

// Of a format with a sign, an exponent and a mantissa.
float finite_number(unsigned bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = static_cast<int>(bits) & ((1 << mantissa_bits) - 1);
  const int significand = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  const float value =
      std::ldexp(static_cast<float>(significand), std::max(exponent, 1) - bias - mantissa_bits);
  return (bits >> (exponent_bits + mantissa_bits) & 1) != 0 ? -value : value;
}

// The largest exponent is that of infinities and NaN.
float ieee_number(unsigned bits, int exponent_bits, int mantissa_bits) {
  using Limits = std::numeric_limits<float>;
  const unsigned infinity = ((1U << exponent_bits) - 1) << mantissa_bits;
  const unsigned sign = 1U << (exponent_bits + mantissa_bits);
  if ((bits & infinity) != infinity) return finite_number(bits, exponent_bits, mantissa_bits);
  const float value = (bits & ~sign) == infinity ? Limits::infinity() : Limits::quiet_NaN();
  return (bits & sign) != 0 ? -value : value;
}

}  // namespace

float f16_to_float(std::uint16_t half) {
  return ieee_number(half, 5, 10);
}
float bf16_to_float(std::uint16_t brain) {
  return ieee_number(brain, 8, 7);
}
float e5m2_to_float(std::uint8_t code) {
  return ieee_number(code, 5, 2);
}
float e4m3_to_float(std::uint8_t code) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  if ((code & 0x7F) == 0x7F) return (code & 0x80) != 0 ? -nan : nan;
  return finite_number(code, 4, 3);
}

namespace {

// Rounds |value| to a format with `mantissa_bits` stored bits and smallest normal 2^min_exponent.
std::uint16_t round_to(float value, int mantissa_bits, int min_exponent, std::uint16_t infinity) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity | (1u << (mantissa_bits - 1)));
  const double abs = std::fabs(static_cast<double>(value));
  if (abs == 0) return sign;
  if (std::isinf(abs)) return static_cast<std::uint16_t>(sign | infinity);
  const int exponent = std::max(std::ilogb(abs), min_exponent);
  const auto units = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(abs, mantissa_bits - exponent)));
  // `units` counts from 2^exponent's own leading bit, so adding it carries into the exponent where it must.
  const auto bits = units + (static_cast<std::uint32_t>(exponent - min_exponent) << mantissa_bits);
  return static_cast<std::uint16_t>(sign | std::min<std::uint32_t>(bits, infinity));
}

}  // namespace

std::uint16_t float_to_f16(float value) {
  return round_to(value, 10, -14, 0x7C00);
}
std::uint16_t float_to_bf16(float value) {
  return round_to(value, 7, -126, 0x7F80);
}

namespace {

// Of the codes from 0 to `largest`, whose values rise, the one whose value is nearest to |value|; of two the
// even one.
int nearest_code(float value, int largest, float (*to_float)(std::uint8_t)) {
  const double abs = std::fabs(static_cast<double>(value));
  const auto value_of = [&](int code) {
    return static_cast<double>(to_float(static_cast<std::uint8_t>(code)));
  };
  int above = 0;
  for (int step = 64; step > 0; step /= 2) {
    if (above + step <= largest && value_of(above + step - 1) < abs) above += step;
  }
  if (above == 0) return 0;
  const double over = value_of(above) - abs;
  const double under = abs - value_of(above - 1);
  if (over != under) return over < under ? above : above - 1;
  return above % 2 == 0 ? above : above - 1;
}

std::uint8_t with_sign(float value, int code) {
  return static_cast<std::uint8_t>(code | (std::signbit(value) ? 0x80 : 0));
}

}  // namespace

std::uint8_t float_to_e4m3(float value) {
  return with_sign(value, std::isnan(value) ? 0x7F : nearest_code(value, 0x7E, &e4m3_to_float));
}
std::uint8_t float_to_e5m2(float value) {
  if (std::isinf(value)) return with_sign(value, 0x7C);
  return with_sign(value, std::isnan(value) ? 0x7E : nearest_code(value, 0x7B, &e5m2_to_float));
}

}  // namespace heddle::test
