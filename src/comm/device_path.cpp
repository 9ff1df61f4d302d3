#include "comm/device_path.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "base/clock.hpp"
#include "base/no_memory.hpp"
#include "comm/verdict.hpp"

namespace heddle {
namespace {

constexpr std::chrono::seconds kPatience{1};

// What a rank tells whose GPU does nothing more: those who wait for it wait in vain. Less than what is told
// by who has let go, and no call has this number.
constexpr std::uint64_t kFailed = ~std::uint64_t{2};
constexpr unsigned kLooks = 1000;  // at this rank's GPU, for one at the others

}  // namespace

// ---- Meetings

// Whether all can. `more`: words that are 0 but for those of one rank each, and then are all ranks'.
Result<bool> DevicePath::meet(const Status& mine, bool can, std::span<std::uint64_t> more) {
  Verdict verdict = can ? Verdict::all_right : Verdict::cannot;
  if (!mine.ok()) verdict = Verdict::failed;
  words_.assign(1, word_of(verdict, meeting_.number_of(meeting_.rank())));
  words_.insert(words_.end(), more.begin(), more.end());
  if (Status met = meeting_.largest(words_); !met.ok()) {
    lost_ = true;
    if (link_) link_->stop_exchange(false);
    return met;
  }
  std::copy(words_.begin() + 1, words_.end(), more.begin());
  return outcome_of(words_[0], mine);
}

// Which of its ranks the communicator gives that number; -1: none.
int DevicePath::member_of(int number) const {
  for (int r = 0; r < meeting_.size(); ++r) {
    if (meeting_.number_of(r) == number) return r;
  }
  return -1;
}

int DevicePath::deciding_rank() const {
  return static_cast<int>(rank_of(words_[0]));
}

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
  const bool tries = connected.ok() && limits_.tries && !direct_;
  const auto start = std::chrono::steady_clock::now();
  if (tries) connected = find_ways(gpu);
  if (lost_) return connected.status();
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
  log_.info(direct_
                ? fmt::format("buffers on GPU {}: the {} ranks, of one process, fold them where they lie",
                              place_.device, meeting_.size())
                : fmt::format("buffers on GPUs: the {} ranks fold them by way of {} KiB of memory on each "
                              "rank's GPU",
                              meeting_.size(), 2 * layout_.half >> 10));
}

Result<bool> DevicePath::connect(gpu::Gpu& gpu) {
  const Result<bool> met = make_links(gpu);
  return met.ok() && !direct_ ? share_scratch(limits_.scratch, limits_.exchange) : met;
}

// All ranks at the same point, between two calls or at the end of one.
Status DevicePath::leave(Mode then) {
  mode_ = then;
  seen_ = misses_ = 0;
  needed_ = std::min(2 * needed_, kMost);
  marks_open_ = false;
  const bool finished = !link_ || finish(*link_);
  if (link_ && finished && !captured_) link_->close();
  if (captured_ && awaited_in_vain() >= 0)
    log_.warn(
        "a rank's GPU has failed, or its process has ended: CUDA graphs that were captured before give no "
        "results any more");
  // Nobody frees what another one has open, or takes back what it has told, before all are here.
  const Result<bool> all = meet(Status(), finished);
  meeting_.tell(0);
  if (lost_) return all.status();
  exchange_ = {};
  ways_ = {};
  // What is begun anew would be freed one day, and that may wait for all streams of the context: also for one
  // that waits in vain.
  if (!all.value()) mode_ = Mode::off;
  if (link_ && !finished) {
    keep_for_ever({std::move(flags_), std::move(link_), std::move(sparse_)});
  } else {
    sparse_.reset();
    if (link_ && (captured_ || !all.value())) kept_.push_back({std::move(flags_), std::move(link_), nullptr});
  }
  captured_ = false;
  link_.reset();
  flags_ = {};
  return {};
}

