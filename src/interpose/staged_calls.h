// The blocking calls that heddle leaves to the host MPI, but for buffers that lie on a GPU (backend/staged_calls.hpp): one list for the
// trampolines, the backends and their tests. Part of backend_abi.h.
//
// X(call, name, parameters, arguments): `name` is MPI's, without "MPI_", and `call` is what its large-count form has in common with it.
// Handles are words. C is the type of counts, D that of displacements: int and int, or, where S is _c, those of MPI-4's large-count forms.
// Arrays of datatypes, and statuses, are the host's.
#ifndef HEDDLE_INTERPOSE_STAGED_CALLS_H
#define HEDDLE_INTERPOSE_STAGED_CALLS_H

#include <stdint.h>

typedef uintptr_t heddle_word; /* an MPI handle */

// clang-format off
#define HEDDLE_STAGED_CALLS_OF(X, S, C, D) \
  X(reduce, Reduce##S, (const void* in, void* out, C count, heddle_word type, heddle_word op, int root, heddle_word comm), \
    (in, out, count, type, op, root, comm)) \
  X(scan, Scan##S, (const void* in, void* out, C count, heddle_word type, heddle_word op, heddle_word comm), (in, out, count, type, op, comm)) \
  X(exscan, Exscan##S, (const void* in, void* out, C count, heddle_word type, heddle_word op, heddle_word comm), (in, out, count, type, op, comm)) \
  X(reduce_scatter, Reduce_scatter##S, (const void* in, void* out, const C* counts, heddle_word type, heddle_word op, heddle_word comm), \
    (in, out, counts, type, op, comm)) \
  X(reduce_scatter_block, Reduce_scatter_block##S, (const void* in, void* out, C count, heddle_word type, heddle_word op, heddle_word comm), \
    (in, out, count, type, op, comm)) \
  X(gather, Gather##S, (const void* in, C in_count, heddle_word in_type, void* out, C out_count, heddle_word out_type, int root, heddle_word comm), \
    (in, in_count, in_type, out, out_count, out_type, root, comm)) \
  X(gatherv, Gatherv##S, (const void* in, C in_count, heddle_word in_type, void* out, const C* out_counts, const D* out_places, heddle_word out_type, \
    int root, heddle_word comm), (in, in_count, in_type, out, out_counts, out_places, out_type, root, comm)) \
  X(scatter, Scatter##S, (const void* in, C in_count, heddle_word in_type, void* out, C out_count, heddle_word out_type, int root, heddle_word comm), \
    (in, in_count, in_type, out, out_count, out_type, root, comm)) \
  X(scatterv, Scatterv##S, (const void* in, const C* in_counts, const D* in_places, heddle_word in_type, void* out, C out_count, heddle_word out_type, \
    int root, heddle_word comm), (in, in_counts, in_places, in_type, out, out_count, out_type, root, comm)) \
  X(allgather, Allgather##S, (const void* in, C in_count, heddle_word in_type, void* out, C out_count, heddle_word out_type, heddle_word comm), \
    (in, in_count, in_type, out, out_count, out_type, comm)) \
  X(allgatherv, Allgatherv##S, (const void* in, C in_count, heddle_word in_type, void* out, const C* out_counts, const D* out_places, \
    heddle_word out_type, heddle_word comm), (in, in_count, in_type, out, out_counts, out_places, out_type, comm)) \
  X(alltoall, Alltoall##S, (const void* in, C in_count, heddle_word in_type, void* out, C out_count, heddle_word out_type, heddle_word comm), \
    (in, in_count, in_type, out, out_count, out_type, comm)) \
  X(alltoallv, Alltoallv##S, (const void* in, const C* in_counts, const D* in_places, heddle_word in_type, void* out, const C* out_counts, \
    const D* out_places, heddle_word out_type, heddle_word comm), \
    (in, in_counts, in_places, in_type, out, out_counts, out_places, out_type, comm)) \
  X(alltoallw, Alltoallw##S, (const void* in, const C* in_counts, const D* in_bytes, const void* in_types, void* out, const C* out_counts, \
    const D* out_bytes, const void* out_types, heddle_word comm), \
    (in, in_counts, in_bytes, in_types, out, out_counts, out_bytes, out_types, comm)) \
  X(send, Send##S, (const void* data, C count, heddle_word type, int to, int tag, heddle_word comm), (data, count, type, to, tag, comm)) \
  X(ssend, Ssend##S, (const void* data, C count, heddle_word type, int to, int tag, heddle_word comm), (data, count, type, to, tag, comm)) \
  X(rsend, Rsend##S, (const void* data, C count, heddle_word type, int to, int tag, heddle_word comm), (data, count, type, to, tag, comm)) \
  X(bsend, Bsend##S, (const void* data, C count, heddle_word type, int to, int tag, heddle_word comm), (data, count, type, to, tag, comm)) \
  X(recv, Recv##S, (void* data, C count, heddle_word type, int from, int tag, heddle_word comm, void* status), \
    (data, count, type, from, tag, comm, status)) \
  X(sendrecv, Sendrecv##S, (const void* in, C in_count, heddle_word in_type, int to, int in_tag, void* out, C out_count, heddle_word out_type, int from, \
    int out_tag, heddle_word comm, void* status), \
    (in, in_count, in_type, to, in_tag, out, out_count, out_type, from, out_tag, comm, status)) \
  X(sendrecv_replace, Sendrecv_replace##S, (void* data, C count, heddle_word type, int to, int in_tag, int from, int out_tag, heddle_word comm, void* status), \
    (data, count, type, to, in_tag, from, out_tag, comm, status))

#define HEDDLE_STAGED_CALLS(X) \
  HEDDLE_STAGED_CALLS_OF(X, , int, int) \
  HEDDLE_STAGED_CALLS_OF(X, _c, int64_t, intptr_t)

// By name, without "MPI_". Null where the host has no such function.
typedef struct HeddleStagedCalls {
#define HEDDLE_STAGED_MEMBER(call, name, parameters, arguments) int (*name) parameters;
  HEDDLE_STAGED_CALLS(HEDDLE_STAGED_MEMBER)
#undef HEDDLE_STAGED_MEMBER
} HeddleStagedCalls;
// clang-format on

#endif
