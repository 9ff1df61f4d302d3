#include "schedule/verifier.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "schedule/symbolic_run.hpp"

namespace heddle {
namespace {

Status bad(std::int32_t rank, const std::string& what) {
  return Status(Code::internal, "rank " + std::to_string(rank) + what);
}

bool addresses(const Step& step, Slot slot) {
  switch (step.kind) {
    case StepKind::send:
      return step.src == slot;
    case StepKind::recv:
      return step.dst == slot;
    case StepKind::wait:
    case StepKind::repeat:
      return false;
    default:
      return step.src == slot || step.dst == slot;
  }
}

// What the engine has no team for: a rank alone needs none, and a node that is one domain has its own alone.
std::string missing_team(const TopologyView& topology, std::int32_t rank, TeamKind kind) {
  if (kind != TeamKind::node && topology.domains(rank) < 2)
    return "a verb of a team of domains on a node of one domain";
  return topology.team(kind, rank).size() < 2 ? "a verb of a team of one" : "";
}

std::string allgather_defect(const Schedule& s, const Step& step, std::int32_t members) {
  if (s.collective != Collective::allgather)
    return "a team_allgather in another collective, whose chunks may differ in length";
  if (step.src != Slot::data || step.dst != Slot::data) return "a team_allgather that is not of data";
  if (std::cmp_equal(step.count, members)) return "";
  return "a team_allgather of " + std::to_string(step.count) + " chunks in a team of " +
         std::to_string(members);
}

// Everything about a step that does not depend on when it runs, as a complaint or "".
std::string step_defect(const TopologyView& topology, std::int32_t rank, const Schedule& s,
                        const Step& step) {
  constexpr int kAllFlags = kFixed | kSourceFirst | kRotate;
  if (step.kind > StepKind::team_allgather)
    return "unknown kind " + std::to_string(static_cast<int>(step.kind));
  if (step.dst > Slot::scratch || step.src > Slot::scratch) return "unknown slot";
  if ((step.flags & ~kAllFlags) != 0) return "unknown flags " + std::to_string(static_cast<int>(step.flags));
  if (step.kind == StepKind::wait || step.kind == StepKind::repeat) return "";
  if (step.count == 0) return "an empty chunk range";
  if (addresses(step, Slot::scratch) && step.unit >= s.scratch_units) {
    return "scratch unit " + std::to_string(step.unit) + " is out of range: there are " +
           std::to_string(s.scratch_units);
  }
  switch (step.kind) {
    case StepKind::send:
    case StepKind::recv:
      if (step.peer < 0 || step.peer >= topology.size())
        return "there is no rank " + std::to_string(step.peer);
      if (step.peer == rank) return "a message to itself";
      return "";
    case StepKind::team_reduce:
    case StepKind::team_bcast:
    case StepKind::team_allreduce:
    case StepKind::team_allgather: {
      if (step.lane >= kTeamKinds) return "there is no team " + std::to_string(step.lane);
      if (std::string missing = missing_team(topology, rank, step.team()); !missing.empty()) return missing;
      const auto members = static_cast<std::int32_t>(topology.team(step.team(), rank).size());
      if (step.kind == StepKind::team_allgather) return allgather_defect(s, step, members);
      if (step.kind == StepKind::team_allreduce || (step.peer >= 0 && step.peer < members)) break;
      return "there is no member " + std::to_string(step.peer) + " in a team of " + std::to_string(members);
    }
    case StepKind::reduce:
    case StepKind::copy:
      if (step.dst == step.src) return "source and destination are the same memory";
      break;
    default:
      break;
  }
  if (!folds(s.collective) && step.kind != StepKind::copy && step.kind != StepKind::team_bcast)
    return std::string("a reduction in ") + (s.collective == Collective::bcast ? "a bcast" : "an allgather");
  return "";
}

Status check_steps(const TopologyView& topology, std::int32_t rank, const Schedule& s) {
  std::size_t body_end = 0;
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    const Step& step = s.steps[i];
    std::string defect = step_defect(topology, rank, s, step);
    if (defect.empty() && step.kind == StepKind::repeat) {
      if (i < body_end) {
        defect = "a repeat inside a repeat";
      } else if (step.peer < 1 || static_cast<std::size_t>(step.peer) > s.steps.size() - i - 1) {
        defect = "a repeat of " + std::to_string(step.peer) + " steps, but " +
                 std::to_string(s.steps.size() - i - 1) + " follow";
      } else {
        body_end = i + 1 + static_cast<std::size_t>(step.peer);
      }
    }
    if (!defect.empty()) return bad(rank, " step " + std::to_string(i) + ": " + defect);
  }
  return {};
}

Status check_agreement(const TopologyView& topology, const std::vector<Schedule>& schedules) {
  const Schedule& first = schedules.front();
  if (first.chunks == 0) return bad(0, ": a schedule of no chunks");
  if (first.collective == Collective::allgather && std::cmp_not_equal(first.chunks, topology.size())) {
    return bad(0, ": an allgather among " + std::to_string(topology.size()) + " ranks of " +
                      std::to_string(first.chunks) + " chunks");
  }
  if (has_root(first.collective) && (first.root < 0 || first.root >= topology.size())) {
    return bad(0, ": there is no root " + std::to_string(first.root));
  }
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    const Schedule& s = schedules[i];
    const auto rank = static_cast<std::int32_t>(i);
    if (s.collective != first.collective) return bad(rank, " and rank 0 disagree on the collective");
    if (s.root != first.root) return bad(rank, " and rank 0 disagree on the root");
    if (s.chunks != first.chunks) return bad(rank, " and rank 0 disagree on the number of chunks");
    if (s.in_order != first.in_order)
      return bad(rank, " and rank 0 disagree on whether the fold is in rank order");
  }
  return {};
}

