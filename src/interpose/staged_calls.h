// The calls that heddle leaves to the host MPI, but for buffers that lie on a GPU (backend/staged_calls.hpp):
// one list for the trampolines, the backends and their tests. Part of backend_abi.h.
//
// HEDDLE_STAGED_CALLS(X) is X(call, name, parameters, arguments) for all of them: `name` is MPI's, without
// "MPI_". What the blocking form of a call, the one with a request, the persistent one and MPI-4's with large
// counts have in common is its `call`. Handles are words; requests, statuses and arrays of datatypes are the
// host's.
#ifndef HEDDLE_INTERPOSE_STAGED_CALLS_H
#define HEDDLE_INTERPOSE_STAGED_CALLS_H

#include <stdint.h>

typedef uintptr_t heddle_word; /* an MPI handle */

// clang-format off

// T(X, Name, call, parameters, arguments); C is the type of counts, and R and A are what a request adds.
#define HEDDLE_STAGED_COLLECTIVES(T, X, C, R, A) \
  T(X, Scan, scan, (const void* in, void* out, C count, heddle_word type, heddle_word op, heddle_word comm R), (in, out, count, type, op, comm A)) \
  T(X, Exscan, exscan, (const void* in, void* out, C count, heddle_word type, heddle_word op, heddle_word comm R), (in, out, count, type, op, comm A)) \
  T(X, Reduce_scatter_block, reduce_scatter_block, (const void* in, void* out, C count, heddle_word type, heddle_word op, heddle_word comm R), \
    (in, out, count, type, op, comm A)) \
  T(X, Gather, gather, (const void* in, C in_count, heddle_word in_type, void* out, C out_count, heddle_word out_type, int root, \
    heddle_word comm R), (in, in_count, in_type, out, out_count, out_type, root, comm A)) \
  T(X, Scatter, scatter, (const void* in, C in_count, heddle_word in_type, void* out, C out_count, heddle_word out_type, int root, \
    heddle_word comm R), (in, in_count, in_type, out, out_count, out_type, root, comm A)) \
  T(X, Alltoall, alltoall, (const void* in, C in_count, heddle_word in_type, void* out, C out_count, heddle_word out_type, heddle_word comm R), \
    (in, in_count, in_type, out, out_count, out_type, comm A)) \
  T(X, Neighbor_allgather, neighbor_allgather, (const void* in, C in_count, heddle_word in_type, void* out, C out_count, heddle_word out_type, \
    heddle_word comm R), (in, in_count, in_type, out, out_count, out_type, comm A)) \
  T(X, Neighbor_alltoall, neighbor_alltoall, (const void* in, C in_count, heddle_word in_type, void* out, C out_count, heddle_word out_type, \
    heddle_word comm R), (in, in_count, in_type, out, out_count, out_type, comm A))
#define HEDDLE_STAGED_SENDS(T, X, C, R, A) \
  T(X, Send, send, (const void* data, C count, heddle_word type, int to, int tag, heddle_word comm R), (data, count, type, to, tag, comm A)) \
  T(X, Ssend, ssend, (const void* data, C count, heddle_word type, int to, int tag, heddle_word comm R), (data, count, type, to, tag, comm A)) \
  T(X, Rsend, rsend, (const void* data, C count, heddle_word type, int to, int tag, heddle_word comm R), (data, count, type, to, tag, comm A)) \
  T(X, Bsend, bsend, (const void* data, C count, heddle_word type, int to, int tag, heddle_word comm R), (data, count, type, to, tag, comm A))

