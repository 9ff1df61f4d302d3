// The allgather of the team over shared memory.
#include <cstring>

#include "transports/shm/shm_team_impl.hpp"

namespace heddle::team_layout {

// What this member gives first: where both buffers are one, which MPI forbids and some hosts take, what
// others give is written over it.
bool ShmTeamImpl::copy_all(TeamOp& op, std::size_t bytes) {
  const auto members = static_cast<std::size_t>(size_);
  std::size_t& next = op.step[0];
  if (next == 0) {
    std::byte* const own = op.out + static_cast<std::size_t>(rank_) * bytes;
    if (own != op.in && bytes > 0) std::memcpy(own, op.in, bytes);
    next = 1;
  }
  for (; next < members; ++next) {
    const std::size_t m = (static_cast<std::size_t>(rank_) + next) % members;
    SmallSlot& slot = small(static_cast<int>(m), op);
    if (!arrives(slot.flag, flag_of(op))) return false;
    if (bytes > 0) std::memcpy(op.out + m * bytes, slot.at(bytes), bytes);
  }
  all_completed_ = op.operation - 1;
  return true;
}

bool ShmTeamImpl::poll_gather(TeamOp& op) {
  if (gather_once_.meets() && !all_agree(op)) return false;
  if (gather_once_.way(op) == GatherOnce::Way::once) {
    if (!gather_once_.poll(op)) return false;
    op.step[0] = 0;
  }
  if (gather_once_.way(op) == GatherOnce::Way::slots) {
    if (!gather_by_slots(op)) return false;
  } else {
    pass_pieces(op);
  }
  gather_once_.complete(op);
  return true;
}

// Each member hands all others what it has, piece by piece.
bool ShmTeamImpl::gather_by_slots(TeamOp& op) {
  const std::size_t n = pieces(op);
  const std::size_t part = op.count * op.element_bytes;
  std::byte* const own = op.out + static_cast<std::size_t>(rank_) * part;
  Progress& mine = progress(rank_);
  std::size_t& copied = op.step[0];
  std::size_t& drained = op.step[1];
  for (bool moved = true; moved;) {
    moved = false;
    const std::uint64_t in_piece = op.base + copied;
    if (copied < n && (in_piece < kDepth || all_reached(&Progress::drained, in_piece - kDepth + 1))) {
      const Extent e = piece_extent(op, copied);
      const std::size_t at = e.first * op.element_bytes;
      std::memcpy(input_slot(rank_, in_piece), op.in + at, e.count * op.element_bytes);
      mine.copied.store(in_piece + 1, std::memory_order_release);
      if (op.in != own) std::memcpy(own + at, op.in + at, e.count * op.element_bytes);
      ++copied;
      moved = true;
    }
    const std::uint64_t piece = op.base + drained;
    if (drained < copied && all_agree(op) && all_reached(&Progress::copied, piece + 1)) {
      const Extent e = piece_extent(op, drained);
      std::byte* const out = op.out + e.first * op.element_bytes;
      for (int m = 0; m < size_; ++m) {
        if (m == rank_) continue;
        std::memcpy(out + static_cast<std::size_t>(m) * part, input_slot(m, piece),
                    e.count * op.element_bytes);
      }
      mine.folded.store(piece + 1, std::memory_order_release);
      mine.drained.store(piece + 1, std::memory_order_release);
      ++drained;
      moved = true;
    }
  }
  return drained == n;
}

}  // namespace heddle::team_layout
