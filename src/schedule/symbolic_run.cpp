#include "schedule/symbolic_run.hpp"

#include <algorithm>
#include <utility>

namespace heddle {
namespace {

// A range that a receive was opened into and that no message has filled: written, but without a value.
constexpr ExprId kIncoming = UINT32_MAX - 1;

}  // namespace

SymbolicRun::Rank::Rank(const Schedule& s, ExprId initial)
    : schedule(&s), cursor(s), data(s.chunks, initial), scratch(s.scratch_units) {
  for (Unit& u : scratch)
    u.cells.assign(s.unit_chunks, kUndefined);
}

SymbolicRun::SymbolicRun(const TopologyView& topology, const std::vector<Schedule>& schedules)
    : topology_(&topology),
      expressions_(topology.size()),
      teams_(static_cast<std::size_t>(topology.teams())) {
  ranks_.reserve(schedules.size());
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    const Schedule& s = schedules[i];
    const auto rank = static_cast<std::int32_t>(i);
    const bool has_data = s.collective == Collective::bcast && s.root == rank;
    ranks_.emplace_back(s, has_data ? expressions_.leaf(rank) : kUndefined);
    if (s.collective == Collective::allgather) ranks_.back().data[i] = expressions_.leaf(rank);
  }
}

Status SymbolicRun::run() {
  // The order is free; ranks run from the highest number down here, each until it blocks.
  for (std::int32_t rank = 0; rank < topology_->size(); ++rank)
    ready_.push_back(rank);
  while (!ready_.empty()) {
    const std::int32_t rank = ready_.back();
    ready_.pop_back();
    HEDDLE_TRY(run_rank(rank));
  }
  return stuck();
}

Status SymbolicRun::run_rank(std::int32_t rank) {
  Rank& r = at(rank);
  r.blocked = Blocked::no;
  while (!r.cursor.done()) {
    switch (r.cursor.step().kind) {
      case StepKind::send:
      case StepKind::recv:
        HEDDLE_TRY(open_message(rank));
        break;
      case StepKind::reduce:
      case StepKind::copy:
        HEDDLE_TRY(local(rank));
        break;
      case StepKind::wait:
        if (!wait(r)) return {};
        break;
      case StepKind::team_reduce:
      case StepKind::team_bcast:
      case StepKind::team_allreduce:
      case StepKind::team_allgather: {
        bool complete = false;
        HEDDLE_TRY(enter_team(rank, &complete));
        if (!complete) return {};
        break;
      }
      case StepKind::repeat:
        return violation(rank, "a repeat inside a repeat");
    }
    r.cursor.advance();
  }
  return at_end(rank);
}

Status SymbolicRun::open_message(std::int32_t rank) {
  Rank& r = at(rank);
  const Step& step = r.cursor.step();
  const bool receives = step.kind == StepKind::recv;
  OpenOp op{place(r, receives ? step.dst : step.src),
            receives,
            false,
            step.lane,
            step.peer,
            static_cast<std::uint32_t>(r.cursor.index()),
            r.cursor.iteration()};
  if (receives) {
    HEDDLE_TRY(begin_write(rank, op.place));
    for (std::uint32_t i = 0; i < op.place.count; ++i)
      store(rank, op.place, i, kIncoming);
  } else {
    HEDDLE_TRY(check_read(rank, op.place));
  }
  const std::uint64_t number = r.retired + r.open.size();
  r.open.push(op);
  r.most_open = std::max(r.most_open, static_cast<std::uint32_t>(r.open.size()));

  const auto source = static_cast<std::uint64_t>(receives ? op.peer : rank);
  const auto target = static_cast<std::uint64_t>(receives ? rank : op.peer);
  Channel& channel = channels_[(source << 36) | (target << 4) | op.lane];
  if (channel.waiting.empty() || channel.receives == receives) {
    channel.receives = receives;
    channel.waiting.push({rank, number});
    return {};
  }
  const Channel::End other = channel.waiting.front();
  channel.waiting.pop();
  Rank& o = at(other.rank);
  OpenOp& theirs = o.open[other.number - o.retired];
  OpenOp& mine = r.open.back();
  if (receives) {
    HEDDLE_TRY(transfer(other.rank, theirs, rank, mine));
  } else {
    HEDDLE_TRY(transfer(rank, mine, other.rank, theirs));
  }
  matched(rank, number);
  matched(other.rank, other.number);
  return {};
}

// Nothing may write what an open send reads, so its value now is its value when it was opened; nothing may
// read what an open receive writes, so it does not matter that the value is there before the wait.
Status SymbolicRun::transfer(std::int32_t sender, OpenOp& send, std::int32_t receiver, OpenOp& recv) {
  if (send.place.first != recv.place.first || send.place.count != recv.place.count) {
    return violation(sender, "a message of " + chunks_text(send.place.first, send.place.count) +
                                 " (send of step " + std::to_string(send.step) + " iteration " +
                                 std::to_string(send.iteration) + ") meets the receive of " +
                                 chunks_text(recv.place.first, recv.place.count) + " of rank " +
                                 std::to_string(receiver) + " step " + std::to_string(recv.step) +
                                 " iteration " + std::to_string(recv.iteration));
  }
  for (std::uint32_t i = 0; i < send.place.count; ++i)
    store(receiver, recv.place, i, load(sender, send.place, i));
  return {};
}

