// Kernels on long double, which is no element of vectors, and its complex type.
//
// min and max are the expressions of float_ops_inl.hpp. A complex product is C's, as in fold_complex.cpp.
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>

#include "engine/kernels/families.hpp"

namespace heddle::kernels {
namespace {

// Bytes of a long double that carry a value. The others are padding, which a store from a register leaves as
// it is; they are written as zero so that equal results are equal bytes.
constexpr std::size_t kValueBytes = std::numeric_limits<long double>::digits == 64 ? 10 : sizeof(long double);

// A long double at any address. Stored through this, a value goes from its register to its place; by way of a
// copy in memory it would be read there by more bytes at once than have just been written, which makes the
// processor wait.
struct __attribute__((packed, may_alias)) Placed {
  long double value;
};

template <typename T>
T load_one(const void* from, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::uint8_t*>(from) + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void store_one(void* to, std::size_t index, T value) {
  std::memcpy(static_cast<std::uint8_t*>(to) + index * sizeof(T), &value, sizeof(T));
}

template <>
void store_one<long double>(void* to, std::size_t index, long double value) {
  std::uint8_t* bytes = static_cast<std::uint8_t*>(to) + index * sizeof(long double);
  reinterpret_cast<Placed*>(bytes)->value = value;
  if constexpr (kValueBytes < sizeof(long double))
    std::memset(bytes + kValueBytes, 0, sizeof(long double) - kValueBytes);
}

template <>
void store_one<std::complex<long double>>(void* to, std::size_t index, std::complex<long double> value) {
  store_one<long double>(to, 2 * index, value.real());
  store_one<long double>(to, 2 * index + 1, value.imag());
}

struct Sum {
  template <typename T>
  static T apply(T a, T b) {
    return a + b;
  }
};
struct Prod {
  template <typename T>
  static T apply(T a, T b) {
    return a * b;
  }
};
struct Min {
  template <typename T>
  static T apply(T a, T b) {
    return b < a ? b : a;
  }
};
struct Max {
  template <typename T>
  static T apply(T a, T b) {
    return b > a ? b : a;
  }
};

template <typename T, class Operation>
void fold(void* out, void* out2, const void* const* inputs, unsigned n_inputs, std::size_t count) {
  if (n_inputs == 1) {
    if (out2 != nullptr && out2 != inputs[0]) std::memcpy(out2, inputs[0], count * sizeof(T));
    if (out != inputs[0]) std::memcpy(out, inputs[0], count * sizeof(T));
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    T value = Operation::apply(load_one<T>(inputs[0], i), load_one<T>(inputs[1], i));
    for (unsigned k = 2; k < n_inputs; ++k)
      value = Operation::apply(value, load_one<T>(inputs[k], i));
    store_one<T>(out, i, value);
    if (out2 != nullptr) store_one<T>(out2, i, value);
  }
}

FoldFn real_fold(Op op) {
  switch (op) {
    case Op::sum:
      return &fold<long double, Sum>;
    case Op::prod:
      return &fold<long double, Prod>;
    case Op::min:
      return &fold<long double, Min>;
    case Op::max:
      return &fold<long double, Max>;
    default:
      return nullptr;
  }
}

}  // namespace

FoldFn fold_extended(DType type, Op op) {
  switch (type) {
    case DType::f80:
      return real_fold(op);
    case DType::c80:
      if (op == Op::sum) return &fold<std::complex<long double>, Sum>;
      return op == Op::prod ? &fold<std::complex<long double>, Prod> : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace heddle::kernels
