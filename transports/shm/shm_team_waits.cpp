// For whom an operation waits, and why it may wait in vain.
#include <utility>

#include "transports/shm/shm_team_impl.hpp"

namespace heddle::team_layout {

// Whom this rank waits for, directly or through others that wait themselves: the one furthest behind.
int ShmTeamImpl::missing(const TeamOp& op) const {
  const bool bcast = op.verb == TeamVerb::bcast;
  int found = -1;
  std::pair<std::uint64_t, std::uint64_t> least;
  for (int i = 0; i < size_; ++i) {
    // A root first: of several equally far behind it is the one that the others wait for.
    const int m = bcast ? (op.root + i) % size_ : i;
    if (m == rank_) continue;
    const Progress& p = progress(m);
    const std::uint64_t completed = p.completed.load(std::memory_order_acquire);
    if (op.small && bcast && m == op.root && completed + 1 >= op.operation) return m;
    const bool has_given =
        completed >= op.operation ||
        (op.small && op.published && small(m, op).flag.load(std::memory_order_acquire) == flag_of(op));
    if (has_given) continue;
    const std::uint64_t drained = p.drained.load(std::memory_order_acquire);
    const std::uint64_t before =
        bcast ? 0 : p.copied.load(std::memory_order_acquire) + p.folded.load(std::memory_order_acquire);
    const std::uint64_t steps = !op.small && op.verb == TeamVerb::allgather ? steps_of_gathering(m, op) : 0;
    const std::pair<std::uint64_t, std::uint64_t> far{completed, before + drained + steps};
    if (found < 0 || far < least) {
      found = m;
      least = far;
    }
  }
  return found;
}

// What a member does before anything is in its slots, or instead: it starts, lends its buffer, and has read.
std::uint64_t ShmTeamImpl::steps_of_gathering(int m, const TeamOp& op) const {
  const auto has = [](const std::atomic<std::uint64_t>& value, std::uint64_t least) {
    return std::uint64_t{value.load(std::memory_order_acquire) >= least ? 1U : 0U};
  };
  return has(started(m, op).operation, op.operation) + has(board(m).lent.offer, 2 * op.operation) +
         has(board(m).taken.value, 2 * op.operation);
}

std::uint64_t ShmTeamImpl::passed(const TeamOp& op) const {
  return op.step[0] + op.step[1] + op.step[2];
}

int ShmTeamImpl::withdrawn() const {
  for (int m = 0; m < size_; ++m) {
    if (has_withdrawn(board(m))) return m;
  }
  return -1;
}

TeamClash ShmTeamImpl::clash(const TeamOp& op) const {
  for (int m = 0; m < size_; ++m) {
    if (m == rank_) continue;
    const Started& large = started(m, op);
    const auto* const slot =
        reinterpret_cast<const SmallSlot*>(area_[static_cast<std::size_t>(m)] + small_slot(op.operation));
    const std::uint64_t flag = slot->flag.load(std::memory_order_acquire);
    std::uint64_t theirs = op.call;
    if (large.operation.load(std::memory_order_acquire) == op.operation) {
      theirs = large.call.load(std::memory_order_relaxed);
    } else if (is_of(flag, op.operation)) {
      theirs = flag % (std::uint64_t{1} << kSmallCallBits);
    }
    if (theirs != op.call) return {m, call_of(theirs), call_of(op.call)};
  }
  return {};
}

// A seqlock; the writer may be read at any time.
TeamClash ShmTeamImpl::compare_waiting(std::uint64_t number, const TeamCall& call) {
  const std::uint64_t ours = call_number(call);
  Waited& mine = board(rank_).waited;
  if (mine.number.load(std::memory_order_relaxed) != number) {
    mine.number.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    mine.call.store(ours, std::memory_order_relaxed);
    mine.number.store(number, std::memory_order_release);
  }
  for (int m = 0; m < size_; ++m) {
    const Waited& other = board(m).waited;
    if (m == rank_ || other.number.load(std::memory_order_acquire) != number) continue;
    const std::uint64_t theirs = other.call.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (other.number.load(std::memory_order_relaxed) == number && theirs != ours)
      return {m, call_of(theirs), call_of(ours)};
  }
  return {};
}

}  // namespace heddle::team_layout
