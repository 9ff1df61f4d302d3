/* What the preload library and a backend say to each other. The trampolines know no MPI: handles travel as
 * machine words, which hold MPICH's 32-bit integers (in the low half; the high half is undefined) as well as
 * the pointers of Open MPI and of the standard's ABI. A backend is compiled against one mpi.h and exports one
 * function, heddle_backend_open.
 */
#ifndef HEDDLE_INTERPOSE_BACKEND_ABI_H
#define HEDDLE_INTERPOSE_BACKEND_ABI_H

#include <stddef.h>
#include <stdint.h>

#include "interpose/staged_calls.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Another one whenever what follows changes; with the number of calls in staged_calls.h by itself. Libraries
 * of two builds refuse each other then. */
#define HEDDLE_BACKEND_ABI (10000 + (int)(sizeof(HeddleStagedCalls) / sizeof(void*)))
#define HEDDLE_BACKEND_OPEN_NAME "heddle_backend_open"

/* The MPI library that the process has loaded. Borrowed: valid for as long as the process runs. */
typedef struct HeddleHostSymbols {
  void* (*find)(void* handle,
                const char* name); /* dlsym's contract: null where the library has no such name */
  void* handle;
  const char* path;       /* of the library, for messages */
  const char* version;    /* first line of MPI_Get_library_version */
  HeddleStagedCalls next; /* where calls that are passed on go: the host's functions, or a tool's */
} HeddleHostSymbols;

/* The MPI functions that heddle serves: X(name, parameters, arguments), with MPI's name, less "MPI_". Handles
 * are words, MPI_Count is int64_t; they return MPI's error codes. */
// clang-format off
#define HEDDLE_SERVED_BUFFERS(T, X, C) \
  T(X, Allreduce, (const void* in, void* out, C count, heddle_word type, heddle_word op, heddle_word comm), (in, out, count, type, op, comm)) \
  T(X, Bcast, (void* buffer, C count, heddle_word type, int root, heddle_word comm), (buffer, count, type, root, comm)) \
  T(X, Reduce, (const void* in, void* out, C count, heddle_word type, heddle_word op, int root, heddle_word comm), (in, out, count, type, op, root, comm)) \
  T(X, Allgather, (const void* in, C in_count, heddle_word in_type, void* out, C out_count, heddle_word out_type, heddle_word comm), \
    (in, in_count, in_type, out, out_count, out_type, comm))
#define HEDDLE_SERVED_PLAIN(X, name, parameters, arguments) X(name, parameters, arguments)
#define HEDDLE_SERVED_LARGE(X, name, parameters, arguments) X(name##_c, parameters, arguments)
#define HEDDLE_SERVED_NARROW(X, name, parameters, arguments) X(name, name##_c, parameters, arguments)

#define HEDDLE_SERVED_COLLECTIVES(X) \
  HEDDLE_SERVED_BUFFERS(HEDDLE_SERVED_PLAIN, X, int) \
  HEDDLE_SERVED_BUFFERS(HEDDLE_SERVED_LARGE, X, int64_t) \
  X(Barrier, (heddle_word comm), (comm))
// X(plain, name, parameters, arguments): of those with large counts, with the name of each without.
#define HEDDLE_SERVED_NARROWED(X) HEDDLE_SERVED_BUFFERS(HEDDLE_SERVED_NARROW, X, int64_t)
#define HEDDLE_SERVED_ALLOC_MEM(X) \
  X(Alloc_mem, (intptr_t bytes, heddle_word info, void* out), (bytes, info, out)) /* out: void** */
#define HEDDLE_SERVED_CALLS(X) \
  HEDDLE_SERVED_COLLECTIVES(X) \
  HEDDLE_SERVED_ALLOC_MEM(X) \
  X(Free_mem, (void* memory), (memory))
// clang-format on

/* The large-count forms are null where the host has none. */
typedef struct HeddleServedCalls {
#define HEDDLE_MEMBER(name, parameters, arguments) int(*name) parameters;
  HEDDLE_SERVED_CALLS(HEDDLE_MEMBER)
#undef HEDDLE_MEMBER
} HeddleServedCalls;
typedef void (*HeddleEndFn)(int last);
/* `next` is what frees or disconnects the communicator whose handle lies at `comm`; returns what that
 * returns. */
typedef int (*HeddleFreeCommFn)(int (*next)(void* comm), void* comm);

typedef struct HeddleBackend {
  HeddleServedCalls served;
  /* Before MPI_Finalize: the host serves from now on. `last`: its own function is next, and not a tool's. */
  HeddleEndFn end;
  HeddleFreeCommFn free_comm; /* the host serves the communicator while `next` runs */
  /* Collective 0 is allreduce, 1 is bcast, 2 is barrier, of no bytes, 3 is reduce, 4 is allgather, of so many
   * bytes of each rank. The name of what serves `bytes` bytes on `comm` now: an algorithm, or "host". */
  const char* (*algorithm)(int collective, size_t bytes, heddle_word comm);
  HeddleStagedCalls staged; /* where the host has such a function */
} HeddleBackend;

/* Fills `out` and returns 0; or returns another value and puts the reason (one line) into `error`. Called
 * once, by one thread, before any of the functions. MPI need not be initialised. */
typedef int (*HeddleBackendOpenFn)(int abi, const HeddleHostSymbols* host, HeddleBackend* out, char* error,
                                   size_t error_bytes);

#ifdef __cplusplus
}
#endif
#endif
