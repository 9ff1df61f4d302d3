// The one function that a backend exports, and what it hands out.
#include <cstdio>
#include <iterator>

#include "interpose/backend/abi.hpp"
#include "interpose/backend/backend.hpp"
#include "interpose/backend/staged_calls.hpp"

namespace heddle::backend {
namespace {

static_assert(sizeof(MPI_Count) == 8 && sizeof(MPI_Aint) == sizeof(std::intptr_t));

// The MPI functions have no argument for it, so the backend of the process has to be found from here. It is
// made once and never destroyed: MPI calls back into it, in MPI_Finalize at the latest.
Backend* backend = nullptr;

MPI_Datatype type_of(heddle_word word) {
  return abi::handle_of<MPI_Datatype>(word);
}
MPI_Op op_of(heddle_word word) {
  return abi::handle_of<MPI_Op>(word);
}
MPI_Comm comm_of(heddle_word word) {
  return abi::handle_of<MPI_Comm>(word);
}

// Exceptions may pass: an error handler of the user's, which the host calls in here, may throw one.

int allreduce(const void* in, void* out, int count, heddle_word type, heddle_word op, heddle_word comm) {
  return backend->allreduce(in, out, count, type_of(type), op_of(op), comm_of(comm));
}

int bcast(void* buffer, int count, heddle_word type, int root, heddle_word comm) {
  return backend->bcast(buffer, count, type_of(type), root, comm_of(comm));
}

int allreduce_c(const void* in, void* out, std::int64_t count, heddle_word type, heddle_word op,
                heddle_word comm) {
  return backend->allreduce<MPI_Count>(in, out, count, type_of(type), op_of(op), comm_of(comm));
}

int bcast_c(void* buffer, std::int64_t count, heddle_word type, int root, heddle_word comm) {
  return backend->bcast<MPI_Count>(buffer, count, type_of(type), root, comm_of(comm));
}

int reduce(const void* in, void* out, int count, heddle_word type, heddle_word op, int root,
           heddle_word comm) {
  return backend->reduce(in, out, count, type_of(type), op_of(op), root, comm_of(comm));
}

int reduce_c(const void* in, void* out, std::int64_t count, heddle_word type, heddle_word op, int root,
             heddle_word comm) {
  return backend->reduce<MPI_Count>(in, out, count, type_of(type), op_of(op), root, comm_of(comm));
}

int allgather(const void* in, int in_count, heddle_word in_type, void* out, int out_count,
              heddle_word out_type, heddle_word comm) {
  return backend->allgather(
      {in, in_count, type_of(in_type), out, out_count, type_of(out_type), comm_of(comm), false});
}

int allgather_c(const void* in, std::int64_t in_count, heddle_word in_type, void* out, std::int64_t out_count,
                heddle_word out_type, heddle_word comm) {
  return backend->allgather(
      {in, in_count, type_of(in_type), out, out_count, type_of(out_type), comm_of(comm), true});
}

int barrier(heddle_word comm) {
  return backend->barrier(comm_of(comm));
}

int alloc_mem(std::intptr_t bytes, heddle_word info, void* out) {
  return backend->alloc_mem(bytes, abi::handle_of<MPI_Info>(info), out);
}

int free_mem(void* memory) {
  return backend->free_mem(memory);
}

void end(int last) {
  backend->end(last != 0);
}

int free_comm(int (*next)(void*), void* comm) {
  return backend->free_comm(next, static_cast<MPI_Comm*>(comm));
}

const char* algorithm(int collective, std::size_t bytes, heddle_word comm) {
  static constexpr Collective kKnown[] = {Collective::allreduce, Collective::bcast, Collective::barrier,
                                          Collective::reduce, Collective::allgather};
  if (collective < 0 || collective >= static_cast<int>(std::size(kKnown))) return "host";
  return backend->algorithm(kKnown[collective], bytes, comm_of(comm));
}

}  // namespace
}  // namespace heddle::backend

extern "C" __attribute__((visibility("default"))) int heddle_backend_open(int abi,
                                                                          const HeddleHostSymbols* host,
                                                                          HeddleBackend* out, char* error,
                                                                          size_t error_bytes) {
  using namespace heddle::backend;
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
  auto* const staged = new StagedCalls(*backend, *host);
  *out = {{allreduce, bcast, reduce, allgather, mpi.Allreduce_c != nullptr ? allreduce_c : nullptr,
           mpi.Bcast_c != nullptr ? bcast_c : nullptr, mpi.Reduce_c != nullptr ? reduce_c : nullptr,
           mpi.Allgather_c != nullptr ? allgather_c : nullptr, barrier, alloc_mem, free_mem},
          end,
          free_comm,
          algorithm,
          staged_functions(*staged)};
  return 0;
}
