// The one function that libheddle_backend_mpich.so exports, and what it hands out.
#include <cstdio>
#include <type_traits>

#include "interpose/mpich/backend.hpp"

namespace heddle::mpich {
namespace {

static_assert(sizeof(MPI_Comm) == 4 && sizeof(MPI_Datatype) == 4 && sizeof(MPI_Op) == 4, "not MPICH's ABI");
static_assert(sizeof(MPI_Count) == 8 && sizeof(MPI_Aint) == sizeof(std::intptr_t));

// The MPI functions have no argument for it, so the backend of the process has to be found from here. It is
// made once and never destroyed: MPI calls back into it, in MPI_Finalize at the latest.
Backend* backend = nullptr;

int as_handle(heddle_word word) {
  return static_cast<int>(static_cast<std::uint32_t>(word));
}

int allreduce(const void* in, void* out, int count, heddle_word type, heddle_word op,
              heddle_word comm) noexcept {
  return backend->allreduce(in, out, count, as_handle(type), as_handle(op), as_handle(comm));
}

int bcast(void* buffer, int count, heddle_word type, int root, heddle_word comm) noexcept {
  return backend->bcast(buffer, count, as_handle(type), root, as_handle(comm));
}

int allreduce_c(const void* in, void* out, std::int64_t count, heddle_word type, heddle_word op,
                heddle_word comm) noexcept {
  return backend->allreduce<MPI_Count>(in, out, count, as_handle(type), as_handle(op), as_handle(comm));
}

int bcast_c(void* buffer, std::int64_t count, heddle_word type, int root, heddle_word comm) noexcept {
  return backend->bcast<MPI_Count>(buffer, count, as_handle(type), root, as_handle(comm));
}

int alloc_mem(std::intptr_t bytes, heddle_word info, void* out) noexcept {
  return backend->alloc_mem(bytes, as_handle(info), out);
}

int free_mem(void* memory) noexcept {
  return backend->free_mem(memory);
}

const char* algorithm(int collective, std::size_t bytes, heddle_word comm) noexcept {
  return backend->algorithm(collective == 0 ? Collective::allreduce : Collective::bcast, bytes,
                            as_handle(comm));
}

}  // namespace
}  // namespace heddle::mpich

extern "C" __attribute__((visibility("default"))) int heddle_backend_open(int abi,
                                                                          const HeddleHostSymbols* host,
                                                                          HeddleBackend* out, char* error,
                                                                          size_t error_bytes) {
  using namespace heddle::mpich;
  if (abi != HEDDLE_BACKEND_ABI) {
    std::snprintf(error, error_bytes, "it belongs to another version of libheddle_preload.so");
    return 1;
  }
  auto loaded = load_host_mpi(*host);
  if (!loaded.ok()) {
    std::snprintf(error, error_bytes, "%s", loaded.status().message().c_str());
    return 1;
  }
  const HostMpi mpi = loaded.value();
  backend = new Backend(mpi);
  *out = {allreduce,
          bcast,
          mpi.Allreduce_c != nullptr ? allreduce_c : nullptr,
          mpi.Bcast_c != nullptr ? bcast_c : nullptr,
          alloc_mem,
          free_mem,
          algorithm};
  return 0;
}
