#include "setup/internode.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/clock.hpp"

namespace heddle {
namespace {

// Nothing else is on its way while a communicator is made.
constexpr std::uint32_t kTag = 0;

// One message out and one in.
class PairExchange {
 public:
  PairExchange(Transport& transport, const WaitPolicy& policy) : transport_(transport), policy_(policy) {}
  PairExchange(const PairExchange&) = delete;
  PairExchange& operator=(const PairExchange&) = delete;
  ~PairExchange() {
    for (Ticket& each : tickets_)
      transport_.cancel(each);
  }

  Status run(int to, int from, std::size_t bytes) {
    tickets_ = {};
    out_.resize(bytes);
    in_.resize(bytes);
    HEDDLE_TRY(transport_.recv(from, kTag, in_.data(), bytes, tickets_[0]));
    HEDDLE_TRY(transport_.send(to, kTag, out_.data(), bytes, tickets_[1]));
    const auto poll = [&](bool* done) -> Status {
      const auto open = [](const Ticket& each) { return !each.done; };
      if (std::any_of(tickets_.begin(), tickets_.end(), open)) HEDDLE_TRY(transport_.progress());
      *done = std::none_of(tickets_.begin(), tickets_.end(), open);
      return {};
    };
    return wait_until_done(policy_, poll, [&](Patience& patience) -> Status {
      const bool receives = !tickets_[0].done;
      const int missing = receives ? from : to;
      if (transport_.peer_is_gone(missing))
        return Status(Code::peer_failed, "rank " + std::to_string(missing) + " is gone");
      if (!patience.deadline_passed()) return {};
      return Status(Code::timeout, (receives ? "no message came from rank " : "no message went to rank ") +
                                       std::to_string(missing) + " within " +
                                       std::to_string(patience.waited().count()) + " ms" +
                                       trouble_with(from) + (to != from ? trouble_with(to) : ""));
    });
  }

 private:
  std::string trouble_with(int rank) const {
    const std::string trouble = transport_.trouble(rank);
    return trouble.empty() ? "" : "; rank " + std::to_string(rank) + ": " + trouble;
  }

  Transport& transport_;
  const WaitPolicy& policy_;
  std::array<Ticket, 2> tickets_{};
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
};

bool takes_part(const TopologyView& topology, int rank) {
  return topology.members(topology.node_of(rank)).front() == rank;
}

// Each node sends to 1, 2, 4, ... nodes on.
Status exchange_all(PairExchange& exchange, const TopologyView& topology, int rank, std::size_t bytes) {
  const std::int32_t nodes = topology.nodes();
  const std::int32_t node = topology.node_of(rank);
  for (std::int32_t step = 1; step < nodes; step *= 2)
    HEDDLE_TRY(exchange.run(topology.members((node + step) % nodes).front(),
                            topology.members((node + nodes - step) % nodes).front(), bytes));
  return {};
}

// The ways take `turns`; in each turn of a way `timed` exchanges follow `untimed` ones. Of all that are timed
// after the first `skipped` turns the one counts that `place` others are faster than.
struct Rounds {
  int skipped;
  int turns;
  int untimed;
  int timed;
  int place;
};

std::vector<double> time_rounds(std::span<TimedWay> ways, const TopologyView& topology, int rank,
                                std::size_t bytes, const Rounds& rounds) {
  std::vector<std::vector<double>> times(ways.size());
  std::vector<bool> failed(ways.size());
  for (int turn = 0; turn < rounds.turns; ++turn) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const WaitPolicy& policy = ways[i].policy;
      PairExchange exchange(*ways[i].transport, policy);
      for (int k = -rounds.untimed; k < rounds.timed && !failed[i]; ++k) {
        const TimePoint start = now(policy.clock);
        failed[i] = !exchange_all(exchange, topology, rank, bytes).ok();
        const double taken = std::chrono::duration<double, std::nano>(now(policy.clock) - start).count();
        if (k >= 0 && turn >= rounds.skipped) times[i].push_back(taken);
      }
    }
  }
  std::vector<double> chosen;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    if (failed[i]) {
      chosen.push_back(std::numeric_limits<double>::infinity());
      continue;
    }
    std::nth_element(times[i].begin(), times[i].begin() + rounds.place, times[i].end());
    chosen.push_back(times[i][static_cast<std::size_t>(rounds.place)]);
  }
  return chosen;
}

}  // namespace

Status reach_internode(Transport& transport, const TopologyView& topology, int rank,
                       const WaitPolicy& policy) {
  if (!takes_part(topology, rank)) return {};
  PairExchange exchange(transport, policy);
  return exchange_all(exchange, topology, rank, InternodeTimes::kSmall);
}

std::vector<InternodeTimes> time_internode(std::span<TimedWay> ways, const TopologyView& topology, int rank,
                                           bool slow) {
  // A small exchange that follows one of another way takes in how late the others come from that, and ranks
  // have to find their pace: where four shared two cores, TCP seemed to take 43 us beside MPICH's 47, and
  // took 25 beside 35.
  constexpr Rounds kSmall{0, 3, 8, 8, 6};
  constexpr Rounds kLarge{5, 8, 0, 1, 1};
  // Across a continent none of that shows, and an exchange takes a good part of a second.
  constexpr Rounds kFewSmall{0, 1, 1, 3, 1};
  constexpr Rounds kFewLarge{0, 2, 0, 1, 0};
  std::vector<InternodeTimes> times(ways.size());
  if (!takes_part(topology, rank)) return times;
  // Of the large ones those that came when what the network lends was used up, or else the first way in the
  // list would have the best of it.
  const std::vector<double> small =
      time_rounds(ways, topology, rank, InternodeTimes::kSmall, slow ? kFewSmall : kSmall);
  const std::vector<double> large =
      time_rounds(ways, topology, rank, InternodeTimes::kLarge, slow ? kFewLarge : kLarge);
  for (std::size_t i = 0; i < ways.size(); ++i)
    times[i] = {small[i], large[i]};
  return times;
}

double time_crossing(const TimedWay& way, const TopologyView& topology, int rank) {
  constexpr Rounds kRounds{0, 3, 0, 1, 1};
  if (!takes_part(topology, rank)) return 0;
  TimedWay only = way;
  return time_rounds({&only, 1}, topology, rank, InternodeTimes::kLarge, kRounds).front();
}

std::size_t fastest(std::span<const InternodeTimes> ways, bool overlap) {
  constexpr double kHardly = 1.05;
  constexpr double kStandsStill = 1.25;
  const auto cost = [overlap](const InternodeTimes& way) {
    const double factor = overlap && way.lent ? kStandsStill : 1.0;
    return way.small_ns * factor * way.large_ns * factor;
  };
  double least = std::numeric_limits<double>::infinity();
  for (const InternodeTimes& way : ways)
    least = std::min(least, cost(way));
  std::size_t first = 0;
  while (first + 1 < ways.size() && cost(ways[first]) > least * kHardly * kHardly)
    ++first;
  return first;
}

}  // namespace heddle
