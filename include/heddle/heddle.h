/* heddle: collectives for data-parallel jobs. The C API.
 *
 * Every function returns a status; HEDDLE_OK is 0. heddle_last_error() has the sentence that goes with the
 * last failure in the calling thread. Handles are opaque and owned by whoever created them. Nothing here
 * throws, and no function needs MPI (see heddle_mpi.h to start from an MPI communicator).
 *
 * Buffers may lie in the host's memory or, where the process uses CUDA, on a GPU (docs/gpu.md), on each rank
 * as it likes.
 *
 * Threads: calls on one communicator come from one thread at a time; different communicators are independent.
 * Order: all ranks of a communicator start the same collectives, with matching arguments, in the same order.
 * Waits: every wait ends after HEDDLE_TIMEOUT without any progress (0, the default: never) with
 * HEDDLE_ERR_TIMEOUT and a message that names the missing rank, and warns once after HEDDLE_WARN_AFTER. After
 * a timeout or a failed peer a communicator can only be destroyed (heddle_comm_failed). Its buffers are the
 * caller's again, but for those of lent messages (heddle_p2p) that the lender could not take back, as MPI
 * cannot once a message has met its receive: the text says so, and that they may still be written to.
 */
#ifndef HEDDLE_HEDDLE_H
#define HEDDLE_HEDDLE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define HEDDLE_API __attribute__((visibility("default")))
#else
#define HEDDLE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define HEDDLE_VERSION_MAJOR 0
#define HEDDLE_VERSION_MINOR 1
#define HEDDLE_VERSION_PATCH 0
#define HEDDLE_VERSION_STRING "0.1.0"

/* HEDDLE_ERR_ARGUMENT: a rank's argument is refused, as a rule before anything is sent, and the communicator
 * remains usable. It is also the status where ranks have passed arguments that do not go together. They may
 * notice that only in the middle of the collective: then the communicator has failed. heddle_comm_failed
 * tells which it is. */
typedef enum heddle_status {
  HEDDLE_OK = 0,
  HEDDLE_ERR_ARGUMENT = 1,    /* an argument is refused, or those of the ranks do not go together */
  HEDDLE_ERR_UNSUPPORTED = 2, /* valid, but not by this build, machine or transport */
  HEDDLE_ERR_MEMORY = 3,      /* memory, shared memory or descriptors are exhausted */
  HEDDLE_ERR_SYSTEM = 4,      /* a system call failed */
  HEDDLE_ERR_TIMEOUT = 5,     /* the deadline passed; the message names who is missing */
  HEDDLE_ERR_PEER = 6,        /* another rank died or failed; the message names it */
  HEDDLE_ERR_INTERNAL = 7,    /* a defect in heddle */
  HEDDLE_ERR_CAPACITY =
      8 /* the arrays given are too small for a sparse result; nothing is lost (heddle_sparse.h) */
} heddle_status;

/* Floating-point types of 8 and 16 bits are folded in float, and rounded to nearest even once for all that a
 * rank folds at a time. A float8 result that is too large becomes the largest finite number of its sign, as
 * in CUDA's conversions and in NCCL's sums: gradients are scaled such that few of them get there, and to clip
 * these does little harm, while a NaN, all that e4m3 could become otherwise, spoils a model. Infinities and
 * NaN that are added or multiplied are not made finite. */
typedef enum heddle_dtype {
  HEDDLE_INT8 = 0,
  HEDDLE_INT16 = 1,
  HEDDLE_INT32 = 2,
  HEDDLE_INT64 = 3,
  HEDDLE_UINT8 = 4,
  HEDDLE_UINT16 = 5,
  HEDDLE_UINT32 = 6,
  HEDDLE_UINT64 = 7,
  HEDDLE_FLOAT16 = 8, /* IEEE half */
  HEDDLE_BFLOAT16 = 9,
  HEDDLE_FLOAT32 = 10,
  HEDDLE_FLOAT64 = 11,
  HEDDLE_LONG_DOUBLE = 12,
  HEDDLE_COMPLEX_FLOAT = 13,
  HEDDLE_COMPLEX_DOUBLE = 14,
  HEDDLE_COMPLEX_LONG_DOUBLE = 15,
  HEDDLE_FLOAT8_E4M3 = 16, /* OCP's: up to 448, NaN but no infinities (PyTorch's float8_e4m3fn) */
  HEDDLE_FLOAT8_E5M2 = 17  /* OCP's: up to 57344, NaN and infinities; the upper byte of an IEEE half */
} heddle_dtype;

