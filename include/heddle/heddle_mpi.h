/* heddle: a communicator from an MPI communicator. Header only, C and C++, no state of its own: the program
 * that includes this compiles it against its own mpi.h, so libheddle.so needs no MPI.
 *
 *     heddle_comm_t comm;
 *     if (heddle_comm_create_mpi(MPI_COMM_WORLD, &comm) != HEDDLE_OK) { puts(heddle_last_error()); ... }
 *     ...
 *     heddle_comm_destroy(comm);            on every rank, before MPI_Finalize
 *
 * Threads: heddle calls MPI only from the thread that calls heddle. Under MPI_THREAD_SERIALIZED the program
 * keeps calls into heddle and into MPI apart, as it does for MPI itself.
 */
#ifndef HEDDLE_HEDDLE_MPI_H
#define HEDDLE_HEDDLE_MPI_H

#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "heddle/heddle.h"

/* What the callbacks share: heddle's private duplicate of the caller's communicator. */
typedef struct heddle_mpi_lender {
  MPI_Comm comm;
} heddle_mpi_lender;

/* Of numbers and of `void*`: C++ warns of C's casts where it is asked to. */
#ifdef __cplusplus
#define HEDDLE_MPI_CAST(type, value) static_cast<type>(value)
#else
#define HEDDLE_MPI_CAST(type, value) ((type)(value))
#endif

#define HEDDLE_MPI_PIECE (HEDDLE_MPI_CAST(size_t, 1) << 30)

/* What is in the storage that heddle gives each message. */
typedef struct heddle_mpi_message {
  MPI_Request request;
  MPI_Count expected; /* bytes to be received; -1: it is sent */
} heddle_mpi_message;

/* It must fit: a negative array size where it does not. */
typedef char heddle_mpi_request_fits[sizeof(heddle_mpi_message) <= HEDDLE_P2P_REQUEST_BYTES ? 1 : -1];

static inline MPI_Comm heddle_mpi_comm_of(void* context) {
  return HEDDLE_MPI_CAST(heddle_mpi_lender*, context)->comm;
}

/* A datatype of `bytes` bytes, which are more than an int counts: pieces of 1 GiB and the rest. */
static inline int heddle_mpi_long_type(size_t bytes, MPI_Datatype* type) {
  MPI_Datatype piece = MPI_DATATYPE_NULL;
  MPI_Datatype parts[2] = {MPI_DATATYPE_NULL, MPI_BYTE};
  MPI_Aint places[2] = {0, HEDDLE_MPI_CAST(MPI_Aint, bytes / HEDDLE_MPI_PIECE * HEDDLE_MPI_PIECE)};
  int lengths[2] = {1, HEDDLE_MPI_CAST(int, bytes % HEDDLE_MPI_PIECE)};
  int error = MPI_Type_contiguous(HEDDLE_MPI_CAST(int, HEDDLE_MPI_PIECE), MPI_BYTE, &piece);
  if (error == MPI_SUCCESS)
    error = MPI_Type_contiguous(HEDDLE_MPI_CAST(int, bytes / HEDDLE_MPI_PIECE), piece, &parts[0]);
  if (error == MPI_SUCCESS) error = MPI_Type_create_struct(2, lengths, places, parts, type);
  if (error == MPI_SUCCESS) error = MPI_Type_commit(type);
  if (parts[0] != MPI_DATATYPE_NULL) MPI_Type_free(&parts[0]);
  if (piece != MPI_DATATYPE_NULL) MPI_Type_free(&piece);
  return error;
}

static inline int heddle_mpi_send(const void* data, size_t bytes, int peer, int tag, void* request,
                                  void* context) {
  MPI_Comm comm = heddle_mpi_comm_of(context);
  heddle_mpi_message opened;
  int error = MPI_SUCCESS;
  opened.request = MPI_REQUEST_NULL;
  opened.expected = -1;
  if (bytes <= INT_MAX) {
    error = MPI_Isend(data, HEDDLE_MPI_CAST(int, bytes), MPI_BYTE, peer, tag, comm, &opened.request);
  } else {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    error = heddle_mpi_long_type(bytes, &type);
    if (error == MPI_SUCCESS) error = MPI_Isend(data, 1, type, peer, tag, comm, &opened.request);
    if (type != MPI_DATATYPE_NULL) MPI_Type_free(&type); /* goes when the message is done with it */
  }
  memcpy(request, &opened, sizeof(opened));
  return error;
}

static inline int heddle_mpi_recv(void* data, size_t bytes, int peer, int tag, void* request, void* context) {
  MPI_Comm comm = heddle_mpi_comm_of(context);
  heddle_mpi_message opened;
  int error = MPI_SUCCESS;
  opened.request = MPI_REQUEST_NULL;
  opened.expected = HEDDLE_MPI_CAST(MPI_Count, bytes);
  if (bytes <= INT_MAX) {
    error = MPI_Irecv(data, HEDDLE_MPI_CAST(int, bytes), MPI_BYTE, peer, tag, comm, &opened.request);
  } else {
    MPI_Datatype type = MPI_DATATYPE_NULL;
    error = heddle_mpi_long_type(bytes, &type);
    if (error == MPI_SUCCESS) error = MPI_Irecv(data, 1, type, peer, tag, comm, &opened.request);
    if (type != MPI_DATATYPE_NULL) MPI_Type_free(&type);
  }
  memcpy(request, &opened, sizeof(opened));
  return error;
}

