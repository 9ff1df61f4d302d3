// What the C++ faces of heddle share: errors, element types, buffers, requests. Programs include heddle.hpp.
#ifndef HEDDLE_HEDDLE_TYPES_HPP
#define HEDDLE_HEDDLE_TYPES_HPP

#if __cplusplus < 202002L && !(defined(_MSVC_LANG) && _MSVC_LANG >= 202002L)
#error "heddle.hpp needs C++20 (-std=c++20); heddle.h serves C and older C++"
#endif

#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#if defined(__STDCPP_FLOAT16_T__) || defined(__STDCPP_BFLOAT16_T__)
#include <stdfloat>
#endif

#include "heddle/heddle.h"

namespace heddle::api {

// A status other than HEDDLE_OK, with the sentence that goes with it.
class Error : public std::runtime_error {
 public:
  Error(heddle_status status, const std::string& message)
      : std::runtime_error(std::string(heddle_status_name(status)) + ": " + message), status_(status) {}
  heddle_status status() const noexcept { return status_; }

 private:
  heddle_status status_;
};

// Throws unless `status` is HEDDLE_OK.
inline void check(heddle_status status) {
  if (status != HEDDLE_OK) throw Error(status, heddle_last_error());
}

enum class Op {
  sum = HEDDLE_SUM,
  prod = HEDDLE_PROD,
  min = HEDDLE_MIN,
  max = HEDDLE_MAX,
  land = HEDDLE_LAND,
  lor = HEDDLE_LOR,
  lxor = HEDDLE_LXOR,
  band = HEDDLE_BAND,
  bor = HEDDLE_BOR,
  bxor = HEDDLE_BXOR
};

// The heddle_dtype of an element type. Specialise for a type of your own that has the layout of one of these
// (a class of half or 8-bit floats, say): `template <> struct heddle::api::dtype_of<Half> { static constexpr
// heddle_dtype value = ...; };`
template <typename T, typename = void>
struct dtype_of {
  static_assert(sizeof(T) == 0,
                "heddle has no element type for this one: specialise heddle::api::dtype_of for it");
};

template <typename T>
struct dtype_of<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);
  static constexpr int kPower = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
  static constexpr heddle_dtype value =
      static_cast<heddle_dtype>((std::is_signed_v<T> ? HEDDLE_INT8 : HEDDLE_UINT8) + kPower);
};
template <>
struct dtype_of<float> {
  static constexpr heddle_dtype value = HEDDLE_FLOAT32;
};
template <>
struct dtype_of<double> {
  static constexpr heddle_dtype value = HEDDLE_FLOAT64;
};
template <>
struct dtype_of<long double> {
  static constexpr heddle_dtype value = HEDDLE_LONG_DOUBLE;
};
template <>
struct dtype_of<std::complex<float>> {
  static constexpr heddle_dtype value = HEDDLE_COMPLEX_FLOAT;
};
template <>
struct dtype_of<std::complex<double>> {
  static constexpr heddle_dtype value = HEDDLE_COMPLEX_DOUBLE;
};
template <>
struct dtype_of<std::complex<long double>> {
  static constexpr heddle_dtype value = HEDDLE_COMPLEX_LONG_DOUBLE;
};

#ifdef __STDCPP_FLOAT16_T__
template <>
struct dtype_of<std::float16_t> {
  static constexpr heddle_dtype value = HEDDLE_FLOAT16;
};
#endif
#ifdef __STDCPP_BFLOAT16_T__
template <>
struct dtype_of<std::bfloat16_t> {
  static constexpr heddle_dtype value = HEDDLE_BFLOAT16;
};
#endif

// What is read, and what is written as well. A temporary that owns its elements is neither: they would be
// gone before they are used.
template <typename R>
concept Source =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && std::ranges::borrowed_range<R>;
template <typename R>
concept Buffer = Source<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

