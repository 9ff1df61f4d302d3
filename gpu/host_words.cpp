#include "gpu/host_words.hpp"

#include <fmt/format.h>

#include "gpu/contexts.hpp"

namespace heddle::gpu {

CUstreamBatchMemOpParams wait_operation(CUdeviceptr word, std::uint32_t value) {
  CUstreamBatchMemOpParams operation = {};
  operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operation.waitValue.address = word;
  operation.waitValue.value = value;
  operation.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  return operation;
}

CUstreamBatchMemOpParams write_operation(CUdeviceptr word, std::uint32_t value) {
  CUstreamBatchMemOpParams operation = {};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = word;
  operation.writeValue.value = value;
  operation.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  return operation;
}

Status HostWords::open(std::span<std::byte> memory, CUstream stream) {
  if (driver_.StreamBatchMemOp == nullptr)
    return Status(Code::unsupported,
                  "the driver has no cuStreamBatchMemOp, by which streams and the host wait for each other: "
                  "they need that of CUDA 12.0 or later");
  CUresult error = driver_.MemHostRegister(memory.data(), memory.size(),
                                           CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  if (error != CUDA_SUCCESS)
    return cuda_error(driver_, error, fmt::format("registering {} bytes of flags", memory.size()));
  registered_ = memory.data();
  error = driver_.MemHostGetDevicePointer(&at_, registered_, 0);
  if (error != CUDA_SUCCESS) return cuda_error(driver_, error, "reaching flags in the host's memory");
  // There is no attribute to ask.
  CUstreamBatchMemOpParams trial[] = {wait_operation(at_, 0), write_operation(at_, 0)};
  error = driver_.StreamBatchMemOp(stream, 2, trial, 0);
  if (error == CUDA_SUCCESS) error = wait_for(driver_, stream);
  return error == CUDA_SUCCESS ? Status() : cuda_error(driver_, error, "waiting for flags in a stream");
}

void HostWords::close() {
  if (registered_ != nullptr) driver_.MemHostUnregister(registered_);
  registered_ = nullptr;
}

}  // namespace heddle::gpu
