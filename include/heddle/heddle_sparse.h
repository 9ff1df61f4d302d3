/* heddle: allreduce of sparse vectors. Everything that heddle.h says of threads, order, waits and errors
 * holds here.
 *
 * A sparse vector is an array of indices and an array of values beside it. Nothing that heddle keeps or sends
 * is as large as the dimension unless the entries are.
 */
#ifndef HEDDLE_HEDDLE_SPARSE_H
#define HEDDLE_HEDDLE_SPARSE_H

#include <stddef.h>
#include <stdint.h>

#include "heddle/heddle.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum heddle_index_type { HEDDLE_INDEX32 = 0, HEDDLE_INDEX64 = 1 } heddle_index_type; /* unsigned */

/* The entries of a vector that are there. The contract: indices rise strictly and are less than `dimension`.
 * Arrays need no alignment. Set what is not used to 0. */
typedef struct heddle_sparse {
  uint64_t dimension;
  size_t count;                 /* entries */
  heddle_index_type index_type; /* 32 bits for dimensions up to 2^32 */
  heddle_dtype value_type;      /* HEDDLE_FLOAT16, BFLOAT16, FLOAT32, FLOAT64, INT32 or INT64 */
  void* indices;
  void* values;

  /* Of results: entries that the arrays have room for. */
  size_t capacity;
  /* Of results, may be null: called once the result is known to have `entries` entries, where `capacity` is
   * less. Makes the arrays large enough, sets `capacity`, and returns 0; anything else is a failure of this
   * rank (HEDDLE_ERR_MEMORY). Must not call heddle. While a request is active, heddle's own thread may call
   * it. */
  int (*grow)(struct heddle_sparse* self, size_t entries);
  void* context; /* the caller's */
} heddle_sparse;

/* Brings entries in any order into the contract's form, in place: sorted, those of equal index summed in the
 * order in which they stood. `count` becomes the number of different indices. Takes memory for a second copy
 * of the entries. HEDDLE_ERR_ARGUMENT names an index that is not less than the dimension, or a count that no
 * memory can hold; nothing is changed then. Local; arrays in the host's memory. */
HEDDLE_API heddle_status heddle_sparse_sort(heddle_sparse* vector);

/* Whether the contract holds; the message names the first entry that breaks it, or a count of more than the
 * dimension, of which none is read. Local; arrays in the host's memory. Collectives check it themselves. */
HEDDLE_API heddle_status heddle_sparse_check(const heddle_sparse* vector);

/* out = op over all ranks' `in`: the entries that any rank has, the same bits on every rank, whatever arrives
 * first.
 *
 * `op`: HEDDLE_SUM, where an entry that a rank lacks counts as +0, as it would in a dense vector; HEDDLE_MIN
 * or HEDDLE_MAX, where it does not count. An entry is in the result where any rank has it, also where the sum
 * is 0.
 *
 * `in` keeps the contract; its arrays stay the caller's. All ranks pass the same dimension, value type and
 * operation; counts (0 too) and index types may differ.
 *
 * `out` takes the result; dimension and types are set to those of `in`. It may be `in` itself.
 *
 * Errors, after all of which but the last the communicator remains usable:
 *   - HEDDLE_ERR_ARGUMENT, on every rank, and nothing is exchanged: ranks disagree, or are in different ones
 *     of the blocking calls of this header and heddle_sparse_allreduce_coded; or one breaks the contract, or
 *     passes another argument that is refused. (Of heddle_sparse_allreduce_in_place this holds where all pass
 *     a type of sparse values and more than 0 elements; arguments that are refused it tells to their rank
 *     alone.)
 *   - HEDDLE_ERR_CAPACITY, on this rank alone: `capacity` is less than the result, and `grow` is null.
 *     HEDDLE_ERR_MEMORY, likewise: `grow` fails. `count` becomes what is needed, and heddle_sparse_fetch has
 *     the result, unless there was no memory to keep it, which the text says.
 *   - HEDDLE_ERR_MEMORY where heddle itself finds no memory, in this call or another one of this header and
 *     heddle_compress.h: the communicator has failed (heddle_comm_failed), of which the others hear; or all
 *     have heard of it in time: then it remains usable, and they got HEDDLE_ERR_PEER. So no rank makes such a
 *     call again by itself, as it may a heddle_allreduce. */
