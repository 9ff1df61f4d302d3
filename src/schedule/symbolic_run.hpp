// One run of all ranks' schedules on expressions instead of numbers; the verifier's engine.
//
// Ranks are a Kahn network: each is sequential, messages are matched in order per (sender, receiver, lane),
// and `wait` completes operations by age. So whatever order the ranks run in, each sees the same values and
// the same operations open at each of its steps (Kahn, "The semantics of a simple language for parallel
// programming", IFIP 1974), and one exploration stands for all. A send completes only when its receive was
// opened (rendezvous); a run that ends under this rule also ends when sends are buffered, as buffering only
// completes them earlier.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/fifo.hpp"
#include "base/status.hpp"
#include "schedule/cursor.hpp"
#include "schedule/expressions.hpp"
#include "schedule/schedule.hpp"
#include "schedule/topology_view.hpp"

namespace heddle {

// Borrows topology and schedules (one per rank, structurally sound and in agreement). Not thread-safe.
class SymbolicRun {
 public:
  SymbolicRun(const TopologyView& topology, const std::vector<Schedule>& schedules);

  // Runs every rank to its end; the status names the first violation.
  Status run();

  // After a run: what chunk `chunk` of the data of `rank` holds.
  static constexpr ExprId kUndefined = UINT32_MAX;
  ExprId result(std::int32_t rank, std::uint32_t chunk) const {
    return ranks_[static_cast<std::size_t>(rank)].data[chunk];
  }
  const Expressions& expressions() const { return expressions_; }

 private:
  // A chunk range in one slot of one rank.
  struct Place {
    Slot slot;
    std::uint32_t first;
    std::uint32_t count;
    std::uint32_t unit;
  };
  struct OpenOp {
    Place place;
    bool receives;
    bool matched;
    std::uint8_t lane;
    std::int32_t peer;
    std::uint32_t step;
    std::uint32_t iteration;
  };
  // What a unit holds starts with chunk `first`; every access starts at the unit's first byte.
  struct Unit {
    std::uint32_t first = 0;
    std::vector<ExprId> cells;
  };
  enum class Blocked : std::uint8_t { no, in_wait, in_team };
  struct Rank {
    Rank(const Schedule& s, ExprId initial);
    const Schedule* schedule;
    Cursor cursor;
    std::vector<ExprId> data;  // kUndefined until first written
    std::vector<Unit> scratch;
    Fifo<OpenOp> open;          // oldest first
    std::uint64_t retired = 0;  // operations completed so far: the number of open.front()
    std::uint32_t most_open = 0;
    Blocked blocked = Blocked::no;
    std::uint64_t wait_until = 0;  // in_wait: number of the first operation that may stay open
    std::uint32_t unmatched = 0;   // in_wait: operations before it that have not met their other half
  };
  struct Channel {
    struct End {
      std::int32_t rank;
      std::uint64_t number;  // of the operation on that rank
    };
    Fifo<End> waiting;  // all sends or all receives
    bool receives = false;
  };
  struct Team {
    std::vector<std::int32_t> arrived;
  };

  Rank& at(std::int32_t rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  Status run_rank(std::int32_t rank);
  Status open_message(std::int32_t rank);
  Status transfer(std::int32_t sender, OpenOp& send, std::int32_t receiver, OpenOp& recv);
  void matched(std::int32_t rank, std::uint64_t number);
  bool wait(Rank& r);
  Status local(std::int32_t rank);
  Status enter_team(std::int32_t rank, bool* complete);
  Status check_team(std::int32_t rank, std::int32_t member);
  Status run_team(const std::vector<std::int32_t>& members);
  Status gather_team(const std::vector<std::int32_t>& members);
  static Place given_by(const Rank& r, std::int32_t member);  // of a team_allgather
  Status at_end(std::int32_t rank);
  Status stuck();

  Place place(const Rank& r, Slot slot) const;
  Status check_range(std::int32_t rank, const Place& place) const;
  Status check_open(std::int32_t rank, const Place& place, bool writing) const;
  Status check_read(std::int32_t rank, const Place& place) const;
  Status begin_write(std::int32_t rank, const Place& place);
  ExprId load(std::int32_t rank, const Place& p, std::uint32_t i) const {
    const Rank& r = ranks_[static_cast<std::size_t>(rank)];
    if (p.slot == Slot::data) return r.data[p.first + i];
    if (p.slot == Slot::input) return expressions_.leaf(rank);
    return r.scratch[p.unit].first == p.first ? r.scratch[p.unit].cells[i] : kUndefined;
  }
  void store(std::int32_t rank, const Place& p, std::uint32_t i, ExprId value) {
    Rank& r = at(rank);
    (p.slot == Slot::data ? r.data[p.first + i] : r.scratch[p.unit].cells[i]) = value;
  }

  static std::string chunks_text(std::uint32_t first, std::uint32_t count);
  Status violation(std::int32_t rank, const std::string& what) const;

  const TopologyView* topology_;
  Expressions expressions_;
  std::vector<Rank> ranks_;
  std::unordered_map<std::uint64_t, Channel> channels_;
  std::vector<Team> teams_;
  std::vector<std::int32_t> ready_;
};

}  // namespace heddle
