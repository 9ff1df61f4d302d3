#include "interpose/backend/abi.hpp"
#include "interpose/backend/predefined.hpp"

namespace heddle::backend::abi {
namespace {

Predefined make_predefined() {
  Predefined all;
  for (const SizedType& one : kTypesOfC)
    all.sizes[word_of(one.type) - kDatatypes] = static_cast<std::uint8_t>(one.bytes);
  for (const MappedOp& one : kMappedOps) {
    all.is_op[word_of(one.op) - kOps] = true;
    all.ops[word_of(one.op) - kOps] = one.mapped;
  }
  return all;
}

}  // namespace

const Predefined kPredefined = make_predefined();

// The standard has hosts say so of what they lack, without an error: 0 or MPI_UNDEFINED.
std::size_t size_of(const HostMpi& mpi, MPI_Datatype type) {
  MPI_Count bytes = 0;
  if (!is_datatype(type) || mpi.Type_size_x(type, &bytes) != MPI_SUCCESS || bytes < 0) return 0;
  return static_cast<std::size_t>(bytes);
}

}  // namespace heddle::backend::abi
