// The predefined datatypes and operations as heddle's element types and operations.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "base/dtype.hpp"
#include "interpose/backend/abi.hpp"
#include "interpose/backend/host_mpi.hpp"

namespace heddle::backend {

// One predefined type that reductions may be taken over on.
struct TypeRow {
  MPI_Datatype handle{};
  DType type = DType::i8;
  std::uint16_t operations = 0;  // that the standard allows and heddle has a kernel for: bit (1 << Op)
};

// Operations by type, in an order that is the same on all ranks: bit (1 << Op).
using Pairs = std::array<std::uint16_t, 64>;

// What reductions heddle serves: the pairs that the MPI standard allows, that there is a kernel for, and that
// the host computes as the kernel does. Others fall through, so that the host does what it always did.
//
// The host is asked before the first communicator is set up, on a few values (PMPI_Reduce_local, local).
// Hosts differ: Debian's MPICH 4.0.2 takes the minimum of unsigned integers as if they were signed, and
// results must not change in the middle of a job, when heddle takes over. So do ranks: Open MPI 4.1 adds
// integers of 8 and 16 bits as the core's vector instructions do. Each communicator's ranks agree in its
// set-up (SetUp::agree_on_pairs()). No pair outside of the standard is asked for: that MPICH aborts on
// MPI_LAND of reals.
class DatatypeMap {
 public:
  // `self`: a communicator of this rank alone that returns errors.
  DatatypeMap(const HostMpi& mpi, MPI_Comm self);

  // The row when this rank's host computes `op` on `type` as heddle does, else null; then `*op_out` is set. A
  // few loads, no search. Any thread; after host_pairs().
  const TypeRow* find(MPI_Datatype type, MPI_Op op, Op* op_out) {
    Op mapped{};
    if (!abi::find_op(op, &mapped)) return nullptr;
    Row& row = rows_[slots_.of(type)];
    if (row.handle != type) return nullptr;
    *op_out = mapped;
    if ((row.served.load(std::memory_order_relaxed) & bit(mapped)) != 0) [[likely]]
      return &row;
    return nullptr;
  }
  // The bytes of an element where it may be, whatever the host computes, else 0: the same on all ranks.
  std::size_t known_size(MPI_Datatype type, MPI_Op op) const;
  bool has(const Pairs& pairs, MPI_Datatype type, MPI_Op op) const;

  // All that this rank's host computes as heddle does; asks when it is called first. MPI is initialised. Any
  // thread.
  const Pairs& host_pairs();
  // "float32 sum" and so on: what `all` lacks of `some`.
  static std::string describe_missing(const Pairs& some, const Pairs& all);

 private:
  struct Row : TypeRow {
    std::size_t place = 0;  // in Pairs
    std::atomic<std::uint16_t> served{0};
  };

  static constexpr std::uint16_t bit(Op op) {
    return static_cast<std::uint16_t>(1u << static_cast<unsigned>(op));
  }

  const HostMpi* mpi_;
  const MPI_Comm self_;
  std::mutex asking_;  // the host: of collectives on one communicator there may be one at a time
  bool asked_ = false;
  Pairs pairs_{};
  abi::DatatypeSlots slots_;
  Row rows_[abi::DatatypeSlots::kSlots];
};

}  // namespace heddle::backend
