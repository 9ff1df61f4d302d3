// What kind of memory a pointer points to.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "gpu/driver.hpp"
#include "gpu/gpu.hpp"

namespace heddle::gpu {

// Asks the driver each time, because memory may be freed and its address used again at any time; what is
// remembered of an allocation goes by the driver's number for it, which is never used twice. Any thread.
class Pointers {
 public:
  explicit Pointers(const Driver& driver) : driver_(driver) {}

  // `invalid_argument` where there is no memory.
  Result<Place> look_up(const void* address);

 private:
  struct Answers;
  Place examine(const void* address, const Answers& answers);
  bool is_mapped(const void* address, Kind* kind, int* device);
  Result<Place> unknown(const void* address, CUresult error);

  static constexpr std::size_t kKnown = 1024;
  const Driver& driver_;
  std::mutex mutex_;
  std::array<Place, kKnown> known_;  // at the number of the allocation
  // Pages that were found to be the host's, so that a host buffer costs one question to the driver alone. It
  // may be wrong only for an address that turns from the host's to a device's and is freed there unseen.
  std::array<std::atomic<std::uintptr_t>, kKnown> host_pages_{};
  std::atomic<int> used_by_{0};  // the process in which the driver answered last; 0: in none yet
};

// `invalid_argument` where `bytes` bytes from `buffer` on, which lies there, are more than its allocation
// has; mapped memory may go on in the next mapping.
Status check_length(const Place& place, const void* buffer, std::size_t bytes);

}  // namespace heddle::gpu
