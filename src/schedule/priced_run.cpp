#include "schedule/priced_run.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace heddle {

PricedRun::PricedRun(const TopologyView& topology, const std::vector<Schedule>& schedules, std::size_t bytes,
                     const StreamCosts* streams, const CostModel& model)
    : topology_(&topology),
      model_(&model),
      streams_(streams),
      chunks_(schedules.front().chunks),
      split_(bytes, schedules.front().chunks),
      node_links_(static_cast<std::size_t>(topology.nodes())),
      teams_(static_cast<std::size_t>(topology.teams())) {
  ranks_.reserve(schedules.size());
  for (const Schedule& s : schedules)
    ranks_.emplace_back(s);
  for (std::size_t rank = 0; streams != nullptr && rank < ranks_.size(); ++rank) {
    ranks_[rank].met.resize(schedules[rank].chunks);
    ranks_[rank].met_scratch.resize(schedules[rank].scratch_units);
  }
  for (std::int32_t rank = 0; streams == nullptr && rank < topology.size(); ++rank)
    count_work(rank, schedules[static_cast<std::size_t>(rank)]);
}

// What every message of the schedule holds of its links, with the shortest chunks that there are.
void PricedRun::count_work(std::int32_t rank, const Schedule& schedule) {
  std::size_t end = 0;
  double times = 1;
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    if (i == end) times = 1;
    if (step.kind == StepKind::repeat) {
      end = i + 1 + static_cast<std::size_t>(step.peer);
      times = step.count;
    }
    const bool sends = step.kind == StepKind::send;
    if (!sends && step.kind != StepKind::recv) continue;
    const LevelCost& cost = level(rank, step.peer);
    const double bytes = static_cast<double>(split_.quotient * step.count);
    Link& own = at(rank).link;
    (sends ? own.send : own.receive).left_ns +=
        times * (sends ? cost.gap.at(bytes) : cost.receive_gap_ns(bytes));
    if (topology_->node_of(rank) == topology_->node_of(step.peer)) continue;
    Link& shared = node_link(rank);
    (sends ? shared.send : shared.receive).left_ns += times * cost.gap.per_byte_ns * bytes;
  }
  const Link& own = at(rank).link;
  const Link& shared = node_link(rank);
  for (const Way& way : {own.send, own.receive, shared.send, shared.receive})
    due(way.left_ns);
}

// Events come in the order of time, so that nothing ends before one that is still to come.
double PricedRun::finish_ns(double give_up_ns) {
  // Sums in another order differ in their last bits.
  const double most_due_ns = give_up_ns * (1 + 1e-9);
  for (std::int32_t rank = 0; rank < topology_->size(); ++rank)
    turn(0, Turn::rank, rank);
  while (!events_.empty()) {
    const double at_ns = events_.next_ns();
    if (at_ns > give_up_ns) return at_ns;
    if (due_ns_ > most_due_ns) return due_ns_;
    take_turn(events_.pop(), at_ns);
  }
  double last = 0;
  for (const Rank& r : ranks_)
    last = r.finished ? std::max(last, r.now_ns) : std::numeric_limits<double>::infinity();
  return last;
}

void PricedRun::take_turn(std::uint32_t event, double at_ns) {
  const std::uint32_t number = event & kNumber;
  switch (static_cast<Turn>(event & ~kNumber)) {
    case Turn::rank:
      run(static_cast<std::int32_t>(number));
      break;
    case Turn::team: {
      // The last of them may complete the team's next verb, and thereby become one of those that leave that.
      const Team& team = teams_[number];
      const std::size_t members = team.leaving.size();
      for (std::size_t i = 0; i < members; ++i)
        run(team.leaving[i]);
      break;
    }
    case Turn::message: {
      const Message message = take_message(number);
      if (message.leaving) {
        leave(message.send, message.receiver, message.lane);
      } else {
        transfer(message, at_ns);
      }
      break;
    }
  }
}

void PricedRun::message_at(double at_ns, const Message& message) {
  if (free_messages_.empty()) {
    free_messages_.push_back(static_cast<std::uint32_t>(messages_.size()));
    messages_.emplace_back();
  }
  const std::uint32_t place = free_messages_.back();
  free_messages_.pop_back();
  messages_[place] = message;
  turn(at_ns, Turn::message, static_cast<std::int32_t>(place));
}

PricedRun::Message PricedRun::take_message(std::uint32_t place) {
  free_messages_.push_back(place);
  return messages_[place];
}

