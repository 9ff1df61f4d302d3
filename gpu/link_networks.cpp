// What GPUDirect RDMA needs of CUDA's driver.
#include "gpu/cuda_link.hpp"

namespace heddle::gpu {

Result<Descriptor> CudaLink::share_with_networks() {
  int ordering = 0;
  int flush = 0;
  int dmabuf = 0;
  unsigned synchronous = 1;
  HEDDLE_TRY(in_context("asking for GPUDirect RDMA", [&](const Driver& driver) {
    CUdevice device = 0;
    CUresult error = driver.DeviceGet(&device, device_);
    const auto ask = [&](int* value, CUdevice_attribute what) {
      if (error == CUDA_SUCCESS) error = driver.DeviceGetAttribute(value, what, device);
    };
    ask(&ordering, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
    ask(&flush, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
    // Unknown to drivers before CUDA 11.7.
    if (driver.MemGetHandleForAddressRange != nullptr) ask(&dmabuf, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
    // Copies that the driver would call done a little early are done when they return: a network does not
    // wait for streams.
    if (error == CUDA_SUCCESS)
      error = driver.PointerSetAttribute(&synchronous, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, own_);
    return error;
  }));
  flushes_ = ordering < CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
  if (flushes_ && (flush & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) == 0)
    return Status(Code::unsupported, fmt::format("GPU {} does not tell when it sees what a network's device "
                                                 "has written to its memory",
                                                 device_));
  if (dmabuf == 0) return Descriptor();
  int number = -1;
  const Status got = in_context("a dmabuf of memory", [&](const Driver& driver) {
    return driver.MemGetHandleForAddressRange(&number, own_, own_bytes_, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                              0);
  });
  // Addresses may do.
  return got.ok() ? Descriptor(number) : Descriptor();
}

Status CudaLink::after_networks() {
  if (!flushes_) return {};
  return in_context("waiting for what a network has written", [&](const Driver& driver) {
    return driver.FlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                           CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
  });
}

}  // namespace heddle::gpu
