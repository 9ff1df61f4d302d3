#include "gpu/copies.hpp"

#include <algorithm>
#include <cstring>

#include "base/round_up.hpp"
#include "gpu/contexts.hpp"

namespace heddle::gpu {
namespace {

// Two pieces of pinned memory that take turns, and when each was last done.
class Pieces {
 public:
  Pieces(const Driver& driver, PinnedPool& pool, CUcontext context)
      : driver_(driver), memory_(pool.take(2 * kPieceBytes, context)) {
    if (memory_.memory() == nullptr) return;
    for (CUevent& event : done_) {
      if (driver_.EventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) event = nullptr;
    }
  }
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;
  // Nothing is on its way to or from a piece any more.
  ~Pieces() {
    for (CUevent event : done_) {
      if (event != nullptr) driver_.EventDestroy(event);
    }
  }
  bool usable() const { return done_[0] != nullptr && done_[1] != nullptr; }
  char* at(std::size_t number) const {
    return static_cast<char*>(memory_.memory()) + number % 2 * kPieceBytes;
  }
  CUresult mark(std::size_t number) { return driver_.EventRecord(done_[number % 2], default_stream()); }
  CUresult wait(std::size_t number) { return driver_.EventSynchronize(done_[number % 2]); }

 private:
  const Driver& driver_;
  PinnedPool::Piece memory_;
  CUevent done_[2] = {nullptr, nullptr};
};

std::size_t length_of(std::size_t number, std::size_t bytes) {
  return std::min(kPieceBytes, bytes - number * kPieceBytes);
}

CUresult to_host_in_pieces(const Driver& driver, Pieces& pieces, char* host, CUdeviceptr device,
                           std::size_t bytes) {
  const std::size_t count = div_up(bytes, kPieceBytes);
  const auto start = [&](std::size_t k) {
    const CUresult error =
        driver.MemcpyDtoHAsync(pieces.at(k), device + k * kPieceBytes, length_of(k, bytes), default_stream());
    return error == CUDA_SUCCESS ? pieces.mark(k) : error;
  };
  CUresult error = start(0);
  for (std::size_t k = 0; k < count && error == CUDA_SUCCESS; ++k) {
    if (k + 1 < count) error = start(k + 1);
    if (error == CUDA_SUCCESS) error = pieces.wait(k);
    if (error == CUDA_SUCCESS) std::memcpy(host + k * kPieceBytes, pieces.at(k), length_of(k, bytes));
  }
  return error;
}

CUresult to_device_in_pieces(const Driver& driver, Pieces& pieces, CUdeviceptr device, const char* host,
                             std::size_t bytes) {
  const std::size_t count = div_up(bytes, kPieceBytes);
  CUresult error = CUDA_SUCCESS;
  for (std::size_t k = 0; k < count && error == CUDA_SUCCESS; ++k) {
    if (k >= 2) error = pieces.wait(k);
    if (error != CUDA_SUCCESS) break;
    std::memcpy(pieces.at(k), host + k * kPieceBytes, length_of(k, bytes));
    error =
        driver.MemcpyHtoDAsync(device + k * kPieceBytes, pieces.at(k), length_of(k, bytes), default_stream());
    if (error == CUDA_SUCCESS) error = pieces.mark(k);
  }
  return error;
}

// The first error of a copy and of waiting for it; one waits in any case, because memory may be given back
// afterwards.
CUresult finish(const Driver& driver, CUresult error) {
  const CUresult waited = wait_for(driver, default_stream());
  return error != CUDA_SUCCESS ? error : waited;
}

}  // namespace

CUresult copy_to_host(const Driver& driver, PinnedPool& pool, CUcontext context, void* host,
                      CUdeviceptr device, std::size_t bytes, bool pinned) {
  if (!pinned && bytes > kPieceBytes) {
    Pieces pieces(driver, pool, context);
    if (pieces.usable())
      return finish(driver, to_host_in_pieces(driver, pieces, static_cast<char*>(host), device, bytes));
  }
  return finish(driver, driver.MemcpyDtoHAsync(host, device, bytes, default_stream()));
}

CUresult copy_to_device(const Driver& driver, PinnedPool& pool, CUcontext context, CUdeviceptr device,
                        const void* host, std::size_t bytes, bool pinned) {
  if (!pinned && bytes > kPieceBytes) {
    Pieces pieces(driver, pool, context);
    if (pieces.usable())
      return finish(driver,
                    to_device_in_pieces(driver, pieces, device, static_cast<const char*>(host), bytes));
  }
  return finish(driver, driver.MemcpyHtoDAsync(device, host, bytes, default_stream()));
}

}  // namespace heddle::gpu
