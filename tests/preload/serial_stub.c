/* What serial programs are linked with in place of an MPI: no PMPI names, a rank of its own, and handles that
 * nobody else knows. */
#include <stdlib.h>
#include <string.h>

int MPI_Comm_rank(int comm, int* rank);
int MPI_Comm_rank(int comm, int* rank) {
  (void)comm;
  *rank = 0;
  return 0;
}

/* Types are sizes. */
int MPI_Allreduce(const void* in, void* out, int count, int type, int op, int comm);
int MPI_Allreduce(const void* in, void* out, int count, int type, int op, int comm) {
  (void)op, (void)comm;
  memcpy(out, in, (size_t)count * (size_t)type);
  return 0;
}

int MPI_Bcast(void* data, int count, int type, int root, int comm);
int MPI_Bcast(void* data, int count, int type, int root, int comm) {
  (void)data, (void)count, (void)type, (void)comm;
  return root == 0 ? 0 : 7;
}

int MPI_Reduce(const void* in, void* out, int count, int type, int op, int root, int comm);
int MPI_Reduce(const void* in, void* out, int count, int type, int op, int root, int comm) {
  (void)root;
  return MPI_Allreduce(in, out, count, type, op, comm);
}

int MPI_Alloc_mem(long bytes, int info, void* out);
int MPI_Alloc_mem(long bytes, int info, void* out) {
  (void)info;
  *(void**)out = malloc((size_t)bytes);
  return 0;
}

int MPI_Free_mem(void* memory);
int MPI_Free_mem(void* memory) {
  free(memory);
  return 0;
}

int MPI_Comm_free(int* comm);
int MPI_Comm_free(int* comm) {
  *comm = 0;
  return 0;
}

int MPI_Finalize(void);
int MPI_Finalize(void) {
  return 5;
}
