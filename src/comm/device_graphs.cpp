// Collectives in CUDA graphs: what of DevicePath's calls on streams (device_streams.cpp) is different while a
// stream is being captured.
#include <fmt/format.h>

#include "base/no_memory.hpp"
#include "comm/device_path.hpp"
#include "comm/stream_refusal.hpp"

namespace heddle {

// Memory of the host's, the same for all; zeroed.
Result<bool> DevicePath::share_memory() {
  const bool makes = meeting_.rank() == 0;
  Result<bool> all = false;
  for (const auto backing : {SharedMemory::Backing::memfd, SharedMemory::Backing::posix}) {
    Result<SharedMemory> mine = SharedMemory();
    if (makes) mine = SharedMemory::create(gpu::flag_bytes(meeting_.size()), backing);
    std::vector<SharedMemoryHandle> handles;
    const bool made = makes && mine.ok();
    all = gather(Status(), made ? mine->handle() : SharedMemoryHandle(), &handles);
    if (!all.ok()) return all;
    if (!makes) mine = SharedMemory::attach(handles[0]);
    graphs_ = mine.status();
    all = meet(Status(), mine.ok());
    if (!all.ok()) return all;
    if (!all.value()) continue;
    flags_ = std::move(mine).value();
    flags_.publish_done();
    break;
  }
  return all;
}

// By which streams meet in graphs. Where they are not to be had (graphs_ says why) all else goes on.
Result<bool> DevicePath::share_flags() {
  graphs_ = {};
  if (meeting_.size() == 1) return true;
  if (const auto [one, other] = neighbours_; one != other && !limits_.shared_context) {
    graphs_ = Status(Code::unsupported, why_not_threads(one, other) + ": call it outside of the capture");
    return true;
  }
  Result<bool> all = share_memory();
  if (all.ok() && all.value()) {
    graphs_ = link_->open_flags({flags_.data(), flags_.size()}, meeting_.rank(), meeting_.size());
    all = meet(Status(), graphs_.ok());
  }
  if (!all.ok() || all.value()) return all;
  const std::string why = graphs_.ok() ? fmt::format("rank {} says why", deciding_rank()) : graphs_.message();
  const std::string text = fmt::format("the GPUs cannot meet inside of CUDA graphs ({})", why);
  graphs_ = Status(Code::unsupported, text + ": call it outside of the capture");
  log_.info(text);
  return true;
}

// As follow(): where the ranks meet there, here a node of the graph is where their streams will meet. `mine`:
// what came before.
Status DevicePath::follow_in_graph(DeviceWork& work, Status mine) {
  captured_ = true;
  if (mine.ok()) mine = without_throwing([&] { return capture_steps(work); });
  return meet(mine, true).status();
}

Status DevicePath::capture_steps(DeviceWork& work) {
  if (work.meets_on_gpus()) return work.step(0);
  if (work.leader() >= 0) return follow_leader_in_graph(work);
  HEDDLE_TRY(link_->meet_in_graph());
  for (std::size_t k = 0; k < work.steps(); ++k) {
    HEDDLE_TRY(work.step(k));
    HEDDLE_TRY(link_->meet_in_graph());
  }
  return {};
}

// A way to the leader before its step, and one back after it.
Status DevicePath::follow_leader_in_graph(DeviceWork& work) {
  if (work.leader() != meeting_.rank()) return link_->follow_in_graph(work.leader());
  HEDDLE_TRY(link_->hear_in_graph());
  HEDDLE_TRY(work.step(0));
  return link_->release_in_graph();
}

}  // namespace heddle
