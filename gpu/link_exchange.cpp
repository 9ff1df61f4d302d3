// What a link does of exchanges (exchange.hpp).
#include <fmt/format.h>

#include "gpu/cuda_link.hpp"

namespace heddle::gpu {

Status CudaLink::open_exchange(const ExchangeLayout& layout, std::size_t offset, int rank,
                               std::chrono::nanoseconds patience) {
  const Current current(cuda_.driver, context_);
  if (current.error() != CUDA_SUCCESS)
    return cuda_error(cuda_.driver, current.error(), fmt::format("preparing exchanges with GPU {}", device_));
  std::vector<CUdeviceptr> areas = scratch_;
  for (CUdeviceptr& area : areas)
    area += offset;
  return exchange_.open(layout, areas, rank, patience, cuda_.pool, context_, stream_);
}

Status CudaLink::gather(const void* in, std::size_t bytes) {
  return give(
      [&](Cuda& /*cuda*/, Stream stream) { return exchange_.gather(stream, in, bytes, is_in_graph()); });
}

Status CudaLink::bcast(void* buffer, std::size_t bytes, int root) {
  return give([&](Cuda& /*cuda*/, Stream stream) {
    return exchange_.bcast(stream, buffer, bytes, root, is_in_graph());
  });
}

}  // namespace heddle::gpu
