#include "gpu/handshake.hpp"

#include <algorithm>
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

}  // namespace

std::size_t Handshake::bytes(int size) {
  return static_cast<std::size_t>(size) * kLine;
}

Status Handshake::open(std::span<std::byte> flags, int rank, int size, CUstream stream) {
  // The first word is the flag of rank 0 for itself, which nobody uses.
  HEDDLE_TRY(flags_.open(flags, stream));
  const CUdeviceptr at = flags_.at(flags.data());
  rank_ = rank;
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    operations_.push_back(wait_operation(flag(at, rank, other), 0));
    operations_.push_back(write_operation(flag(at, rank, other), 1));
  }
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    operations_.push_back(wait_operation(flag(at, other, rank), 1));
    operations_.push_back(write_operation(flag(at, other, rank), 0));
  }
  return {};
}

void Handshake::close() {
  flags_.close();
  operations_.clear();
}

// 4 operations for each other rank, and the driver takes 255 at once.
CUresult Handshake::give(CUstream stream, std::span<CUstreamBatchMemOpParams> operations) const {
  if (operations.empty()) return CUDA_SUCCESS;
  return driver_.StreamBatchMemOp(stream, static_cast<unsigned>(operations.size()), operations.data(), 0);
}

CUresult Handshake::meet(CUstream stream) {
  return give(stream, operations_);
}

CUresult Handshake::come(CUstream stream) {
  return give(stream, std::span(operations_).first(2 * others()));
}

CUresult Handshake::hear(CUstream stream) {
  return give(stream, std::span(operations_).last(2 * others()));
}

CUresult Handshake::meet(CUstream stream, int other) {
  const std::size_t at = 2 * static_cast<std::size_t>(other < rank_ ? other : other - 1);
  CUstreamBatchMemOpParams operations[4];
  std::copy_n(&operations_[at], 2, operations);
  std::copy_n(&operations_[2 * others() + at], 2, operations + 2);
  return give(stream, operations);
}

}  // namespace heddle::gpu
