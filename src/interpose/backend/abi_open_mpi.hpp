// Open MPI's ABI: handles are addresses of objects, and the predefined ones are in the library (libmpi.so.40,
// of Open MPI 4 and 5). Included by abi.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"
#include "interpose/backend/host_mpi.hpp"

namespace heddle::backend::abi {

static_assert(sizeof(MPI_Comm) == sizeof(void*) && sizeof(MPI_Datatype) == sizeof(void*),
              "not Open MPI's ABI");

template <typename Handle>
Handle handle_of(heddle_word word) {
  return reinterpret_cast<Handle>(word);
}

// Of communicators, for hashing: what allocators leave 0 is of no use.
inline unsigned number_of(MPI_Comm comm) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(comm) >> 4);
}

// A wrong handle other than these the host cannot tell either.
inline bool is_datatype(MPI_Datatype type) {
  return type != nullptr && type != MPI_DATATYPE_NULL;
}

// The size of a predefined datatype, of which n elements are n times as many bytes as they lie in memory; 0:
// it is none that is known to be one. C's, and others once they are learned.
std::size_t predefined_size(MPI_Datatype type);
void learn_types(const HostMpi& mpi);  // MPI is initialised
// Also of those whose size is the host's to say. 0: it has none.
std::size_t size_of(const HostMpi& mpi, MPI_Datatype type);

// A place of its own for each of some predefined datatypes.
class DatatypeSlots {
 public:
  static constexpr std::size_t kSlots = 512;
  // Up to 64 different ones; one may come twice.
  void fit(std::span<const MPI_Datatype> types);
  std::size_t of(MPI_Datatype type) const {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(type) >> 4) * factor_ >> kShift;
  }

 private:
  static constexpr unsigned kShift = 23;
  static_assert(kSlots == std::size_t{1} << (32 - kShift));
  std::uint32_t factor_ = 1;
};

bool find_op(MPI_Op op, Op* out);

}  // namespace heddle::backend::abi
