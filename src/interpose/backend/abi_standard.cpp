#include "interpose/backend/abi.hpp"
#include "interpose/backend/predefined.hpp"

namespace heddle::backend::abi {

Predefined::Predefined() {
  for (const SizedType& one : kTypesOfC)
    sizes[word_of(one.type) - kDatatypes] = static_cast<std::uint8_t>(one.bytes);
  for (const MappedOp& one : kMappedOps) {
    is_op[word_of(one.op) - kOps] = true;
    ops[word_of(one.op) - kOps] = one.mapped;
  }
}

Predefined predefined;

void learn_types(const HostMpi& mpi) {
  for (const SizedType& one : sizes_of_others(mpi))
    predefined.sizes[word_of(one.type) - kDatatypes] = static_cast<std::uint8_t>(one.bytes);
}

// The standard has hosts say so of what they lack, without an error: 0 or MPI_UNDEFINED.
std::size_t size_of(const HostMpi& mpi, MPI_Datatype type) {
  MPI_Count bytes = 0;
  if (!is_datatype(type) || mpi.Type_size_x(type, &bytes) != MPI_SUCCESS || bytes < 0) return 0;
  return static_cast<std::size_t>(bytes);
}

}  // namespace heddle::backend::abi
