#include "transports/shm/shm_team.hpp"

#include <algorithm>
#include <cstring>

#include "transports/shm/shm_team_impl.hpp"

namespace heddle::team_layout {

// ---- Start and end

void ShmTeamImpl::start(TeamOp& op) {
  const std::size_t bytes = op.count * op.element_bytes;
  op.operation = ++operations_;
  op.call = call_number(op);
  op.step[0] = op.step[1] = op.step[2] = 0;
  op.small = bytes <= (op.verb == TeamVerb::bcast ? small_bcast_bytes_ : small_fold_bytes_);
  op.published = false;
  if (op.small) {
    op.slot = small_slot(op.operation);
  } else {
    start_large(op, bytes);
  }
}

void ShmTeamImpl::start_large(TeamOp& op, std::size_t bytes) {
  // Four pieces at least keep the phases overlapping; tiny pieces cost more flags than they hide.
  const bool folds = op.verb == TeamVerb::allreduce || op.verb == TeamVerb::reduce;
  const std::size_t least = folds ? kLeastPieceBytes : kLeastBcastPieceBytes;
  const std::size_t target = std::clamp(bytes / 4, std::min(least, layout_.slot), layout_.slot);
  op.piece = std::max<std::size_t>(1, target / op.element_bytes);
  op.base = pieces_;
  pieces_ += pieces(op);
  op.agreed = false;
  Started& mine = started(rank_, op);
  mine.call.store(op.call, std::memory_order_relaxed);
  mine.operation.store(op.operation, std::memory_order_release);
  op.once = copies_once_ && op.verb == TeamVerb::bcast && bytes <= kOnceUpTo;
  if (op.once) single_copy_.start(op);
  direct_.start(op);
  if (op.verb == TeamVerb::allgather) gather_once_.start(op);
}

void ShmTeamImpl::complete(const TeamOp& op) {
  progress(rank_).completed.store(op.operation, std::memory_order_release);
}

bool ShmTeamImpl::poll(TeamOp& op) {
  bool done = false;
  if (op.small) {
    done = poll_small(op);
  } else if (op.verb == TeamVerb::bcast) {
    done = op.once ? poll_once(op) : poll_bcast(op);
  } else if (op.verb == TeamVerb::allgather) {
    done = poll_gather(op);
  } else if (const auto way = direct_.way(op); way != DirectReduce::Way::staged) {
    done = way == DirectReduce::Way::direct && poll_direct(op);
  } else if (op.verb == TeamVerb::allreduce && size_ == 2) {
    done = poll_pair(op);
  } else {
    done = poll_fold(op);
  }
  if (done) complete(op);
  return done;
}

bool ShmTeamImpl::all_reached(std::atomic<std::uint64_t> Progress::*counter, std::uint64_t value) const {
  for (int m = 0; m < size_; ++m) {
    if (m != rank_ && (progress(m).*counter).load(std::memory_order_acquire) < value) return false;
  }
  return true;
}

// ---- Small vectors

// Whether nobody can still read what my slot held kSmallDepth operations ago. Folding operations tell for
// free how far everybody is; only a stream of bcasts makes the root look.
bool ShmTeamImpl::small_slot_free(std::uint64_t operation) {
  if (operation <= all_completed_ + kSmallDepth) return true;
  std::uint64_t least = operation - 1;
  for (int m = 0; m < size_; ++m) {
    if (m != rank_) least = std::min(least, progress(m).completed.load(std::memory_order_acquire));
  }
  all_completed_ = std::max(all_completed_, least);
  return operation <= all_completed_ + kSmallDepth;
}

// What a bcast of as many bytes from the same root will bring next: a root that gives one after the other is
// ahead.
void ShmTeamImpl::prefetch_next(const TeamOp& op, std::size_t bytes) const {
  const std::byte* next = area_[static_cast<std::size_t>(op.root)] + small_slot(op.operation + 1);
  __builtin_prefetch(next);
  if (bytes <= kInlineBytes) return;
  for (std::size_t i = 0; i < bytes; i += kLine)
    __builtin_prefetch(next + kLine + i);
}

bool ShmTeamImpl::poll_small(TeamOp& op) {
  const std::size_t bytes = op.count * op.element_bytes;
  const bool contributes = op.verb != TeamVerb::bcast || op.root == rank_;
  if (contributes && !op.published) {
    if (!small_slot_free(op.operation)) return false;
    SmallSlot& mine = small(rank_, op);
    hand_over_(mine.at(bytes), op.in, bytes);
    mine.flag.store(flag_of(op), std::memory_order_release);
    op.published = true;
    const bool folds = op.verb == TeamVerb::allreduce || (op.verb == TeamVerb::reduce && op.root == rank_);
    if (folds && bytes >= kPrefetchBytes) prefetch_to_write(op.out, bytes);
  }
  if (op.verb == TeamVerb::bcast) {
    if (op.root == rank_) {
      last_root_ = rank_;
      return true;
    }
    SmallSlot& source = small(op.root, op);
    if (op.root == last_root_ && bytes <= kAheadBytes) prefetch_next(op, bytes);
    if (!arrives(source.flag, flag_of(op))) return false;
    last_root_ = op.root;
    if (bytes > 0) std::memcpy(op.out, source.at(bytes), bytes);
    return true;
  }
  if (op.verb == TeamVerb::reduce && op.root != rank_) return true;
  if (op.verb == TeamVerb::allgather) [[unlikely]]
    return copy_all(op, bytes);
  const auto members = static_cast<std::size_t>(size_);
  for (std::size_t m = op.step[0]; m < members; ++m) {
    SmallSlot& slot = small(static_cast<int>(m), op);
    const bool is_mine = static_cast<int>(m) == rank_;
    if (!is_mine && !arrives(slot.flag, flag_of(op))) {
      op.step[0] = m;
      return false;
    }
    inputs_[m] = is_mine ? op.in : slot.at(bytes);
  }
  // Whoever has started this operation has completed all before it.
  all_completed_ = op.operation - 1;
  if (op.count > 0) op.fold(op.out, nullptr, inputs_.data(), static_cast<unsigned>(members), op.count);
  return true;
}

// ---- Large vectors

// Before anything of others' is read. Who has started something else never agrees: this operation does not
// end then, and clash() says why.
bool ShmTeamImpl::all_agree(TeamOp& op) const {
  if (op.agreed) return true;
  for (int m = 0; m < size_; ++m) {
    if (m == rank_ || (op.verb == TeamVerb::bcast && m != op.root)) continue;
    const Started& theirs = started(m, op);
    if (theirs.operation.load(std::memory_order_acquire) != op.operation ||
        theirs.call.load(std::memory_order_relaxed) != op.call)
      return false;
  }
  return op.agreed = true;
}

namespace {

bool copy_in(const TeamOp& op, std::size_t offset, std::size_t bytes, std::byte* slot) {
  if (op.view != nullptr) return op.view->read(offset, bytes, slot);
  std::memcpy(slot, op.in + offset, bytes);
  return true;
}

bool copy_out(const TeamOp& op, std::size_t offset, std::size_t bytes, const std::byte* slot) {
  if (op.view != nullptr) return op.view->write(offset, bytes, slot);
  std::memcpy(op.out + offset, slot, bytes);
  return true;
}

}  // namespace

bool ShmTeamImpl::poll_bcast(TeamOp& op) {
  const std::size_t n = pieces(op);
  std::size_t& next = op.step[0];
  Progress& mine = progress(rank_);
  for (; next < n; ++next) {
    const Extent e = piece_extent(op, next);
    const std::size_t offset = e.first * op.element_bytes;
    const std::size_t bytes = e.count * op.element_bytes;
    const std::uint64_t piece = op.base + next;
    if (op.root == rank_) {
      // Whatever occupied the slot kDepth pieces ago, its readers must be through with it.
      if (piece >= kDepth && !all_reached(&Progress::drained, piece - kDepth + 1)) return false;
      if (!copy_in(op, offset, bytes, input_slot(rank_, piece))) return false;
      mine.copied.store(piece + 1, std::memory_order_release);
    } else {
      if (!all_agree(op) || progress(op.root).copied.load(std::memory_order_acquire) < piece + 1)
        return false;
      if (!copy_out(op, offset, bytes, input_slot(op.root, piece))) return false;
    }
    mine.drained.store(piece + 1, std::memory_order_release);
  }
  // Phases that a bcast does not have are finished for these pieces too: later operations compare piece
  // numbers.
  mine.copied.store(op.base + n, std::memory_order_release);
  mine.folded.store(op.base + n, std::memory_order_release);
  return true;
}

// In the members' own buffers, where all of them can be reached.
bool ShmTeamImpl::poll_direct(TeamOp& op) {
  if (!all_agree(op) || !direct_.poll(op)) return false;
  pass_pieces(op);
  return true;
}

// From the root's own buffer, or through slots for who could not read that.
bool ShmTeamImpl::poll_once(TeamOp& op) {
  if (!all_agree(op)) return false;
  const SingleCopy::Way way = single_copy_.poll(op);
  if (way == SingleCopy::Way::staged) return poll_bcast(op);
  if (way == SingleCopy::Way::done) pass_pieces(op);
  return way == SingleCopy::Way::done;
}

// The slots were left alone: for later operations these pieces are through all phases.
void ShmTeamImpl::pass_pieces(const TeamOp& op) {
  Progress& mine = progress(rank_);
  const std::uint64_t end = op.base + pieces(op);
  mine.copied.store(end, std::memory_order_release);
  mine.folded.store(end, std::memory_order_release);
  mine.drained.store(end, std::memory_order_release);
}

// Two members: handing over the whole vector moves as many lines between the caches as handing over halves
// and fetching results, with one hop less and no result slots.
bool ShmTeamImpl::poll_pair(TeamOp& op) {
  const std::size_t n = pieces(op);
  const int peer = 1 - rank_;
  Progress& mine = progress(rank_);
  std::size_t& copied = op.step[0];
  std::size_t& folded = op.step[1];
  for (bool moved = true; moved;) {
    moved = false;
    const std::uint64_t in_piece = op.base + copied;
    if (copied < n && (in_piece < kDepth || all_reached(&Progress::folded, in_piece - kDepth + 1))) {
      const Extent e = piece_extent(op, copied);
      std::memcpy(input_slot(rank_, in_piece), op.in + e.first * op.element_bytes,
                  e.count * op.element_bytes);
      mine.copied.store(in_piece + 1, std::memory_order_release);
      ++copied;
      moved = true;
    }
    const std::uint64_t piece = op.base + folded;
    if (folded < copied && all_agree(op) && all_reached(&Progress::copied, piece + 1)) {
      const Extent e = piece_extent(op, folded);
      const std::size_t offset = e.first * op.element_bytes;
      inputs_[static_cast<std::size_t>(rank_)] = op.in + offset;
      inputs_[static_cast<std::size_t>(peer)] = input_slot(peer, piece);
      op.fold(op.out + offset, nullptr, inputs_.data(), 2, e.count);
      mine.folded.store(piece + 1, std::memory_order_release);
      ++folded;
      moved = true;
    }
  }
  if (folded < n) return false;
  mine.drained.store(op.base + n, std::memory_order_release);
  return true;
}

bool ShmTeamImpl::poll_fold(TeamOp& op) {
  bool moved = true;
  while (moved) {
    moved = try_copy_in(op);
    moved = try_fold(op) || moved;
    moved = try_drain(op) || moved;
  }
  return op.step[2] == pieces(op);
}

// Phase 1: the parts that others own, from the caller's buffer into my slot.
bool ShmTeamImpl::try_copy_in(TeamOp& op) {
  const std::size_t i = op.step[0];
  if (i == pieces(op)) return false;
  const std::uint64_t piece = op.base + i;
  // The slot's last content has been folded by everybody, or (a bcast) copied out by everybody.
  if (piece >= kDepth && !all_reached(&Progress::folded, piece - kDepth + 1)) return false;
  const Extent e = piece_extent(op, i);
  const Extent own = part(e, rank_);
  const std::byte* source = op.in + e.first * op.element_bytes;
  std::byte* slot = input_slot(rank_, piece);
  const std::size_t before = own.first * op.element_bytes;
  const std::size_t after = (own.first + own.count) * op.element_bytes;
  std::memcpy(slot, source, before);
  std::memcpy(slot + after, source + after, e.count * op.element_bytes - after);
  op.step[0] = i + 1;
  progress(rank_).copied.store(piece + 1, std::memory_order_release);
  return true;
}

// Phase 2: my part of a piece, folded from everybody's slot.
bool ShmTeamImpl::try_fold(TeamOp& op) {
  const std::size_t i = op.step[1];
  if (i == op.step[0]) return false;
  const std::uint64_t piece = op.base + i;
  if (!all_agree(op) || !all_reached(&Progress::copied, piece + 1)) return false;
  if (piece >= kDepth && !all_reached(&Progress::drained, piece - kDepth + 1)) return false;
  const Extent e = piece_extent(op, i);
  const Extent own = part(e, rank_);
  const std::size_t offset = own.first * op.element_bytes;
  const std::size_t in_vector = e.first * op.element_bytes + offset;
  if (own.count > 0) {
    for (int m = 0; m < size_; ++m) {
      inputs_[static_cast<std::size_t>(m)] = m == rank_ ? op.in + in_vector : input_slot(m, piece) + offset;
    }
    std::byte* result = result_slot(rank_, piece) + offset;
    const bool keeps = op.verb == TeamVerb::allreduce || op.root == rank_;
    op.fold(keeps ? op.out + in_vector : result, keeps ? result : nullptr, inputs_.data(),
            static_cast<unsigned>(size_), own.count);
  }
  op.step[1] = i + 1;
  progress(rank_).folded.store(piece + 1, std::memory_order_release);
  return true;
}

// Phase 3: the parts of the other owners, from their result slots into the caller's buffer.
bool ShmTeamImpl::try_drain(TeamOp& op) {
  const std::size_t i = op.step[2];
  if (i == op.step[1]) return false;
  const std::uint64_t piece = op.base + i;
  if (op.verb == TeamVerb::allreduce || op.root == rank_) {
    if (!all_reached(&Progress::folded, piece + 1)) return false;
    const Extent e = piece_extent(op, i);
    for (int m = 0; m < size_; ++m) {
      if (m == rank_) continue;
      const Extent theirs = part(e, m);
      const std::size_t offset = theirs.first * op.element_bytes;
      std::memcpy(op.out + e.first * op.element_bytes + offset, result_slot(m, piece) + offset,
                  theirs.count * op.element_bytes);
    }
  }
  op.step[2] = i + 1;
  progress(rank_).drained.store(piece + 1, std::memory_order_release);
  return true;
}

}  // namespace heddle::team_layout

namespace heddle {

std::size_t ShmTeamGeometry::bytes() const {
  return team_layout::MemberLayout(slot_bytes).total * static_cast<std::size_t>(members);
}

std::unique_ptr<ShmTeam> make_shm_team(std::byte* memory, const ShmTeamGeometry& geometry, int member,
                                       const SharedHeap* heap) {
  return std::make_unique<team_layout::ShmTeamImpl>(memory, geometry, member, heap);
}

}  // namespace heddle
