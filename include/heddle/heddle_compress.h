/* heddle: allreduce of gradients that may lose precision, with error feedback. Everything that heddle.h says
 * of threads, order, waits and errors holds here. docs/compression.md has the methods, their sizes and their
 * errors.
 */
#ifndef HEDDLE_HEDDLE_COMPRESS_H
#define HEDDLE_HEDDLE_COMPRESS_H

#include <stddef.h>
#include <stdint.h>

#include "heddle/heddle.h"
#include "heddle/heddle_sparse.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What compression left out so far of a vector of `count` float32, to be added to the next one: the caller's,
 * one for each vector that is summed again and again. One thread at a time. */
typedef struct heddle_residual* heddle_residual_t;

/* Zeros. *residual must be given to heddle_residual_destroy. */
HEDDLE_API heddle_status heddle_residual_create(size_t count, heddle_residual_t* residual);
/* Null is allowed. */
HEDDLE_API heddle_status heddle_residual_destroy(heddle_residual_t residual);
/* To a file, which is the one from before or the new one whenever the machine stops; through symbolic links.
 * HEDDLE_ERR_ARGUMENT: `path` leads to something else than a file, or a value is a NaN or an infinity. And
 * from one, which must have been written for `count` values (HEDDLE_ERR_ARGUMENT says what is wrong with it:
 * checksum, length, count). HEDDLE_ERR_SYSTEM: it is not there, or cannot be read or written. */
HEDDLE_API heddle_status heddle_residual_save(heddle_residual_t residual, const char* path);
HEDDLE_API heddle_status heddle_residual_load(const char* path, size_t count, heddle_residual_t* residual);
/* Its `count` values, which the caller may read and change; they move with the residual only. From then on
 * calls on GPU memory copy them to the GPU and back each time, where they would stay there else
 * (docs/gpu-design.md). HEDDLE_ERR_SYSTEM: they lay on a GPU whose context is gone; so too
 * heddle_residual_save, and calls that need them in the host's memory. */
HEDDLE_API heddle_status heddle_residual_values(heddle_residual_t residual, float** values, size_t* count);

/* recvbuf = about the sum of all ranks' sendbuf, `count` float32 each, the same bits on every rank; sendbuf
 * may be HEDDLE_IN_PLACE. With a residual (may be null) its values are added to sendbuf first, and what is
 * not sent, or lost in rounding on this rank, is left in it; recvbuf shares no memory with its values
 * (HEDDLE_ERR_ARGUMENT). "qsgd:2" and "terngrad" take none (HEDDLE_ERR_ARGUMENT): they may lose as much as
 * the largest value, the residual included, so that it would grow without bound, and the sums with it. "fp16"
 * and "bf16" need none.
 *
 * `method`: "fp16", "bf16", "qsgd:8", "qsgd:4", "qsgd:2", "terngrad", "onebit": every value in fewer bits,
 * summed in float32; those from qsgd on scale buckets of 1024 values, or as many as ":N" behind the name
 * says. "topk:F", "topk-sampled:F", "randomk:F": the part F of the values, exactly as they are; 0 < F <= 1.
 * Of `count` values k = F * count go, rounded up, so one at least: by "topk" the k of largest magnitude
 * (zeros never), by "topk-sampled" large ones, k/2 to 3k/2 of them or those of "topk", by "randomk" k drawn
 * at random. `seed`: of what is random. Each call on a communicator draws anew; the same seeds and calls give
 * the same bits again. (Of the methods from "fp16" to "onebit" the GPUs of a node make another sum than the
 * host, with a smaller bound of its error: they code each value once. docs/gpu-design.md) Count, method and
 * seed are equal on all ranks; where they are not, or one rank passes a method that there is not, a residual
 * of another size or another argument that is refused, every rank gets HEDDLE_ERR_ARGUMENT, nothing is
 * exchanged, residuals stay as they were, and the communicator remains usable. After any other error too a
 * residual is what it was, unless sendbuf lies on a GPU (docs/gpu-design.md). */
HEDDLE_API heddle_status heddle_compressed_allreduce(const void* sendbuf, float* recvbuf, size_t count,
                                                     const char* method, uint64_t seed,
                                                     heddle_residual_t residual, heddle_comm_t comm);

/* How far one value of that sum can be off, beside the rounding of sums in float32, on a communicator of
 * `ranks` ranks, if no rank's value (residual included) has a magnitude above `largest`: infinity for methods
 * that leave values out. *bound is set on success. Local. */
HEDDLE_API heddle_status heddle_compression_error_bound(const char* method, int ranks, double largest,
                                                        double* bound);

/* dense = about the sum of all ranks' sparse `in`, `in->dimension` float32, the same bits on every rank;
 * about 0 where no rank has an entry. For sums that are nearly full although what each rank has is sparse
 * (DSAR_Split_allgather of SparCML, C. Renggli et al., SC'19): entries travel exactly to the rank that owns
 * their part of the vector, which adds them up in float32, and the sums travel through a codec, once.
 *
 * `in`: float32, keeps the contract of heddle_sparse.h; its arrays stay the caller's, and neither they nor
 * the residual's values overlap `dense`. Counts (0 too) and index types may differ between ranks.
 * `method`: "fp16", "bf16", "qsgd:8", "qsgd:4", "qsgd:2", "terngrad", "onebit", with ":N" as above. Those
 * that select entries are not for this: select before, and pass what was selected. `seed`: as above.
 * `residual` (may be null, and must be with "qsgd:2" and "terngrad", as above; of `in->dimension` values;
 * null on some ranks and not on others is allowed): what the codec loses of the sums that this rank
 * encodes is added to it. Nothing is taken from it: who selects adds it to the gradient first. So the
 * inputs of all ranks are what is in `dense` and what was added to their residuals, but for rounding in
 * float32. What is not finite adds nothing. A NaN or infinity in the sum stays in its place under fp16 and
 * bf16; under the others the bucket of the sum that it is in becomes NaN.
 * HEDDLE_ERR_ARGUMENT on every rank, with nothing exchanged and residuals as they were, where ranks disagree
 * on dimension, method or seed, or one passes another type, a broken contract, a residual of another size, a
 * method that selects, or another argument that is refused. After any other error too the residual is what
 * it was. Memory: that of the entries and of one rank's part of `dense`; on the first rank of each of
 * several nodes with several ranks also the coded vector. */
HEDDLE_API heddle_status heddle_sparse_allreduce_coded(const heddle_sparse* in, float* dense,
                                                       const char* method, uint64_t seed,
                                                       heddle_residual_t residual, heddle_comm_t comm);

/* How far one value of that sum can be off, beside the rounding of sums in float32, on a communicator of
 * `ranks` ranks, if no rank's entry has a magnitude above `largest`: what the codec may lose of a value of
 * magnitude ranks * largest; 0 for one rank. HEDDLE_ERR_ARGUMENT: a method that selects. *bound is set on
 * success. Local. */
HEDDLE_API heddle_status heddle_sparse_coded_error_bound(const char* method, int ranks, double largest,
                                                         double* bound);

#ifdef __cplusplus
}
#endif
#endif
