// A large allreduce in the members' own buffers, where every member can reach all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transports/shm/shared_heap.hpp"
#include "transports/shm/shm_team_layout.hpp"
#include "transports/team.hpp"

namespace heddle {

// Each member offers its buffers if they lie in its heap. With all offers made, each maps the others' buffers
// and says whether it could; if all could, each folds its part of every piece straight out of everybody's
// input into its own result, and fetches the other parts from their owners' results. One member without an
// offer, or unable to map one, and all work through the slots. The decision takes two hops where it is made;
// a member that has nothing to offer knows at once and waits for nobody.
//
// Of n bytes, each of p members reads n of inputs and n (p-1)/p of results and writes n: no copies into slots
// and out.
class DirectReduce {
 public:
  // `memory` has the members' parts, `stride` bytes apart, each with its Board first; borrowed, as `heap` is
  // (may be null).
  DirectReduce(std::byte* memory, std::size_t stride, int members, int member, const SharedHeap* heap);

  enum class Way : std::uint8_t { undecided, staged, direct };

  // For every large operation of the team, before way(). Allreduces may go the direct way, others do not.
  void start(const TeamOp& op);
  // Moves the decision without waiting.
  Way way(const TeamOp& op) { return way_ == Way::undecided ? decide(op) : way_; }
  // The operation itself, Way::direct: true when this member's result is complete and nobody needs its
  // buffers any more.
  bool poll(TeamOp& op);

 private:
  team_layout::Board& board(std::size_t m) const { return *boards_[m]; }
  Way decide(const TeamOp& op);
  bool map_all();
  void fold_piece(const TeamOp& op, std::size_t i);
  void fetch_piece(const TeamOp& op, std::size_t i) const;
  bool all_reached(std::atomic<std::uint64_t> team_layout::DirectProgress::*counter,
                   std::uint64_t value) const;
  bool any_has_withdrawn() const;

  std::vector<team_layout::Board*> boards_;
  std::size_t rank_;
  const SharedHeap* heap_;
  HeapViews views_;
  Way way_ = Way::staged;
  bool mapped_ = false;               // this operation's offers have been looked at
  std::uint64_t pieces_ = 0;          // of direct operations so far, the same on every member
  std::vector<const std::byte*> in_;  // by member, of this operation
  std::vector<const std::byte*> out_;
  std::vector<const void*> inputs_;  // scratch for folds
};

}  // namespace heddle
