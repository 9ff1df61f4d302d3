// DevicePath's trials of what its calls may go by, in the scratch of the ranks.
#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "device/device_path.hpp"

namespace heddle {
namespace {

// Of an exchange that is tried: thousands of times what it takes where GPUs reach each other, and so much
// that a host which is busy with something else is no reason.
constexpr std::chrono::seconds kTrialPatience{1};

std::uint64_t digest_of(const DeviceWays& ways) {
  std::uint64_t digest = 0;
  for (const std::size_t part :
       {ways.sums_from, ways.bcasts_from, ways.sums_exchanged, ways.bcasts_exchanged, ways.shared_from})
    digest = mix64(digest ^ part);
  return digest;
}

}  // namespace

// In the half of the scratch that a vector of one piece leaves alone. The least of some turns: what others do
// meanwhile only adds.
Result<double> DevicePath::time_way(gpu::Gpu& gpu, bool sum, DeviceWay way, std::size_t bytes) {
  constexpr int kTurns = 7;  // the first one makes buffers and loads kernels
  std::byte* const buffer = links_.link()->scratch(meeting_.rank()) + links_.layout().half;
  Worker worker = this->worker();
  const std::size_t exchanged = way == DeviceWay::exchanged ? bytes : 0;
  worker.ways.sums_exchanged = worker.ways.bcasts_exchanged = exchanged;
  worker.ways.shared_from = way == DeviceWay::shared ? 0 : std::numeric_limits<std::size_t>::max();
  double least = std::numeric_limits<double>::infinity();
  for (int turn = 0; turn < kTurns; ++turn) {
    HEDDLE_TRY(links_.meet({}, true).status());
    const auto start = std::chrono::steady_clock::now();
    if (way == DeviceWay::images) {
      HEDDLE_TRY(try_image(gpu, sum, buffer, bytes));
    } else {
      const Result<bool> here = links_.link()->holds(buffer, bytes);
      const std::unique_ptr<DeviceWork> work =
          sum ? scratch_sum(worker, {buffer, buffer, bytes / sizeof(float), DType::f32, Op::sum})
              : scratch_bcast(worker, {buffer, bytes, 0});
      // Whatever HEDDLE_TIMEOUT says: nobody has called for these.
      const auto until = way == DeviceWay::exchanged ? start + kTrialPatience : NodeLinks::TimePoint::max();
      HEDDLE_TRY(links_.run(*work, links_.after_streams(here), until).status());
    }
    if (turn > 0) least = std::min(least, seconds_since(start));
  }
  std::uint64_t slowest[] = {static_cast<std::uint64_t>(1e9 * least)};
  HEDDLE_TRY(links_.meet({}, true, slowest).status());
  return 1e-9 * static_cast<double>(slowest[0]);
}

// What a call by images does: whatever the words are, the ranks' largest of them takes about as long as their
// sum, and no less than a bcast.
Status DevicePath::try_image(gpu::Gpu& gpu, bool sum, std::byte* buffer, std::size_t bytes) {
  const bool is_root = meeting_.rank() == 0;
  Result<gpu::Image> image = gpu.image(buffer, bytes);
  Status mine = image.status();
  if (mine.ok() && (sum || is_root)) mine = image->load();
  if (const Result<bool> all = links_.meet(mine, true); !all.ok()) return all.status();
  const std::span<std::uint64_t> words(static_cast<std::uint64_t*>(image->host()),
                                       bytes / sizeof(std::uint64_t));
  HEDDLE_TRY(links_.largest(words));
  if (sum || !is_root) mine = image->store();
  return links_.meet(mine, true).status();
}

// Collective, once the ranks are connected by way of scratch; true: from before. What ranks know they have
// found together, but one of them may have been told of a failure in its end, and threads of theirs that set
// up two communicators at once keep what they found in an order of each rank's own.
Result<bool> DevicePath::find_ways(gpu::Gpu& gpu) {
  const std::uint64_t key = mix64(mix64(links_.key() ^ links_.layout().piece) ^ links_.exchange().most);
  const std::optional<DeviceWays> known =
      limits_.known != nullptr ? limits_.known->find(key) : std::optional<DeviceWays>();
  const std::uint64_t digest = known ? digest_of(*known) : 0;
  // One is the other's complement where all ranks have the same.
  std::uint64_t largest[] = {digest, ~digest};
  const Result<bool> all_know = links_.meet({}, known.has_value(), largest);
  if (!all_know.ok()) return all_know;
  if (all_know.value() && largest[0] == ~largest[1]) {
    ways_ = *known;
    return true;
  }
  const Result<DeviceWays> found = try_ways(gpu);
  if (!found.ok()) return found.status();
  ways_ = found.value();
  if (limits_.known != nullptr) limits_.known->keep(key, ways_);
  return false;
}

Result<DeviceWays> DevicePath::try_ways(gpu::Gpu& gpu) {
  DeviceTrials trials;
  trials.time = [&](bool sum, DeviceWay way, std::size_t bytes) { return time_way(gpu, sum, way, bytes); };
  trials.ranks = meeting_.size();
  trials.most = links_.layout().piece;
  trials.exchanged = links_.exchange().most;
  return try_device_ways(trials);
}

}  // namespace heddle
