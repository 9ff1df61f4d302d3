// NodeLinks: the steps of a collective (device_work.hpp), and where the ranks meet between them.
//
// The host of a blocking call waits for its GPU before the ranks meet. On a stream it records an event, and
// after the meeting its stream waits for the others' events: what a meeting ends for the host it puts in
// order for the streams. In a graph the streams meet by themselves (gpu/handshake.hpp) at each of these
// points, since nobody enqueues anything when it is launched.
#include <utility>

#include "base/no_memory.hpp"
#include "device/node_links.hpp"

namespace heddle {
namespace {

Status first_of(DeviceWork& work) {
  return without_throwing([&] { return work.first(); });
}

Status step_of(DeviceWork& work, std::size_t k) {
  return without_throwing([&] { return work.step(k); });
}

}  // namespace

// ---- Blocking

Result<bool> NodeLinks::run(DeviceWork& work, const Result<bool>& here, TimePoint until) {
  if (work.meets_on_gpus()) return run_on_gpus(work, here, until);
  const bool can = here.ok() && here.value();
  Status mine = can ? first_of(work) : here.status();
  for (std::size_t k = 0;; ++k) {
    // Also after a failure: nothing may touch the caller's buffers once the call is over.
    Status waited = can ? wait_for_gpus(until) : Status();
    // For those whose GPUs wait for this one.
    if (!mine.ok() || !can) static_cast<void>(is_finished(*link_));
    if (mine.ok()) mine = std::move(waited);
    const Result<bool> all = meet(mine, can, k == 0 ? work.words() : work.later_words(k));
    if (!all.ok() || !all.value()) return all;
    if (k == 0 && !work.agreed()) return false;
    if (k == work.steps()) return all;
    mine = step_of(work, k);
  }
}

// The step of a work that meets on the GPUs. Where a rank could not give its part, nobody is to wait for it:
// but for what was given before, which all have.
Status NodeLinks::give_to_gpus(DeviceWork& work) {
  const Status given = meet(step_of(work, 0), true).status();
  if (given.ok()) return given;
  static_cast<void>(finish(*link_));
  link_->stop_exchange(false);
  return given;
}

Result<bool> NodeLinks::run_on_gpus(DeviceWork& work, const Result<bool>& here, TimePoint until) {
  Status mine = here.status();
  if (mine.ok()) mine = link_->exchanged();
  if (!mine.ok()) static_cast<void>(is_finished(*link_));
  const Result<bool> all = meet(mine, here.ok() && here.value(), work.words());
  if (!all.ok() || !all.value()) return all;
  if (!work.agreed()) return false;
  const Status given = give_to_gpus(work);
  Status mine_waited = wait_for_gpus(until);
  if (!given.ok()) return given;
  if (mine_waited.ok()) mine_waited = link_->exchanged();
  // Who was let go leaves it to the meeting to say for whose sake.
  const bool let_go = mine_waited.code() == Code::peer_failed;
  Result<bool> done = meet(let_go ? Status() : mine_waited, true);
  return let_go && done.ok() ? Result<bool>(mine_waited) : done;
}

// ---- On streams

// Each step: what the others gave before the last meeting comes before what is given now.
Status NodeLinks::follow(DeviceWork& work, unsigned turn) {
  if (work.meets_on_gpus()) return give_to_gpus(work);
  if (work.leader() >= 0) return follow_leader(work, turn);
  for (std::size_t k = 0;; ++k) {
    Status mine = link_->after_others(turn);
    // One meeting more than a blocking call has: nobody ends a link whose events another rank is about to
    // wait for.
    if (k == work.steps()) return meet(mine, true).status();
    if (mine.ok()) mine = step_of(work, k);
    turn = next_turn();
    if (mine.ok()) mine = link_->mark(turn);
    if (const Result<bool> all = meet(mine, true); !all.ok()) return all.status();
  }
}

// The leader's stream waits for the others' events, and these for its end.
Status NodeLinks::follow_leader(DeviceWork& work, unsigned turn) {
  const bool leads = work.leader() == meeting_.rank();
  Status mine;
  if (leads) mine = link_->after_others(turn);
  if (leads && mine.ok()) mine = step_of(work, 0);
  if (leads && mine.ok()) mine = link_->mark_end();
  if (const Result<bool> all = meet(mine, true); !all.ok()) return all.status();
  if (!leads) mine = link_->after_end(work.leader());
  return meet(mine, true).status();
}

// ---- In graphs

// As follow(): where the ranks meet there, here a node of the graph is where their streams will meet.
Status NodeLinks::follow_in_graph(DeviceWork& work, Status mine) {
  captured_ = true;
  if (mine.ok()) mine = without_throwing([&] { return capture_steps(work); });
  return meet(mine, true).status();
}

Status NodeLinks::capture_steps(DeviceWork& work) {
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
Status NodeLinks::follow_leader_in_graph(DeviceWork& work) {
  if (work.leader() != meeting_.rank()) return link_->follow_in_graph(work.leader());
  HEDDLE_TRY(link_->hear_in_graph());
  HEDDLE_TRY(work.step(0));
  return link_->release_in_graph();
}

}  // namespace heddle
