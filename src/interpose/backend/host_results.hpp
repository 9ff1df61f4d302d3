// HEDDLE_CHECK=2: what heddle has given is compared with what the host MPI gives for the same call.
#pragma once

#include <complex>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "interpose/backend/host_mpi.hpp"

namespace heddle::backend {

// An allreduce as the host is to repeat it.
struct RepeatedSum {
  const void* in;   // of each rank, as it was before the call
  const void* out;  // heddle's; null on ranks that are given nothing
  std::size_t count;
  DType type;
  Op op;
  MPI_Datatype host_type;
  MPI_Op host_op;
};

// Collective calls of the host's on the user's communicator: all ranks make the same ones, piece by piece,
// and end with a status of one kind: on ranks that found a difference it says which, on the others who did. A
// failure of the host's own is that rank's. Want of memory would leave the others in the host's calls without
// end, so all of it is taken before: make_room(), of this very sum or of so many bytes of a bcast or, each,
// an allgather, may throw; then nothing does until all have agreed.
class HostResults {
 public:
  HostResults(const HostMpi& mpi, MPI_Comm comm, int rank, int size)
      : mpi_(mpi), comm_(comm), rank_(rank), size_(size) {}

  void make_room(const RepeatedSum& sum);
  void make_room(std::size_t bytes);
  void make_room_to_gather(std::size_t each);

  // Integers, and minima and maxima, are to be equal. Sums and products of reals may differ by what rounding
  // makes of other orders: sums of P ranks' x by 2 (P - 1) u sum|x|, where u is the unit roundoff (Higham,
  // Accuracy and Stability of Numerical Algorithms, section 4.2); where they may overflow, or an x is no
  // finite number, anything goes. And the bits are to be the same on all ranks.
  Status allreduce(const RepeatedSum& sum);
  // The same, where the root alone is given something.
  Status reduce(const RepeatedSum& sum);
  // Bytes, of which each rank has its copy.
  Status bcast(const void* data, std::size_t bytes, int root);
  // Of each rank as many bytes: what this one gives, and what has come of all.
  Status allgather(const std::byte* mine, const std::byte* all, std::size_t each);

 private:
  // What is kept of a difference until all have agreed: words take memory.
  struct Difference {
    std::size_t place = 0;
    std::byte host[sizeof(std::complex<long double>)] = {};  // an element
  };
  // What is common to these: which result differs is told to all, and they all go on where none does.
  Status compare(const RepeatedSum& sum);
  Status agree(bool found, int* who) const;
  Status compare_bits(const void* out, std::size_t bytes) const;
  // Of `given`, which heddle has given; `found`: where it differs.
  Status judge_bytes(const std::optional<Difference>& found, const std::byte* given, std::size_t bytes) const;
  std::size_t piece_of_each(std::size_t each) const;

  const HostMpi& mpi_;
  const MPI_Comm comm_;
  const int rank_;
  const int size_;
  std::vector<std::byte> host_;     // a piece of the host's result
  std::vector<double> magnitudes_;  // of its elements: see Magnitudes
};

}  // namespace heddle::backend