// The expression holds each rank's input exactly once.
Status check_complete(const Expressions& expressions, ExprId e, std::uint32_t chunk) {
  const auto ranks = static_cast<std::uint32_t>(expressions.ranks());
  const std::string where = " chunk " + std::to_string(chunk) + ": ";
  if (expressions.leaves(e) > ranks) {
    return bad(0, where + "the result has " + std::to_string(expressions.leaves(e)) + " contributions of " +
                      std::to_string(ranks) + " ranks");
  }
  const std::vector<std::uint32_t> occurs = expressions.occurrences(e);
  for (std::size_t r = 0; r < occurs.size(); ++r) {
    if (occurs[r] == 1) continue;
    return bad(0, where + "the contribution of rank " + std::to_string(r) + " occurs " +
                      std::to_string(occurs[r]) + " times in the result");
  }
  return {};
}

Status check_result(const TopologyView& topology, const Schedule& first, const SymbolicRun& run) {
  const Expressions& expressions = run.expressions();
  const bool reduces = folds(first.collective);
  const bool gathers = first.collective == Collective::allgather;
  // Of a reduce what the others hold at the end is nobody's.
  const bool at_root = first.collective == Collective::reduce;
  const std::int32_t from = at_root ? first.root : 0;
  const std::int32_t to = at_root ? first.root + 1 : topology.size();
  ExprId last_checked = SymbolicRun::kUndefined;
  for (std::uint32_t c = 0; c < first.chunks; ++c) {
    const ExprId expected = reduces   ? run.result(from, c)
                            : gathers ? expressions.leaf(static_cast<std::int32_t>(c))
                                      : expressions.leaf(first.root);
    for (std::int32_t rank = from; rank < to; ++rank) {
      const ExprId got = run.result(rank, c);
      if (got == SymbolicRun::kUndefined) return bad(rank, " chunk " + std::to_string(c) + ": has no result");
      if (got == expected) continue;
      return bad(rank, " chunk " + std::to_string(c) +
                           (reduces   ? ": its result is a different expression from rank 0's"
                            : gathers ? ": ends with something other than what that rank has"
                                      : ": ends with something other than the root's value"));
    }
    if (!reduces || expected == last_checked) continue;
    HEDDLE_TRY(check_complete(expressions, expected, c));
    if (first.in_order && !expressions.in_order(expected, 0, topology.size())) {
      return bad(0, " chunk " + std::to_string(c) + ": promises rank order, but folds in another order");
    }
    last_checked = expected;
  }
  return {};
}

}  // namespace

Status verify(const TopologyView& topology, const std::function<Schedule(std::int32_t rank)>& schedule_of) {
  std::vector<Schedule> schedules;
  schedules.reserve(static_cast<std::size_t>(topology.size()));
  for (std::int32_t rank = 0; rank < topology.size(); ++rank)
    schedules.push_back(schedule_of(rank));
  HEDDLE_TRY(check_agreement(topology, schedules));
  for (std::int32_t rank = 0; rank < topology.size(); ++rank) {
    HEDDLE_TRY(check_steps(topology, rank, schedules[static_cast<std::size_t>(rank)]));
  }
  SymbolicRun run(topology, schedules);
  HEDDLE_TRY(run.run());
  return check_result(topology, schedules.front(), run);
}

}  // namespace heddle
