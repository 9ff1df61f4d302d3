#include "transports/shm/direct_reduce.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

namespace heddle {

using namespace team_layout;

DirectReduce::DirectReduce(std::byte* memory, std::size_t stride, int members, int member,
                           const SharedHeap* heap)
    : rank_(static_cast<std::size_t>(member)), heap_(heap), views_(members) {
  const auto n = static_cast<std::size_t>(members);
  for (std::size_t m = 0; m < n; ++m)
    boards_.push_back(reinterpret_cast<Board*>(memory + m * stride));
  in_.resize(n);
  out_.resize(n);
  inputs_.resize(n);
}

void DirectReduce::start(const TeamOp& op) {
  way_ = Way::staged;
  if (op.verb != TeamVerb::allreduce || boards_.size() < 2) return;
  const std::size_t bytes = op.count * op.element_bytes;
  Offer& mine = board(rank_).offer;
  const auto in = heap_ != nullptr ? heap_->find(op.in, bytes) : std::nullopt;
  const auto out = in ? heap_->find(op.out, bytes) : std::nullopt;
  mine.made = in.has_value() && out.has_value();
  if (mine.made) {
    mine.in = *in;
    mine.out = *out;
    mine.releases = heap_->releases();
    in_[rank_] = op.in;
    out_[rank_] = op.out;
    mapped_ = false;
    way_ = Way::undecided;
  }
  // Nobody still reads the offer before: its operation needed this member, after that had decided, to end.
  mine.operation.store(op.operation, std::memory_order_release);
}

DirectReduce::Way DirectReduce::decide(const TeamOp& op) {
  if (!mapped_) {
    bool all = true;
    for (std::size_t m = 0; m < boards_.size(); ++m) {
      const Offer& offer = board(m).offer;
      if (offer.operation.load(std::memory_order_acquire) < op.operation) {
        all = false;
      } else if (!offer.made) {
        return way_ = Way::staged;
      }
    }
    if (!all) return Way::undecided;
    const bool reached = map_all();
    board(rank_).verdict.value.store(2 * op.operation + (reached ? 1 : 0), std::memory_order_release);
    mapped_ = true;
  }
  for (std::size_t m = 0; m < boards_.size(); ++m) {
    const std::uint64_t verdict = board(m).verdict.value.load(std::memory_order_acquire);
    if (verdict < 2 * op.operation) return Way::undecided;
    if (verdict % 2 == 0) return way_ = Way::staged;
  }
  return way_ = Way::direct;
}

bool DirectReduce::map_all() {
  for (std::size_t m = 0; m < boards_.size(); ++m) {
    if (m == rank_) continue;
    const Offer& offer = board(m).offer;
    in_[m] = views_.at(static_cast<int>(m), offer.in, offer.releases);
    out_[m] = in_[m] != nullptr ? views_.at(static_cast<int>(m), offer.out, offer.releases) : nullptr;
    if (out_[m] == nullptr) return false;
  }
  return true;
}

bool DirectReduce::all_reached(std::atomic<std::uint64_t> DirectProgress::*counter,
                               std::uint64_t value) const {
  for (std::size_t m = 0; m < boards_.size(); ++m) {
    if (m != rank_ && (board(m).direct.*counter).load(std::memory_order_acquire) < value) return false;
  }
  return true;
}

bool DirectReduce::any_has_withdrawn() const {
  return std::any_of(boards_.begin(), boards_.end(), [](const Board* each) { return has_withdrawn(*each); });
}

// A result overwrites nothing that another member needs, in place or not: this part of this member's input is
// for this member alone to read.
void DirectReduce::fold_piece(const TeamOp& op, std::size_t i) {
  const Extent e = piece_extent(op, i);
  const Extent own = part_of(e, static_cast<int>(rank_), static_cast<int>(boards_.size()));
  if (own.count == 0) return;
  const std::size_t at = (e.first + own.first) * op.element_bytes;
  for (std::size_t m = 0; m < boards_.size(); ++m)
    inputs_[m] = in_[m] + at;
  op.fold(op.out + at, nullptr, inputs_.data(), static_cast<unsigned>(boards_.size()), own.count);
}

void DirectReduce::fetch_piece(const TeamOp& op, std::size_t i) const {
  const Extent e = piece_extent(op, i);
  for (std::size_t m = 0; m < boards_.size(); ++m) {
    if (m == rank_) continue;
    const Extent theirs = part_of(e, static_cast<int>(m), static_cast<int>(boards_.size()));
    const std::size_t at = (e.first + theirs.first) * op.element_bytes;
    if (theirs.count > 0) std::memcpy(op.out + at, out_[m] + at, theirs.count * op.element_bytes);
  }
}

bool DirectReduce::poll(TeamOp& op) {
  const std::size_t n = pieces(op);
  DirectProgress& mine = board(rank_).direct;
  std::size_t& folded = op.step[0];
  std::size_t& fetched = op.step[1];
  for (bool moved = true; moved;) {
    moved = false;
    if (folded < n) {
      fold_piece(op, folded);
      mine.folded.store(pieces_ + ++folded, std::memory_order_release);
      moved = true;
    }
    if (fetched < folded && all_reached(&DirectProgress::folded, pieces_ + fetched + 1)) {
      fetch_piece(op, fetched);
      // Those who have all results themselves wait for this member no longer than they like. As it never
      // drains, nobody ends the operation.
      if (fetched + 1 == n && any_has_withdrawn()) return false;
      if (++fetched == n) mine.drained.store(pieces_ + n, std::memory_order_release);
      moved = true;
    }
  }
  if (fetched < n || !all_reached(&DirectProgress::drained, pieces_ + n)) return false;
  pieces_ += n;
  return true;
}

}  // namespace heddle
