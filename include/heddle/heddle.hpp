// heddle for C++20: owning handles, std::span, exceptions. A thin face over heddle.h, header only.
//
//     heddle::api::Comm comm = heddle::api::Comm::from_environment();
//     std::vector<float> gradients = ...;
//     comm.allreduce_in_place(gradients, heddle::api::Op::sum);
//     heddle::api::Request request = comm.iallreduce(in, out);
//     request.wait();
//
// Buffers are whatever has its elements side by side and says how many: std::vector, std::array, std::span,
// an array of C's.
//
// Everything here throws heddle::api::Error where the C function returns a status; nothing else does. The
// names live in namespace heddle::api, which belongs to this header alone: libheddle.so exports only C names.
// All code of a program is compiled with one version of it. Threads and order: as heddle.h says.
#ifndef HEDDLE_HEDDLE_HPP
#define HEDDLE_HEDDLE_HPP

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

// What Comm::alloc gives back to heddle_free. The Comm outlives it.
struct FreeMemory {
  heddle_comm_t comm = nullptr;
  void operator()(void* memory) const noexcept { static_cast<void>(heddle_free(memory, comm)); }
};

// A communicator. Movable; destroyed with its last request gone.
class Comm {
 public:
  Comm() = default;
  // Takes over a handle, for example from heddle_comm_create_mpi.
  explicit Comm(heddle_comm_t handle) noexcept : handle_(handle) {}
  Comm(Comm&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Comm& operator=(Comm&& other) noexcept {
    if (this != &other) {
      static_cast<void>(heddle_comm_destroy(handle_));
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Comm() { static_cast<void>(heddle_comm_destroy(handle_)); }

  // RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
  static Comm from_environment() {
    heddle_comm_t handle = nullptr;
    check(heddle_comm_create_env(&handle));
    return Comm(handle);
  }
  // `allgather`, a function or what can be called like one, is called as allgather(const void* mine, void*
  // all, std::size_t bytes) during this call only; it returns 0 on success and must not throw.
  template <typename Allgather>
  static Comm from_allgather(int rank, int size, Allgather&& allgather, const heddle_p2p* p2p = nullptr) {
    if constexpr (std::is_function_v<std::remove_reference_t<Allgather>>) {
      return from_allgather(rank, size, +allgather, p2p);  // by its address, which is an object
    } else {
      return from_callable(rank, size, allgather, p2p);
    }
  }

  // The ranks with equal `color`, ordered by `key`; empty with HEDDLE_NO_COLOR. Collective over this
  // communicator.
  Comm split(int color, int key = 0) const {
    heddle_comm_t handle = nullptr;
    check(heddle_comm_split(handle_, color, key, &handle));
    return Comm(handle);
  }

  // Whether it can only be destroyed: see heddle_comm_failed.
  bool failed() const {
    int failed = 0;
    check(heddle_comm_failed(handle_, &failed));
    return failed != 0;
  }

  int rank() const {
    int rank = 0;
    check(heddle_comm_rank(handle_, &rank));
    return rank;
  }
  int size() const {
    int size = 0;
    check(heddle_comm_size(handle_, &size));
    return size;
  }

  // out[i] = in of rank 0 [i] op ... op in of rank size-1 [i]. `in` and `out` have one length and do not
  // overlap.
  template <Source In, Buffer Out>
  void allreduce(In&& in, Out&& out, Op op = Op::sum) const {
    check(heddle_allreduce(data_of(in), data_of(out), equal_length(in, out), dtype<Out>, c_op(op), handle_));
  }
  template <Buffer Data>
  void allreduce_in_place(Data&& data, Op op = Op::sum) const {
    check(heddle_allreduce(HEDDLE_IN_PLACE, data_of(data), std::ranges::size(data), dtype<Data>, c_op(op),
                           handle_));
  }
  // One value in, the reduced value out.
  template <typename T>
  T allreduce_value(T value, Op op = Op::sum) const {
    allreduce_in_place(std::span<T>(&value, 1), op);
    return value;
  }
  template <Buffer Data>
  void bcast(Data&& data, int root = 0) const {
    check(heddle_bcast(data_of(data), bytes_of(data), root, handle_));
  }
  // The same as allreduce() on rank `root`; `out` of the others may be anything.
  template <Source In, Buffer Out>
  void reduce(In&& in, Out&& out, Op op = Op::sum, int root = 0) const {
    check(heddle_reduce(data_of(in), data_of(out), length_of_reduce(rank() == root, in, out), dtype<Out>,
                        c_op(op), root, handle_));
  }
  // The root's `data` becomes the result, and that of the others stays as it is.
  template <Buffer Data>
  void reduce_in_place(Data&& data, Op op = Op::sum, int root = 0) const {
    const bool is_root = rank() == root;
    check(heddle_reduce(is_root ? HEDDLE_IN_PLACE : data_of(data), is_root ? data_of(data) : nullptr,
                        std::ranges::size(data), dtype<Data>, c_op(op), root, handle_));
  }
  void barrier() const { check(heddle_barrier(handle_)); }

  template <Source In, Buffer Out>
  Request iallreduce(In&& in, Out&& out, Op op = Op::sum) const {
    return made([&](heddle_request_t* request) {
      return heddle_iallreduce(data_of(in), data_of(out), equal_length(in, out), dtype<Out>, c_op(op),
                               handle_, request);
    });
  }
  template <Buffer Data>
  Request iallreduce_in_place(Data&& data, Op op = Op::sum) const {
    return made([&](heddle_request_t* request) {
      return heddle_iallreduce(HEDDLE_IN_PLACE, data_of(data), std::ranges::size(data), dtype<Data>, c_op(op),
                               handle_, request);
    });
  }
  template <Buffer Data>
  Request ibcast(Data&& data, int root = 0) const {
    return made([&](heddle_request_t* request) {
      return heddle_ibcast(data_of(data), bytes_of(data), root, handle_, request);
    });
  }
  template <Source In, Buffer Out>
  Request ireduce(In&& in, Out&& out, Op op = Op::sum, int root = 0) const {
    return made([&](heddle_request_t* request) {
      return heddle_ireduce(data_of(in), data_of(out), length_of_reduce(rank() == root, in, out), dtype<Out>,
                            c_op(op), root, handle_, request);
    });
  }
  Request ibarrier() const {
    return made([&](heddle_request_t* request) { return heddle_ibarrier(handle_, request); });
  }

  // Persistent: nothing happens before Request::start().
  template <Source In, Buffer Out>
  Request allreduce_init(In&& in, Out&& out, Op op = Op::sum) const {
    return made([&](heddle_request_t* request) {
      return heddle_allreduce_init(data_of(in), data_of(out), equal_length(in, out), dtype<Out>, c_op(op),
                                   handle_, request);
    });
  }
  template <Buffer Data>
  Request allreduce_in_place_init(Data&& data, Op op = Op::sum) const {
    return made([&](heddle_request_t* request) {
      return heddle_allreduce_init(HEDDLE_IN_PLACE, data_of(data), std::ranges::size(data), dtype<Data>,
                                   c_op(op), handle_, request);
    });
  }
  template <Source In, Buffer Out>
  Request reduce_init(In&& in, Out&& out, Op op = Op::sum, int root = 0) const {
    return made([&](heddle_request_t* request) {
      return heddle_reduce_init(data_of(in), data_of(out), length_of_reduce(rank() == root, in, out),
                                dtype<Out>, c_op(op), root, handle_, request);
    });
  }
  Request barrier_init() const {
    return made([&](heddle_request_t* request) { return heddle_barrier_init(handle_, request); });
  }
  template <Buffer Data>
  Request bcast_init(Data&& data, int root = 0) const {
    return made([&](heddle_request_t* request) {
      return heddle_bcast_init(data_of(data), bytes_of(data), root, handle_, request);
    });
  }

  // `count` zeroed elements that the other ranks of the node can reach: see heddle_alloc.
  template <typename T>
  std::unique_ptr<T[], FreeMemory> alloc(std::size_t count) const {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
    if (count > static_cast<std::size_t>(-1) / sizeof(T)) throw Error(HEDDLE_ERR_ARGUMENT, "count overflows");
    void* memory = nullptr;
    check(heddle_alloc(count * sizeof(T), handle_, &memory));
    return {static_cast<T*>(memory), FreeMemory{handle_}};
  }

  // The name of the algorithm that would serve a blocking call.
  template <typename T>
  const char* allreduce_algorithm(std::size_t count, Op op = Op::sum) const {
    const char* name = nullptr;
    check(heddle_allreduce_algorithm(count, dtype_of<T>::value, c_op(op), handle_, &name));
    return name;
  }
  template <typename T>
  const char* reduce_algorithm(std::size_t count, Op op = Op::sum) const {
    const char* name = nullptr;
    check(heddle_reduce_algorithm(count, dtype_of<T>::value, c_op(op), handle_, &name));
    return name;
  }
  const char* bcast_algorithm(std::size_t bytes) const {
    const char* name = nullptr;
    check(heddle_bcast_algorithm(bytes, handle_, &name));
    return name;
  }

  template <Source Data>
  void send(Data&& data, int peer) const {
    check(heddle_send(data_of(data), bytes_of(data), peer, handle_));
  }
  template <Buffer Data>
  void recv(Data&& data, int peer) const {
    check(heddle_recv(data_of(data), bytes_of(data), peer, handle_));
  }

  heddle_comm_t handle() const noexcept { return handle_; }

 private:
  static heddle_op c_op(Op op) { return static_cast<heddle_op>(op); }

  // Of a C function's call that makes one.
  template <typename Call>
  static Request made(const Call& call) {
    heddle_request_t request = nullptr;
    check(call(&request));
    return Request(request);
  }

  template <typename Function>
  static Comm from_callable(int rank, int size, Function& allgather, const heddle_p2p* p2p) {
    const auto call = [](const void* mine, void* all, std::size_t bytes, void* context) -> int {
      return (*static_cast<Function*>(context))(mine, all, bytes);
    };
    heddle_comm_t handle = nullptr;
    check(heddle_comm_create(rank, size, call, const_cast<void*>(static_cast<const void*>(&allgather)), p2p,
                             &handle));
    return Comm(handle);
  }

  heddle_comm_t handle_ = nullptr;
};

}  // namespace heddle::api

#endif