/* HEDDLE_MIN and HEDDLE_MAX take a value instead of those before it only where it is smaller, or larger, as
 * MPICH's do; so with -0 and +0. A NaN may stay, be left out, or hide values, by the ranks that have it and
 * the algorithm, but the same on all ranks. Not for complex types. Logical and bitwise operations are for
 * integers; logical ones of two ranks or more give 0 or 1, and of one rank what it has. */
typedef enum heddle_op {
  HEDDLE_SUM = 0,
  HEDDLE_PROD = 1,
  HEDDLE_MIN = 2,
  HEDDLE_MAX = 3,
  HEDDLE_LAND = 4,
  HEDDLE_LOR = 5,
  HEDDLE_LXOR = 6,
  HEDDLE_BAND = 7,
  HEDDLE_BOR = 8,
  HEDDLE_BXOR = 9
} heddle_op;

typedef struct heddle_comm* heddle_comm_t;       /* a communicator, as one rank sees it */
typedef struct heddle_request* heddle_request_t; /* a non-blocking or persistent collective */

/* The input is already in `recvbuf`: pass as `sendbuf`. */
#ifdef __cplusplus
#define HEDDLE_IN_PLACE (reinterpret_cast<const void*>(1))
#else
#define HEDDLE_IN_PLACE ((const void*)1)
#endif

/* ---- Communicators ---- */

/* Gathers `bytes` bytes from every rank into `all` (size * bytes, in rank order) on every rank. Collective,
 * blocking; returns 0, or anything else on failure. Called a few times inside heddle_comm_create*, never
 * afterwards. */
typedef int (*heddle_allgather_fn)(const void* mine, void* all, size_t bytes, void* context);

/* Point-to-point messages lent by whoever calls (heddle_mpi.h lends MPI's). A message is exactly `bytes`
 * long; messages between two ranks with equal tags (0 <= tag < 32768) match in order. `request` points to
 * caller-owned storage of HEDDLE_P2P_REQUEST_BYTES bytes that does not move while the message is open. All
 * return 0, or anything else on failure. `test` sets *done and releases the request when it is finished, and
 * fails where a message of another length has come, as far as the lender can tell; `cancel` gives up on it,
 * and fails where the lender may go on with it in its buffer (the error of the call that gave it up says so
 * then). `progress` moves the lender's own traffic (may be null). The functions must outlive the
 * communicator. `release` (may be null) is called exactly once, with `context`, when heddle is done with
 * them: by heddle_comm_destroy, or before heddle_comm_create returns a failure. `release` must not call
 * heddle. */
#define HEDDLE_P2P_REQUEST_BYTES 32
typedef struct heddle_p2p {
  int (*send)(const void* data, size_t bytes, int peer, int tag, void* request, void* context);
  int (*recv)(void* data, size_t bytes, int peer, int tag, void* request, void* context);
  int (*test)(void* request, int* done, void* context);
  int (*cancel)(void* request, void* context);
  void (*progress)(void* context);
  void (*release)(void* context);
  void* context;
} heddle_p2p;

/* Makes a communicator of `size` ranks, of which the caller is `rank` (0 <= rank < size), 16,777,216 (2^24)
 * at most, else HEDDLE_ERR_ARGUMENT. Collective over all ranks, by means of `allgather`. Every rank gets the
 * same outcome. `p2p` may be null: ranks on several nodes are then connected by tcp, ucx or verbs alone
 * (docs/networks.md). *comm is set on success and must be given to heddle_comm_destroy. */
HEDDLE_API heddle_status heddle_comm_create(int rank, int size, heddle_allgather_fn allgather, void* context,
                                            const heddle_p2p* p2p, heddle_comm_t* comm);

/* Likewise from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment: rank 0 listens there and
 * the others connect, for as long as HEDDLE_TIMEOUT says, or 60 seconds where that is 0. torchrun sets these
 * variables, but its own store listens on MASTER_PORT: set HEDDLE_MASTER_PORT to a free port, the same on all
 * ranks, which then counts instead. */
HEDDLE_API heddle_status heddle_comm_create_env(heddle_comm_t* comm);

