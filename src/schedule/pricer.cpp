#include "schedule/pricer.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <span>
#include <vector>

#include "base/fifo.hpp"
#include "schedule/cursor.hpp"
#include "schedule/split.hpp"

namespace heddle {
namespace {

// A simulation by events in the order of time. A rank runs on by itself until it blocks, which may take it
// ahead of the others, but nothing it does takes effect on others before the time of the event that let it
// run.
class PricedRun {
 public:
  // `streams` null: a vector of `bytes`.
  PricedRun(const TopologyView& topology, const std::vector<Schedule>& schedules, std::size_t bytes,
            const StreamCosts* streams, const CostModel& model);
  double finish_ns(double give_up_ns);

 private:
  struct Op {
    double opened_ns;
    double done_ns;  // once matched
    bool matched;
    std::span<std::uint32_t> met;  // streams, of a receive: what it fills
  };
  struct Send {
    std::int32_t sender;
    std::uint64_t number;
    double leaves_ns;  // when its first byte enters the sender's link
    double bytes;
    std::uint32_t met;  // streams: contributions
    double reading_ns;  // streams: what the receiver does with them
  };
  // Free from then on; what a message holds of it.
  struct Link {
    double send_ns = 0;
    double receive_ns = 0;
  };
  // At the door of a link: of the receiver's, or still of the sender's.
  struct Message {
    Send send;
    std::uint64_t receive;  // number of the operation that takes it
    std::uint8_t lane;
    bool leaving;  // not on its way yet
  };
  // A rank's turn, or a message's to this rank. Equal times: in the order of creation. Small, since they are moved about most of the time.
  struct Event {
    double at_ns;
    std::uint64_t order;
    std::int32_t rank;
    std::uint32_t message;  // where in messages_, or kTurn
    bool operator>(const Event& o) const { return at_ns != o.at_ns ? at_ns > o.at_ns : order > o.order; }
  };
  static constexpr std::uint32_t kTurn = UINT32_MAX;
  // Messages of one sender on one lane. At most one of the queues holds something.
  struct Channel {
    std::int32_t source;
    std::uint8_t lane;
    Fifo<Send> sends;
    Fifo<std::uint64_t> receives;  // numbers of operations
  };
  struct Rank {
    explicit Rank(const Schedule& s) : cursor(s), met(s.chunks), met_scratch(s.scratch_units) {}
    Cursor cursor;
    double now_ns = 0;
    Link link;
    Fifo<Op> open;
    std::uint64_t retired = 0;
    std::uint64_t wait_until = 0;  // while blocked in a wait: the first operation that may stay open
    std::uint32_t unmatched = 0;   // while blocked in a wait: operations before it without their other half
    bool finished = false;
    std::vector<Channel> from;
    // Streams: how many ranks' contributions each chunk and each unit of scratch holds.
    std::vector<std::uint32_t> met;
    std::vector<std::uint32_t> met_scratch;
  };