// Of a buffer or source: its address, bytes, and heddle_dtype.
template <typename R>
auto* data_of(R& range) {
  return std::ranges::data(range);
}
template <typename R>
std::size_t bytes_of(R& range) {
  using T = std::ranges::range_value_t<R>;
  static_assert(std::is_trivially_copyable_v<T>);
  return std::ranges::size(range) * sizeof(T);
}
template <typename R>
inline constexpr heddle_dtype dtype = dtype_of<std::ranges::range_value_t<R>>::value;

// Of an input and its output.
template <typename In, typename Out>
std::size_t equal_length(In& in, Out& out) {
  static_assert(std::is_same_v<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>,
                "input and output have one element type");
  const std::size_t count = std::ranges::size(in);
  if (count == std::ranges::size(out)) return count;
  throw Error(HEDDLE_ERR_ARGUMENT, "in has " + std::to_string(count) + " elements, out has " +
                                       std::to_string(std::ranges::size(out)));
}

// Of a reduce, of which only the root has an output.
template <typename In, typename Out>
std::size_t length_of_reduce(bool is_root, In& in, Out& out) {
  static_assert(std::is_same_v<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>,
                "input and output have one element type");
  return is_root ? equal_length(in, out) : std::ranges::size(in);
}

// Of an allgather among `ranks`: the bytes of each.
template <typename Data>
std::size_t length_of_each(int ranks, Data& data) {
  const auto parts = static_cast<std::size_t>(ranks);
  if (std::ranges::size(data) % parts == 0) return bytes_of(data) / parts;
  throw Error(HEDDLE_ERR_ARGUMENT, std::to_string(std::ranges::size(data)) +
                                       " elements are not as many of each of " + std::to_string(ranks) +
                                       " ranks");
}
template <typename In, typename Out>
std::size_t length_of_gathered(int ranks, In& in, Out& out) {
  static_assert(std::is_same_v<std::ranges::range_value_t<In>, std::ranges::range_value_t<Out>>,
                "input and output have one element type");
  const std::size_t each = length_of_each(ranks, out);
  if (each == bytes_of(in)) return each;
  throw Error(HEDDLE_ERR_ARGUMENT, "in has " + std::to_string(std::ranges::size(in)) + " elements, out " +
                                       std::to_string(std::ranges::size(out)) + " for " +
                                       std::to_string(ranks) + " ranks");
}

// A collective under way or, when persistent, to be started. Movable. The buffers it was made with stay the
// caller's and must outlive it; so must its Comm. Destruction waits for an active collective, because others
// depend on it, and cannot report a failure: call wait() to see it.
class [[nodiscard]] Request {
 public:
  Request() = default;
  explicit Request(heddle_request_t handle) noexcept : handle_(handle) {}
  Request(Request&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Request& operator=(Request&& other) noexcept {
    if (this != &other) {
      finish();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Request() { finish(); }

  // Of a persistent one.
  void start() { check(heddle_start(handle_)); }
  void wait() { check(heddle_wait(&handle_)); }
  // Waits for all of them, also where one has failed, and throws the first failure.
  static void wait_all(std::span<Request> requests) {
    heddle_status first = HEDDLE_OK;
    std::string message;
    for (Request& request : requests) {
      const heddle_status status = heddle_wait(&request.handle_);
      if (status == HEDDLE_OK || first != HEDDLE_OK) continue;
      first = status;
      message = heddle_last_error();
    }
    if (first != HEDDLE_OK) throw Error(first, message);
  }
  bool test() {
    int done = 0;
    check(heddle_test(&handle_, &done));
    return done != 0;
  }
  heddle_request_t handle() const noexcept { return handle_; }

 private:
  void finish() noexcept {
    static_cast<void>(heddle_wait(&handle_));
    static_cast<void>(heddle_request_free(&handle_));
  }

  heddle_request_t handle_ = nullptr;
};

}  // namespace heddle::api

#endif
