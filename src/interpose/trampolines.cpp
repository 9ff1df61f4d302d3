// libheddle_preload.so: the MPI names that heddle takes over, for any MPI.
//
// The library is loaded into whatever a user starts with LD_PRELOAD set, launchers and shells included. So it
// has no constructor, needs nothing but libc (no C++ run time), and does nothing at all until an MPI function
// is called. The first call finds the MPI of the process and opens the backend for its ABI; from then on a
// call is one load and one indirect jump away from the backend, or from the host's own function where there
// is no backend.
//
// Here are those that it serves; staged_trampolines.cpp has those in which it only looks for buffers on GPUs,
// and end_trampolines.cpp those that end what it serves.
//
// PMPI names remain the host's, but for calls that Fortran bindings and tools make (callers.hpp), what has to
// be known (the end), and what may have been given out by heddle (memory).
//
// The process-wide state below is what LD_PRELOAD is by nature; everything behind it belongs to a backend
// object.
#include <dlfcn.h>
#include <pthread.h>
#include <strings.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "base/no_sigpipe.hpp"
#include "interpose/backend_abi.h"
#include "interpose/callers.hpp"
#include "interpose/detect.hpp"
#include "interpose/resolution.hpp"

namespace {

using heddle::interpose::find_host_library;
using heddle::interpose::find_symbol;
using heddle::interpose::HostKind;
using heddle::interpose::HostLibrary;
using heddle::interpose::is_in_front_of_mpi;
using heddle::interpose::narrow;
using heddle::interpose::path_beside;
using heddle::interpose::resolve;
using heddle::interpose::say;
using heddle::interpose::without_mpi;

// Where calls go.
struct Targets {
#define HEDDLE_TARGET(name, parameters, arguments) std::atomic<int(*) parameters> name;
  HEDDLE_SERVED_CALLS(HEDDLE_TARGET)
#undef HEDDLE_TARGET
};
// What the program calls: the backend's functions, or the host's where there is none. And the host's in any
// case.
extern Targets served;
extern Targets direct;

// The calls that come before anybody knows where they go: they find out, and follow.
#define HEDDLE_LIST(...) __VA_ARGS__
#define HEDDLE_FIRST(name, parameters, arguments)                                              \
  template <Targets* to>                                                                       \
  int first_##name parameters {                                                                \
    if (!resolve()) return without_mpi("MPI_" #name, first_##name<to>, HEDDLE_LIST arguments); \
    return to->name.load(std::memory_order_acquire) arguments;                                 \
  }
HEDDLE_SERVED_CALLS(HEDDLE_FIRST)
#undef HEDDLE_FIRST

template <Targets* to>
constexpr Targets unresolved() {
  return {
#define HEDDLE_INITIAL(name, parameters, arguments) first_##name<to>,
      HEDDLE_SERVED_CALLS(HEDDLE_INITIAL)
#undef HEDDLE_INITIAL
  };
}
constinit Targets served = unresolved<&served>();
constinit Targets direct = unresolved<&direct>();
constinit std::atomic<const char* (*)(int, size_t, heddle_word)> ask_algorithm{nullptr};

constinit pthread_mutex_t resolve_mutex = PTHREAD_MUTEX_INITIALIZER;
constinit bool resolved = false;  // under the mutex
constinit HostLibrary host;       // written once, under the mutex

// Whether the first variable of the list that is set says 0; where none is, yes: one process of the job (or
// of the node) speaks.
bool is_first_rank(const char* const* names, int count) {
  for (int i = 0; i < count; ++i) {
    if (const char* value = getenv(names[i]); value != nullptr && *value != '\0')
      return std::strcmp(value, "0") == 0;
  }
  return true;
}

bool first_of_job() {
  static constexpr const char* kNames[] = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"};
  return is_first_rank(kNames, 4);
}

bool first_of_node() {
  static constexpr const char* kNames[] = {"MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCAL_RANK",
                                           "SLURM_LOCALID"};
  return is_first_rank(kNames, 4);
}

bool is_one_of(const char* value, std::initializer_list<const char*> words) {
  if (value == nullptr) return false;
  for (const char* const word : words) {
    if (strcasecmp(value, word) == 0) return true;
  }
  return false;
}

// The backend parses HEDDLE_*; these two are read here as well because they must count where there is no
// backend.
bool is_silent() {
  const char* log = getenv("HEDDLE_LOG");
  const char* enable = getenv("HEDDLE_ENABLE");
  return is_one_of(log, {"none", "error"}) || is_one_of(enable, {"0", "off", "no", "false"});
}

// ---- What stands in for large-count functions that the host does not have

#define HEDDLE_NARROW(plain, name, parameters, arguments)                                          \
  template <Targets* to>                                                                           \
  int narrow_##name parameters {                                                                   \
    return narrow("MPI_" #name, to->plain.load(std::memory_order_acquire), HEDDLE_LIST arguments); \
  }
HEDDLE_SERVED_NARROWED(HEDDLE_NARROW)
#undef HEDDLE_NARROW
#undef HEDDLE_LIST

// ---- Resolution

void* open_backend_file(const char* name, char* path, size_t bytes) {
  char relative[128];
  // Installed: in a folder of its own, out of the way of whoever lists the library path. In a build tree:
  // beside us.
  for (const char* folder : {"heddle/", ""}) {
    std::snprintf(relative, sizeof relative, "%s%s", folder, name);
    if (!path_beside(relative, path, bytes)) return nullptr;
    if (access(path, F_OK) != 0) continue;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  }
  path_beside("heddle/", path, bytes);
  return nullptr;
}

// Null: there is none for it.
const char* backend_file(HostKind kind) {
  switch (kind) {
    case HostKind::mpich_abi:
      return "libheddle_backend_mpich.so";
    case HostKind::open_mpi:
      return "libheddle_backend_open_mpi.so";
    case HostKind::standard_abi:
      return "libheddle_backend_mpi_abi.so";
    case HostKind::none:
    case HostKind::other:
      break;
  }
  return nullptr;
}

bool open_backend(const char* file, const HeddleBackend& own, HeddleBackend* out) {
  static char path[4200];
  path[0] = '\0';
  dlerror();
  void* library = open_backend_file(file, path, sizeof path);
  if (library == nullptr) {
    const char* why = dlerror();
    if (first_of_node() && !is_silent()) {
      say("cannot load %s (%s); every call goes to the host MPI unchanged", file,
          why != nullptr ? why : "there is no such file in heddle/ beside libheddle_preload.so");
    }
    return false;
  }
  auto open = reinterpret_cast<HeddleBackendOpenFn>(dlsym(library, HEDDLE_BACKEND_OPEN_NAME));
  static HeddleHostSymbols symbols;
  symbols = {find_symbol, host.handle, host.path, host.version, own.staged};
  static char error[512] = "it is no heddle backend";
  if (open != nullptr && open(HEDDLE_BACKEND_ABI, &symbols, out, error, sizeof error) == 0) return true;
  if (first_of_node() && !is_silent()) say("%s: %s; every call goes to the host MPI unchanged", path, error);
  return false;
}

void say_unknown() {
  if (!first_of_job() || is_silent()) return;
  say("this process uses %s (%s), which this heddle has no backend for; every call goes to it unchanged",
      host.version[0] != '\0' ? host.version : "an unknown MPI", host.path);
}

template <Targets* to>
void set(const HeddleServedCalls& calls) {
#define HEDDLE_SET(plain, name, parameters, arguments) \
  to->name.store(calls.name != nullptr ? calls.name : narrow_##name<to>, std::memory_order_release);
  HEDDLE_SERVED_NARROWED(HEDDLE_SET)
#undef HEDDLE_SET
#define HEDDLE_SET(name, parameters, arguments) \
  if (calls.name != nullptr) to->name.store(calls.name, std::memory_order_release);
  HEDDLE_SERVED_CALLS(HEDDLE_SET)
#undef HEDDLE_SET
}

HeddleBackend host_functions() {
  HeddleBackend functions = {};
#define HEDDLE_FIND(name, parameters, arguments) \
  functions.served.name = reinterpret_cast<int(*) parameters>(find_symbol(host.handle, "PMPI_" #name));
  HEDDLE_SERVED_CALLS(HEDDLE_FIND)
#undef HEDDLE_FIND
  functions.staged = heddle::interpose::next_calls(host.handle);
  return functions;
}

// False when the process has no MPI at all (yet); then nothing is decided.
bool resolve_locked() {
  if (resolved) return true;
  find_host_library(&host);
  if (host.kind == HostKind::none) return false;
  const HeddleBackend own = host_functions();
  HeddleBackend backend = {};
  const char* const file = backend_file(host.kind);
  const bool has_backend = file != nullptr && open_backend(file, own, &backend);
  if (file == nullptr) say_unknown();
  const HeddleBackend& to = has_backend ? backend : own;
  ask_algorithm.store(to.algorithm, std::memory_order_release);
  heddle::interpose::set_ends(to.end, to.free_comm);
  set<&direct>(own.served);
  set<&served>(to.served);
  heddle::interpose::set_staged(to.staged);
  resolved = true;
  return true;
}

// For a PMPI function that will return to `caller`.
const Targets& called_from(const void* caller) {
  return is_in_front_of_mpi(caller) ? served : direct;
}

}  // namespace

void heddle::interpose::say(const char* format, ...) {
  const char* rank = getenv("PMI_RANK");
  if (rank == nullptr) rank = getenv("OMPI_COMM_WORLD_RANK");
  char line[2048];
  int used = std::snprintf(line, sizeof line, "heddle[%s] warning: ", rank != nullptr ? rank : "-");
  va_list arguments;
  va_start(arguments, format);
  const int more =
      std::vsnprintf(line + used, sizeof line - static_cast<size_t>(used) - 1, format, arguments);
  va_end(arguments);
  if (more < 0) return;
  used += more;
  if (used > static_cast<int>(sizeof line) - 2) used = static_cast<int>(sizeof line) - 2;
  line[used++] = '\n';
  const heddle::NoSigpipe quiet;
  const ssize_t written = write(STDERR_FILENO, line, static_cast<size_t>(used));
  (void)written;  // nowhere left to complain
}

HostLibrary heddle::interpose::host_library() {
  HostLibrary library;
  pthread_mutex_lock(&resolve_mutex);
  if (resolved)
    library = host;
  else
    find_host_library(&library);
  pthread_mutex_unlock(&resolve_mutex);
  return library;
}

bool heddle::interpose::resolve() {
  pthread_mutex_lock(&resolve_mutex);
  const bool found = resolve_locked();
  pthread_mutex_unlock(&resolve_mutex);
  return found;
}

#define HEDDLE_TRAMPOLINE(name, parameters, arguments)            \
  HEDDLE_EXPORT int MPI_##name parameters {                       \
    return served.name.load(std::memory_order_acquire) arguments; \
  }
HEDDLE_SERVED_CALLS(HEDDLE_TRAMPOLINE)
#undef HEDDLE_TRAMPOLINE

#define HEDDLE_TRAMPOLINE(name, parameters, arguments)            \
  HEDDLE_EXPORT int PMPI_##name parameters {                      \
    const Targets& to = called_from(__builtin_return_address(0)); \
    return to.name.load(std::memory_order_acquire) arguments;     \
  }
HEDDLE_SERVED_COLLECTIVES(HEDDLE_TRAMPOLINE)
HEDDLE_SERVED_ALLOC_MEM(HEDDLE_TRAMPOLINE)
#undef HEDDLE_TRAMPOLINE

// Of MPI_Alloc_mem's memory too.
HEDDLE_EXPORT int PMPI_Free_mem(void* memory) {
  return served.Free_mem.load(std::memory_order_acquire)(memory);
}

// "0.1.0": whoever finds this symbol runs under the preload library.
HEDDLE_EXPORT const char* heddle_preload_version(void) {
  return HEDDLE_VERSION;
}

// The name of what serves `bytes` bytes of a collective (0 allreduce, 1 bcast, 2 barrier, 3 reduce, 4
// allgather, of each rank) on a communicator (the handle, as a word) at this moment: an algorithm's name, or
// "host". Local; never null.
HEDDLE_EXPORT const char* heddle_preload_algorithm(int collective, size_t bytes, heddle_word comm) {
  auto ask = ask_algorithm.load(std::memory_order_acquire);
  return ask != nullptr ? ask(collective, bytes, comm) : "host";
}
