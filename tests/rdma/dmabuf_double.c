/* Preloaded where GPU memory is the CUDA double's (tests/gpu/fake_cuda.h), whose dmabufs are files that hold
 * it: Soft-RoCE takes no dmabufs, but it takes such a file's pages, under the addresses that the GPU has for
 * them. What travels, and how, is the device's. Memory whose writes may not come in any order it does not
 * take. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>

struct ibv_mr* ibv_reg_dmabuf_mr(struct ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                                 int access) {
  if ((access & IBV_ACCESS_RELAXED_ORDERING) == 0) {
    errno = EINVAL;
    return NULL;
  }
  /* Stays mapped, as a device has it until the end. */
  void* const pages = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
  return pages == MAP_FAILED ? NULL : ibv_reg_mr_iova2(pd, pages, length, iova, (unsigned)access);
}
