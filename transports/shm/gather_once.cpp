#include "transports/shm/gather_once.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/overlap.hpp"
#include "transports/shm/single_copy.hpp"

namespace heddle {

using namespace team_layout;

namespace {

// Read without a look at anything else.
constexpr std::size_t kBite = std::size_t{4} << 20;

GatherOnce::Way other(GatherOnce::Way way) {
  return way == GatherOnce::Way::slots ? GatherOnce::Way::once : GatherOnce::Way::slots;
}

}  // namespace

GatherOnce::GatherOnce(std::byte* memory, std::size_t stride, int members, int member)
    : rank_(static_cast<std::size_t>(member)) {
  for (std::size_t m = 0; m < static_cast<std::size_t>(members); ++m)
    boards_.push_back(reinterpret_cast<Board*>(memory + m * stride));
}

void GatherOnce::start(const TeamOp& op) {
  way_ = Way::slots;
  timed_ = deciding_ = begun_ = judged_ = false;
  read_ = true;
  if (!allowed_ || op.count * op.element_bytes < kFrom) return;
  class_ = std::min<std::size_t>(std::bit_width(op.count * op.element_bytes / kFrom) - 1, kGatherClasses - 1);
  Class& mine = classes_[class_];
  const std::uint64_t left = kPeriod - mine.turn;  // of this period
  mine.turn = (mine.turn + 1) % kPeriod;
  if (left == kOther + kTimed) mine.least_ns.fill(UINT64_MAX);
  timed_ = left <= kTimed || (left > kOther && left <= kOther + kTimed);
  deciding_ = left == kPeriod;
  way_ = left > kOther ? mine.chosen : other(mine.chosen);
}

// The others have completed what is timed when they have started the operation after it, and nothing more is
// timed before this member has had its part in that.
GatherOnce::Way GatherOnce::faster() const {
  std::array<std::uint64_t, 2> slowest{};
  for (const Board* each : boards_) {
    for (std::size_t way = 0; way < slowest.size(); ++way)
      slowest[way] = std::max(slowest[way], each->gathered.ns[class_][way].load(std::memory_order_relaxed));
  }
  return slowest[1] < slowest[0] ? Way::once : Way::slots;
}

GatherOnce::Way GatherOnce::way(const TeamOp& op) {
  if (begun_) return way_;
  begun_ = true;
  if (deciding_) way_ = classes_[class_].chosen = faster();
  if (timed_) begin_ = Clock::now();
  if (way_ == Way::once) lend(op);
  return way_;
}

void GatherOnce::lend(const TeamOp& op) {
  Lent& mine = board(rank_).lent;
  const std::size_t bytes = op.count * op.element_bytes;
  const bool in_place = op.in == op.out + rank_ * bytes;
  // In a child of this process the buffer is not where the others look; and where both buffers are one, which
  // MPI forbids and some hosts take, it does not stay as it is.
  const bool lends = getpid() == board(rank_).identity.pid &&
                     (in_place || !overlap(op.in, bytes, op.out, bytes * boards_.size()));
  mine.place = reinterpret_cast<std::uint64_t>(op.in);
  mine.offer.store(2 * op.operation + (lends ? 1 : 0), std::memory_order_release);
}

bool GatherOnce::poll(TeamOp& op) {
  if (!judged_) {
    if (!read_some(op)) return false;
    // Not before: what this member has in its cache comes more slowly to the others.
    const std::size_t bytes = op.count * op.element_bytes;
    std::byte* const own = op.out + rank_ * bytes;
    if (own != op.in) std::memcpy(own, op.in, bytes);
  }
  return judge(op);
}

// In turn from the member after this one on, so that each is read by few at a time. True when nothing is
// left.
bool GatherOnce::read_some(TeamOp& op) {
  const std::size_t bytes = op.count * op.element_bytes;
  const std::size_t bites = div_up(bytes, kBite);
  const std::size_t all = (boards_.size() - 1) * bites;
  std::size_t& next = op.step[0];
  if (next == all) return true;
  const std::size_t m = (rank_ + 1 + next / bites) % boards_.size();
  const Board& theirs = board(m);
  const std::uint64_t offer = theirs.lent.offer.load(std::memory_order_acquire);
  if (offer < 2 * op.operation) return false;
  const std::size_t at = next % bites * kBite;
  // Or it has failed, and something else may be there by now. In slots nothing comes either: the wait finds
  // that out.
  read_ = read_ && offer == 2 * op.operation + 1 &&
          read_memory(theirs.identity.pid, theirs.lent.place + at, op.out + m * bytes + at,
                      std::min(kBite, bytes - at)) &&
          !has_withdrawn(theirs);
  ++next;
  return next == all;
}

// Nobody returns before all have read, or know that somebody could not: then all use slots, now and later.
bool GatherOnce::judge(const TeamOp& op) {
  if (!judged_) board(rank_).taken.value.store(2 * op.operation + (read_ ? 1 : 0), std::memory_order_release);
  judged_ = true;
  bool all = true;
  for (std::size_t m = 0; m < boards_.size(); ++m) {
    const std::uint64_t verdict = board(m).taken.value.load(std::memory_order_acquire);
    if (verdict < 2 * op.operation) return false;
    all = all && verdict != 2 * op.operation;
  }
  if (all) return true;
  allowed_ = timed_ = false;
  way_ = Way::slots;
  return true;
}

void GatherOnce::complete(const TeamOp& op) {
  if (!timed_) return;
  const auto ns = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_).count());
  const auto way = static_cast<std::size_t>(way_);
  std::uint64_t& least = classes_[class_].least_ns[way];
  least = std::min(least, (ns << 10) / (op.count * op.element_bytes));
  board(rank_).gathered.ns[class_][way].store(least, std::memory_order_relaxed);
}

}  // namespace heddle
