// Sparse vectors and compressed sums for C++20: a thin face over heddle_sparse.h and heddle_compress.h,
// header only. What heddle.hpp says of names and errors holds here.
//
//     heddle::api::SparseVector<float> gradient{.dimension = 1 << 24};
//     gradient.indices = {...};  gradient.values = {...};  gradient.sort();
//     heddle::api::SparseVector<float> sum = heddle::api::sparse_allreduce(comm, gradient);
#ifndef HEDDLE_HEDDLE_SPARSE_HPP
#define HEDDLE_HEDDLE_SPARSE_HPP

#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "heddle/heddle.hpp"
#include "heddle/heddle_compress.h"
#include "heddle/heddle_sparse.h"

namespace heddle::api {

// Whether a sparse vector may have values of this type.
template <typename T>
inline constexpr bool is_sparse_value =
    dtype_of<T>::value == HEDDLE_FLOAT16 || dtype_of<T>::value == HEDDLE_BFLOAT16 ||
    dtype_of<T>::value == HEDDLE_FLOAT32 || dtype_of<T>::value == HEDDLE_FLOAT64 ||
    dtype_of<T>::value == HEDDLE_INT32 || dtype_of<T>::value == HEDDLE_INT64;

// Entries of a vector: indices rise strictly and are less than the dimension; as many values. `Index`:
// std::uint32_t (dimensions up to 2^32) or std::uint64_t.
template <typename Value, typename Index = std::uint32_t>
struct SparseVector {
  static_assert(std::is_same_v<Index, std::uint32_t> || std::is_same_v<Index, std::uint64_t>,
                "indices are std::uint32_t or std::uint64_t");
  static_assert(is_sparse_value<Value>,
                "values are floats of 16, 32 or 64 bits or signed integers of 32 or 64 bits");

  std::uint64_t dimension = 0;
  std::vector<Index> indices = {};
  std::vector<Value> values = {};

  // Brings entries in any order into order, those of equal index summed.
  void sort() {
    heddle_sparse view = c_view();
    check(heddle_sparse_sort(&view));
    indices.resize(view.count);
    values.resize(view.count);
  }

  // Throws where the entries break the contract: says which. Collectives check it themselves.
  void check_contract() const {
    const heddle_sparse view = const_cast<SparseVector*>(this)->c_view();
    check(heddle_sparse_check(&view));
  }