/* Makes communicators of parts of `comm`: the ranks with equal `color` (0 or more) are in one, in the order
 * of `key`, and of their ranks in `comm` where keys are equal. With HEDDLE_NO_COLOR a rank is in none, and
 * *newcomm is null. Collective over all ranks of `comm`, with no request active on it; it remains usable, and
 * may be destroyed before those made from it. What `comm` has measured of machine and network they need not
 * measure again; settings are those of `comm`. Every rank of a new communicator gets the same outcome.
 * Messages lent to `comm` are not used: its parts on several nodes are connected by tcp, ucx or verbs (who
 * lends MPI's splits with MPI_Comm_split, and makes the parts with heddle_comm_create_mpi). *newcomm is set
 * on success and must be given to heddle_comm_destroy. A rank that passes another negative color or a null
 * newcomm gets HEDDLE_ERR_ARGUMENT by itself, and the others wait for it, as in any collective that not all
 * ranks call. */
#define HEDDLE_NO_COLOR (-1)
HEDDLE_API heddle_status heddle_comm_split(heddle_comm_t comm, int color, int key, heddle_comm_t* newcomm);

/* Frees the communicator; local, never waits for other ranks (but `release` of lent messages may: see
 * heddle_mpi.h). Null is allowed. While a request on it is active this is HEDDLE_ERR_ARGUMENT and frees
 * nothing, unless the communicator has failed. Requests that outlive it can only be freed. Other ranks may
 * still be inside the last collective: that does them no harm. After fork() a communicator is the parent's:
 * in the child this and heddle_request_free do nothing, and all else on it is HEDDLE_ERR_ARGUMENT. */
HEDDLE_API heddle_status heddle_comm_destroy(heddle_comm_t comm);

/* *failed becomes 1 where a collective of this communicator has failed in flight on this rank: it can only be
 * destroyed. So it is where
 *   - a peer is gone, or a deadline has passed,
 *   - memory was missing in the middle,
 *   - a blocking call, or a start, could not copy what it sends from its GPU.
 *
 * It stays 0 after errors that leave the communicator usable, whatever their status:
 *   - arguments that are refused,
 *   - a rank that could not make its part of a sum ready (HEDDLE_ERR_PEER on the others),
 *   - HEDDLE_ERR_MEMORY before an allreduce, bcast, reduce or allgather, or the start of one, has begun on
 *     this rank.
 *
 * After the last of these this rank has sent nothing, its buffers are as they were, and the others wait for
 * it, as long as HEDDLE_TIMEOUT says. Once there is memory it makes the same call again, before any other
 * collective on this communicator; or it destroys the communicator, of which the others hear as of a failure.
 * With HEDDLE_CHECK=1 only the latter, for the others have compared the call that failed. Local. */
HEDDLE_API heddle_status heddle_comm_failed(heddle_comm_t comm, int* failed);

HEDDLE_API heddle_status heddle_comm_rank(heddle_comm_t comm, int* rank);
HEDDLE_API heddle_status heddle_comm_size(heddle_comm_t comm, int* size);

/* ---- Blocking collectives ---- */

/* recvbuf[i] = sendbuf of rank 0 [i] op ... op sendbuf of rank size-1 [i], the same bits on every rank. The
 * grouping is the algorithm's, and so is the order, unless the algorithm is in order: "team" is, which serves
 * most calls on one node; others may begin with another rank for each part of a vector. docs/algorithms.md
 * says which are in order, and what gives the same bits in every run. Buffers hold `count` elements each,
 * need no alignment, and do not overlap (pass HEDDLE_IN_PLACE instead). All ranks pass the same count, type
 * and operation. Where they do not, the ranks of one node notice, and messages of different lengths are
 * noticed; HEDDLE_CHECK=1 compares all of it, in all collectives (docs/troubleshooting.md). */
HEDDLE_API heddle_status heddle_allreduce(const void* sendbuf, void* recvbuf, size_t count,
                                          heddle_dtype dtype, heddle_op op, heddle_comm_t comm);

/* Copies `bytes` bytes from `buffer` of rank `root` to `buffer` of all others. All ranks pass the same bytes
 * and root. Several roots may go unnoticed: where each of two ranks passes its own number both return
 * HEDDLE_OK, and nothing has been copied. HEDDLE_CHECK=1 compares bytes and root before each call
 * (docs/troubleshooting.md). */
