// The names of calls that stay with the host MPI: a backend looks where their buffers lie, and only where the
// process has loaded CUDA.
//
// From C, and from Fortran where that calls the MPI_ names (MPICH's bindings do). PMPI names remain the
// host's.
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdio>

#include "interpose/detect.hpp"
#include "interpose/resolution.hpp"

namespace heddle::interpose {
namespace {

// Where calls go: to functions that find it out, at first.
struct Targets {
#define HEDDLE_TARGET(call, name, parameters, arguments) std::atomic<int(*) parameters> name;
  HEDDLE_STAGED_CALLS(HEDDLE_TARGET)
#undef HEDDLE_TARGET
};
extern Targets targets;

template <typename... Arguments>
int missing(const char* name, Arguments... /*arguments*/) {
  say("%s: the host MPI has no such function", name);
  return kNoMpi;
}

#define HEDDLE_LIST(...) __VA_ARGS__
#define HEDDLE_FIRST(call, name, parameters, arguments)                                    \
  int first_##name parameters {                                                            \
    if (!resolve()) return without_mpi("MPI_" #name, first_##name, HEDDLE_LIST arguments); \
    return targets.name.load(std::memory_order_acquire) arguments;                         \
  }                                                                                        \
  int missing_##name parameters {                                                          \
    return missing("MPI_" #name, HEDDLE_LIST arguments);                                   \
  }
HEDDLE_STAGED_CALLS(HEDDLE_FIRST)
#undef HEDDLE_FIRST

constinit Targets targets = {
#define HEDDLE_INITIAL(call, name, parameters, arguments) first_##name,
    HEDDLE_STAGED_CALLS(HEDDLE_INITIAL)
#undef HEDDLE_INITIAL
};

// ---- What stands in for large-count functions that the host does not have

#define HEDDLE_NARROW(plain, name, parameters, arguments)                                              \
  int narrow_##name parameters {                                                                       \
    return narrow("MPI_" #name, targets.plain.load(std::memory_order_acquire), HEDDLE_LIST arguments); \
  }
HEDDLE_STAGED_NARROWED(HEDDLE_NARROW)
#undef HEDDLE_NARROW
#undef HEDDLE_LIST

void* next_function(void* host, const char* pmpi_name) {
  const char* const mpi_name = pmpi_name + 1;
  void* const next = dlsym(RTLD_NEXT, mpi_name);
  if (next != nullptr && next != find_symbol(host, mpi_name)) {
    if (void* const tools = tools_function(mpi_name); tools != nullptr) return tools;
  }
  return find_symbol(host, pmpi_name);
}

}  // namespace

void* tools_function(const char* mpi_name) {
  char pmpi_name[64];
  std::snprintf(pmpi_name, sizeof pmpi_name, "P%s", mpi_name);
  Dl_info where;
  Dl_info mpi;
  void* const next = dlsym(RTLD_NEXT, mpi_name);
  void* const nexts_mpi = dlsym(RTLD_NEXT, pmpi_name);
  const bool is_tools = next != nullptr && (nexts_mpi == nullptr || dladdr(next, &where) == 0 ||
                                            dladdr(nexts_mpi, &mpi) == 0 || where.dli_fbase != mpi.dli_fbase);
  return is_tools ? next : nullptr;
}

HeddleStagedCalls next_calls(void* host) {
  HeddleStagedCalls next = {};
#define HEDDLE_FIND(call, name, parameters, arguments) \
  next.name = reinterpret_cast<int(*) parameters>(next_function(host, "PMPI_" #name));
  HEDDLE_STAGED_CALLS(HEDDLE_FIND)
#undef HEDDLE_FIND
  return next;
}

void set_staged(const HeddleStagedCalls& calls) {
#define HEDDLE_SET(call, name, parameters, arguments) \
  targets.name.store(calls.name != nullptr ? calls.name : missing_##name, std::memory_order_release);
  HEDDLE_STAGED_CALLS(HEDDLE_SET)
#undef HEDDLE_SET
#define HEDDLE_SET(plain, name, parameters, arguments) \
  if (calls.name == nullptr) targets.name.store(narrow_##name, std::memory_order_release);
  HEDDLE_STAGED_NARROWED(HEDDLE_SET)
#undef HEDDLE_SET
}

}  // namespace heddle::interpose

#define HEDDLE_TRAMPOLINE(call, name, parameters, arguments)                          \
  HEDDLE_EXPORT int MPI_##name parameters {                                           \
    return heddle::interpose::targets.name.load(std::memory_order_acquire) arguments; \
  }
HEDDLE_STAGED_CALLS(HEDDLE_TRAMPOLINE)
#undef HEDDLE_TRAMPOLINE