  // The entries as C functions take them, which look at them only or, where they take results, make room in
  // this vector.
  heddle_sparse c_view() {
    if (indices.size() != values.size())
      throw Error(HEDDLE_ERR_ARGUMENT, std::to_string(indices.size()) + " indices, but " +
                                           std::to_string(values.size()) + " values");
    heddle_sparse view{};
    view.dimension = dimension;
    view.count = indices.size();
    view.capacity = indices.size();
    view.index_type = sizeof(Index) == 4 ? HEDDLE_INDEX32 : HEDDLE_INDEX64;
    view.value_type = dtype_of<Value>::value;
    view.indices = indices.data();
    view.values = values.data();
    view.context = this;
    view.grow = [](heddle_sparse* self, std::size_t entries) noexcept {
      auto* vector = static_cast<SparseVector*>(self->context);
      try {
        vector->indices.resize(entries);
        vector->values.resize(entries);
        self->capacity = entries;
      } catch (const std::bad_alloc&) {
        // One of the arrays may have moved all the same.
      }
      self->indices = vector->indices.data();
      self->values = vector->values.data();
      return self->capacity == entries ? 0 : 1;
    };
    return view;
  }
};

// Makes `call` with the entries as C functions take them as input, which they only read. Where c_view()
// refuses them the call is made all the same, with a null pointer, of which the function tells the other
// ranks, so that these do not wait for this one.
template <typename Value, typename Index, typename Call>
void call_with(const SparseVector<Value, Index>& vector, const Call& call) {
  auto& entries = const_cast<SparseVector<Value, Index>&>(vector);
  if (entries.indices.size() != entries.values.size()) {
    static_cast<void>(call(nullptr));
    static_cast<void>(entries.c_view());  // throws
  }
  const heddle_sparse in = entries.c_view();
  check(call(&in));
}

// The entries that any rank has, folded; the same on every rank. heddle_sparse_allreduce.
template <typename Value, typename Index>
SparseVector<Value, Index> sparse_allreduce(const Comm& comm, const SparseVector<Value, Index>& vector,
                                            Op op = Op::sum) {
  SparseVector<Value, Index> result;
  heddle_sparse out = result.c_view();
  call_with(vector, [&](const heddle_sparse* in) {
    return heddle_sparse_allreduce(in, &out, static_cast<heddle_op>(op), comm.handle());
  });
  result.dimension = out.dimension;
  result.indices.resize(out.count);
  result.values.resize(out.count);
  return result;
}

// call_with(), for a result of `dimension` elements, where `room` is what there is room for.
template <typename Value, typename Index, typename Call>
void call_with_room(const SparseVector<Value, Index>& vector, std::size_t room, const Call& call) {
  if (room != vector.dimension) {
    static_cast<void>(call(nullptr));
    throw Error(HEDDLE_ERR_ARGUMENT, "room for " + std::to_string(room) + " elements, but dimension " +
                                         std::to_string(vector.dimension));
  }
  call_with(vector, call);
}

// The same into a vector, `dimension` elements of it: 0 where no rank has an entry.
// heddle_sparse_allreduce_dense.
template <typename Value, typename Index>
void sparse_allreduce_dense(const Comm& comm, const SparseVector<Value, Index>& vector,
                            std::type_identity_t<std::span<Value>> dense, Op op = Op::sum) {
  call_with_room(vector, dense.size(), [&](const heddle_sparse* in) {
    return heddle_sparse_allreduce_dense(in, dense.data(), static_cast<heddle_op>(op), comm.handle());
  });
}

// A sum of vectors that may be mostly zeros, in place. heddle_sparse_allreduce_in_place.
template <Buffer Data>
void mostly_zero_allreduce(const Comm& comm, Data&& data) {
  check(heddle_sparse_allreduce_in_place(data_of(data), std::ranges::size(data), dtype<Data>, comm.handle()));
}

// A sparse allreduce under way or, when persistent, to be started. Movable; has the result. The vector that
// it was made with stays in place until it is complete, a persistent one until it is gone, and so does the
// Comm. Else as Request.
template <typename Value, typename Index = std::uint32_t>
class [[nodiscard]] SparseRequest {
 public:
  using Vector = SparseVector<Value, Index>;

  // `make`: heddle_isparse_allreduce or heddle_sparse_allreduce_init.
  template <typename Make>
  SparseRequest(const Comm& comm, const Vector& vector, Op op, Make make)
      : state_(std::make_unique<State>()) {
    state_->out = state_->result.c_view();
    heddle_request_t request = nullptr;
    call_with(vector, [&](const heddle_sparse* in) {
      return make(in, &state_->out, static_cast<heddle_op>(op), comm.handle(), &request);
    });
    state_->request = Request(request);
  }

  void start() { state_->request.start(); }
  // The result, which the next start overwrites.
  const Vector& wait() {
    state_->request.wait();
    return take();
  }
  // Whether it is complete: then result() is the result.
  bool test() {
    if (!state_->request.test()) return false;
    take();
    return true;
  }
  const Vector& result() const noexcept { return state_->result; }
  heddle_request_t handle() const noexcept { return state_->request.handle(); }

 private:
  struct State {
    Vector result;
    heddle_sparse out{};
    Request request;  // the first to go
  };

  const Vector& take() {
    State& state = *state_;
    state.result.dimension = state.out.dimension;
    state.result.indices.resize(state.out.count);
    state.result.values.resize(state.out.count);
    state.out = state.result.c_view();
    return state.result;
  }