HEDDLE_API heddle_status heddle_bcast(void* buffer, size_t bytes, int root, heddle_comm_t comm);

/* The same result as an allreduce's, on rank `root` alone: `recvbuf` of the others is not looked at and may
 * be null. In place at the root HEDDLE_IN_PLACE is its sendbuf; nobody else may pass that. All ranks pass the
 * same count, type, operation and root. Others than the root may return before it has the result, and before
 * all have called. On GPUs it goes by way of copies on the host. */
HEDDLE_API heddle_status heddle_reduce(const void* sendbuf, void* recvbuf, size_t count, heddle_dtype dtype,
                                       heddle_op op, int root, heddle_comm_t comm);

/* Puts `bytes` bytes of every rank, in the order of ranks, into `recvbuf` of all: `sendbuf` of rank r comes
 * to recvbuf + r * bytes. `sendbuf` holds `bytes`, `recvbuf` as many for each rank; they do not overlap. In
 * place, with HEDDLE_IN_PLACE as sendbuf, what a rank gives is there already. All ranks pass the same bytes.
 * Where they do not, it is noticed as in an allreduce. On GPUs it goes by way of copies on the host. */
HEDDLE_API heddle_status heddle_allgather(const void* sendbuf, void* recvbuf, size_t bytes,
                                          heddle_comm_t comm);

/* Returns once every rank has called it. */
HEDDLE_API heddle_status heddle_barrier(heddle_comm_t comm);

/* ---- Memory for collectives ---- */

/* Zeroed, page-aligned memory of `bytes` bytes that every rank of this node can reach: where all ranks of a
 * node-local communicator pass such memory of this communicator for every buffer (in place or not), a large
 * heddle_allreduce works in it directly, without copies in between. It can be used like any other memory,
 * with any other communicator as well. Local. It takes a file descriptor for each piece: get few large ones.
 * HEDDLE_ERR_MEMORY where there is none; *memory is null then, and for 0 bytes. After fork() what the child
 * writes there stays its own. */
HEDDLE_API heddle_status heddle_alloc(size_t bytes, heddle_comm_t comm, void** memory);

/* Frees what heddle_alloc returned; null is allowed. Local. No collective that uses it is in flight on any
 * rank (a blocking one that has returned here is over everywhere as far as this memory goes). What is not
 * freed goes with the communicator. HEDDLE_ERR_ARGUMENT: the pointer is not from heddle_alloc on `comm`, or
 * was freed before. */
HEDDLE_API heddle_status heddle_free(void* memory, heddle_comm_t comm);

/* ---- Point to point (blocking; for benchmarks and set-up code) ---- */

/* A message of exactly `bytes` bytes; messages between two ranks match in order. A send may return before it
 * is received, or wait until it is: two ranks that both send first may wait for each other for ever. `peer`
 * is another rank (else HEDDLE_ERR_ARGUMENT). */
HEDDLE_API heddle_status heddle_send(const void* data, size_t bytes, int peer, heddle_comm_t comm);
HEDDLE_API heddle_status heddle_recv(void* data, size_t bytes, int peer, heddle_comm_t comm);

/* ---- Non-blocking and persistent ---- */

/* Start and return. (Where 2,047 active requests are served by messages, the next start waits until the
 * oldest of them is complete.) Buffers stay untouched by the caller until the request is complete. Floats are
 * folded as the thread that starts it computes (rounding, subnormal numbers). Progress is made in
 * heddle_test, heddle_wait and every blocking collective or message of the communicator, and where a network
 * of heddle's own connects the nodes also by a thread of heddle's (HEDDLE_PROGRESS_THREAD,
 * docs/environment.md), which blocks all signals. Ranks of one node may take requests one after the other, in
 * the order in which they were started, and a blocking collective after them. *request is freed, and set to
 * null, by the test or wait that finds it complete or failed. On failure to start, *request is null. */
HEDDLE_API heddle_status heddle_iallreduce(const void* sendbuf, void* recvbuf, size_t count,
                                           heddle_dtype dtype, heddle_op op, heddle_comm_t comm,
                                           heddle_request_t* request);
HEDDLE_API heddle_status heddle_ibcast(void* buffer, size_t bytes, int root, heddle_comm_t comm,
                                       heddle_request_t* request);
