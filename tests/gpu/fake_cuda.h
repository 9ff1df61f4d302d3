/* A test double of CUDA's driver, for machines without a GPU: a libcuda.so.1 with the functions that heddle
 * and its tests call. It shows that heddle keeps to the driver's rules; it has no GPU, no speed, and never
 * backs a figure.
 *
 * - "Device" memory is mapped twice: where its pointers point nobody may read or write, so that a host that
 *   touches it dies by SIGSEGV; the double's own copies go through the second mapping.
 * - Work on the default stream of a context, and on each stream that does not synchronise with it, waits
 *   until somebody waits for it, so that one who forgets to sees old values.
 * - Memory that is not pinned is read by the driver's blocking copies, and arrives later: for other streams
 *   it may be on its way yet.
 * - What went with a context, destroyed or reset, ends the process when it is used.
 * - It is stricter than the driver: device memory must be used with its own context current, or one that was
 *   given access to it.
 * - Who frees memory that a kernel of another context has yet to use (but for exchanges) dies: the driver
 *   waits for the own context alone.
 * - Memory is shared between processes as by CUDA IPC, in handles that the exporting process itself cannot
 *   open. Who frees memory that another process has open is told so, and dies. Events are shared likewise:
 *   work that waits for one of another process's waits until somebody there has waited for the stream that it
 *   was recorded in.
 * - Streams can be captured into graphs. What may not be called meanwhile fails, and the capture with it, as
 *   the driver has it; calls of which it says that they are potentially unsafe do so always. A graph does its
 *   nodes in the order in which they were captured.
 * - What a graph refers to is told by another thread when the graph, all that was made of it and its
 *   launches are gone.
 * - While a stream is captured that synchronises with the default stream, that one takes no work, and what is
 *   given to it makes the capture fail; to ask whether it is captured does not.
 * - With FAKE_CUDA_DEPTH=N a stream takes so much work, and who gives it more waits until some of that is
 *   done.
 * - A stream that waits for a value in memory lets the other streams of its process go on, whoever waits for
 *   it.
 * - Kernels run as their host twins (kernel_twins.hpp), by name; or, with FAKE_CUDA_PTX=FILE[:FILE...], as
 *   nvcc compiled them, instruction by instruction (ptx/machine.hpp, which dies where they do what they may
 *   not), in an order of threads that FAKE_CUDA_PTX_SEED=N changes. A GPU of its has two multiprocessors, or
 *   FAKE_CUDA_MULTIPROCESSORS. Kernels that are not loaded into a context before they are launched there are
 *   counted, as calls of "a load at a launch".
 *
 * - With FAKE_CUDA_FORKS=1 registrations of memory that a forked process would get a copy of are counted, as
 *   calls of "memory that a fork copies". (To ask the kernel takes long where a sanitizer has its own
 *   memory.)
 * - A dmabuf of device memory is the file that holds it: who maps that does what a network's device would,
 *   which is not to be seen from here (network_double/network_double.cpp).
 *
 * Beside the driver's functions it has those below, which say what happened, and make calls fail. The
 * environment does the same from the start: FAKE_CUDA_FAIL=NAME:ERROR:TIMES[,...], FAKE_CUDA_LACKS=NAME (a
 * function that an old driver would not have), FAKE_CUDA_DEVICES=N, FAKE_CUDA_QUEUES=1 (streams share the
 * GPU's queues, CUDA_DEVICE_MAX_CONNECTIONS of them or 8, and one that waits holds up what the others in its
 * queue are given later: for programs in which nothing fails), FAKE_CUDA_NO_PEERS=1 (no device reaches
 * another one's memory), FAKE_CUDA_DROPS_PEER_WRITES=1 (memory of another process's on another device is what
 * it was when it was opened, and what is written there nobody sees), FAKE_CUDA_DROPS_PEER_READS=1 (the same,
 * with anything in it), FAKE_CUDA_DROPS_EXCHANGES=1 (kernels that exchange vectors send nothing),
 * FAKE_CUDA_DMABUF=1 and FAKE_CUDA_GPU_DIRECT=1 (what every device says of itself), FAKE_CUDA_NO_FLUSH=1 (nor
 * does it tell when it sees what networks write).
 */
#ifndef HEDDLE_TESTS_GPU_FAKE_CUDA_H
#define HEDDLE_TESTS_GPU_FAKE_CUDA_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How often a function, as in "cuMemHostRegister", was called in this process. */
int fake_cuda_calls(const char* name);
/* How many bytes the calls of one that copies were asked for. */
size_t fake_cuda_bytes(const char* name);
/* The next `times` calls of a function return `error`. */
void fake_cuda_fail(const char* name, int error, int times);
/* The one that comes after the next `calls` of them does. */
void fake_cuda_fail_after(const char* name, int calls, int error);
/* A kernel on the default stream of `memory`'s context that will write `bytes` bytes there, once somebody
 * waits for the stream. */
void fake_cuda_write_later(void* memory, const void* from, size_t bytes);
/* The last kernel that was given to a stream. */
typedef struct fake_cuda_launch {
  const char* kernel;
  unsigned blocks;
  unsigned threads; /* of a block */
  void* stream;
} fake_cuda_launch;
void fake_cuda_last_launch(fake_cuda_launch* launch);
/* Registrations of host memory that are in force. */
int fake_cuda_registered(void);
/* Gives up a device's primary context as often as it was retained: as where all that used CUDA have ended. */
void fake_cuda_release_primary(int device);
/* Pieces of device memory that are allocated. */
int fake_cuda_allocated(void);

#ifdef __cplusplus
}
#endif
#endif
