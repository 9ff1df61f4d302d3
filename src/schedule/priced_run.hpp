// The pricer's simulation of all ranks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/fifo.hpp"
#include "schedule/cursor.hpp"
#include "schedule/event_queue.hpp"
#include "schedule/pricer.hpp"
#include "schedule/split.hpp"

namespace heddle {

// A simulation by events in the order of time. A rank runs on by itself until it blocks, which may take it
// ahead of the others, but nothing it does takes effect on others before the time of the event that let it
// run.
class PricedRun {
 public:
  // Borrows all of these. `streams` null: a vector of `bytes`.
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
    const LevelCost* cost;
    bool between_nodes;
  };
  // One direction of a link.
  struct Way {
    double free_ns = 0;  // from then on
    double left_ns =
        0;  // what is still to pass takes so long at least; 0 with streams, whose lengths nobody knows yet
    // When all has passed, at the earliest.
    double hold(double from_ns, double ns) {
      free_ns = from_ns + ns;
      left_ns -= ns;
      return free_ns + left_ns;
    }
  };
  struct Link {
    Way send;
    Way receive;
  };
  // At the door of a link: of the receiver's, or still of the sender's.
  struct Message {
    Send send;
    std::int32_t receiver;
    std::uint64_t receive;  // number of the operation that takes it
    std::uint8_t lane;
    bool leaving;  // not on its way yet
  };
  // What an event is: a rank's turn, those of a team's members after a verb, or a message's. The number of
  // one of these in what is left.
  enum class Turn : std::uint32_t { rank = 0, team = 1U << 30, message = 2U << 30 };
  static constexpr std::uint32_t kNumber = (1U << 30) - 1;
  // Messages of one sender on one lane. At most one of the queues holds something.
  struct Channel {
    std::int32_t source;
    std::uint8_t lane;
    Fifo<Send> sends;
    Fifo<std::uint64_t> receives;  // numbers of operations
  };
  struct Rank {
    explicit Rank(const Schedule& s) : cursor(s) {}
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
  struct Team {
    std::vector<std::int32_t> arrived;  // members inside the team verb
    std::vector<std::int32_t>
        leaving;  // it, when it has ended: before they have, none of them comes to the next one
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
  void count_work(std::int32_t rank, const Schedule& schedule);
  void due(double ns) { due_ns_ = std::max(due_ns_, ns); }
  void reduce(Rank& r);
  void copy(Rank& r);
  void run(std::int32_t rank);
  void open_send(std::int32_t rank);
  void open_receive(std::int32_t rank);
  void leave(Send send, std::int32_t receiver, std::uint8_t lane);
  void matched(const Send& send, std::int32_t receiver, std::uint64_t number);
  void transfer(const Message& message, double at_ns);
  void turn(double at_ns, Turn kind, std::int32_t number) {
    events_.push(at_ns, static_cast<std::uint32_t>(kind) | static_cast<std::uint32_t>(number));
  }
  void take_turn(std::uint32_t event, double at_ns);
  void message_at(double at_ns, const Message& message);
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
  std::vector<Link> node_links_;  // that the ranks of a node share
  std::vector<Team> teams_;
  double due_ns_ = 0;  // nobody can be done before that
  EventQueue events_;
  std::vector<Message> messages_;             // of events
  std::vector<std::uint32_t> free_messages_;  // places in it
};

}  // namespace heddle
