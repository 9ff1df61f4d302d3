#include "interpose/backend/host_mpi.hpp"

#include <string>

namespace heddle::backend {

Result<HostMpi> load_host_mpi(const HeddleHostSymbols& symbols) {
  HostMpi mpi;
  mpi.version = symbols.version;
#define HEDDLE_LOAD(name)                                                                         \
  mpi.name = reinterpret_cast<decltype(mpi.name)>(symbols.find(symbols.handle, "PMPI_" #name));   \
  if (mpi.name == nullptr) {                                                                      \
    return Status(Code::unsupported, std::string(symbols.path) + " has no function PMPI_" #name); \
  }
  HEDDLE_HOST_FUNCTIONS(HEDDLE_LOAD)
#undef HEDDLE_LOAD
  mpi.Allreduce_c = reinterpret_cast<AllreduceC>(symbols.find(symbols.handle, "PMPI_Allreduce_c"));
  mpi.Bcast_c = reinterpret_cast<BcastC>(symbols.find(symbols.handle, "PMPI_Bcast_c"));
  mpi.Reduce_c = reinterpret_cast<ReduceC>(symbols.find(symbols.handle, "PMPI_Reduce_c"));
  mpi.Allgather_c = reinterpret_cast<AllgatherC>(symbols.find(symbols.handle, "PMPI_Allgather_c"));
  mpi.Pack_c = reinterpret_cast<PackC>(symbols.find(symbols.handle, "PMPI_Pack_c"));
  mpi.Unpack_c = reinterpret_cast<UnpackC>(symbols.find(symbols.handle, "PMPI_Unpack_c"));
  mpi.Type_get_envelope_c =
      reinterpret_cast<GetEnvelopeC>(symbols.find(symbols.handle, "PMPI_Type_get_envelope_c"));
  mpi.tolerates_failures = static_cast<const bool*>(symbols.find(symbols.handle, "ompi_ftmpi_enabled"));
  return mpi;
}

}  // namespace heddle::backend