// With counts in arrays. Their large-count forms stay the host's: an older host has none, and who asks whether there are any may not be told that there are.
#define HEDDLE_STAGED_ARRAYS(T, X, R, A) \
  T(X, Reduce_scatter, reduce_scatter, (const void* in, void* out, const int* counts, heddle_word type, heddle_word op, heddle_word comm R), (in, \
    out, counts, type, op, comm A)) \
  T(X, Gatherv, gatherv, (const void* in, int in_count, heddle_word in_type, void* out, const int* out_counts, const int* out_places, \
    heddle_word out_type, int root, heddle_word comm R), (in, in_count, in_type, out, out_counts, out_places, out_type, root, comm A)) \
  T(X, Scatterv, scatterv, (const void* in, const int* in_counts, const int* in_places, heddle_word in_type, void* out, int out_count, \
    heddle_word out_type, int root, heddle_word comm R), (in, in_counts, in_places, in_type, out, out_count, out_type, root, comm A)) \
  T(X, Allgatherv, allgatherv, (const void* in, int in_count, heddle_word in_type, void* out, const int* out_counts, const int* out_places, \
    heddle_word out_type, heddle_word comm R), (in, in_count, in_type, out, out_counts, out_places, out_type, comm A)) \
  T(X, Alltoallv, alltoallv, (const void* in, const int* in_counts, const int* in_places, heddle_word in_type, void* out, const int* out_counts, \
    const int* out_places, heddle_word out_type, heddle_word comm R), (in, in_counts, in_places, in_type, out, out_counts, out_places, out_type, \
    comm A)) \
  T(X, Alltoallw, alltoallw, (const void* in, const int* in_counts, const int* in_bytes, const void* in_types, void* out, const int* out_counts, \
    const int* out_bytes, const void* out_types, heddle_word comm R), (in, in_counts, in_bytes, in_types, out, out_counts, out_bytes, out_types, \
    comm A)) \
  T(X, Neighbor_allgatherv, neighbor_allgatherv, (const void* in, int in_count, heddle_word in_type, void* out, const int* out_counts, \
    const int* out_places, heddle_word out_type, heddle_word comm R), (in, in_count, in_type, out, out_counts, out_places, out_type, comm A)) \
  T(X, Neighbor_alltoallv, neighbor_alltoallv, (const void* in, const int* in_counts, const int* in_places, heddle_word in_type, void* out, \
    const int* out_counts, const int* out_places, heddle_word out_type, heddle_word comm R), (in, in_counts, in_places, in_type, out, out_counts, \
    out_places, out_type, comm A)) \
  T(X, Neighbor_alltoallw, neighbor_alltoallw, (const void* in, const int* in_counts, const intptr_t* in_bytes, const void* in_types, void* out, \
    const int* out_counts, const intptr_t* out_bytes, const void* out_types, heddle_word comm R), (in, in_counts, in_bytes, in_types, out, \
    out_counts, out_bytes, out_types, comm A))

// Without a request.
#define HEDDLE_STAGED_BLOCKING(T, X, C) \
  T(X, Recv, recv, (void* data, C count, heddle_word type, int from, int tag, heddle_word comm, void* status), (data, count, type, from, tag, \
    comm, status)) \
  T(X, Mrecv, mrecv, (void* data, C count, heddle_word type, void* message, void* status), (data, count, type, message, status)) \
  T(X, Sendrecv, sendrecv, (const void* in, C in_count, heddle_word in_type, int to, int in_tag, void* out, C out_count, heddle_word out_type, \
    int from, int out_tag, heddle_word comm, void* status), (in, in_count, in_type, to, in_tag, out, out_count, out_type, from, out_tag, comm, \
    status)) \
  T(X, Sendrecv_replace, sendrecv_replace, (void* data, C count, heddle_word type, int to, int in_tag, int from, int out_tag, heddle_word comm, \
    void* status), (data, count, type, to, in_tag, from, out_tag, comm, status))

// With one alone: heddle serves what is blocking, or it has a status.
#define HEDDLE_STAGED_STARTS(T, X, C) \
  T(X, Iallreduce, allreduce, (const void* in, void* out, C count, heddle_word type, heddle_word op, heddle_word comm, void* request), (in, out, \
    count, type, op, comm, request)) \
  T(X, Ibcast, bcast, (void* data, C count, heddle_word type, int root, heddle_word comm, void* request), (data, count, type, root, comm, request)) \
  T(X, Ireduce, reduce, (const void* in, void* out, C count, heddle_word type, heddle_word op, int root, heddle_word comm, void* request), (in, out, \
    count, type, op, root, comm, request)) \
  T(X, Iallgather, allgather, (const void* in, C in_count, heddle_word in_type, void* out, C out_count, heddle_word out_type, heddle_word comm, \
    void* request), (in, in_count, in_type, out, out_count, out_type, comm, request)) \
  T(X, Irecv, irecv, (void* data, C count, heddle_word type, int from, int tag, heddle_word comm, void* request), (data, count, type, from, tag, \
    comm, request)) \
  T(X, Imrecv, imrecv, (void* data, C count, heddle_word type, void* message, void* request), (data, count, type, message, request)) \
  T(X, Recv_init, recv_init, (void* data, C count, heddle_word type, int from, int tag, heddle_word comm, void* request), (data, count, type, \
    from, tag, comm, request)) \
  T(X, Allreduce_init, allreduce, (const void* in, void* out, C count, heddle_word type, heddle_word op, heddle_word comm, heddle_word info, \
    void* request), (in, out, count, type, op, comm, info, request)) \
  T(X, Bcast_init, bcast, (void* data, C count, heddle_word type, int root, heddle_word comm, heddle_word info, void* request), (data, count, type, \
    root, comm, info, request)) \
  T(X, Reduce_init, reduce, (const void* in, void* out, C count, heddle_word type, heddle_word op, int root, heddle_word comm, heddle_word info, \
    void* request), (in, out, count, type, op, root, comm, info, request)) \
  T(X, Allgather_init, allgather, (const void* in, C in_count, heddle_word in_type, void* out, C out_count, heddle_word out_type, heddle_word comm, \
    heddle_word info, void* request), (in, in_count, in_type, out, out_count, out_type, comm, info, request))

