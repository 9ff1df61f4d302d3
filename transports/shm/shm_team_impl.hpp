// The team over shared memory, as its sources see it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transports/shm/direct_reduce.hpp"
#include "transports/shm/gather_once.hpp"
#include "transports/shm/handover.hpp"
#include "transports/shm/shm_team.hpp"
#include "transports/shm/shm_team_layout.hpp"
#include "transports/shm/single_copy.hpp"

namespace heddle::team_layout {

class ShmTeamImpl final : public ShmTeam {
 public:
  ShmTeamImpl(std::byte* memory, const ShmTeamGeometry& geometry, int member, const SharedHeap* heap)
      : layout_(geometry.slot_bytes),
        rank_(member),
        size_(geometry.members),
        // A small fold reads the whole vector of every other member.
        small_fold_bytes_(std::min(
            kSmallBytes, geometry.small_reads / static_cast<std::size_t>(std::max(1, geometry.members - 1)))),
        direct_(memory, layout_.total, geometry.members, member, heap),
        single_copy_(memory, layout_.total, geometry.members, member),
        gather_once_(memory, layout_.total, geometry.members, member) {
    for (int m = 0; m < size_; ++m)
      area_.push_back(memory + static_cast<std::size_t>(m) * layout_.total);
    inputs_.resize(static_cast<std::size_t>(size_));
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void start(TeamOp& op) override;
  // Parts of them go to slots and come from there.
  bool reads_views(std::size_t bytes) const override {
    return bytes > small_bcast_bytes_ && (!copies_once_ || bytes > kOnceUpTo);
  }
  bool poll(TeamOp& op) override;
  int missing(const TeamOp& op) const override;
  std::uint64_t passed(const TeamOp& op) const override;
  TeamClash clash(const TeamOp& op) const override;
  TeamClash compare_waiting(std::uint64_t number, const TeamCall& call) override;
  void withdraw() override { team_layout::withdraw(board(rank_)); }
  int withdrawn() const override;
  void tell(std::uint64_t word) override { board(rank_).word.value.store(word, std::memory_order_release); }
  std::uint64_t told(int member) const override {
    return board(member).word.value.load(std::memory_order_acquire);
  }
  void use(const SmallStores& stores) override { hand_over_.use(stores); }
  bool reads_all() const override { return single_copy_.reads_all(); }
  void gather_once(bool on) override { gather_once_.allow(on); }
  void copy_once(bool on) override {
    copies_once_ = on;
    small_bcast_bytes_ = on ? kOnceFrom - 1 : kSmallBytes;
  }

 private:
  Board& board(int m) const { return *reinterpret_cast<Board*>(area_[static_cast<std::size_t>(m)]); }
  Progress& progress(int m) const { return board(m).progress; }
  SmallSlot& small(int m, const TeamOp& op) const {
    return *reinterpret_cast<SmallSlot*>(area_[static_cast<std::size_t>(m)] + op.slot);
  }
  std::size_t small_slot(std::uint64_t operation) const {
    return layout_.small + operation % kSmallDepth * sizeof(SmallSlot);
  }
  Started& started(int m, const TeamOp& op) const { return board(m).started[op.operation % kStarted]; }
  std::byte* input_slot(int m, std::uint64_t piece) const {
    return area_[static_cast<std::size_t>(m)] + layout_.input + piece % kDepth * layout_.slot;
  }
  std::byte* result_slot(int m, std::uint64_t piece) const {
    return area_[static_cast<std::size_t>(m)] + layout_.result + piece % kDepth * layout_.slot;
  }

  // The part of a piece that member m folds.
  Extent part(const Extent& piece, int m) const { return part_of(piece, m, size_); }

  bool all_reached(std::atomic<std::uint64_t> Progress::*counter, std::uint64_t value) const;

  bool small_slot_free(std::uint64_t operation);
  [[gnu::noinline]] void start_large(TeamOp& op, std::size_t bytes);
  void prefetch_next(const TeamOp& op, std::size_t bytes) const;
  bool poll_small(TeamOp& op);
  [[gnu::noinline]] bool copy_all(TeamOp& op, std::size_t bytes);
  void complete(const TeamOp& op);
  bool all_agree(TeamOp& op) const;
  bool poll_bcast(TeamOp& op);
  bool poll_once(TeamOp& op);
  bool poll_direct(TeamOp& op);
  void pass_pieces(const TeamOp& op);
  bool poll_pair(TeamOp& op);
  bool poll_gather(TeamOp& op);
  bool gather_by_slots(TeamOp& op);
  std::uint64_t steps_of_gathering(int m, const TeamOp& op) const;
  bool poll_fold(TeamOp& op);
  bool try_copy_in(TeamOp& op);
  bool try_fold(TeamOp& op);
  bool try_drain(TeamOp& op);

  MemberLayout layout_;
  Handover hand_over_;
  int rank_;
  int size_;
  std::size_t small_fold_bytes_;
  std::size_t small_bcast_bytes_ = kSmallBytes;
  DirectReduce direct_;
  SingleCopy single_copy_;
  GatherOnce gather_once_;
  bool copies_once_ = false;
  std::vector<std::byte*> area_;
  std::vector<const void*> inputs_;  // scratch for folds
  std::uint64_t operations_ = 0;     // started so far, the same on every member
  std::uint64_t pieces_ = 0;         // of large vectors, so far, the same on every member
  int last_root_ = -1;               // of the small bcast that ended last
  std::uint64_t all_completed_ = 0;  // operations that every member is known to have completed
};

}  // namespace heddle::team_layout
