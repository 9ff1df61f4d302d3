// NodeLinks: how ranks meet, what they wait for, and how their links end.
#include "device/node_links.hpp"

#include <sched.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "device/verdict.hpp"

namespace heddle {
namespace {

constexpr std::chrono::seconds kPatience{1};

// What a rank tells whose GPU does nothing more: those who wait for it wait in vain. Less than what is told
// by who has let go, and no call has this number.
constexpr std::uint64_t kFailed = ~std::uint64_t{2};
constexpr unsigned kLooks = 1000;  // at this rank's GPU, for one at the others

}  // namespace

// ---- Meetings

Result<bool> NodeLinks::meet(const Status& mine, bool can, std::span<std::uint64_t> more) {
  Verdict verdict = can ? Verdict::all_right : Verdict::cannot;
  if (!mine.ok()) verdict = Verdict::failed;
  words_.assign(1, word_of(verdict, meeting_.number_of(meeting_.rank())));
  words_.insert(words_.end(), more.begin(), more.end());
  HEDDLE_TRY(largest(words_));
  std::copy(words_.begin() + 1, words_.end(), more.begin());
  return outcome_of(words_[0], mine);
}

Status NodeLinks::largest(std::span<std::uint64_t> words) {
  Status met = meeting_.largest(words);
  if (met.ok()) return met;
  lost_ = true;
  if (link_) link_->stop_exchange(false);
  return met;
}

int NodeLinks::member_of(int number) const {
  for (int r = 0; r < meeting_.size(); ++r) {
    if (meeting_.number_of(r) == number) return r;
  }
  return -1;
}

int NodeLinks::deciding_rank() const {
  return static_cast<int>(rank_of(words_[0]));
}

// ---- Waiting

// What streams and graphs were given for the link, which may wait for the GPUs of others, is done.
bool NodeLinks::finish(gpu::Link& link) {
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

bool NodeLinks::is_finished(gpu::Link& link) {
  const Result<bool> finished = link.finished();
  if (!finished.ok()) meeting_.tell(kFailed);
  return !finished.ok() || finished.value();
}

// The first one of those, before others that have let go.
int NodeLinks::awaited_in_vain() const {
  int found = -1;
  for (int r = 0; r < meeting_.size(); ++r) {
    if (r == meeting_.rank() || (meeting_.told(r) < kFailed && !meeting_.is_gone(r))) continue;
    if (meeting_.told(r) <= kFailed) return r;
    if (found < 0) found = r;
  }
  return found;
}

std::string NodeLinks::awaited_name() const {
  const int r = awaited_in_vain();
  return r < 0 ? "another rank" : fmt::format("rank {}", meeting_.number_of(r));
}

Result<bool> NodeLinks::after_streams(const Result<bool>& here) {
  if (!here.ok() || !here.value()) return here;
  HEDDLE_TRY(after_streams());
  return true;
}

Status NodeLinks::after_streams() {
  if (finish(*link_)) return {};
  return Status(
      Code::peer_failed,
      fmt::format("{} could not do its part of an earlier collective on GPUs, for which this rank's "
                  "GPU still waits",
                  awaited_name()));
}

// For a GPU that may wait for those of others, which may have failed by now.
Status NodeLinks::wait_for_gpus(TimePoint until) {
  bool late = false;
  for (unsigned looks = 1; exchange_.most > 0 && !link_->done(); ++looks) {
    if (looks % kLooks == 0) {
      late = std::chrono::steady_clock::now() > until;
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

// ---- Ends

Result<bool> NodeLinks::leave() {
  const bool finished = !link_ || finish(*link_);
  if (link_ && finished && !captured_) link_->close();
  if (captured_ && awaited_in_vain() >= 0)
    log_.warn(
        "a rank's GPU has failed, or its process has ended: CUDA graphs that were captured before give no "
        "results any more");
  // Nobody frees what another one has open, or takes back what it has told, before all are here.
  const Result<bool> all = meet(Status(), finished);
  meeting_.tell(0);
  if (lost_) return all;
  exchange_ = {};
  // What is begun anew would be freed one day, and that may wait for all streams of the context: also for one
  // that waits in vain.
  if (link_ && !finished) {
    keep_for_ever({std::move(flags_), std::move(link_), std::move(sparse_)});
  } else {
    sparse_.reset();
    if (link_ && (captured_ || !all.value())) kept_.push_back({std::move(flags_), std::move(link_), nullptr});
  }
  captured_ = false;
  link_.reset();
  flags_ = {};
  return all;
}

void NodeLinks::let_go() {
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
void NodeLinks::keep_for_ever(Kept kept) {
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

NodeLinks::~NodeLinks() {
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

}  // namespace heddle
