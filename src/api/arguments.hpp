// Checks of what callers pass, each with a sentence that names the argument and its value.
#pragma once

#include <cstddef>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "heddle/heddle.h"
#include "heddle/heddle_sparse.h"
#include "sparse/stream.hpp"

namespace heddle::edge {

// The enums come by reference all the way from the caller: C may put anything into them, and to read one that
// holds no enumerator is undefined in C++.

// The arguments of an allreduce as the communicator takes them (in place: in == out).
struct Reduction {
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  DType type = DType::u8;
  Op op = Op::sum;
};

// Fills in `reduction`, or says what is wrong: enums out of range, pairs without meaning, sizes that
// overflow, missing or overlapping buffers.
Status check_reduction(const void* sendbuf, void* recvbuf, std::size_t count, const heddle_dtype& dtype,
                       const heddle_op& op, Reduction* reduction);
// Likewise of a reduce to `root`: `out` is null on the others.
Status check_reduce(const void* sendbuf, void* recvbuf, std::size_t count, const heddle_dtype& dtype,
                    const heddle_op& op, int root, int rank, int size, Reduction* reduction);
// Likewise of a sum whose only vector is `buffer`.
Status check_in_place(void* buffer, std::size_t count, const heddle_dtype& dtype, Reduction* reduction);
Status check_types(std::size_t count, const heddle_dtype& dtype, const heddle_op& op, Reduction* reduction);

// A sparse vector but for what its entries are.
Status check_vector(const heddle_sparse* vector, const char* what, SparseView* view);
// The vector that a result of the dimension of `in` goes to, of elements of `width` bytes: room for it, and
// apart from what is read.
Status check_dense(const void* dense, std::size_t width, const SparseView& in);
// sum, min or max.
Status check_sparse_op(const heddle_op& op, Op* out);

// A buffer of `bytes` bytes; with none it may be null. `what` names it.
Status check_buffer(const void* buffer, std::size_t bytes, const char* what);
Status check_root(int root, int size);
// The arguments of a bcast.
Status check_bcast(const void* buffer, std::size_t bytes, int root, int size);
// Those of an allgather among `size` ranks. `in`: null in place.
Status check_allgather(const void* sendbuf, const void* recvbuf, std::size_t bytes, int size,
                       const void** in);
// A rank other than one's own.
Status check_peer(int peer, int rank, int size);
Status check_not_null(const void* pointer, const char* what);

}  // namespace heddle::edge
