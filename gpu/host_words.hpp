// Memory of the host's whose 32-bit words streams write and wait for, in the order of their work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/driver.hpp"

namespace heddle::gpu {

// When `word` is `value`.
CUstreamBatchMemOpParams wait_operation(CUdeviceptr word, std::uint32_t value);
// Whoever sees the value sees all that the stream has written before.
CUstreamBatchMemOpParams write_operation(CUdeviceptr word, std::uint32_t value);

class HostWords {
 public:
  explicit HostWords(const Driver& driver) : driver_(driver) {}
  HostWords(const HostWords&) = delete;
  HostWords& operator=(const HostWords&) = delete;

  // `memory`, whose first word is 0 and used by nobody yet, stays mapped until close(). In the context in
  // which the streams are, which is current, as in what follows. Tries on `stream` whether the driver does
  // such operations, and waits for it.
  Status open(std::span<std::byte> memory, CUstream stream);
  // No stream uses the words any more.
  void close();
  // Where a word of that memory is for streams.
  CUdeviceptr at(const void* word) const {
    return at_ + static_cast<CUdeviceptr>(static_cast<const std::byte*>(word) - registered_);
  }

 private:
  const Driver& driver_;
  std::byte* registered_ = nullptr;
  CUdeviceptr at_ = 0;
};

}  // namespace heddle::gpu