void PricedRun::run(std::int32_t rank) {
  Rank& r = at(rank);
  for (; !r.cursor.done(); r.cursor.advance()) {
    switch (r.cursor.step().kind) {
      case StepKind::send:
        open_send(rank);
        break;
      case StepKind::recv:
        open_receive(rank);
        break;
      case StepKind::reduce:
        reduce(r);
        break;
      case StepKind::copy:
        copy(r);
        break;
      case StepKind::wait:
        if (!wait(r)) return;
        break;
      case StepKind::team_reduce:
      case StepKind::team_bcast:
      case StepKind::team_allreduce:
      case StepKind::team_allgather:
        if (!enter_team(rank)) return;
        break;
      case StepKind::repeat:
        break;
    }
  }
  r.finished = true;
}

PricedRun::Channel& PricedRun::channel(Rank& receiver, std::int32_t source, std::uint8_t lane) {
  for (Channel& c : receiver.from) {
    if (c.source == source && c.lane == lane) return c;
  }
  return receiver.from.emplace_back(Channel{source, lane, {}, {}});
}

void PricedRun::reduce(Rank& r) {
  if (streams_ == nullptr) {
    r.now_ns += model_->fold.at(bytes_of(r.cursor));
    return;
  }
  const Step& step = r.cursor.step();
  const std::uint32_t left = contributions(r, step.dst);
  const std::uint32_t right = contributions(r, step.src);
  const double entries = share(r.cursor, streams_->entries, left) + share(r.cursor, streams_->entries, right);
  r.now_ns += model_->fold.fixed_ns + entries * streams_->fold_ns_per_entry;
  std::ranges::fill(met_at(r, step.dst), std::min(left + right, all_met()));
}

// A stream is borrowed.
void PricedRun::copy(Rank& r) {
  if (streams_ == nullptr) {
    r.now_ns += model_->copy.at(bytes_of(r.cursor));
    return;
  }
  const std::uint32_t met = contributions(r, r.cursor.step().src);
  std::ranges::fill(met_at(r, r.cursor.step().dst), met);
}

void PricedRun::open_send(std::int32_t rank) {
  Rank& r = at(rank);
  const Step& step = r.cursor.step();
  const LevelCost& cost = level(rank, step.peer);
  double bytes = bytes_of(r.cursor);
  std::uint32_t met = 0;
  double coding_ns = 0;
  if (streams_ != nullptr) {
    met = contributions(r, step.src);
    bytes = share(r.cursor, streams_->bytes, met);
    coding_ns = share(r.cursor, streams_->entries, met) * streams_->code_ns_per_entry;
  }
  r.now_ns += coding_ns;
  r.now_ns += cost.overhead_ns;
  const std::int32_t node = topology_->node_of(rank);
  const bool between_nodes = node != topology_->node_of(step.peer);
  const Send send{rank, r.retired + r.open.size(), r.now_ns, bytes, met, coding_ns, &cost, between_nodes};
  r.open.push({r.now_ns, 0, false, {}});
  // What several ranks share they get in the order of time, and this one may be ahead of the others.
  if (between_nodes && topology_->members(node).size() > 1) {
    message_at(r.now_ns, {send, step.peer, 0, step.lane, true});
  } else {
    leave(send, step.peer, step.lane);
  }
}

// The bytes hold the links of both the sender and, to another node, its node; the fixed part of the gap its
// own alone. While a message waits for its rank's own link, which handles others, its node's is there for the
// neighbours.
void PricedRun::leave(Send send, std::int32_t receiver, std::uint8_t lane) {
  const LevelCost& cost = *send.cost;
  Link& own = at(send.sender).link;
  if (send.between_nodes) {
    Link& shared = node_link(send.sender);
    send.leaves_ns = std::max(send.leaves_ns, shared.send.free_ns);
    due(shared.send.hold(send.leaves_ns, cost.gap.per_byte_ns * send.bytes));
  }
  send.leaves_ns = std::max(send.leaves_ns, own.send.free_ns);
  due(own.send.hold(send.leaves_ns, cost.gap.at(send.bytes)));
  Channel& c = channel(at(receiver), send.sender, lane);
  if (c.receives.empty()) {
    c.sends.push(send);
    return;
  }
  const std::uint64_t number = c.receives.front();
  c.receives.pop();
  matched(send, receiver, number);
}