HEDDLE_API heddle_status heddle_ireduce(const void* sendbuf, void* recvbuf, size_t count, heddle_dtype dtype,
                                        heddle_op op, int root, heddle_comm_t comm,
                                        heddle_request_t* request);
HEDDLE_API heddle_status heddle_iallgather(const void* sendbuf, void* recvbuf, size_t bytes,
                                           heddle_comm_t comm, heddle_request_t* request);
HEDDLE_API heddle_status heddle_ibarrier(heddle_comm_t comm, heddle_request_t* request);

/* Persistent: planned once, started with heddle_start as often as wanted, completed each time by test or wait
 * (which leave the request in place), freed with heddle_request_free while inactive. Making one is local:
 * where it fails on one rank, the others are not told, and their starts wait for that rank. */
HEDDLE_API heddle_status heddle_allreduce_init(const void* sendbuf, void* recvbuf, size_t count,
                                               heddle_dtype dtype, heddle_op op, heddle_comm_t comm,
                                               heddle_request_t* request);
HEDDLE_API heddle_status heddle_bcast_init(void* buffer, size_t bytes, int root, heddle_comm_t comm,
                                           heddle_request_t* request);
HEDDLE_API heddle_status heddle_reduce_init(const void* sendbuf, void* recvbuf, size_t count,
                                            heddle_dtype dtype, heddle_op op, int root, heddle_comm_t comm,
                                            heddle_request_t* request);
HEDDLE_API heddle_status heddle_allgather_init(const void* sendbuf, void* recvbuf, size_t bytes,
                                               heddle_comm_t comm, heddle_request_t* request);
HEDDLE_API heddle_status heddle_barrier_init(heddle_comm_t comm, heddle_request_t* request);
/* HEDDLE_ERR_ARGUMENT: the request is active, or was not made by a function named heddle_..._init. */
HEDDLE_API heddle_status heddle_start(heddle_request_t request);

/* A request is active from its start until heddle_test or heddle_wait has told of its completion or failure.
 *
 * *done becomes 1 when the request is complete, and at once when it is null or inactive, else 0. */
HEDDLE_API heddle_status heddle_test(heddle_request_t* request, int* done);
/* Returns when the request is complete, at once when it is null or inactive. */
HEDDLE_API heddle_status heddle_wait(heddle_request_t* request);
/* heddle_wait for each of `count` requests, also where one has failed: null ones are skipped, those of one
 * use become null. The requests may be of several communicators. Returns the first failure in the order of
 * the array, with its sentence. `requests` may be null where `count` is 0. */
HEDDLE_API heddle_status heddle_waitall(size_t count, heddle_request_t* requests);
/* Frees an inactive request and sets *request to null, which it may be already; `request` itself may not be
 * null. An active one is HEDDLE_ERR_ARGUMENT, unless its communicator has failed or is gone. */
HEDDLE_API heddle_status heddle_request_free(heddle_request_t* request);

/* ---- Information ---- */

/* The sentence for the last failure in this thread: never null, valid until the next heddle call in this
 * thread. */
HEDDLE_API const char* heddle_last_error(void);
/* For adapters on top of this API (heddle_mpi.h): makes `message` this thread's last error and returns
 * `status`. */
HEDDLE_API heddle_status heddle_set_last_error(heddle_status status, const char* message);
HEDDLE_API const char* heddle_status_name(heddle_status status);
HEDDLE_API const char* heddle_version(void);

/* The name of the algorithm that would serve a blocking allreduce or reduce of `count` elements, a bcast of
 * `bytes` bytes, or an allgather of `bytes` bytes of each rank. Static storage, never null on success. */
HEDDLE_API heddle_status heddle_allreduce_algorithm(size_t count, heddle_dtype dtype, heddle_op op,
                                                    heddle_comm_t comm, const char** name);
HEDDLE_API heddle_status heddle_reduce_algorithm(size_t count, heddle_dtype dtype, heddle_op op,
                                                 heddle_comm_t comm, const char** name);
HEDDLE_API heddle_status heddle_bcast_algorithm(size_t bytes, heddle_comm_t comm, const char** name);
HEDDLE_API heddle_status heddle_allgather_algorithm(size_t bytes, heddle_comm_t comm, const char** name);

#ifdef __cplusplus
}
#endif
#endif
