#include "engine/message_run.hpp"

#include <algorithm>
#include <string>

namespace heddle {

Status MessageRun::begin() {
  if (active()) return Status(Code::internal, "a schedule was started while it was running");
  cursor_.emplace(*schedule_);
  opened_ = 0;
  return {};
}

Status MessageRun::open_step() {
  const Step& step = cursor_->step();
  Transport* transport = ports_->transport_of[static_cast<std::size_t>(step.peer)];
  if (transport == nullptr)
    return Status(Code::unsupported, "no transport reaches rank " + std::to_string(step.peer));
  const Slot slot = step.kind == StepKind::send ? step.src : step.dst;
  open_.push_back({step, cursor_->chunk(), unit_of(*cursor_, slot), false, nullptr, opened_++});
  return open(open_.back(), *transport);
}

Status MessageRun::move_messages() {
  for (Transport* transport : ports_->transports)
    HEDDLE_TRY(transport->progress());
  // Oldest first: what one peer sends in several parts is opened in its order.
  for (std::size_t i = 0; i < open_.size(); ++i) {
    if (!open_[i].done && !comes_later(i)) HEDDLE_TRY(move(open_[i]));
  }
  return {};
}

// Whether a message between the same two, on the same lane, is first.
bool MessageRun::comes_later(std::size_t place) const {
  const Step& step = open_[place].step;
  return std::any_of(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(place),
                     [&](const Open& each) {
                       return each.step.kind == step.kind && each.step.peer == step.peer &&
                              each.step.lane == step.lane && !each.done && !has_begun(each);
                     });
}

// Frees finished messages from the oldest on; true when no more than `may_stay_open` are left.
bool MessageRun::retire(std::uint32_t may_stay_open) {
  std::size_t finished = 0;
  while (open_.size() - finished > may_stay_open && open_[finished].done)
    close(open_[finished++]);
  open_.erase(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(finished));
  return open_.size() <= may_stay_open;
}

// What is still open may be what the others need to join in.
Status MessageRun::run_team(bool* done) {
  if (!team_.active()) {
    const TeamOperands given = operands();
    if (given.fold == nullptr)
      return Status(Code::internal, "a schedule with team verbs was given to what runs messages alone");
    if (ports_->teams[cursor_->step().lane] == nullptr)
      return Status(Code::internal, "a schedule has a verb of a team in which this rank is alone");
    team_.start(cursor_->step(), *ports_, given);
  }
  *done = team_.poll();
  if (*done) return {};
  return open_.empty() ? move_unsettled(*ports_) : move_messages();
}

Status MessageRun::poll(bool* done) {
  *done = false;
  for (; !cursor_->done(); cursor_->advance()) {
    switch (cursor_->step().kind) {
      case StepKind::send:
      case StepKind::recv:
        HEDDLE_TRY(open_step());
        break;
      case StepKind::reduce:
        HEDDLE_TRY(fold());
        break;
      case StepKind::copy:
        copy();
        break;
      case StepKind::wait:
        if (retire(cursor_->step().count)) break;
        HEDDLE_TRY(move_messages());
        if (!retire(cursor_->step().count)) return {};
        break;
      case StepKind::repeat:  // the cursor never rests on one
        break;
      case StepKind::team_reduce:
      case StepKind::team_bcast:
      case StepKind::team_allreduce:
      case StepKind::team_allgather: {
        bool through = false;
        HEDDLE_TRY(run_team(&through));
        if (!through) return {};
        break;
      }
    }
  }
  cursor_.reset();
  end();
  *done = true;
  return {};
}

void MessageRun::abandon() {
  for (Open& each : open_)
    close(each);
  open_.clear();
  team_.forget();
  cursor_.reset();
}

Waiting MessageRun::waiting_for() const {
  if (team_.active()) return team_.waiting_for();
  for (const Open& each : open_) {
    if (!each.done) return {Waiting::On::rank, each.step.peer};
  }
  return {};
}

}  // namespace heddle
