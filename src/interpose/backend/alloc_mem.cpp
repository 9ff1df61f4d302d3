#include "interpose/backend/backend.hpp"

namespace heddle::backend {
namespace {

// MPI_Alloc_mem: what heddle's collectives gain from. Each piece takes a descriptor, of which the program has
// its own uses.
constexpr MPI_Aint kLeastHeapBytes = 32 * 1024;
constexpr std::size_t kMostHeapBlocks = 128;

}  // namespace

int Backend::alloc_mem(MPI_Aint bytes, MPI_Info info, void* out) {
  // Who gives hints (MPICH takes an alignment) wants the host's memory.
  if (out != nullptr && info == MPI_INFO_NULL && bytes >= kLeastHeapBytes && make_ready() &&
      set_up_->config().enable && set_up_->config().alloc_mem && !alone_) {
    Result<void*> memory = process_->heap.allocate_again(static_cast<std::size_t>(bytes), kMostHeapBlocks);
    if (memory.ok()) {
      *static_cast<void**>(out) = memory.value();
      return MPI_SUCCESS;
    }
  }
  return mpi_.Alloc_mem(bytes, info, out);
}

int Backend::free_mem(void* memory) {
  return process_->heap.put_by(memory) ? MPI_SUCCESS : mpi_.Free_mem(memory);
}

}  // namespace heddle::backend