  Rank& at(std::int32_t rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const LevelCost& level(std::int32_t a, std::int32_t b) const {
    return level_cost(*topology_, *model_, a, b);
  }
  Link& node_link(std::int32_t rank) {
    return node_links_[static_cast<std::size_t>(topology_->node_of(rank))];
  }
  double bytes_of(const Cursor& cursor) const {
    return static_cast<double>(split_.length(cursor.chunk(), cursor.step().count));
  }
  // Streams: what a step addresses, as numbers of contributions. All chunks of one step have as many.
  static std::span<std::uint32_t> met_at(Rank& r, Slot slot) {
    if (slot == Slot::scratch) return std::span(r.met_scratch).subspan(r.cursor.unit(), 1);
    return std::span(r.met).subspan(r.cursor.chunk(), r.cursor.step().count);
  }
  std::uint32_t all_met() const { return static_cast<std::uint32_t>(ranks_.size()); }
  std::uint32_t contributions(Rank& r, Slot slot) const {
    return slot == Slot::input ? 1 : std::min(met_at(r, slot)[0], all_met());
  }
  double share(const Cursor& cursor, const std::vector<double>& whole, std::uint32_t met) const {
    return whole[met] * cursor.step().count / static_cast<double>(chunks_);
  }
  void reduce(Rank& r);
  void copy(Rank& r);
  void run(std::int32_t rank);
  void open_send(std::int32_t rank);
  void open_receive(std::int32_t rank);
  void leave(Send send, std::int32_t receiver, std::uint8_t lane);
  void matched(const Send& send, std::int32_t receiver, std::uint64_t number);
  void transfer(const Message& message, double at_ns, std::int32_t receiver);
  void turn(double at_ns, std::int32_t rank) { events_.push({at_ns, order_++, rank, kTurn}); }
  void message_at(double at_ns, std::int32_t receiver, const Message& message);
  Message take_message(std::uint32_t place);
  void complete(std::int32_t rank, std::uint64_t number, double done_ns);
  bool wait(Rank& r);
  bool enter_team(std::int32_t rank);
  static Channel& channel(Rank& receiver, std::int32_t source, std::uint8_t lane);

  const TopologyView* topology_;
  const CostModel* model_;
  const StreamCosts* streams_;
  std::uint32_t chunks_;
  Split split_;
  std::vector<Rank> ranks_;
  std::vector<Link> node_links_;                    // that the ranks of a node share
  std::vector<std::vector<std::int32_t>> arrived_;  // per team: members inside the team verb
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Message> messages_;             // of events
  std::vector<std::uint32_t> free_messages_;  // places in it
  std::uint64_t order_ = 0;
};

PricedRun::PricedRun(const TopologyView& topology, const std::vector<Schedule>& schedules, std::size_t bytes,
                     const StreamCosts* streams, const CostModel& model)
    : topology_(&topology),
      model_(&model),
      streams_(streams),
      chunks_(schedules.front().chunks),
      split_(bytes, schedules.front().chunks),
      node_links_(static_cast<std::size_t>(topology.nodes())),
      arrived_(static_cast<std::size_t>(topology.teams())) {
  ranks_.reserve(schedules.size());
  for (const Schedule& s : schedules)
    ranks_.emplace_back(s);
}

// Events come in the order of time, so that nothing ends before one that is still to come.
double PricedRun::finish_ns(double give_up_ns) {
  for (std::int32_t rank = 0; rank < topology_->size(); ++rank)
    turn(0, rank);
  while (!events_.empty()) {
    const Event event = events_.top();
    if (event.at_ns > give_up_ns) return event.at_ns;
    events_.pop();
    if (event.message == kTurn) {
      run(event.rank);
      continue;
    }
    const Message message = take_message(event.message);
    if (message.leaving) {
      leave(message.send, event.rank, message.lane);
    } else {
      transfer(message, event.at_ns, event.rank);
    }
  }
  double last = 0;
  for (const Rank& r : ranks_)
    last = r.finished ? std::max(last, r.now_ns) : std::numeric_limits<double>::infinity();
  return last;
}

void PricedRun::message_at(double at_ns, std::int32_t receiver, const Message& message) {
  if (free_messages_.empty()) {
    free_messages_.push_back(static_cast<std::uint32_t>(messages_.size()));
    messages_.emplace_back();
  }
  const std::uint32_t place = free_messages_.back();
  free_messages_.pop_back();
  messages_[place] = message;
  events_.push({at_ns, order_++, receiver, place});
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
  const Send send{rank, r.retired + r.open.size(), r.now_ns, bytes, met, coding_ns};
  r.open.push({r.now_ns, 0, false, {}});
  // What several ranks share they get in the order of time, and this one may be ahead of the others.
  const std::int32_t node = topology_->node_of(rank);
  if (node != topology_->node_of(step.peer) && topology_->members(node).size() > 1) {
    message_at(r.now_ns, step.peer, {send, 0, step.lane, true});
  } else {
    leave(send, step.peer, step.lane);
  }
}

// The bytes hold the links of both the sender and, to another node, its node; the fixed part of the gap its own alone. While a message
// waits for its rank's own link, which handles others, its node's is there for the neighbours.
void PricedRun::leave(Send send, std::int32_t receiver, std::uint8_t lane) {
  const LevelCost& cost = level(send.sender, receiver);
  Link& own = at(send.sender).link;
  if (topology_->node_of(send.sender) != topology_->node_of(receiver)) {
    Link& shared = node_link(send.sender);
    send.leaves_ns = std::max(send.leaves_ns, shared.send_ns);
    shared.send_ns = send.leaves_ns + cost.gap.per_byte_ns * send.bytes;
  }
  send.leaves_ns = std::max(send.leaves_ns, own.send_ns);
  own.send_ns = send.leaves_ns + cost.gap.at(send.bytes);
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
  const double latency_ns = level(send.sender, receiver).latency_ns;
  const Op& op = r.open[number - r.retired];
  std::ranges::fill(op.met, send.met);
  const double arrives_ns = std::max(send.leaves_ns + latency_ns, op.opened_ns);
  message_at(arrives_ns, receiver, {send, number, 0, false});
}

void PricedRun::transfer(const Message& message, double at_ns, std::int32_t receiver) {
  const Send& send = message.send;
  Rank& r = at(receiver);
  const LevelCost& cost = level(send.sender, receiver);
  double begins_ns = at_ns;
  if (topology_->node_of(send.sender) != topology_->node_of(receiver)) {
    Link& shared = node_link(receiver);
    begins_ns = std::max(begins_ns, shared.receive_ns);
    shared.receive_ns = begins_ns + cost.gap.per_byte_ns * send.bytes;
  }
  begins_ns = std::max(begins_ns, r.link.receive_ns);
  const double in_ns = begins_ns + cost.receive_gap_ns(send.bytes);
  r.link.receive_ns = in_ns;
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
  turn(resumes_ns, rank);
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
  std::vector<std::int32_t>& arrived = arrived_[static_cast<std::size_t>(topology_->team_of(kind, rank))];
  arrived.push_back(rank);
  const std::size_t members = topology_->team(kind, rank).size();
  if (arrived.size() < members) return false;
  double end_ns = 0;
  for (const std::int32_t m : arrived)
    end_ns = std::max(end_ns, at(m).now_ns);
  const Rank& r = at(rank);
  end_ns += team_verb_ns(r.cursor.step(), bytes_of(r.cursor), members, *model_);
  for (const std::int32_t m : arrived) {
    at(m).now_ns = end_ns;
    if (m == rank) continue;
    at(m).cursor.advance();
    turn(end_ns, m);
  }
  arrived.clear();
  return true;
}

std::vector<Schedule> all_of(const TopologyView& topology, const ScheduleOf& schedule_of) {
  std::vector<Schedule> schedules;
  schedules.reserve(static_cast<std::size_t>(topology.size()));
  for (std::int32_t rank = 0; rank < topology.size(); ++rank)
    schedules.push_back(schedule_of(rank));
  return schedules;
}

}  // namespace

const LevelCost& level_cost(const TopologyView& topology, const CostModel& model, std::int32_t a,
                            std::int32_t b) {
  static constexpr LevelCost kFree{};
  if (model.levels.empty()) return kFree;
  int l = 0;
  while (l < topology.levels() && topology.group_of(l, a) != topology.group_of(l, b))
    ++l;
  return model.levels[std::min(static_cast<std::size_t>(l), model.levels.size() - 1)];
}

double team_verb_ns(const Step& step, double bytes, std::size_t members, const CostModel& model) {
  if (members == 1) {
    const bool copies = step.kind != StepKind::team_bcast && step.dst != step.src;
    return copies ? model.copy.at(bytes) : 0;
  }
  const auto m = static_cast<double>(members);
  const CostModel::TeamCost& cost = model.team[step.lane];
  return std::min(m * cost.small.at(bytes), m * cost.large.fixed_ns + bytes * cost.large.per_byte_ns);
}

double price(const TopologyView& topology, const ScheduleOf& schedule_of, std::size_t bytes,
             const CostModel& model, double give_up_ns) {
  return PricedRun(topology, all_of(topology, schedule_of), bytes, nullptr, model).finish_ns(give_up_ns);
}

double price_streams(const TopologyView& topology, const ScheduleOf& schedule_of, const StreamCosts& streams,
                     const CostModel& model, double give_up_ns) {
  return PricedRun(topology, all_of(topology, schedule_of), 0, &streams, model).finish_ns(give_up_ns);
}

}  // namespace heddle