// Starts of persistent requests, and what may end requests.
#define HEDDLE_STAGED_ENDS(X) \
  X(start, Start, (void* request), (request)) \
  X(startall, Startall, (int count, void* requests), (count, requests)) \
  X(wait, Wait, (void* request, void* status), (request, status)) \
  X(test, Test, (void* request, int* done, void* status), (request, done, status)) \
  X(waitall, Waitall, (int count, void* requests, void* statuses), (count, requests, statuses)) \
  X(testall, Testall, (int count, void* requests, int* done, void* statuses), (count, requests, done, statuses)) \
  X(waitany, Waitany, (int count, void* requests, int* place, void* status), (count, requests, place, status)) \
  X(testany, Testany, (int count, void* requests, int* place, int* done, void* status), (count, requests, place, done, status)) \
  X(some, Waitsome, (int count, void* requests, int* ended, int* places, void* statuses), (count, requests, ended, places, statuses)) \
  X(some, Testsome, (int count, void* requests, int* ended, int* places, void* statuses), (count, requests, ended, places, statuses)) \
  X(request_get_status, Request_get_status, (heddle_word request, int* done, void* status), (request, done, status)) \
  X(testall, Request_get_status_all, (int count, void* requests, int* done, void* statuses), (count, requests, done, statuses)) \
  X(testany, Request_get_status_any, (int count, void* requests, int* place, int* done, void* status), (count, requests, place, done, status)) \
  X(some, Request_get_status_some, (int count, void* requests, int* ended, int* places, void* statuses), (count, requests, ended, places, statuses)) \
  X(request_free, Request_free, (void* request), (request))

#define HEDDLE_STAGED_PLAIN(X, name, call, parameters, arguments) X(call, name, parameters, arguments)
#define HEDDLE_STAGED_LARGE(X, name, call, parameters, arguments) X(call, name##_c, parameters, arguments)
#define HEDDLE_STAGED_START(X, name, call, parameters, arguments) X(call, I##call, parameters, arguments)
#define HEDDLE_STAGED_LARGE_START(X, name, call, parameters, arguments) X(call, I##call##_c, parameters, arguments)
#define HEDDLE_STAGED_INIT(X, name, call, parameters, arguments) X(call, name##_init, parameters, arguments)
#define HEDDLE_STAGED_LARGE_INIT(X, name, call, parameters, arguments) X(call, name##_init_c, parameters, arguments)
#define HEDDLE_STAGED_SEND_INIT(X, name, call, parameters, arguments) X(send_init, name##_init, parameters, arguments)
#define HEDDLE_STAGED_LARGE_SEND_INIT(X, name, call, parameters, arguments) X(send_init, name##_init_c, parameters, arguments)
#define HEDDLE_STAGED_NARROW(X, name, call, parameters, arguments) X(name, name##_c, parameters, arguments)
#define HEDDLE_STAGED_NARROW_START(X, name, call, parameters, arguments) X(I##call, I##call##_c, parameters, arguments)
#define HEDDLE_STAGED_NARROW_INIT(X, name, call, parameters, arguments) X(name##_init, name##_init_c, parameters, arguments)
#define HEDDLE_STAGED_AND_REQUEST , void* request
#define HEDDLE_STAGED_AND_IT , request
// A persistent collective's.
#define HEDDLE_STAGED_AND_INFO , heddle_word info, void* request
#define HEDDLE_STAGED_AND_BOTH , info, request

