// Buffers of MPI calls that lie on a GPU: the host's view of them, for the host MPI and heddle alike, which
// never see the device's.
//
// Images are made before a call is decided and written back after it, on each rank by itself: what is decided
// in between depends on nothing that is different where other ranks' buffers lie elsewhere.
#pragma once

#include <cstddef>
#include <span>

#include "gpu/gpu.hpp"
#include "interpose/backend/host_mpi.hpp"
#include "interpose/backend/packing.hpp"

namespace heddle::backend {

// A buffer as the rest of the call is to see it.
class HostView {
 public:
  void* buffer() const { return buffer_; }
  bool beside() const { return image_.beside(); }
  Status load() { return image_.load(); }
  // Its first bytes alone.
  Status store_front(std::size_t bytes) { return image_.store_front(bytes); }
  // These pieces alone, of what the view spans.
  Status store_rows(std::span<const gpu::Rows> rows) { return image_.store_rows(rows); }

 private:
  friend class DeviceBuffers;
  void* buffer_ = nullptr;
  gpu::Image image_;
};

// The memory that elements of a buffer are in, from the first one's to the last one's.
struct Span {
  std::ptrdiff_t begin = 0;  // relative to the buffer
  std::size_t bytes = 0;
  bool has_gaps = false;  // or the elements do not lie there in their order

  // Becomes what spans both. What lies between them is a gap.
  void join(const Span& other);
};

class DeviceBuffers {
 public:
  DeviceBuffers(const HostMpi& mpi, const Packing& packing) : mpi_(&mpi), packing_(&packing) {}

  void configure(const gpu::Settings& settings) { gpu_.configure(settings); }
  // One load and one branch in a process without CUDA.
  bool possible() { return gpu_.present(); }
  gpu::Gpu& gpu() { return gpu_; }

  // A view of `count` elements of `type` at `buffer`, or of the buffer as it is where the host is to judge
  // it. A failure is the caller's to report; nothing has happened.
  Status view(void* buffer, std::size_t count, MPI_Datatype type, HostView* out);
  Status view(void* buffer, const Span& span, HostView* out);
  // From MPI_BOTTOM on it may. What cannot be told is looked at where it counts.
  bool may_lie_on_gpu(const void* buffer);
  // False where the host is to judge the arguments. `count` is 1 or more.
  bool span_of(const void* buffer, std::size_t count, MPI_Datatype type, Span* out) const;

 private:
  Status after_gpu_work(const gpu::Place& place, const void* at);

  const HostMpi* mpi_;
  const Packing* packing_;
  gpu::Gpu gpu_;
};

}  // namespace heddle::backend