void DevicePath::let_go() {
  mode_ = Mode::off;
  if (!link_ && kept_.empty() && !stuck_) return;
  if (link_) kept_.push_back({std::move(flags_), std::move(link_), std::move(sparse_)});
  const bool finished = std::all_of(kept_.begin(), kept_.end(), [this](const Kept& one) {
    if (lost_) one.link->stop_exchange(true);
    return finish(*one.link);
  });
  for (Kept& one : kept_) {
    if (finished && !stuck_) {
      one.link->close();
    } else {
      keep_for_ever(std::move(one));
    }
  }
  if (stuck_) kept_.clear();
  // What others have of this rank's they may free, but not what this one still has of theirs.
  meeting_.tell(stuck_ ? kFailed : let_go_);
}

// A stream waits for an event or a flag that does not come any more. Nobody can call it back, and all that it
// may touch has to stay for as long as the process does: to free anything in its context may wait for that
// stream.
void DevicePath::keep_for_ever(Kept kept) {
  if (!stuck_)
    log_.warn(
        "a stream waits for another rank's GPU, which does nothing more: it never ends, and what the "
        "communicator has on this rank's GPU stays allocated");
  stuck_ = true;
  kept.link->stay();
  static auto& for_ever = *new std::vector<Kept>;
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  for_ever.push_back(std::move(kept));
}

// What streams and graphs were given for the link, which may wait for the GPUs of others, is done. False: it
// has waited in vain for so long.
bool DevicePath::finish(gpu::Link& link) {
  using Steady = std::chrono::steady_clock;
  Steady::time_point end = Steady::time_point::max();
  for (unsigned looks = 1; !is_finished(link); ++looks) {
    if (looks % kLooks == 0 && awaited_in_vain() >= 0) {
      link.stop_exchange(true);
      end = std::min(end, Steady::now() + kPatience);
      if (Steady::now() > end) return false;
    }
    sched_yield();
  }
  return true;
}

bool DevicePath::is_finished(gpu::Link& link) {
  const Result<bool> finished = link.finished();
  if (!finished.ok()) meeting_.tell(kFailed);
  return !finished.ok() || finished.value();
}

// The first one of those, before others that have let go.
int DevicePath::awaited_in_vain() const {
  int found = -1;
  for (int r = 0; r < meeting_.size(); ++r) {
    if (r == meeting_.rank() || (meeting_.told(r) < kFailed && !meeting_.is_gone(r))) continue;
    if (meeting_.told(r) <= kFailed) return r;
    if (found < 0) found = r;
  }
  return found;
}

std::string DevicePath::awaited_name() const {
  const int r = awaited_in_vain();
  return r < 0 ? "another rank" : fmt::format("rank {}", meeting_.number_of(r));
}

DevicePath::~DevicePath() {
  let_go();
  if (kept_.empty() || !exported_) return;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (int r = 0; r < meeting_.size(); ++r) {
    while (r != meeting_.rank() && meeting_.told(r) < let_go_ && !meeting_.is_gone(r)) {
      if (std::chrono::steady_clock::now() > end) {
        log_.info(fmt::format("rank {} still has this rank's memory on the GPU open: it stays allocated",
                              meeting_.number_of(r)));
        for (const Kept& one : kept_)
          one.link->abandon();
        return;
      }
      sched_yield();
    }
  }
}

// ---- Calls

// Of a rank that can do its part: what its streams were given is done, before the link is given anything that
// the host will wait for.
Result<bool> DevicePath::after_streams(const Result<bool>& here) {
  if (!here.ok() || !here.value()) return here;
  HEDDLE_TRY(after_streams());
  return true;
}

Status DevicePath::after_streams() {
  if (finish(*link_)) return {};
  return Status(
      Code::peer_failed,
      fmt::format("{} could not do its part of an earlier collective on GPUs, for which this rank's "
                  "GPU still waits",
                  awaited_name()));
}

