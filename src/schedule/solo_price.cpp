// One rank by itself, for machines of too many ranks to run them all.
#include <algorithm>
#include <array>

#include "base/fifo.hpp"
#include "schedule/cursor.hpp"
#include "schedule/pricer.hpp"
#include "schedule/split.hpp"

namespace heddle {
namespace {

class SoloRun {
 public:
  SoloRun(const TopologyView& topology, const Schedule& schedule, std::int32_t rank, std::size_t bytes,
          const CostModel& model)
      : topology_(topology), model_(model), rank_(rank), split_(bytes, schedule.chunks), cursor_(schedule) {}
  double finish_ns();

 private:
  struct Op {
    double opened_ns;
    double done_ns;
    bool matched;
    const LevelCost* cost;
    double bytes;
  };
  // Of one lane. Numbers count all operations from the first on.
  struct Lane {
    Fifo<double> sends;            // when they left, those that no receive has met
    Fifo<std::uint64_t> receives;  // that no send has met
  };

  double bytes() const { return static_cast<double>(split_.length(cursor_.chunk(), cursor_.step().count)); }
  void step();
  void open_send(const Step& step);
  void open_receive(const Step& step);
  void match(Op& op, double leaves_ns);
  void wait(std::size_t keep);
  void end_of_iteration();
  void shift(double ns);

  const TopologyView& topology_;
  const CostModel& model_;
  std::int32_t rank_;
  Split split_;
  Cursor cursor_;
  double now_ns_ = 0;
  double send_link_free_ns_ = 0;
  double receive_link_free_ns_ = 0;
  Fifo<Op> open_;
  std::uint64_t retired_ = 0;
  std::array<Lane, kLanes> lanes_;
  double early_ns_ = 0;  // at the end of an early iteration of the repeat
};

double SoloRun::finish_ns() {
  while (!cursor_.done()) {
    step();
    const std::uint32_t iteration = cursor_.iteration();
    cursor_.advance();
    if (cursor_.iteration() == iteration + 1) end_of_iteration();
  }
  wait(0);
  return now_ns_;
}

// Once a repeat runs evenly every further iteration takes as long.
void SoloRun::end_of_iteration() {
  constexpr std::uint32_t kEarly = 4;
  constexpr std::uint32_t kEven = 8;
  if (cursor_.iteration() == kEarly) early_ns_ = now_ns_;
  if (cursor_.iteration() != kEven || cursor_.iterations_left() < 2) return;
  const std::uint32_t skipped = cursor_.iterations_left() - 1;
  cursor_.skip_iterations(skipped);
  shift((now_ns_ - early_ns_) / (kEven - kEarly) * skipped);
}

void SoloRun::shift(double ns) {
  now_ns_ += ns;
  send_link_free_ns_ += ns;
  receive_link_free_ns_ += ns;
  for (std::size_t i = 0; i < open_.size(); ++i) {
    open_[i].opened_ns += ns;
    open_[i].done_ns += ns;
  }
  for (Lane& lane : lanes_) {
    for (std::size_t i = 0; i < lane.sends.size(); ++i)
      lane.sends[i] += ns;
  }
}

void SoloRun::step() {
  const Step& step = cursor_.step();
  switch (step.kind) {
    case StepKind::send:
      open_send(step);
      break;
    case StepKind::recv:
      open_receive(step);
      break;
    case StepKind::reduce:
      now_ns_ += model_.fold.at(bytes());
      break;
    case StepKind::copy:
      now_ns_ += model_.copy.at(bytes());
      break;
    case StepKind::wait:
      wait(step.count);
      break;
    case StepKind::team_reduce:
    case StepKind::team_bcast:
    case StepKind::team_allreduce:
    case StepKind::team_allgather:
      now_ns_ += team_verb_ns(step, bytes(), topology_.team(step.team(), rank_).size(), model_);
      break;
    case StepKind::repeat:
      break;
  }
}

void SoloRun::open_send(const Step& step) {
  const LevelCost& cost = level_cost(topology_, model_, rank_, step.peer);
  const double size = bytes();
  now_ns_ += cost.overhead_ns;
  const double leaves_ns = std::max(now_ns_, send_link_free_ns_);
  send_link_free_ns_ = leaves_ns + cost.gap.at(size);
  open_.push({now_ns_, send_link_free_ns_, true, &cost, size});
  Lane& lane = lanes_[step.lane];
  if (lane.receives.empty()) {
    lane.sends.push(leaves_ns);
    return;
  }
  const std::uint64_t number = lane.receives.front();
  lane.receives.pop();
  if (number >= retired_ && !open_[number - retired_].matched) match(open_[number - retired_], leaves_ns);
}

void SoloRun::open_receive(const Step& step) {
  const std::uint64_t number = retired_ + open_.size();
  open_.push({now_ns_, 0, false, &level_cost(topology_, model_, rank_, step.peer), bytes()});
  Lane& lane = lanes_[step.lane];
  if (lane.sends.empty()) {
    lane.receives.push(number);
    return;
  }
  const double leaves_ns = lane.sends.front();
  lane.sends.pop();
  match(open_[number - retired_], leaves_ns);
}

void SoloRun::match(Op& op, double leaves_ns) {
  const double arrives_ns = std::max(leaves_ns + op.cost->latency_ns, op.opened_ns);
  op.done_ns = std::max(arrives_ns, receive_link_free_ns_) + op.cost->receive_gap_ns(op.bytes);
  op.matched = true;
  receive_link_free_ns_ = op.done_ns;
}

// What no send of this rank corresponds to left when the receive was opened.
void SoloRun::wait(std::size_t keep) {
  while (open_.size() > keep) {
    Op& op = open_.front();
    if (!op.matched) match(op, op.opened_ns);
    now_ns_ = std::max(now_ns_, op.done_ns);
    open_.pop();
    ++retired_;
  }
}

}  // namespace

double price_alone(const TopologyView& topology, const Schedule& schedule, std::int32_t rank,
                   std::size_t bytes, const CostModel& model) {
  return SoloRun(topology, schedule, rank, bytes, model).finish_ns();
}

}  // namespace heddle
