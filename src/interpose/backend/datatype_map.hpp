// The predefined datatypes and operations as heddle's element types and operations.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

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

// What reductions heddle serves: the pairs that the MPI standard allows, that there is a kernel for, and that
// the host computes as the kernel does. Others fall through, so that the host does what it always did.
//
// The host is asked when a pair is used for the first time, on a few values (PMPI_Reduce_local, local). Hosts
// differ: Debian's MPICH 4.0.2 takes the minimum of unsigned integers as if they were signed, and results
// must not change in the middle of a job, when heddle takes over. Asking all at once would not be safe: a
// host may have pairs on which it gives up (that one aborts on MPI_LAND of reals, which the standard does not
// have), and only a job that uses such a pair may meet that.
class DatatypeMap {
 public:
  // `self`: a communicator of this rank alone that returns errors.
  DatatypeMap(const HostMpi& mpi, MPI_Comm self);

  // The row when `op` on `type` is served, else null; then `*op_out` is set. A few loads, no search. Any
  // thread. MPI is initialised.
  const TypeRow* find(MPI_Datatype type, MPI_Op op, Op* op_out) {
    Op mapped{};
    if (!abi::find_op(op, &mapped)) return nullptr;
    Row& row = rows_[slots_.of(type)];
    if (row.handle != type) return nullptr;
    *op_out = mapped;
    if ((row.served.load(std::memory_order_relaxed) & bit(mapped)) != 0) [[likely]]
      return &row;
    return try_on_host(row, mapped) ? &row : nullptr;
  }

 private:
  struct Row : TypeRow {
    std::atomic<std::uint16_t> served{0};
    std::atomic<std::uint16_t> tried{0};
  };

  static constexpr std::uint16_t bit(Op op) {
    return static_cast<std::uint16_t>(1u << static_cast<unsigned>(op));
  }
  bool try_on_host(Row& row, Op op);

  const HostMpi* mpi_;
  const MPI_Comm self_;
  std::mutex asking_;  // the host: of collectives on one communicator there may be one at a time
  abi::DatatypeSlots slots_;
  Row rows_[abi::DatatypeSlots::kSlots];
};

}  // namespace heddle::backend
