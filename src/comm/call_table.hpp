// What ranks call, side by side: what they compare before each collective with HEDDLE_CHECK=1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "base/status.hpp"

namespace heddle {

// What a rank calls: all of it that must be the same on the others.
struct CollectiveCall {
  enum class Kind : std::uint8_t {
    refused,  // with arguments that no call takes: the others hear of it instead of waiting
    allreduce,
    bcast,
    // Left to the host MPI, which judges them.
    allreduce_elsewhere,
    bcast_elsewhere,
    reduce_elsewhere,
    barrier,
    reduce,
    allgather,
    allgather_elsewhere,  // the host MPI's
    // These compare the rest themselves.
    sparse_allreduce,
    sparse_allreduce_dense,
    sparse_allreduce_in_place,
    sparse_allreduce_coded,
    compressed_allreduce,
    split,
  };
  enum class Form : std::uint8_t { blocking, request, stream };

  Kind kind = Kind::refused;
  Form form = Form::blocking;
  std::size_t count = 0;  // elements; of a bcast bytes; of an allgather each rank's
  FoldKind fold = 0;      // of an allreduce or reduce of something
  int root = 0;           // of a bcast or reduce

  static CollectiveCall of(Kind kind) { return {kind, Form::blocking, 0, 0, 0}; }
  static CollectiveCall allreduce(std::size_t count, DType type, Op op) {
    return {Kind::allreduce, Form::blocking, count, count > 0 ? fold_kind(type, op) : FoldKind{0}, 0};
  }
  static CollectiveCall reduce(std::size_t count, DType type, Op op, int root) {
    CollectiveCall call = allreduce(count, type, op);
    call.kind = Kind::reduce;
    call.root = root;
    return call;
  }
  static CollectiveCall bcast(std::size_t bytes, int root) {
    return {Kind::bcast, Form::blocking, bytes, 0, root};
  }
  static CollectiveCall allgather(std::size_t bytes) {
    return {Kind::allgather, Form::blocking, bytes, 0, 0};
  }
  CollectiveCall as(Form other) const { return {kind, other, count, fold, root}; }
  bool operator==(const CollectiveCall&) const = default;
};

// The calls of all ranks side by side: a block of words for each, zero but for one's own until they are added
// up.
class CallTable {
 public:
  explicit CallTable(int ranks) : words_(static_cast<std::size_t>(ranks) * kWords) {}

  void state(int rank, const CollectiveCall& call);
  std::span<std::uint64_t> words() { return words_; }
  // After that. The same on every rank: `invalid_argument` says who calls what. `number`: of the call on its
  // communicator, from 1 on. Takes no memory where all agree.
  Status judge(std::uint64_t number) const;

 private:
  static constexpr std::size_t kWords = 2;
  CollectiveCall of(std::size_t rank) const;

  std::vector<std::uint64_t> words_;
};

}  // namespace heddle
