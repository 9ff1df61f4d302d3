// The MPI standard's own ABI: handles are pointers, and the predefined ones are small numbers, the same in
// every library. Included by abi.hpp.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"
#include "interpose/backend/host_mpi.hpp"

namespace heddle::backend::abi {

static_assert(sizeof(MPI_Comm) == sizeof(void*) && sizeof(MPI_Datatype) == sizeof(void*),
              "not the standard's ABI");

template <typename Handle>
Handle handle_of(heddle_word word) {
  return reinterpret_cast<Handle>(word);
}

template <typename Handle>
std::uintptr_t word_of(Handle handle) {
  return reinterpret_cast<std::uintptr_t>(handle);
}

// Of communicators, for hashing: small numbers and addresses.
inline unsigned number_of(MPI_Comm comm) {
  return static_cast<unsigned>(word_of(comm));
}

// Each kind of predefined handle has a range of numbers, which begins with the null handle. What lies outside
// of all of them and below the first address is no handle.
inline constexpr std::uintptr_t kOps = 0x20;
inline constexpr std::size_t kMostOps = 0x20;
inline constexpr std::uintptr_t kDatatypes = 0x200;
inline constexpr std::size_t kMostDatatypes = 0x100;
inline constexpr std::uintptr_t kFirstAddress = 0x1000;

inline bool is_datatype(MPI_Datatype type) {
  const std::uintptr_t word = word_of(type);
  return word >= kFirstAddress || (word > kDatatypes && word < kDatatypes + kMostDatatypes);
}

// By number, less the null handle's.
struct Predefined {
  std::array<std::atomic<std::uint8_t>, kMostDatatypes>
      sizes{};  // of C's types, which every library has, and others once they are learned; 0: of another
  std::array<bool, kMostOps> is_op{};  // heddle has it
  std::array<Op, kMostOps> ops{};

  Predefined();
};
extern Predefined predefined;

// The size of a predefined datatype, of which n elements are n times as many bytes as they lie in memory; 0:
// it is none that is known to be one.
inline std::size_t predefined_size(MPI_Datatype type) {
  const std::uintptr_t number = word_of(type) - kDatatypes;
  return number < kMostDatatypes ? predefined.sizes[number].load(std::memory_order_relaxed) : 0;
}
void learn_types(const HostMpi& mpi);  // MPI is initialised
// Also of those whose size is the host's to say. 0: it has none.
std::size_t size_of(const HostMpi& mpi, MPI_Datatype type);

// A place of its own for each of some predefined datatypes.
class DatatypeSlots {
 public:
  static constexpr std::size_t kSlots = kMostDatatypes;
  void fit(std::span<const MPI_Datatype> /*types*/) {}
  std::size_t of(MPI_Datatype type) const { return word_of(type) % kSlots; }
};

inline bool find_op(MPI_Op op, Op* out) {
  const std::uintptr_t number = word_of(op) - kOps;
  if (number >= kMostOps || !predefined.is_op[number]) return false;
  *out = predefined.ops[number];
  return true;
}

}  // namespace heddle::backend::abi