// Those with buffers.
#define HEDDLE_STAGED_BUFFERS(X) \
  HEDDLE_STAGED_COLLECTIVES(HEDDLE_STAGED_PLAIN, X, int, , ) \
  HEDDLE_STAGED_COLLECTIVES(HEDDLE_STAGED_LARGE, X, int64_t, , ) \
  HEDDLE_STAGED_COLLECTIVES(HEDDLE_STAGED_START, X, int, HEDDLE_STAGED_AND_REQUEST, HEDDLE_STAGED_AND_IT) \
  HEDDLE_STAGED_COLLECTIVES(HEDDLE_STAGED_LARGE_START, X, int64_t, HEDDLE_STAGED_AND_REQUEST, HEDDLE_STAGED_AND_IT) \
  HEDDLE_STAGED_COLLECTIVES(HEDDLE_STAGED_INIT, X, int, HEDDLE_STAGED_AND_INFO, HEDDLE_STAGED_AND_BOTH) \
  HEDDLE_STAGED_COLLECTIVES(HEDDLE_STAGED_LARGE_INIT, X, int64_t, HEDDLE_STAGED_AND_INFO, HEDDLE_STAGED_AND_BOTH) \
  HEDDLE_STAGED_SENDS(HEDDLE_STAGED_PLAIN, X, int, , ) \
  HEDDLE_STAGED_SENDS(HEDDLE_STAGED_LARGE, X, int64_t, , ) \
  HEDDLE_STAGED_SENDS(HEDDLE_STAGED_START, X, int, HEDDLE_STAGED_AND_REQUEST, HEDDLE_STAGED_AND_IT) \
  HEDDLE_STAGED_SENDS(HEDDLE_STAGED_LARGE_START, X, int64_t, HEDDLE_STAGED_AND_REQUEST, HEDDLE_STAGED_AND_IT) \
  HEDDLE_STAGED_SENDS(HEDDLE_STAGED_SEND_INIT, X, int, HEDDLE_STAGED_AND_REQUEST, HEDDLE_STAGED_AND_IT) \
  HEDDLE_STAGED_SENDS(HEDDLE_STAGED_LARGE_SEND_INIT, X, int64_t, HEDDLE_STAGED_AND_REQUEST, HEDDLE_STAGED_AND_IT) \
  HEDDLE_STAGED_ARRAYS(HEDDLE_STAGED_PLAIN, X, , ) \
  HEDDLE_STAGED_ARRAYS(HEDDLE_STAGED_START, X, HEDDLE_STAGED_AND_REQUEST, HEDDLE_STAGED_AND_IT) \
  HEDDLE_STAGED_ARRAYS(HEDDLE_STAGED_INIT, X, HEDDLE_STAGED_AND_INFO, HEDDLE_STAGED_AND_BOTH) \
  HEDDLE_STAGED_BLOCKING(HEDDLE_STAGED_PLAIN, X, int) \
  HEDDLE_STAGED_BLOCKING(HEDDLE_STAGED_LARGE, X, int64_t) \
  HEDDLE_STAGED_STARTS(HEDDLE_STAGED_PLAIN, X, int) \
  HEDDLE_STAGED_STARTS(HEDDLE_STAGED_LARGE, X, int64_t)
#define HEDDLE_STAGED_CALLS(X) HEDDLE_STAGED_BUFFERS(X) HEDDLE_STAGED_ENDS(X)
// X(plain, name, parameters, arguments): of those with large counts, with the name of each without.
#define HEDDLE_STAGED_NARROWED(X) \
  HEDDLE_STAGED_COLLECTIVES(HEDDLE_STAGED_NARROW, X, int64_t, , ) \
  HEDDLE_STAGED_COLLECTIVES(HEDDLE_STAGED_NARROW_START, X, int64_t, HEDDLE_STAGED_AND_REQUEST, HEDDLE_STAGED_AND_IT) \
  HEDDLE_STAGED_COLLECTIVES(HEDDLE_STAGED_NARROW_INIT, X, int64_t, HEDDLE_STAGED_AND_INFO, HEDDLE_STAGED_AND_BOTH) \
  HEDDLE_STAGED_SENDS(HEDDLE_STAGED_NARROW, X, int64_t, , ) \
  HEDDLE_STAGED_SENDS(HEDDLE_STAGED_NARROW_START, X, int64_t, HEDDLE_STAGED_AND_REQUEST, HEDDLE_STAGED_AND_IT) \
  HEDDLE_STAGED_SENDS(HEDDLE_STAGED_NARROW_INIT, X, int64_t, HEDDLE_STAGED_AND_REQUEST, HEDDLE_STAGED_AND_IT) \
  HEDDLE_STAGED_BLOCKING(HEDDLE_STAGED_NARROW, X, int64_t) \
  HEDDLE_STAGED_STARTS(HEDDLE_STAGED_NARROW, X, int64_t)

// By MPI's name. Null where the host has no such function.
typedef struct HeddleStagedCalls {
#define HEDDLE_STAGED_MEMBER(call, name, parameters, arguments) int (*name) parameters;
  HEDDLE_STAGED_CALLS(HEDDLE_STAGED_MEMBER)
#undef HEDDLE_STAGED_MEMBER
} HeddleStagedCalls;
// clang-format on

#endif
