// By which way buffers on the GPUs of a node are summed and sent, by their length: tried when ranks begin
// with it, because what a launch, a meeting and a copy take differs by machine, and where processes take
// turns on a GPU copies to the host and back may well be faster for short vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/status.hpp"

namespace heddle {

// The GPUs' forms of device_work.hpp, and copies to the host's memory and back around a sum there.
enum class DeviceWay {
  images,
  exchanged,  // kernels exchange vectors, and each rank folds all
  whole,      // by way of scratch, each rank folds all
  shared,     // by way of scratch, each rank folds its share; of sums alone
};

// All in bytes.
struct DeviceWays {
  std::size_t sums_from = 0;         // shorter sums go by images
  std::size_t bcasts_from = 0;       // likewise
  std::size_t sums_exchanged = 0;    // sums of up to this are exchanged; 0: none
  std::size_t bcasts_exchanged = 0;  // likewise
  // From here on sums share the folding out, where there are three ranks or more: one meeting and one wait
  // for the GPU more.
  std::size_t shared_from = std::size_t{512} << 10;

  bool operator==(const DeviceWays&) const = default;
};
// For a log: "allreduces of 4096 bytes or more, bcasts of any length".
std::string text_of(const DeviceWays& ways);

// What the communicators of a process have found, each under a key of its ranks, their GPUs and what they
// have there. Any thread.
class KnownWays {
 public:
  std::optional<DeviceWays> find(std::uint64_t key) const {
    const std::lock_guard lock(mutex_);
    const auto found = by_key_.find(key);
    return found != by_key_.end() ? std::optional(found->second) : std::nullopt;
  }
  void keep(std::uint64_t key, const DeviceWays& ways) {
    const std::lock_guard lock(mutex_);
    by_key_[key] = ways;
  }
  std::map<std::uint64_t, DeviceWays> all() const {
    const std::lock_guard lock(mutex_);
    return by_key_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, DeviceWays> by_key_;
};

struct DeviceTrials {
  // Collective: what a sum (or a bcast) of so many bytes takes that way, in seconds, on the slowest rank; the
  // same on all.
  std::function<Result<double>(bool sum, DeviceWay way, std::size_t bytes)> time;
  int ranks = 2;
  std::size_t most = 0;       // bytes of the longest vector that can be tried
  std::size_t exchanged = 0;  // of the longest that can be exchanged
};

// The same on all ranks. GPUs serve what they do no slower than images by a tenth; of vectors longer than any
// that was tried all from eight times that length on. Where trials take long only short vectors are tried.
Result<DeviceWays> try_device_ways(const DeviceTrials& trials);

}  // namespace heddle