// `here`: whether this rank can do its part. After after_streams().
Result<bool> DevicePath::run(DeviceWork& work, const Result<bool>& here) {
  if (work.meets_on_gpus()) return run_on_gpus(work, here);
  const bool can = here.ok() && here.value();
  Status mine = can ? without_throwing([&] { return work.first(); }) : here.status();
  for (std::size_t k = 0;; ++k) {
    // Also after a failure: nothing may touch the caller's buffers once the call is over.
    Status waited = can ? wait_for_gpus() : Status();
    // For those whose GPUs wait for this one.
    if (!mine.ok() || !can) static_cast<void>(is_finished(*link_));
    if (mine.ok()) mine = std::move(waited);
    const Result<bool> all = meet(mine, can, k == 0 ? work.words() : work.later_words(k));
    if (!all.ok() || !all.value()) return all;
    if (k == 0 && !work.agreed()) return false;
    if (k == work.steps()) return all;
    mine = without_throwing([&] { return work.step(k); });
  }
}

// The step of a work that meets on the GPUs. Where a rank could not give its part, nobody is to wait for it:
// but for what was given before, which all have.
Status DevicePath::give_to_gpus(DeviceWork& work) {
  const Status given = meet(without_throwing([&] { return work.step(0); }), true).status();
  if (given.ok()) return given;
  static_cast<void>(finish(*link_));
  link_->stop_exchange(false);
  return given;
}

Result<bool> DevicePath::run_on_gpus(DeviceWork& work, const Result<bool>& here) {
  Status mine = here.status();
  if (mine.ok()) mine = link_->exchanged();
  if (!mine.ok()) static_cast<void>(is_finished(*link_));
  const Result<bool> all = meet(mine, here.ok() && here.value(), work.words());
  if (!all.ok() || !all.value()) return all;
  const Status given = give_to_gpus(work);
  Status mine_waited = wait_for_gpus();
  if (!given.ok()) return given;
  if (mine_waited.ok()) mine_waited = link_->exchanged();
  // Who was let go leaves it to the meeting to say for whose sake.
  const bool let_go = mine_waited.code() == Code::peer_failed;
  Result<bool> done = meet(let_go ? Status() : mine_waited, true);
  return let_go && done.ok() ? Result<bool>(mine_waited) : done;
}

// For a GPU that may wait for those of others, which may have failed by now.
Status DevicePath::wait_for_gpus() {
  bool late = false;
  for (unsigned looks = 1; exchange_.most > 0 && !link_->done(); ++looks) {
    if (looks % kLooks == 0) {
      late = std::chrono::steady_clock::now() > wait_until_;
      if (late || awaited_in_vain() >= 0) link_->stop_exchange(true);
    }
    sched_yield();
  }
  Status waited = link_->wait();
  // Not where the call is the mistake (in a capture): the work is done, and the link as good as before.
  if (!waited.ok() && waited.code() != Code::invalid_argument) meeting_.tell(kFailed);
  // Not as of one that was let go, which leaves it to another rank to say why.
  if (waited.ok() && late)
    return Status(Code::timeout, "the GPUs have waited for each other in vain in a kernel that was tried");
  return waited;
}

// A failure that all know of ends the mode: it may be the link that fails, as one whose context was
// destroyed.
Result<bool> DevicePath::conclude(Result<bool> served) {
  if (lost_) {
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
  Result<bool> here = link_->holds(out, bytes);
  if (here.ok() && here.value() && in != out) here = link_->holds(in, bytes);
  if (here.ok() && here.value()) here = link_->folds(type, op);
  const DeviceSum sum{static_cast<const std::byte*>(in), static_cast<std::byte*>(out), count, type, op};
  const std::unique_ptr<DeviceWork> work = direct_ ? direct_sum(worker(), sum) : scratch_sum(worker(), sum);
  return conclude(run(*work, after_streams(here)));
}

Result<bool> DevicePath::serve_bcast(void* buffer, std::size_t bytes, int root) {
  if (bytes == 0 || bytes < ways_.bcasts_from) return false;
  const Result<bool> here = buffer != nullptr ? link_->holds(buffer, bytes) : Result<bool>(false);
  const DeviceBcast bcast{static_cast<std::byte*>(buffer), bytes, root};
  const std::unique_ptr<DeviceWork> work =
      direct_ ? direct_bcast(worker(), bcast) : scratch_bcast(worker(), bcast);
  return conclude(run(*work, after_streams(here)));
}

}  // namespace heddle
