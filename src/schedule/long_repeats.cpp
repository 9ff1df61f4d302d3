#include "schedule/long_repeats.hpp"

#include <algorithm>
#include <span>

namespace heddle {
namespace {

// What crosses between ranks in one iteration of all repeats.
class Flow {
 public:
  explicit Flow(const TopologyView& topology)
      : topology_(topology),
        seats_(static_cast<std::size_t>(topology.size())),
        members_(static_cast<std::size_t>(topology.teams())),
        verbs_(members_.size()) {}

  // The body of one of the rank's repeats.
  void add(std::int32_t rank, std::span<const Step> body);
  // Every message has both ends and every team verb all members, so that they still have with fewer
  // iterations; and no rank sends to several others, as in trees, which move an uneven number of pieces in
  // some iterations, or receives from several.
  bool is_ring_or_chain() const { return one_way_ && received_ == 0 && whole_teams(); }
  // From several of its ranks at once a node sends what they have, in an order that changes until the last
  // node has work. Around a ring all of them have from the start; but where it leads through nodes, what
  // comes from another one takes as many iterations to their last rank as they have ranks.
  std::uint32_t filling() const;

 private:
  struct Seat {
    std::int32_t to = kNobody;
    std::int32_t from = kNobody;
  };
  static constexpr std::int32_t kNobody = -1;

  void meet(std::int32_t& whom, std::int32_t peer) {
    if (whom == kNobody) whom = peer;
    if (whom != peer) one_way_ = false;
  }
  bool crosses(std::int32_t rank, std::int32_t peer) const {
    return peer != kNobody && topology_.node_of(rank) != topology_.node_of(peer);
  }
  bool whole_teams() const;

  const TopologyView& topology_;
  std::vector<Seat> seats_;
  // By team: how often its members come to verbs, and its first one.
  std::vector<std::uint64_t> members_;
  std::vector<std::uint64_t> verbs_;
  std::uint64_t received_ = 0;  // a sum over channels, less the same sum of what was sent
  bool one_way_ = true;
};

// Of one channel. Two sums of many are equal by chance only.
std::uint64_t mixed(std::int32_t from, std::int32_t to, int lane) {
  std::uint64_t x = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(from)) << 36) ^
                    (static_cast<std::uint64_t>(static_cast<std::uint32_t>(to)) << 4) ^
                    static_cast<std::uint64_t>(lane);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

void Flow::add(std::int32_t rank, std::span<const Step> body) {
  Seat& seat = seats_[static_cast<std::size_t>(rank)];
  for (const Step& step : body) {
    switch (step.kind) {
      case StepKind::send:
        meet(seat.to, step.peer);
        received_ -= mixed(rank, step.peer, step.lane);
        break;
      case StepKind::recv:
        meet(seat.from, step.peer);
        received_ += mixed(step.peer, rank, step.lane);
        break;
      case StepKind::team_reduce:
      case StepKind::team_bcast:
      case StepKind::team_allreduce:
      case StepKind::team_allgather: {
        const auto team = static_cast<std::size_t>(topology_.team_of(step.team(), rank));
        ++members_[team];
        if (topology_.member_of(step.team(), rank) == 0)
          verbs_[team] += topology_.team(step.team(), rank).size();
        break;
      }
      case StepKind::reduce:
      case StepKind::copy:
      case StepKind::wait:
      case StepKind::repeat:
        break;
    }
  }
}

bool Flow::whole_teams() const {
  return members_ == verbs_;
}

std::uint32_t Flow::filling() const {
  std::vector<std::int32_t> senders(static_cast<std::size_t>(topology_.nodes()));
  std::int32_t most = 0;
  bool ring = true;
  bool stays = false;
  for (std::int32_t rank = 0; rank < topology_.size(); ++rank) {
    const Seat& seat = seats_[static_cast<std::size_t>(rank)];
    if (crosses(rank, seat.to))
      most = std::max(most, ++senders[static_cast<std::size_t>(topology_.node_of(rank))]);
    stays = stays || (seat.to != kNobody && !crosses(rank, seat.to));
    ring = ring && (seat.to == kNobody) == (seat.from == kNobody);
  }
  if (ring) return stays && most > 0 ? static_cast<std::uint32_t>(topology_.most_members()) : 0;
  return most <= 1 ? 0 : static_cast<std::uint32_t>(topology_.nodes());
}

}  // namespace

LongRepeats::LongRepeats(const TopologyView& topology, std::vector<Schedule>& schedules)
    : schedules_(schedules) {
  find();
  if (iterations_ == 0) return;
  Flow flow(topology);
  for (const Repeat& repeat : repeats_) {
    const std::vector<Step>& steps = schedules_[static_cast<std::size_t>(repeat.rank)].steps;
    const auto body = static_cast<std::size_t>(steps[repeat.step].peer);
    flow.add(repeat.rank, std::span(steps).subspan(repeat.step + 1, body));
  }
  filling_ = flow.filling();
  if (!flow.is_ring_or_chain()) iterations_ = 0;
}

// Ranks at either end of a chain begin or end some iterations apart, and leave these out of the repeat: so
// all that are not half as long as the longest are part of it.
void LongRepeats::find() {
  std::uint32_t most = 0;
  for (const Schedule& schedule : schedules_) {
    for (const Step& step : schedule.steps)
      if (step.kind == StepKind::repeat) most = std::max(most, step.count);
  }
  iterations_ = most;
  for (std::size_t rank = 0; most > 0 && rank < schedules_.size(); ++rank) {
    const std::vector<Step>& steps = schedules_[rank].steps;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].kind != StepKind::repeat || steps[i].count <= most / 2) continue;
      repeats_.push_back({static_cast<std::int32_t>(rank), i, steps[i].count});
      iterations_ = std::min(iterations_, steps[i].count);
    }
  }
}

void LongRepeats::shorten(std::uint32_t iterations) {
  for (const Repeat& repeat : repeats_)
    schedules_[static_cast<std::size_t>(repeat.rank)].steps[repeat.step].count =
        repeat.iterations - (iterations_ - iterations);
}

}  // namespace heddle
