#include "gpu/handshake.hpp"

#include <cstdint>

#include <fmt/format.h>

namespace heddle::gpu {
namespace {

// The flags for one rank, by the rank that sets them: a line of its own, in which its stream waits.
constexpr std::size_t kLine = 64 * sizeof(std::uint32_t);

constexpr CUdeviceptr flag(CUdeviceptr flags, int from, int to) {
  return flags + static_cast<std::size_t>(to) * kLine +
         static_cast<std::size_t>(from) * sizeof(std::uint32_t);
}

CUstreamBatchMemOpParams wait_for(CUdeviceptr flag, std::uint32_t value) {
  CUstreamBatchMemOpParams operation = {};
  operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operation.waitValue.address = flag;
  operation.waitValue.value = value;
  operation.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  return operation;
}

// All that the stream has written before is there for whoever sees the value.
CUstreamBatchMemOpParams set(CUdeviceptr flag, std::uint32_t value) {
  CUstreamBatchMemOpParams operation = {};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = flag;
  operation.writeValue.value = value;
  operation.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  return operation;
}

}  // namespace

std::size_t Handshake::bytes(int size) {
  return static_cast<std::size_t>(size) * kLine;
}

Status Handshake::open(std::span<std::byte> flags, int rank, int size, CUstream stream) {
  if (driver_.StreamBatchMemOp == nullptr)
    return Status(Code::unsupported,
                  "the driver has no cuStreamBatchMemOp for graphs: they need that of CUDA 12.0 or later");
  CUresult error = driver_.MemHostRegister(flags.data(), flags.size(),
                                           CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  if (error != CUDA_SUCCESS)
    return cuda_error(driver_, error, fmt::format("registering {} bytes of flags", flags.size()));
  registered_ = flags.data();
  CUdeviceptr at = 0;
  error = driver_.MemHostGetDevicePointer(&at, registered_, 0);
  if (error != CUDA_SUCCESS) return cuda_error(driver_, error, "reaching flags in the host's memory");
  // A flag that nobody else uses. There is no attribute to ask for.
  CUstreamBatchMemOpParams trial[] = {wait_for(flag(at, rank, rank), 0), set(flag(at, rank, rank), 0)};
  error = driver_.StreamBatchMemOp(stream, 2, trial, 0);
  if (error == CUDA_SUCCESS) error = driver_.StreamSynchronize(stream);
  if (error != CUDA_SUCCESS) return cuda_error(driver_, error, "waiting for flags in a stream");
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    operations_.push_back(wait_for(flag(at, rank, other), 0));
    operations_.push_back(set(flag(at, rank, other), 1));
  }
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    operations_.push_back(wait_for(flag(at, other, rank), 1));
    operations_.push_back(set(flag(at, other, rank), 0));
  }
  return {};
}

void Handshake::close() {
  if (registered_ != nullptr) driver_.MemHostUnregister(registered_);
  registered_ = nullptr;
  operations_.clear();
}

// 4 operations for each other rank, and the driver takes 255 at once.
CUresult Handshake::meet(CUstream stream) {
  if (operations_.empty()) return CUDA_SUCCESS;
  return driver_.StreamBatchMemOp(stream, static_cast<unsigned>(operations_.size()), operations_.data(), 0);
}

}  // namespace heddle::gpu
