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
#define HEDDLE_BACKEND_ABI (7000 + (int)(sizeof(HeddleStagedCalls) / sizeof(void*)))
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

/* The MPI functions, with handles as words and MPI_Count as int64_t; they return MPI's error codes. */
typedef int (*HeddleAllreduceFn)(const void* in, void* out, int count, heddle_word type, heddle_word op,
                                 heddle_word comm);
typedef int (*HeddleBcastFn)(void* buffer, int count, heddle_word type, int root, heddle_word comm);
typedef int (*HeddleAllreduceCFn)(const void* in, void* out, int64_t count, heddle_word type, heddle_word op,
                                  heddle_word comm);
typedef int (*HeddleBcastCFn)(void* buffer, int64_t count, heddle_word type, int root, heddle_word comm);
typedef int (*HeddleAllocMemFn)(intptr_t bytes, heddle_word info, void* out); /* out: void** */
typedef int (*HeddleFreeMemFn)(void* memory);
typedef void (*HeddleEndFn)(int last);
/* `next` is what frees or disconnects the communicator whose handle lies at `comm`; returns what that
 * returns. */
typedef int (*HeddleFreeCommFn)(int (*next)(void* comm), void* comm);

/* The large-count forms are null where the host has none. */
typedef struct HeddleBackend {
  HeddleAllreduceFn allreduce;
  HeddleBcastFn bcast;
  HeddleAllreduceCFn allreduce_c;
  HeddleBcastCFn bcast_c;
  HeddleAllocMemFn alloc_mem;
  HeddleFreeMemFn free_mem;
  /* Before MPI_Finalize: the host serves from now on. `last`: its own function is next, and not a tool's. */
  HeddleEndFn end;
  HeddleFreeCommFn free_comm; /* the host serves the communicator while `next` runs */
  /* Collective 0 is allreduce, 1 is bcast. The name of what serves `bytes` bytes on `comm` now: an algorithm,
   * or "host". */
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
