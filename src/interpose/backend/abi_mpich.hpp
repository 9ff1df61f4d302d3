// MPICH's ABI: handles are integers of 32 bits that say what they stand for. Included by abi.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"
#include "interpose/backend/host_mpi.hpp"

namespace heddle::backend::abi {

static_assert(sizeof(MPI_Comm) == 4 && sizeof(MPI_Datatype) == 4 && sizeof(MPI_Op) == 4, "not MPICH's ABI");

// The high half of a word is undefined.
template <typename Handle>
Handle handle_of(heddle_word word) {
  return static_cast<Handle>(static_cast<std::uint32_t>(word));
}

// Of communicators, for hashing.
inline unsigned number_of(MPI_Comm comm) {
  return static_cast<unsigned>(comm);
}

// A handle has its kind of object in bits 26 to 29 and how it is stored in bits 30 and 31.
inline bool is_datatype(MPI_Datatype type) {
  const auto word = static_cast<unsigned>(type);
  return (word >> 26 & 0xfu) == 3 && word >> 30 != 0;
}

// The size of a predefined datatype, of which n elements are n times as many bytes as they lie in memory; 0:
// it is none that is known to be one. A predefined handle is 0x4c00SSII: SS the size in bytes, II the number
// of the type.
constexpr std::size_t predefined_size(MPI_Datatype type) {
  const auto word = static_cast<unsigned>(type);
  return (word & 0xff000000u) == 0x4c000000u ? (word >> 8) & 0xffu : 0;
}
inline void learn_types(const HostMpi& /*mpi*/) {}
// The same, asking the host where that is needed: its handle may be null, or of another size, in a library
// that was built for other sizes (long double of 8 bytes, 8-byte default integers).
inline std::size_t size_of(const HostMpi& /*mpi*/, MPI_Datatype type) {
  return predefined_size(type);
}

// A place of its own for each of some predefined datatypes.
class DatatypeSlots {
 public:
  static constexpr std::size_t kSlots = 128;
  void fit(std::span<const MPI_Datatype> /*types*/) {}
  std::size_t of(MPI_Datatype type) const { return static_cast<unsigned>(type) % kSlots; }
};

inline bool find_op(MPI_Op op, Op* out) {
  constexpr unsigned kFirst = 0x58000001u;  // MPI_MAX
  constexpr Op kOps[kOpCount] = {Op::max,  Op::min, Op::sum, Op::prod, Op::land,
                                 Op::band, Op::lor, Op::bor, Op::lxor, Op::bxor};
  const unsigned index = static_cast<unsigned>(op) - kFirst;
  if (index >= kOpCount) return false;
  *out = kOps[index];
  return true;
}

}  // namespace heddle::backend::abi
