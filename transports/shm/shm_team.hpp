// The team over shared memory: fused allreduce, reduce, bcast and allgather.
//
// Small vectors: each contributor writes flag and payload into a slot of its own (up to 56 bytes share the
// flag's cache line, so one line transfer carries both), and every reader folds all slots in member order, or
// copies them. One one-way hop.
//
// Large vectors run as pieces. Two members hand each other the whole vector through their slots. More members
// work in three pipelined phases: every member copies into its slot the parts of a piece that others own;
// each owner folds its part, own input straight from the caller's buffer, into the caller's result and into
// its result slot at once; every member copies the other owners' results out. Slots are a few deep and stay
// in cache. (The staged scheme follows the shared-memory collectives literature: Graham & Shipman 2008; Jain
// et al., SC'18; movement-avoiding reduction, SC'23.)
//
// Large allreduces of buffers that all members can reach (SharedHeap) need no slots: each owner folds its
// part straight from everybody's buffers into its own result, and the others fetch it from there
// (direct_reduce.hpp).
//
// Bcasts, and large allgathers, may go from buffer to buffer, where members can read each other's memory and
// that is the faster way (single_copy.hpp, gather_once.hpp).
//
// The fold is left to right in member order for every element, whatever the size: the result's bits do not
// depend on the number of pieces, on who owns a part, or on whether the vector is small.
#pragma once

#include <cstddef>
#include <memory>

#include "transports/shm/shared_heap.hpp"
#include "transports/shm/small_stores.hpp"
#include "transports/team.hpp"

namespace heddle {

inline constexpr std::size_t kDefaultSlotBytes = std::size_t{64} << 10;
inline constexpr std::size_t kSlotsOfAMember = 32;  // half of them for what it gives, half for results

// The longest vector that one small slot holds.
inline constexpr std::size_t kSmallBytes = std::size_t{16} << 10;
// The most that a member reads of others' small slots to fold them: longer vectors are shared out, for a
// second hop. A hop between cores costs little. Where members take turns on cores it is a change of process,
// and reading costs less (measured, eight members on two cores: 4 KiB in 10 us instead of 17).
inline constexpr std::size_t kSmallReads = std::size_t{16} << 10;
inline constexpr std::size_t kSmallReadsOnSharedCores = std::size_t{128} << 10;

// The same for every member.
struct ShmTeamGeometry {
  int members = 1;
  std::size_t slot_bytes = kDefaultSlotBytes;  // one piece of a large vector
  std::size_t small_reads = kSmallReads;

  // Shared memory the team needs, from a 4096-aligned, zeroed start.
  std::size_t bytes() const;
};

class ShmTeam : public Team {
 public:
  // For a member that waits for others in a collective that need not be one of the team's: tells them what it
  // has called, under a number that the same call has on all members, and finds one that has waited in
  // another call of that number. Numbers rise from 1 on. What is found holds for good.
  virtual TeamClash compare_waiting(std::uint64_t number, const TeamCall& call) = 0;

  // How this member stores small payloads from its next operation on.
  virtual void use(const SmallStores& stores) = 0;

  // Whether this process may read the memory of all other members (single_copy.hpp). They have all made their
  // teams.
  virtual bool reads_all() const = 0;
  // Whether bcasts of kOnceFrom to kOnceUpTo bytes are copied once from the root's own buffer, from the next
  // operation on; at first they are not. The same on all members.
  virtual void copy_once(bool on) = 0;
  // Likewise whether allgathers of GatherOnce::kFrom bytes or more may be.
  virtual void gather_once(bool on) = 0;
};

// The team in `memory` (geometry.bytes() long, zeroed, mapped by every member; borrowed, outlives the team).
// `heap` is this member's, borrowed likewise; null: none.
std::unique_ptr<ShmTeam> make_shm_team(std::byte* memory, const ShmTeamGeometry& geometry, int member,
                                       const SharedHeap* heap = nullptr);

}  // namespace heddle
