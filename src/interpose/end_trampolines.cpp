// What ends the MPI or a communicator: nothing of heddle's to serve, but it has to know before it happens.
#include <atomic>
#include <cstdio>

#include "interpose/resolution.hpp"

namespace heddle::interpose {
namespace {

using FinalizeFn = int (*)();
using FreeCommFn = int (*)(void* comm);

constinit std::atomic<HeddleEndFn> end_serving{nullptr};
constinit std::atomic<HeddleFreeCommFn> end_serving_comm{nullptr};

// Serves nothing, so it resolves nothing: most processes that end have called something else before.
FinalizeFn host_finalize() {
  const HostLibrary library = host_library();
  if (library.kind == HostKind::none) return nullptr;
  return reinterpret_cast<FinalizeFn>(find_symbol(library.handle, "PMPI_Finalize"));
}

int finalize_by(FinalizeFn finalize, const char* name, bool last) {
  if (finalize == nullptr) return without_mpi(name, finalize);
  if (const HeddleEndFn end = end_serving.load(std::memory_order_acquire); end != nullptr) end(last ? 1 : 0);
  return finalize();
}

// A function that ends a communicator. It is looked up once: programs make and free communicators by the
// million.
struct CommEnd {
  const char* name;
  bool past_tools;  // one of PMPI
  std::atomic<FreeCommFn> next{nullptr};

  FreeCommFn find();
  int call(void* comm);
};

FreeCommFn CommEnd::find() {
  const HostLibrary host = host_library();
  const char* const mpi_name = past_tools ? name + 1 : name;
  char pmpi_name[64];
  std::snprintf(pmpi_name, sizeof pmpi_name, "P%s", mpi_name);
  void* found = past_tools ? nullptr : tools_function(mpi_name);
  if (found == nullptr) found = find_symbol(host.handle, pmpi_name);
  if (found == nullptr) say("%s: %s has no such function", name, host.path);
  next.store(reinterpret_cast<FreeCommFn>(found), std::memory_order_release);
  return reinterpret_cast<FreeCommFn>(found);
}

int CommEnd::call(void* comm) {
  FreeCommFn free_it = next.load(std::memory_order_acquire);
  if (free_it == nullptr) {
    if (!resolve()) return without_mpi(name, static_cast<FreeCommFn>(nullptr), comm);
    free_it = find();
    if (free_it == nullptr) return kNoMpi;
  }
  const HeddleFreeCommFn end = end_serving_comm.load(std::memory_order_acquire);
  return end != nullptr ? end(free_it, comm) : free_it(comm);
}

constinit CommEnd comm_free{"MPI_Comm_free", false};
constinit CommEnd past_tools_comm_free{"PMPI_Comm_free", true};
constinit CommEnd comm_disconnect{"MPI_Comm_disconnect", false};
constinit CommEnd past_tools_comm_disconnect{"PMPI_Comm_disconnect", true};

}  // namespace

void set_ends(HeddleEndFn end, HeddleFreeCommFn free_comm) {
  end_serving.store(end, std::memory_order_release);
  end_serving_comm.store(free_comm, std::memory_order_release);
}

}  // namespace heddle::interpose

using namespace heddle::interpose;

HEDDLE_EXPORT int MPI_Finalize(void) {
  void* const tools = tools_function("MPI_Finalize");
  return finalize_by(tools != nullptr ? reinterpret_cast<FinalizeFn>(tools) : host_finalize(), "MPI_Finalize",
                     tools == nullptr);
}

HEDDLE_EXPORT int PMPI_Finalize(void) {
  return finalize_by(host_finalize(), "PMPI_Finalize", true);
}

HEDDLE_EXPORT int MPI_Comm_free(void* comm) {
  return comm_free.call(comm);
}

HEDDLE_EXPORT int PMPI_Comm_free(void* comm) {
  return past_tools_comm_free.call(comm);
}

HEDDLE_EXPORT int MPI_Comm_disconnect(void* comm) {
  return comm_disconnect.call(comm);
}

HEDDLE_EXPORT int PMPI_Comm_disconnect(void* comm) {
  return past_tools_comm_disconnect.call(comm);
}
