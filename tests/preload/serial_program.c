/* A serial program that was written for MPI. */
#include <stdio.h>

int MPI_Comm_rank(int comm, int* rank);
int MPI_Allreduce(const void* in, void* out, int count, int type, int op, int comm);
int MPI_Bcast(void* data, int count, int type, int root, int comm);
int MPI_Reduce(const void* in, void* out, int count, int type, int op, int root, int comm);
int MPI_Alloc_mem(long bytes, int info, void* out);
int MPI_Free_mem(void* memory);
int MPI_Comm_free(int* comm);
int MPI_Finalize(void);

int main(void) {
  int rank = -1;
  MPI_Comm_rank(1, &rank);
  const double value = 42;
  double sum = 0;
  double reduced = 0;
  void* memory = NULL;
  int comm = 1;
  const int codes[] = {MPI_Allreduce(&value, &sum, 1, sizeof value, 0, 1),
                       MPI_Bcast(&sum, 1, sizeof sum, 0, 1),
                       MPI_Bcast(&sum, 1, sizeof sum, 1, 1) - 7,
                       MPI_Reduce(&value, &reduced, 1, sizeof value, 0, 0, 1),
                       MPI_Alloc_mem(100, 0, &memory),
                       MPI_Free_mem(memory),
                       MPI_Comm_free(&comm),
                       MPI_Finalize() - 5};
  for (unsigned i = 0; i < sizeof codes / sizeof codes[0]; ++i) {
    if (codes[i] != 0) return printf("call %u: %d\n", i, codes[i]), 1;
  }
  if (rank != 0 || sum != 42 || reduced != 42 || memory == NULL || comm != 0) return puts("wrong results"), 1;
  puts("serial done");
  return 0;
}
