/* Preloaded: rank 1 gets no aligned memory of 1 MiB and more. */
#define _POSIX_C_SOURCE 200112L
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void* aligned_alloc(size_t alignment, size_t size) {
  const char* rank = getenv("PMI_RANK");
  void* memory = NULL;
  if (rank != NULL && strcmp(rank, "1") == 0 && size >= 1 << 20) {
    errno = ENOMEM;
    return NULL;
  }
  return posix_memalign(&memory, alignment, size) == 0 ? memory : NULL;
}