HEDDLE_API heddle_status heddle_sparse_allreduce(const heddle_sparse* in, heddle_sparse* out, heddle_op op,
                                                 heddle_comm_t comm);

/* The result that did not fit, into arrays that are large enough now (or `grow`). It is kept until it is
 * fetched, or the next sparse collective that does not fit. HEDDLE_ERR_ARGUMENT: there is none. Local. */
HEDDLE_API heddle_status heddle_sparse_fetch(heddle_sparse* out, heddle_comm_t comm);

/* Sparse in, dense out: `dense` holds `dimension` elements, 0 where no rank has an entry. It overlaps no
 * array of `in` (HEDDLE_ERR_ARGUMENT). */
HEDDLE_API heddle_status heddle_sparse_allreduce_dense(const heddle_sparse* in, void* dense, heddle_op op,
                                                       heddle_comm_t comm);

/* heddle_allreduce(HEDDLE_IN_PLACE, buffer, count, dtype, HEDDLE_SUM, comm) for vectors that may be mostly
 * zeros: the ranks agree by a look at samples whether to exchange entries or the vector, and the bits are
 * those of a dense sum in the order in which the entries were folded, -0, NaN and infinities included.
 * Memory: that of the entries, where they are exchanged. Elements of types that `value_type` does not take,
 * 8-bit floats among them, are always summed as a vector. */
HEDDLE_API heddle_status heddle_sparse_allreduce_in_place(void* buffer, size_t count, heddle_dtype dtype,
                                                          heddle_comm_t comm);

/* Non-blocking and persistent, with the requests of heddle.h. The structure `in` is read by this call alone,
 * its arrays and `out` stay in place until the request is complete, a persistent one until it is freed. What
 * heddle_sparse_allreduce would return, HEDDLE_ERR_CAPACITY included, is returned by the test or wait that
 * finds the request complete; but arguments that are refused whatever the entries are, this call refuses, on
 * this rank alone, without a request: the others wait for it. Arrays of `in` on a GPU are read at the start.
 */
HEDDLE_API heddle_status heddle_isparse_allreduce(const heddle_sparse* in, heddle_sparse* out, heddle_op op,
                                                  heddle_comm_t comm, heddle_request_t* request);
/* Persistent: dimension, count, types and addresses of the arrays are those that `in` has in this call; the
 * indices stay as they are at the first start, on all ranks; values change. `out` shares no memory with `in`
 * (HEDDLE_ERR_ARGUMENT), which every start reads again. Sums exchange indices at the first start alone: a
 * persistent request is one on all ranks, and where a rank has changed its indices the result is wrong, and
 * nothing says so. With HEDDLE_CHECK=1 each start compares them with those of the first one:
 * HEDDLE_ERR_ARGUMENT on every rank, by the test or wait, nothing is exchanged, and the rank's own message
 * names the entry. */
HEDDLE_API heddle_status heddle_sparse_allreduce_init(const heddle_sparse* in, heddle_sparse* out,
                                                      heddle_op op, heddle_comm_t comm,
                                                      heddle_request_t* request);

/* Of the sparse allreduce that was completed last on the communicator, those of heddle_compress.h included.
 */
typedef struct heddle_sparse_stats {
  /* Static storage: the name of an allreduce algorithm (docs/algorithms.md) whose schedule carried entries or
   * codes; "dense": the whole vector was exchanged; "bitmaps": by way of bitmaps in the memory of one node;
   * "gpu": by the GPUs of a node; "random_k": by the method randomk, as a short dense vector; "none" before
   * the first one. */
  const char* algorithm;
  uint64_t entries;        /* of all ranks */
  uint64_t result_entries; /* 0 where the whole vector was exchanged, or sums travelled as one */
  uint64_t bytes_sent;     /* by this rank, on the wire; 0 where a whole vector was exchanged */
} heddle_sparse_stats;
HEDDLE_API heddle_status heddle_sparse_get_stats(heddle_comm_t comm, heddle_sparse_stats* stats);

#ifdef __cplusplus
}
#endif
#endif
