#include "comm/internode.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "base/clock.hpp"

namespace heddle {
namespace {

// Nothing else is on its way while a communicator is made.
constexpr std::uint32_t kTag = 0;

// One message out and one in.
class Exchange {
 public:
  Exchange(Transport& transport, const WaitPolicy& policy) : transport_(transport), policy_(policy) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() {
    for (Ticket& each : tickets_)
      transport_.cancel(each);
  }

  Status run(int to, const std::vector<std::byte>& out, int from, std::vector<std::byte>& in,
             std::size_t bytes) {
    tickets_ = {};
    HEDDLE_TRY(transport_.recv(from, kTag, in.data(), bytes, tickets_[0]));
    HEDDLE_TRY(transport_.send(to, kTag, out.data(), bytes, tickets_[1]));
    const auto poll = [&](bool* done) -> Status {
      const auto open = [](const Ticket& each) { return !each.done; };
      if (std::any_of(tickets_.begin(), tickets_.end(), open)) HEDDLE_TRY(transport_.progress());
      *done = std::none_of(tickets_.begin(), tickets_.end(), open);
      return {};
    };
    return wait_until_done(policy_, poll, [&](Patience& patience) -> Status {
      if (transport_.peer_is_gone(from))
        return Status(Code::peer_failed, "rank " + std::to_string(from) + " is gone");
      if (!patience.deadline_passed()) return {};
      return Status(Code::timeout, "no message came from rank " + std::to_string(from) + " within " +
                                       std::to_string(patience.waited().count()) + " ms");
    });
  }

 private:
  Transport& transport_;
  const WaitPolicy& policy_;
  std::array<Ticket, 2> tickets_{};
};

// The middle one of `rounds` exchanges among all nodes. The first is not timed: connections are made for it.
Result<double> time_rounds(Transport& transport, const TopologyView& topology, int rank,
                           const WaitPolicy& policy, std::size_t bytes, int rounds) {
  const std::int32_t nodes = topology.nodes();
  const std::int32_t node = topology.node_of(rank);
  const std::vector<std::byte> out(bytes);
  std::vector<std::byte> in(bytes);
  std::vector<double> times;
  Exchange exchange(transport, policy);
  for (int round = 0; round <= rounds; ++round) {
    const TimePoint start = now(policy.clock);
    for (std::int32_t step = 1; step < nodes; step *= 2) {
      const std::int32_t to = topology.members((node + step) % nodes).front();
      const std::int32_t from = topology.members((node + nodes - step) % nodes).front();
      HEDDLE_TRY(exchange.run(to, out, from, in, bytes));
    }
    if (round > 0)
      times.push_back(std::chrono::duration<double, std::nano>(now(policy.clock) - start).count());
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<std::size_t>(rounds / 2)];
}

}  // namespace

Result<InternodeTimes> time_internode(Transport& transport, const TopologyView& topology, int rank,
                                      const WaitPolicy& policy) {
  constexpr int kSmallRounds = 15;
  constexpr int kLargeRounds = 5;
  if (topology.members(topology.node_of(rank)).front() != rank) return InternodeTimes{};
  const Result<double> small =
      time_rounds(transport, topology, rank, policy, InternodeTimes::kSmall, kSmallRounds);
  HEDDLE_TRY(small.status());
  const Result<double> large =
      time_rounds(transport, topology, rank, policy, InternodeTimes::kLarge, kLargeRounds);
  HEDDLE_TRY(large.status());
  return InternodeTimes{small.value(), large.value()};
}

std::size_t fastest(std::span<const InternodeTimes> ways) {
  constexpr double kClearly = 1.1;
  const auto cost = [](const InternodeTimes& way) { return way.small_ns * way.large_ns; };
  std::size_t best = 0;
  for (std::size_t i = 1; i < ways.size(); ++i) {
    if (cost(ways[i]) * kClearly * kClearly < cost(ways[best])) best = i;
  }
  return best;
}

}  // namespace heddle