static inline int heddle_mpi_test(void* request, int* done, void* context) {
  heddle_mpi_message opened;
  MPI_Status status;
  MPI_Count came = 0;
  int error;
  (void)context;
  memcpy(&opened, request, sizeof(opened));
  error = MPI_Test(&opened.request, done, &status);
  if (error == MPI_SUCCESS && *done && opened.expected >= 0) {
    error = MPI_Get_elements_x(&status, MPI_BYTE, &came);
    if (error == MPI_SUCCESS && came != opened.expected) error = MPI_ERR_TRUNCATE;
  }
  if (error != MPI_SUCCESS) MPI_Error_class(error, &error);
  memcpy(request, &opened, sizeof(opened));
  return error;
}

/* MPI completes a cancelled receive without the other side. A receive that has met its message, and a send
 * that the other side has begun to fetch, it may not let go of: such a request is left to MPI, which goes on
 * with it, in its buffer as well, and frees it when it can. Nonzero then. */
static inline int heddle_mpi_cancel(void* request, void* context) {
  heddle_mpi_message opened;
  double end;
  int done = 0;
  int error;
  (void)context;
  memcpy(&opened, request, sizeof(opened));
  if (opened.request == MPI_REQUEST_NULL) return MPI_SUCCESS;
  /* Few sends can be cancelled, and no receive whose message is on its way: those that end by themselves
   * leave the buffer alone after this. Not one whose receiver never takes it. */
  end = MPI_Wtime() + 0.02;
  error = MPI_Cancel(&opened.request);
  while (error == MPI_SUCCESS && !done && MPI_Wtime() < end)
    error = MPI_Test(&opened.request, &done, MPI_STATUS_IGNORE);
  if (opened.request != MPI_REQUEST_NULL) {
    const int freed = MPI_Request_free(&opened.request);
    if (error == MPI_SUCCESS) error = freed == MPI_SUCCESS ? MPI_ERR_PENDING : freed;
  }
  memcpy(request, &opened, sizeof(opened));
  return error;
}

static inline void heddle_mpi_progress(void* context) {
  int flag = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, heddle_mpi_comm_of(context), &flag, MPI_STATUS_IGNORE);
}

static inline void heddle_mpi_release(void* context) {
  heddle_mpi_lender* lender = HEDDLE_MPI_CAST(heddle_mpi_lender*, context);
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Comm_free(&lender->comm);
  free(lender);
}

static inline int heddle_mpi_allgather(const void* mine, void* all, size_t bytes, void* context) {
  if (bytes > INT_MAX) return MPI_ERR_COUNT;
  return MPI_Allgather(mine, HEDDLE_MPI_CAST(int, bytes), MPI_BYTE, all, HEDDLE_MPI_CAST(int, bytes),
                       MPI_BYTE, heddle_mpi_comm_of(context));
}

/* NOLINTBEGIN(modernize-use-nullptr): this is C as well. */

/* A heddle communicator with the ranks of `comm`, an intracommunicator. Collective over `comm`, which stays
 * the caller's: heddle talks on a duplicate of its own, that heddle_comm_destroy frees. Because MPI_Comm_free
 * is collective, so is heddle_comm_destroy for this communicator: every rank calls it, in the same order as
 * other collectives on `comm`, and before MPI_Finalize (afterwards it still frees heddle's part, but MPI's
 * duplicate is lost). HEDDLE_ERR_ARGUMENT: MPI is not running, `comm` is MPI_COMM_NULL or an
 * intercommunicator. HEDDLE_ERR_PEER: MPI failed. On failure *out is null. */
static inline heddle_status heddle_comm_create_mpi(MPI_Comm comm, heddle_comm_t* out) {
  heddle_mpi_lender* lender = NULL;
  heddle_p2p p2p;
  int initialized = 0;
  int finalized = 0;
  int inter = 0;
  int rank = 0;
  int size = 0;
  if (out == NULL) return heddle_set_last_error(HEDDLE_ERR_ARGUMENT, "out is null");
  *out = NULL;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (!initialized || finalized) {
    return heddle_set_last_error(HEDDLE_ERR_ARGUMENT,
                                 "MPI is not running: call this after MPI_Init and before MPI_Finalize");
  }
  if (comm == MPI_COMM_NULL)
    return heddle_set_last_error(HEDDLE_ERR_ARGUMENT, "the MPI communicator is MPI_COMM_NULL");
  if (MPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS) {
    return heddle_set_last_error(HEDDLE_ERR_ARGUMENT, "MPI_Comm_test_inter refused the communicator");
  }
  if (inter) {
    return heddle_set_last_error(
        HEDDLE_ERR_ARGUMENT,
        "the MPI communicator is an intercommunicator; merge it first (MPI_Intercomm_merge)");
  }
  lender = HEDDLE_MPI_CAST(heddle_mpi_lender*, malloc(sizeof(*lender)));
  if (lender == NULL) return heddle_set_last_error(HEDDLE_ERR_MEMORY, "out of memory");
  if (MPI_Comm_dup(comm, &lender->comm) != MPI_SUCCESS) {
    free(lender);
    return heddle_set_last_error(HEDDLE_ERR_PEER, "MPI_Comm_dup failed");
  }
  /* Failures come back to heddle as codes, whatever the program chose for its own communicators. */
  MPI_Comm_set_errhandler(lender->comm, MPI_ERRORS_RETURN);
  MPI_Comm_rank(lender->comm, &rank);
  MPI_Comm_size(lender->comm, &size);
  p2p.send = heddle_mpi_send;
  p2p.recv = heddle_mpi_recv;
  p2p.test = heddle_mpi_test;
  p2p.cancel = heddle_mpi_cancel;
  p2p.progress = heddle_mpi_progress;
  p2p.release = heddle_mpi_release; /* from here on heddle frees the lender, also when it fails */
  p2p.context = lender;
  return heddle_comm_create(rank, size, heddle_mpi_allgather, lender, &p2p, out);
}

/* NOLINTEND(modernize-use-nullptr) */

#endif
