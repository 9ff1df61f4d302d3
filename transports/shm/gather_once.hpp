// Large allgathers in which every member copies what the others give from their own buffers, once, as
// single_copy.hpp does for bcasts; and whether that is the faster way.
//
// Where lines go fast from core to core what passes through slots takes less time (1 MiB of each of two
// members: 0.24 ms, and 0.3 from their buffers), where they go slowly it takes more (0.59 ms), and a virtual
// machine changes from the one to the other within seconds. So of every kPeriod large allgathers of about one
// size the last kOther go the other way, and what both took decides on the next ones. Slots that were left
// alone are faster at first, which is why the last kTimed of either way alone are timed.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transports/shm/shm_team_layout.hpp"
#include "transports/team.hpp"

namespace heddle {

class GatherOnce {
 public:
  // What each member gives, in bytes, from which on it is thought of.
  static constexpr std::size_t kFrom = std::size_t{64} << 10;
  static constexpr std::uint64_t kPeriod = 128;
  static constexpr std::uint64_t kOther = 6;
  static constexpr std::uint64_t kTimed = 2;
  // Of the first period there are so many before these.
  static constexpr std::uint64_t kFirst = 6;

  // As DirectReduce.
  GatherOnce(std::byte* memory, std::size_t stride, int members, int member);

  // From the next operation on; the same on all members, who may read each other (SingleCopy::reads_all). At
  // first it is not allowed.
  void allow(bool on) { allowed_ = on; }

  // Every large allgather of the team. Before the others.
  void start(const TeamOp& op);
  // Whether all members are to have started it before poll().
  bool meets() const { return timed_ || deciding_ || way_ == Way::once; }
  enum class Way : std::uint8_t { slots, once };
  // Before anything is moved.
  Way way(const TeamOp& op);
  // Way::once: true when this member's result is complete and nobody needs its buffer any more, or when it
  // is to go by slots (way()) after all.
  bool poll(TeamOp& op);
  // Whichever way it went.
  void complete(const TeamOp& op);

 private:
  using Clock = std::chrono::steady_clock;
  team_layout::Board& board(std::size_t m) const { return *boards_[m]; }
  void lend(const TeamOp& op);
  bool read_some(TeamOp& op);
  bool judge(const TeamOp& op);
  Way faster() const;

  std::vector<team_layout::Board*> boards_;
  std::size_t rank_;
  bool allowed_ = false;
  // Sizes between two powers of two, and all from the last on.
  struct Class {
    std::uint64_t turn = kPeriod - kOther - kFirst;  // of the next one
    Way chosen = Way::slots;
    // By way: the least time of this period, for a KiB of what a member gives.
    std::array<std::uint64_t, 2> least_ns{};
  };
  std::array<Class, team_layout::kGatherClasses> classes_;
  // Of this operation.
  std::size_t class_ = 0;
  Way way_ = Way::slots;
  bool timed_ = false;
  bool deciding_ = false;
  bool begun_ = false;
  bool read_ = true;     // all that was tried
  bool judged_ = false;  // this member has told what came of it
  Clock::time_point begin_;
};

}  // namespace heddle