void SymbolicRun::matched(std::int32_t rank, std::uint64_t number) {
  Rank& r = at(rank);
  r.open[number - r.retired].matched = true;
  if (r.blocked == Blocked::in_wait && number < r.wait_until && --r.unmatched == 0) {
    r.blocked = Blocked::no;
    ready_.push_back(rank);
  }
}

bool SymbolicRun::wait(Rank& r) {
  const std::uint32_t keep = r.cursor.step().count;
  if (r.open.size() <= keep) return true;
  const std::size_t finish = r.open.size() - keep;
  r.unmatched = 0;
  for (std::size_t i = 0; i < finish; ++i)
    r.unmatched += r.open[i].matched ? 0 : 1;
  if (r.unmatched != 0) {
    r.blocked = Blocked::in_wait;
    r.wait_until = r.retired + finish;
    return false;
  }
  r.open.pop(finish);
  r.retired += finish;
  return true;
}

Status SymbolicRun::local(std::int32_t rank) {
  const Rank& r = at(rank);
  const Step& step = r.cursor.step();
  const Place src = place(r, step.src);
  const Place dst = place(r, step.dst);
  HEDDLE_TRY(check_read(rank, src));
  const bool folds = step.kind == StepKind::reduce;
  if (folds) HEDDLE_TRY(check_read(rank, dst));
  HEDDLE_TRY(begin_write(rank, dst));
  const bool source_first = (step.flags & kSourceFirst) != 0;
  for (std::uint32_t i = 0; i < dst.count; ++i) {
    ExprId value = load(rank, src, i);
    if (folds) {
      const ExprId old = load(rank, dst, i);
      value = source_first ? expressions_.op(value, old) : expressions_.op(old, value);
    }
    store(rank, dst, i, value);
  }
  return {};
}

// Blocks until every member of the team is here; a real team may let some go earlier, which only helps
// progress.
Status SymbolicRun::enter_team(std::int32_t rank, bool* complete) {
  Rank& r = at(rank);
  const Step& mine = r.cursor.step();
  const TeamKind kind = mine.team();
  Team& team = teams_[static_cast<std::size_t>(topology_->team_of(kind, rank))];
  if (!team.arrived.empty()) {
    const Rank& o = at(team.arrived.front());
    const Step& theirs = o.cursor.step();
    if (mine.kind != theirs.kind || (mine.peer != theirs.peer && mine.kind != StepKind::team_allreduce) ||
        r.cursor.chunk() != o.cursor.chunk() || mine.count != theirs.count) {
      return violation(rank, "its team verb differs from the one that rank " +
                                 std::to_string(team.arrived.front()) + " of its team entered at step " +
                                 std::to_string(o.cursor.index()) + " iteration " +
                                 std::to_string(o.cursor.iteration()));
    }
  }
  HEDDLE_TRY(check_team(rank, topology_->member_of(kind, rank)));
  team.arrived.push_back(rank);
  const std::vector<std::int32_t>& members = topology_->team(kind, rank);
  *complete = team.arrived.size() == members.size();
  if (!*complete) {
    r.blocked = Blocked::in_team;
    return {};
  }
  team.arrived.clear();
  HEDDLE_TRY(run_team(members));
  for (const std::int32_t m : members) {
    if (m == rank) continue;
    at(m).blocked = Blocked::no;
    at(m).cursor.advance();
    ready_.push_back(m);
  }
  return {};
}

// What this member lets the others read, and what they write here.
Status SymbolicRun::check_team(std::int32_t rank, std::int32_t member) {
  const Rank& r = at(rank);
  const Step& step = r.cursor.step();
  const auto writes = [&](const Place& p) -> Status {
    HEDDLE_TRY(check_range(rank, p));
    return check_open(rank, p, true);
  };
  if (step.kind == StepKind::team_allgather) {
    HEDDLE_TRY(check_range(rank, place(r, step.dst)));
    HEDDLE_TRY(check_read(rank, given_by(r, member)));
    for (std::int32_t m = 0; std::cmp_less(m, step.count); ++m) {
      if (m != member) HEDDLE_TRY(writes(given_by(r, m)));
    }
    return {};
  }
  const bool is_member = member == step.peer;
  if (step.kind != StepKind::team_bcast || is_member) HEDDLE_TRY(check_read(rank, place(r, step.src)));
  if (step.kind == StepKind::team_allreduce || (step.kind == StepKind::team_reduce) == is_member)
    HEDDLE_TRY(writes(place(r, step.dst)));
  return {};
}