  std::unique_ptr<State> state_;
};

// heddle_isparse_allreduce.
template <typename Value, typename Index>
SparseRequest<Value, Index> isparse_allreduce(const Comm& comm, const SparseVector<Value, Index>& vector,
                                              Op op = Op::sum) {
  return {comm, vector, op, heddle_isparse_allreduce};
}
// Persistent: the indices stay as they are at the first start. heddle_sparse_allreduce_init.
template <typename Value, typename Index>
SparseRequest<Value, Index> sparse_allreduce_init(const Comm& comm, const SparseVector<Value, Index>& vector,
                                                  Op op = Op::sum) {
  return {comm, vector, op, heddle_sparse_allreduce_init};
}
// Not of what is gone before it is used.
template <typename Value, typename Index>
void isparse_allreduce(const Comm& comm, const SparseVector<Value, Index>&& vector, Op op = Op::sum) = delete;
template <typename Value, typename Index>
void sparse_allreduce_init(const Comm& comm, const SparseVector<Value, Index>&& vector,
                           Op op = Op::sum) = delete;

// Of the sparse allreduce that was completed last: heddle_sparse_get_stats.
inline heddle_sparse_stats sparse_stats(const Comm& comm) {
  heddle_sparse_stats stats{};
  check(heddle_sparse_get_stats(comm.handle(), &stats));
  return stats;
}

// What compression has left out so far.
class Residual {
 public:
  explicit Residual(std::size_t count) {
    heddle_residual_t handle = nullptr;
    check(heddle_residual_create(count, &handle));
    handle_.reset(handle);
  }
  static Residual load(const std::string& path, std::size_t count) {
    heddle_residual_t handle = nullptr;
    check(heddle_residual_load(path.c_str(), count, &handle));
    Residual loaded;
    loaded.handle_.reset(handle);
    return loaded;
  }
  void save(const std::string& path) const { check(heddle_residual_save(handle_.get(), path.c_str())); }
  std::span<float> values() const {
    float* values = nullptr;
    std::size_t count = 0;
    check(heddle_residual_values(handle_.get(), &values, &count));
    return {values, count};
  }
  heddle_residual_t handle() const noexcept { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(heddle_residual* residual) const { heddle_residual_destroy(residual); }
  };
  Residual() = default;

  std::unique_ptr<heddle_residual, Destroy> handle_;
};

// About the sum: heddle_compressed_allreduce.
inline void compressed_allreduce(const Comm& comm, std::span<const float> in, std::span<float> out,
                                 const std::string& method, Residual* residual = nullptr,
                                 std::uint64_t seed = 0) {
  // Where they differ the others hear of it, instead of waiting for this rank.
  if (in.size() != out.size())
    static_cast<void>(
        heddle_compressed_allreduce(nullptr, nullptr, 0, nullptr, seed, nullptr, comm.handle()));
  check(heddle_compressed_allreduce(in.data(), out.data(), equal_length(in, out), method.c_str(), seed,
                                    residual != nullptr ? residual->handle() : nullptr, comm.handle()));
}
// In place.
inline void compressed_allreduce(const Comm& comm, std::span<float> data, const std::string& method,
                                 Residual* residual = nullptr, std::uint64_t seed = 0) {
  check(heddle_compressed_allreduce(HEDDLE_IN_PLACE, data.data(), data.size(), method.c_str(), seed,
                                    residual != nullptr ? residual->handle() : nullptr, comm.handle()));
}

// About the sum of all ranks' vectors, `dimension` elements of it: heddle_sparse_allreduce_coded.
template <typename Index>
void coded_sparse_allreduce(const Comm& comm, const SparseVector<float, Index>& vector,
                            std::span<float> dense, const std::string& method, Residual* residual = nullptr,
                            std::uint64_t seed = 0) {
  call_with_room(vector, dense.size(), [&](const heddle_sparse* in) {
    return heddle_sparse_allreduce_coded(in, dense.data(), method.c_str(), seed,
                                         residual != nullptr ? residual->handle() : nullptr, comm.handle());
  });
}

// How far one value of these sums can be off: heddle_compression_error_bound,
// heddle_sparse_coded_error_bound.
inline double compression_error_bound(const std::string& method, int ranks, double largest) {
  double bound = 0;
  check(heddle_compression_error_bound(method.c_str(), ranks, largest, &bound));
  return bound;
}
inline double sparse_coded_error_bound(const std::string& method, int ranks, double largest) {
  double bound = 0;
  check(heddle_sparse_coded_error_bound(method.c_str(), ranks, largest, &bound));
  return bound;
}

}  // namespace heddle::api

#endif
