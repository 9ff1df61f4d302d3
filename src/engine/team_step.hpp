// A verb of a team as a step of a schedule.
#pragma once

#include <cstddef>

#include "base/dtype.hpp"
#include "engine/ports.hpp"
#include "transports/team.hpp"

namespace heddle {

// What it is given, beside what the step says.
struct TeamOperands {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;  // elements, of an allgather of all members together
  std::size_t element_bytes = 1;
  FoldFn fold = nullptr;
  FoldKind kind = 0;  // as in Binding
};

// One at a time.
class TeamStep {
 public:
  bool active() const { return team_ != nullptr; }
  void start(const Step& step, const Ports& ports, const TeamOperands& operands) {
    team_ = ports.teams[step.lane];
    kind_ = step.team();
    op_ = TeamOp{};
    op_.verb = step.kind == StepKind::team_allreduce ? TeamVerb::allreduce
               : step.kind == StepKind::team_reduce  ? TeamVerb::reduce
               : step.kind == StepKind::team_bcast   ? TeamVerb::bcast
                                                     : TeamVerb::allgather;
    op_.in = operands.in;
    op_.out = operands.out;
    op_.count = operands.count;
    op_.element_bytes = operands.element_bytes;
    op_.fold = operands.fold;
    if (step.kind == StepKind::team_allreduce) {
      op_.kind = operands.kind;
    } else if (step.kind == StepKind::team_allgather) {
      op_.count /= step.count;
      op_.in = op_.out + static_cast<std::size_t>(team_->rank()) * op_.count * op_.element_bytes;
    } else {
      op_.root = step.peer;
    }
    team_->start(op_);
  }
  // True when it is complete, and another one may start. Only while it is active.
  bool poll() {
    if (!team_->poll(op_)) return false;
    team_ = nullptr;
    return true;
  }
  void forget() { team_ = nullptr; }
  // Only while it is active.
  Waiting waiting_for() const {
    return {Waiting::On::member, team_->missing(op_), kind_, team_->clash(op_), team_->passed(op_)};
  }

 private:
  TeamOp op_;
  Team* team_ = nullptr;
  TeamKind kind_ = TeamKind::node;
};

}  // namespace heddle
