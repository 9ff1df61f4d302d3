/* heddle: collectives on streams of CUDA, for programs whose buffers lie on GPUs. The C API, on top
 * of heddle.h; nothing of CUDA's is needed to include it.
 *
 * A call gives its work to the stream and returns: the work runs after what the stream was given
 * before, and what the stream is given later finds the result. The host waits for a GPU in two
 * cases: in the first call on a communicator, and in one that fails. Ranks do synchronise on the
 * host: a call returns once every rank has come to its own, so one thread cannot serve two ranks by
 * turns.
 *
 * `stream` is a CUstream or cudaStream_t of the context of the buffers, and may be another one in
 * every call and on every rank; null is the legacy default stream of that context.
 *
 * RANKS AND MEMORY (docs/gpu.md)
 *
 * Each rank has its buffers in one context of one GPU, the same in every call; all buffers lie in a
 * GPU's memory (not pinned memory), on all ranks. Otherwise every rank gets HEDDLE_ERR_UNSUPPORTED,
 * no stream has been given anything but copies into heddle's own memory, and the message names the
 * rank and the way out: to synchronise the stream and call heddle_allreduce or heddle_bcast, which
 * take any memory.
 *
 * - One rank alone, and up to 64 ranks on one node, are served by their GPUs.
 * - All others are served by the host: a thread of heddle's does the collective while the stream
 *   copies piece by piece. It has connections of its own (not the lender's messages), made in the
 *   first call.
 * - Vectors of 1 MiB or more on several nodes, some of which have several ranks: the GPUs of a node
 *   reduce first and spread the result, where they reach each other and have kernels for the type,
 *   so that the host has each rank's share alone. That takes HEDDLE_DEVICE_BYTES of memory on each
 *   GPU.
 *
 * ORDER AND THREADS
 *
 * As heddle.h says. Calls on streams count among a communicator's collectives: all ranks make them
 * and others in the same order. A blocking collective does not wait for a stream that does not
 * synchronise with the default stream: synchronise such a stream first where the buffers are the
 * same.
 *
 * GRAPHS
 *
 * A call on a stream that is being captured becomes part of the graph, and every launch of the
 * graph does the collective again: by the GPUs alone, or with the host's thread where that serves
 * the ranks. The call itself synchronises the ranks on the host, as ever. The first call on a
 * communicator must be outside of a capture. HEDDLE_ERR_UNSUPPORTED says where that is not so,
 * where the GPUs cannot wait for each other in a graph (a driver older than CUDA 12.0, memory that
 * cannot be registered), and where not all ranks capture a call. What a program must see to:
 *
 * - All ranks capture the same collectives in the same order, and launch their graphs as often as each other.
 *   Launches, captures and other collectives of a communicator come in the same order on all ranks, and so do
 *   launches and calls on other communicators, which may allocate and free memory, and so wait for the whole
 *   GPU. Launches may go to any stream: they and other calls on streams follow each other on the GPU in the
 *   order of that rank's calls.
 * - Every rank launches. A stream waits for the other ranks' launches without a deadline: where a
 *   rank does not launch, or has died, whatever waits for the stream waits on. The way out is the
 *   launch that is missing, or the end of the process. heddle_comm_destroy waits too, but where a
 *   rank has died it gives up after a second, and what it has on the GPU stays. Where the host
 *   serves the ranks this holds for those of one node, and for vectors that their GPUs share out;
 *   waits for other nodes end after HEDDLE_TIMEOUT, without a result (FAILURES).
 * - Ranks that are threads of one process instantiate their graphs, and launch every kernel once,
 *   before the first of them launches a graph. Until all have launched they call nothing that waits
 *   for the whole GPU (cudaMalloc, cudaFree, cudaDeviceSynchronize): it would wait for the graph
 *   that waits for this rank. Their streams do not synchronise with the default stream
 *   (cudaStreamNonBlocking), and are no more than the GPU has queues (CUDA_DEVICE_MAX_CONNECTIONS,
 *   8 unless set otherwise).
 * - Ranks that share a GPU are processes. Graphs of threads of one process have waited for each
 *   other for ever there, and so have their streams outside of graphs where the host serves the
 *   ranks (several nodes, or more than 64 ranks): such calls are HEDDLE_ERR_UNSUPPORTED on all
 *   ranks. Other calls on streams serve such threads.
 *
 * FAILURES
 *
 * HEDDLE_ERR_ARGUMENT: memory that was freed, or ranks whose calls differ. HEDDLE_ERR_SYSTEM: an error of
 * CUDA's.
 * HEDDLE_ERR_PEER: on the ranks that did not fail. After one of these, outside of a capture, the
 * contents of the buffers are undefined, no stream uses them any more, and the communicator remains
 * usable unless its ranks cannot synchronise.
 *
 * - Where the host serves the ranks a collective may fail after the calls have returned, as when
 *   another process has died or HEDDLE_TIMEOUT is over: streams go on, with undefined contents, and
 *   the next call on a stream returns the error.
 * - A stream's wait for another rank of its own node has no deadline: it takes as long as that one is behind,
 *   and perhaps for ever where its process has died; blocking calls fail then. But where the GPUs exchange
 *   short vectors in kernels (HEDDLE_EXCHANGE_BYTES) it ends after HEDDLE_TIMEOUT outside of graphs, with
 *   undefined contents, and the next call returns the error.
 * - Where a rank's GPU has failed (an illegal access, a context that was reset) with earlier calls
 *   on its stream, the next call says so on all ranks. What the others' streams were given before
 *   goes on without a result where their kernels exchange short vectors. Where they wait for
 *   events, with longer ones, the call returns all the same, about a second later, but the streams
 *   and heddle_comm_destroy may wait for ever: the way out is the end of the process. Graphs that
 *   were captured before are of no use on any rank; a line of the log says so (HEDDLE_LOG=warn).
 * - After a failure in a capture end the capture and destroy the graph; nothing has run. A failure
 *   outside of the capture leaves graphs as they were.
 * - Where the host serves the ranks and its collectives have failed, launches go on without
 *   results, and what was captured before has to be captured again: the first call after such a
 *   launch fails and says so. A program that launches graphs and makes no calls hears of it by a
 *   line of the log alone (HEDDLE_LOG=warn, as it is unless set otherwise).
 *
 * LIFETIME
 *
 * Buffers belong to heddle until the stream has done the work; to free them in the stream's order
 * (cudaFreeAsync) is enough. With graphs communicator and buffers stay, on all ranks, until the
 * last launch is done: a graph that is launched after heddle_comm_destroy uses memory that was
 * freed. heddle_comm_destroy waits for the work that this rank's streams were given, graphs
 * included.
 */
#ifndef HEDDLE_HEDDLE_CUDA_H
#define HEDDLE_HEDDLE_CUDA_H

#include <stddef.h>

#include "heddle/heddle.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* CUDA's; CUstream and cudaStream_t point to it */

/* As heddle_allreduce, on `stream`. Elements of x86's long double are HEDDLE_ERR_UNSUPPORTED where the GPUs
 * serve the ranks. Collective. */
HEDDLE_API heddle_status heddle_allreduce_on_stream(const void* sendbuf, void* recvbuf, size_t count,
                                                    heddle_dtype dtype, heddle_op op, heddle_comm_t comm,
                                                    struct CUstream_st* stream);

/* As heddle_bcast, on `stream`. Collective. */
HEDDLE_API heddle_status heddle_bcast_on_stream(void* buffer, size_t bytes, int root, heddle_comm_t comm,
                                                struct CUstream_st* stream);

#ifdef __cplusplus
}
#endif
#endif
