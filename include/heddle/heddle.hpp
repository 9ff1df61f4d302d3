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

#include <cstddef>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "heddle/heddle.h"
#include "heddle/heddle_types.hpp"

namespace heddle::api {

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
  // out = in of rank 0, in of rank 1, ...: as many times as long as there are ranks. They do not overlap.
  template <Source In, Buffer Out>
  void allgather(In&& in, Out&& out) const {
    check(heddle_allgather(data_of(in), data_of(out), length_of_gathered(size(), in, out), handle_));
  }
  // What this rank gives is in its place of `data`.
  template <Buffer Data>
  void allgather_in_place(Data&& data) const {
    check(heddle_allgather(HEDDLE_IN_PLACE, data_of(data), length_of_each(size(), data), handle_));
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
  template <Source In, Buffer Out>
  Request iallgather(In&& in, Out&& out) const {
    return made([&](heddle_request_t* request) {
      return heddle_iallgather(data_of(in), data_of(out), length_of_gathered(size(), in, out), handle_,
                               request);
    });
  }
  template <Buffer Data>
  Request iallgather_in_place(Data&& data) const {
    return made([&](heddle_request_t* request) {
      return heddle_iallgather(HEDDLE_IN_PLACE, data_of(data), length_of_each(size(), data), handle_,
                               request);
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
  template <Source In, Buffer Out>
  Request allgather_init(In&& in, Out&& out) const {
    return made([&](heddle_request_t* request) {
      return heddle_allgather_init(data_of(in), data_of(out), length_of_gathered(size(), in, out), handle_,
                                   request);
    });
  }
  template <Buffer Data>
  Request allgather_in_place_init(Data&& data) const {
    return made([&](heddle_request_t* request) {
      return heddle_allgather_init(HEDDLE_IN_PLACE, data_of(data), length_of_each(size(), data), handle_,
                                   request);
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

  const char* allgather_algorithm(std::size_t bytes) const {
    const char* name = nullptr;
    check(heddle_allgather_algorithm(bytes, handle_, &name));
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