SymbolicRun::Place SymbolicRun::given_by(const Rank& r, std::int32_t member) {
  return {Slot::data, r.cursor.chunk() + static_cast<std::uint32_t>(member), 1, 0};
}

Status SymbolicRun::gather_team(const std::vector<std::int32_t>& members) {
  for (std::size_t m = 0; m < members.size(); ++m) {
    const Place given = given_by(at(members[m]), static_cast<std::int32_t>(m));
    const ExprId value = load(members[m], given, 0);
    for (const std::int32_t other : members) {
      if (other == members[m]) continue;
      HEDDLE_TRY(begin_write(other, given));
      store(other, given, 0, value);
    }
  }
  return {};
}

Status SymbolicRun::run_team(const std::vector<std::int32_t>& members) {
  const Step& step = at(members.front()).cursor.step();
  if (step.kind == StepKind::team_allgather) return gather_team(members);
  const bool all = step.kind == StepKind::team_allreduce;
  const std::int32_t chosen = all ? members.front() : members[static_cast<std::size_t>(step.peer)];
  std::vector<ExprId> values(step.count);
  if (step.kind == StepKind::team_bcast) {
    const Place src = place(at(chosen), at(chosen).cursor.step().src);
    for (std::uint32_t i = 0; i < step.count; ++i)
      values[i] = load(chosen, src, i);
  } else {
    for (const std::int32_t m : members) {
      const Place src = place(at(m), at(m).cursor.step().src);
      for (std::uint32_t i = 0; i < step.count; ++i) {
        const ExprId own = load(m, src, i);
        values[i] = m == members.front()  ? own
                    : m == members.back() ? expressions_.op(values[i], own)
                                          : expressions_.unrounded(values[i], own);
      }
    }
  }
  for (const std::int32_t m : members) {
    if (!all && (m == chosen) != (step.kind == StepKind::team_reduce)) continue;
    const Place dst = place(at(m), at(m).cursor.step().dst);
    HEDDLE_TRY(begin_write(m, dst));
    for (std::uint32_t i = 0; i < step.count; ++i)
      store(m, dst, i, values[i]);
  }
  return {};
}

Status SymbolicRun::at_end(std::int32_t rank) {
  const Rank& r = at(rank);
  if (!r.open.empty()) {
    return violation(rank, "ends while " + std::to_string(r.open.size()) +
                               " operations are open, the oldest from step " +
                               std::to_string(r.open.front().step));
  }
  if (r.most_open != r.schedule->max_open) {
    return violation(rank, "max_open says " + std::to_string(r.schedule->max_open) + ", but " +
                               std::to_string(r.most_open) + " operations were open at once");
  }
  return {};
}

Status SymbolicRun::stuck() {
  std::int32_t first = -1;
  std::int32_t count = 0;
  for (std::int32_t rank = 0; rank < topology_->size(); ++rank) {
    if (at(rank).blocked == Blocked::no) continue;
    if (first < 0) first = rank;
    ++count;
  }
  if (count == 0) return {};
  const Rank& r = at(first);
  std::string what = "deadlock: ";
  if (r.blocked == Blocked::in_team) {
    what += "its team's other members never enter this team verb";
  } else {
    std::size_t oldest = 0;
    while (r.open[oldest].matched)
      ++oldest;
    const OpenOp* op = &r.open[oldest];
    what += std::string("waits for its ") + (op->receives ? "receive from rank " : "send to rank ") +
            std::to_string(op->peer) + " (" + chunks_text(op->place.first, op->place.count) + ", lane " +
            std::to_string(op->lane) + ", opened at step " + std::to_string(op->step) + " iteration " +
            std::to_string(op->iteration) + "), which that rank never answers";
  }
  if (count > 1) what += "; " + std::to_string(count - 1) + " more ranks are stuck";
  return violation(first, what);
}

std::string SymbolicRun::chunks_text(std::uint32_t first, std::uint32_t count) {
  return count == 1 ? "chunk " + std::to_string(first)
                    : "chunks " + std::to_string(first) + " to " +
                          std::to_string(static_cast<std::uint64_t>(first) + count - 1);
}

Status SymbolicRun::violation(std::int32_t rank, const std::string& what) const {
  const Rank& r = ranks_[static_cast<std::size_t>(rank)];
  std::string where = "rank ";
  where += std::to_string(rank);
  if (r.cursor.done()) {
    where += " at the end";
  } else {
    const Step& step = r.cursor.step();
    where += " step ";
    where += std::to_string(r.cursor.index());
    if (r.cursor.in_repeat()) where.append(" iteration ").append(std::to_string(r.cursor.iteration()));
    if (step.kind != StepKind::wait) where.append(" ").append(chunks_text(r.cursor.chunk(), step.count));
  }
  return Status(Code::internal, where.append(": ").append(what));
}

}  // namespace heddle