void PricedRun::open_receive(std::int32_t rank) {
  Rank& r = at(rank);
  const Step& step = r.cursor.step();
  const std::uint64_t number = r.retired + r.open.size();
  r.open.push({r.now_ns, 0, false, streams_ != nullptr ? met_at(r, step.dst) : std::span<std::uint32_t>()});
  Channel& c = channel(r, step.peer, step.lane);
  if (c.sends.empty()) {
    c.receives.push(number);
    return;
  }
  const Send send = c.sends.front();
  c.sends.pop();
  matched(send, rank, number);
}

// The latency runs from the moment the message leaves; the receiver's link takes the bytes in once the
// receive is open. So a late receiver still pays for the bytes, but no longer for the latency, and it holds
// the sender back.
void PricedRun::matched(const Send& send, std::int32_t receiver, std::uint64_t number) {
  Rank& r = at(receiver);
  const Op& op = r.open[number - r.retired];
  std::ranges::fill(op.met, send.met);
  const double arrives_ns = std::max(send.leaves_ns + send.cost->latency_ns, op.opened_ns);
  message_at(arrives_ns, {send, receiver, number, 0, false});
}

void PricedRun::transfer(const Message& message, double at_ns) {
  const Send& send = message.send;
  const std::int32_t receiver = message.receiver;
  Rank& r = at(receiver);
  const LevelCost& cost = *send.cost;
  double begins_ns = at_ns;
  if (send.between_nodes) {
    Link& shared = node_link(receiver);
    begins_ns = std::max(begins_ns, shared.receive.free_ns);
    due(shared.receive.hold(begins_ns, cost.gap.per_byte_ns * send.bytes));
  }
  begins_ns = std::max(begins_ns, r.link.receive.free_ns);
  due(r.link.receive.hold(begins_ns, cost.receive_gap_ns(send.bytes)));
  const double in_ns = r.link.receive.free_ns;
  complete(receiver, message.receive, in_ns + send.reading_ns);
  complete(send.sender, send.number,
           std::max(send.leaves_ns + cost.gap.at(send.bytes), in_ns - cost.latency_ns));
}

void PricedRun::complete(std::int32_t rank, std::uint64_t number, double done_ns) {
  Rank& r = at(rank);
  Op& op = r.open[number - r.retired];
  op.done_ns = done_ns;
  op.matched = true;
  if (number >= r.wait_until || r.unmatched == 0 || --r.unmatched != 0) return;
  double resumes_ns = r.now_ns;
  for (std::size_t i = 0; i < r.wait_until - r.retired; ++i)
    resumes_ns = std::max(resumes_ns, r.open[i].done_ns);
  turn(resumes_ns, Turn::rank, rank);
}

bool PricedRun::wait(Rank& r) {
  const std::size_t keep = r.cursor.step().count;
  const std::size_t finish = r.open.size() > keep ? r.open.size() - keep : 0;
  double done_ns = r.now_ns;
  r.unmatched = 0;
  for (std::size_t i = 0; i < finish; ++i) {
    r.unmatched += r.open[i].matched ? 0 : 1;
    done_ns = std::max(done_ns, r.open[i].done_ns);
  }
  r.wait_until = r.retired + finish;
  if (r.unmatched != 0) return false;
  r.now_ns = done_ns;
  r.open.pop(finish);
  r.retired += finish;
  return true;
}

bool PricedRun::enter_team(std::int32_t rank) {
  const TeamKind kind = at(rank).cursor.step().team();
  const std::int32_t number = topology_->team_of(kind, rank);
  Team& team = teams_[static_cast<std::size_t>(number)];
  team.arrived.push_back(rank);
  const std::size_t members = topology_->team(kind, rank).size();
  if (team.arrived.size() < members) return false;
  double end_ns = 0;
  for (const std::int32_t m : team.arrived)
    end_ns = std::max(end_ns, at(m).now_ns);
  const Rank& r = at(rank);
  end_ns += team_verb_ns(r.cursor.step(), bytes_of(r.cursor), members, *model_);
  // This rank goes on at once.
  team.arrived.pop_back();
  for (const std::int32_t m : team.arrived) {
    at(m).now_ns = end_ns;
    at(m).cursor.advance();
  }
  at(rank).now_ns = end_ns;
  team.leaving.swap(team.arrived);
  team.arrived.clear();
  if (members > 1) turn(end_ns, Turn::team, number);
  return true;
}

}  // namespace heddle
