#include "device/device_path.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/clock.hpp"

namespace heddle {

// ---- The mode

Status DevicePath::after_staged(gpu::Gpu& gpu, const void* buffer, bool on_gpu, bool met) {
  if (mode_ == Mode::idle) {
    seen_ = on_gpu ? seen_ + 1 : 0;
    if (seen_ < needed_) return {};
    const Result<gpu::Place> place = gpu.place(buffer);
    if (!place.ok()) return {};  // freed since
    place_ = place.value();
    mode_ = Mode::asked;
    meeting_.tell(meeting_.calls() + 1);
    return {};
  }
  const bool begins = mode_ == Mode::asked && met && all_want_it(meeting_.calls());
  return begins ? set_up(gpu) : Status();
}

// After a call that all ranks had come to before any left it: what they told before it everybody sees now.
// What is told for later calls may be seen or not, and does not count.
bool DevicePath::all_want_it(std::uint64_t call) const {
  for (int r = 0; r < meeting_.size(); ++r) {
    const std::uint64_t from = meeting_.told(r);
    if (from == 0 || from > call) return false;
  }
  return true;
}

Status DevicePath::set_up(gpu::Gpu& gpu) {
  Result<bool> connected = connect(gpu);
  const bool tries = connected.ok() && limits_.tries && !links_.direct();
  const auto start = std::chrono::steady_clock::now();
  if (tries) connected = find_ways(gpu);
  if (links_.lost()) return connected.status();
  if (connected.ok()) {
    begin();
    if (tries && meeting_.rank() == 0)
      log_.info(
          fmt::format("buffers on GPUs, as tried {}: {}",
                      connected.value() ? "before" : fmt::format("in {:.1f} ms", 1e3 * seconds_since(start)),
                      text_of(ways_)));
    return {};
  }
  if (connected.status().code() != Code::peer_failed || meeting_.rank() == 0)
    log_.info("buffers on GPUs go on by way of copies on the host: " + connected.status().message());
  return leave(Mode::off);
}

void DevicePath::begin() {
  mode_ = Mode::on;
  seen_ = misses_ = 0;
  if (meeting_.rank() != 0) return;
  log_.info(links_.direct()
                ? fmt::format("buffers on GPU {}: the {} ranks, of one process, fold them where they lie",
                              place_.device, meeting_.size())
                : fmt::format("buffers on GPUs: the {} ranks fold them by way of {} KiB of memory on each "
                              "rank's GPU",
                              meeting_.size(), 2 * links_.layout().half >> 10));
}

Result<bool> DevicePath::connect(gpu::Gpu& gpu) {
  HEDDLE_TRY(links_.make_links(gpu, place_).status());
  if (links_.direct()) return true;
  HEDDLE_TRY(links_.share_scratch(limits_.scratch, limits_.exchange).status());
  ways_.sums_exchanged = ways_.bcasts_exchanged = links_.exchange().most;
  return true;
}

// All ranks at the same point, between two calls or at the end of one.
Status DevicePath::leave(Mode then) {
  mode_ = then;
  seen_ = misses_ = 0;
  needed_ = std::min(2 * needed_, kMost);
  marks_open_ = false;
  const Result<bool> all = links_.leave();
  if (links_.lost()) return all.status();
  ways_ = {};
  if (!all.value()) mode_ = Mode::off;
  return {};
}

// ---- Calls

// A failure that all know of ends the mode: it may be the link that fails, as one whose context was
// destroyed.
Result<bool> DevicePath::conclude(Result<bool> served) {
  if (links_.lost()) {
    mode_ = Mode::off;
    return served;
  }
  if (served.ok()) {
    misses_ = served.value() ? 0 : misses_ + 1;
    if (misses_ < kMisses) return served;
  }
  HEDDLE_TRY(leave(Mode::idle));
  return served;
}

Result<bool> DevicePath::serve_allreduce(const void* in, void* out, std::size_t count, DType type, Op op) {
  const std::size_t bytes = count * dtype_size(type);
  if (count == 0 || bytes < ways_.sums_from) return false;
  Result<bool> here = links_.link()->holds(out, bytes);
  if (here.ok() && here.value() && in != out) here = links_.link()->holds(in, bytes);
  if (here.ok() && here.value()) here = links_.link()->folds(type, op);
  const DeviceSum sum{static_cast<const std::byte*>(in), static_cast<std::byte*>(out), count, type, op};
  const std::unique_ptr<DeviceWork> work =
      links_.direct() ? direct_sum(worker(), sum) : scratch_sum(worker(), sum);
  return conclude(links_.run(*work, links_.after_streams(here)));
}

Result<bool> DevicePath::serve_bcast(void* buffer, std::size_t bytes, int root) {
  if (bytes == 0 || bytes < ways_.bcasts_from) return false;
  const Result<bool> here = buffer != nullptr ? links_.link()->holds(buffer, bytes) : Result<bool>(false);
  const DeviceBcast bcast{static_cast<std::byte*>(buffer), bytes, root};
  const std::unique_ptr<DeviceWork> work =
      links_.direct() ? direct_bcast(worker(), bcast) : scratch_bcast(worker(), bcast);
  return conclude(links_.run(*work, links_.after_streams(here)));
}

}  // namespace heddle
