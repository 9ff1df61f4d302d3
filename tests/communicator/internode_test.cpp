// Which of several ways between nodes is taken.
#include "setup/internode.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "party.hpp"
#include "support/ranks.hpp"
#include "transports/loopback/loopback.hpp"

namespace heddle {
namespace {

using test::Rank;

TEST(Fastest, SmallAndLargeMessagesCountAlike) {
  const InternodeTimes slow{200, 2000};
  EXPECT_EQ(fastest(std::vector{slow, InternodeTimes{100, 1000}}, true), 1u);
  EXPECT_EQ(fastest(std::vector{InternodeTimes{100, 1000}, slow}, true), 0u);
  EXPECT_EQ(fastest(std::vector{slow, InternodeTimes{100, 3000}}, true), 1u)
      << "twice as fast, 1.5 times as slow";
  EXPECT_EQ(fastest(std::vector{slow, InternodeTimes{300, 1000}, InternodeTimes{100, 1900}}, true), 2u);
}

TEST(Fastest, TheFirstOfThoseThatHardlyDiffer) {
  EXPECT_EQ(fastest(std::vector{InternodeTimes{100, 1000}, InternodeTimes{96, 960}}, true), 0u);
  EXPECT_EQ(fastest(std::vector{InternodeTimes{100, 1000}, InternodeTimes{80, 850}}, true), 1u);
  EXPECT_EQ(
      fastest(std::vector{InternodeTimes{100, 1000}, InternodeTimes{93, 1000}, InternodeTimes{84, 1000}},
              true),
      2u)
      << "near the second, which is near the first";
}

TEST(Fastest, NeverOneThatFailed) {
  constexpr double kFailed = std::numeric_limits<double>::infinity();
  EXPECT_EQ(fastest(std::vector{InternodeTimes{kFailed, kFailed}, InternodeTimes{1e9, 1e9}}, true), 1u);
  EXPECT_EQ(fastest(std::vector{InternodeTimes{1e9, 1e9}, InternodeTimes{kFailed, kFailed}}, true), 0u);
}

TEST(Fastest, LentMessagesWhoStandStillMeanwhileMustBeFaster) {
  const InternodeTimes lent{100, 1000, true};
  EXPECT_EQ(fastest(std::vector{lent, InternodeTimes{110, 1100}}, true), 1u);
  EXPECT_EQ(fastest(std::vector{lent, InternodeTimes{110, 1100}}, false), 0u);
  EXPECT_EQ(fastest(std::vector{lent, InternodeTimes{140, 1400}}, true), 0u);
}

// A transport whose sends take a while, and which counts them.
class Slowed final : public Transport {
 public:
  Slowed(std::unique_ptr<Transport> wire, std::chrono::microseconds small, std::chrono::microseconds large)
      : wire_(std::move(wire)), small_(small), large_(large) {}

  const TransportCapabilities& capabilities() const override { return wire_->capabilities(); }
  Status send(int peer, std::uint32_t tag, const void* data, std::size_t bytes, Ticket& ticket) override {
    ++sends;
    if (order != nullptr) order->push_back(name);
    if (bytes == InternodeTimes::kSmall) {
      std::this_thread::sleep_for(small_);
    } else if (lent-- <= 0) {
      std::this_thread::sleep_for(large_);
    }
    return wire_->send(peer, tag, data, bytes, ticket);
  }
  Status recv(int peer, std::uint32_t tag, void* data, std::size_t bytes, Ticket& ticket) override {
    return wire_->recv(peer, tag, data, bytes, ticket);
  }
  Status progress() override { return wire_->progress(); }
  void cancel(Ticket& ticket) override { wire_->cancel(ticket); }
  bool peer_is_gone(int peer) const override { return wire_->peer_is_gone(peer); }

  int sends = 0;
  int lent = 0;  // large messages that take no time
  int name = 0;
  std::vector<int>* order = nullptr;

 private:
  std::unique_ptr<Transport> wire_;
  std::chrono::microseconds small_;
  std::chrono::microseconds large_;
};

// A network, and a transport that uses it to the end.
class Used final : public Network {
 public:
  Used(const std::string& name, std::vector<std::string>& ended) : address_(name), ended_(ended) {}
  ~Used() override { ended_.push_back(address_ + "'s network"); }
  const std::string& address() const override { return address_; }
  std::string describe() const override { return address_; }
  Result<std::unique_ptr<Transport>> connect(int /*rank*/, std::vector<std::string> /*addresses*/) override {
    return Status(Code::unsupported, "connects nobody");
  }
  std::vector<std::string>& ended() { return ended_; }

 private:
  std::string address_;
  std::vector<std::string>& ended_;
};

class User final : public Transport {
 public:
  explicit User(Used& network) : network_(network) {}
  ~User() override { network_.ended().push_back(network_.address() + "'s transport"); }
  const TransportCapabilities& capabilities() const override { return capabilities_; }
  Status send(int, std::uint32_t, const void*, std::size_t, Ticket&) override { return {}; }
  Status recv(int, std::uint32_t, void*, std::size_t, Ticket&) override { return {}; }
  Status progress() override { return {}; }
  void cancel(Ticket&) override {}
  bool peer_is_gone(int) const override { return false; }

 private:
  Used& network_;
  TransportCapabilities capabilities_;
};

Internode way_over(const std::string& name, std::vector<std::string>& ended) {
  auto network = std::make_unique<Used>(name, ended);
  Internode way;
  way.name = name;
  way.transport = std::make_unique<User>(*network);
  way.network = std::move(network);
  return way;
}

TEST(Internode, WhicheverGoesItsTransportGoesBeforeItsNetwork) {
  std::vector<std::string> ended;
  std::vector<Internode> ways;
  for (const char* const name : {"a", "b", "c"})
    ways.push_back(way_over(name, ended));
  EXPECT_TRUE(ended.empty()) << ended.front();
  ways.erase(ways.begin());
  EXPECT_EQ(ended, (std::vector<std::string>{"a's transport", "a's network"}));
  EXPECT_EQ(ways.front().name + ways.back().name, "bc");
  ways.front() = way_over("d", ended);
  EXPECT_EQ(ended.size(), 4U);
  EXPECT_EQ(ended.back(), "b's network");
}

WaitPolicy patient_for(std::chrono::milliseconds timeout) {
  WaitPolicy policy;
  policy.timeout = timeout;
  policy.spins = SpinBudget(0, 0);
  return policy;
}

// Ranks 1 and 4 are not the first of their nodes.
const std::vector<std::int32_t> kNodes{0, 0, 1, 2, 2, 3, 4};

TEST(TimeInternode, FirstRanksOfAllNodesTakePartInEveryStep) {
  const TopologyView topology({kNodes});
  LoopbackHub hub(topology.size(), {});
  std::vector<InternodeTimes> times(kNodes.size());
  std::vector<int> sends(kNodes.size());
  test::run_ranks(topology.size(), [&](Rank& me) {
    const auto at = static_cast<std::size_t>(me.rank);
    Slowed transport(hub.transport(me.rank), std::chrono::microseconds(200), std::chrono::microseconds(1500));
    const WaitPolicy policy = patient_for(std::chrono::milliseconds(20'000));
    const Status reached = reach_internode(transport, topology, me.rank, policy);
    ASSERT_TRUE(reached.ok()) << reached.message();
    TimedWay way{&transport, policy};
    times[at] = time_internode({&way, 1}, topology, me.rank).front();
    sends[at] = transport.sends;
  });
  for (std::size_t rank = 0; rank < kNodes.size(); ++rank) {
    if (rank == 1 || rank == 4) {
      EXPECT_EQ(sends[rank], 0);
      EXPECT_EQ(times[rank].small_ns, 0);
    } else {
      // Five nodes: to 1, 2 and 4 on.
      EXPECT_EQ(sends[rank], 3 * (1 + 3 * 16 + 8));
      EXPECT_GE(times[rank].small_ns, 3 * 200e3);
      EXPECT_GE(times[rank].large_ns, 3 * 1500e3);
    }
  }
}

// Links may let some bytes through before they go at their own speed.
TEST(TimeInternode, SpeedThatIsLentDoesNotCount) {
  const TopologyView topology = TopologyView({{0, 1}});
  LoopbackHub hub(2, {});
  test::run_ranks(2, [&](Rank& me) {
    Slowed transport(hub.transport(me.rank), std::chrono::microseconds(0), std::chrono::microseconds(2000));
    transport.lent = 5;
    TimedWay way{&transport, patient_for(std::chrono::milliseconds(20'000))};
    EXPECT_GE(time_internode({&way, 1}, topology, me.rank).front().large_ns, 2000e3);
  });
}

// Each way has its turn before one has its second.
TEST(TimeInternode, WaysTakeTurnsAndOneThatFailsIsInfinite) {
  const TopologyView topology = TopologyView({{0, 1}});
  LoopbackHub fast(2, {});
  LoopbackHub slow(2, {});
  LoopbackOptions options;
  options.dead_rank = 1;
  LoopbackHub dead(2, options);
  test::run_ranks(2, [&](Rank& me) {
    const WaitPolicy policy = patient_for(std::chrono::milliseconds(500));
    std::vector<int> order;
    Slowed first(slow.transport(me.rank), std::chrono::microseconds(900), std::chrono::microseconds(900));
    Slowed second(fast.transport(me.rank), std::chrono::microseconds(100), std::chrono::microseconds(100));
    const std::unique_ptr<Transport> third = dead.transport(me.rank);
    first.order = second.order = &order;
    first.name = 1;
    second.name = 2;
    std::vector<TimedWay> ways{{&first, policy}, {&second, policy}, {third.get(), policy}};
    const std::vector<InternodeTimes> times = time_internode(ways, topology, me.rank);
    ASSERT_EQ(times.size(), 3u);
    EXPECT_GE(times[0].small_ns, 900e3);
    EXPECT_GE(times[1].small_ns, 100e3);
    EXPECT_TRUE(std::isinf(times[2].small_ns)) << times[2].small_ns;
    // Small ones sixteen at a time, large ones by themselves.
    constexpr std::size_t kSmall = 2 * 3 * 16;
    ASSERT_EQ(order.size(), kSmall + 2 * 8);
    for (std::size_t i = 0; i < order.size(); ++i)
      EXPECT_EQ(order[i], (i < kSmall ? i / 16 : i) % 2 == 0 ? 1 : 2) << i;
    order.clear();
    const std::vector<InternodeTimes> few = time_internode(ways, topology, me.rank, true);
    EXPECT_GE(few[0].small_ns, 900e3);
    EXPECT_GE(few[0].large_ns, 900e3);
    EXPECT_EQ(order.size(), 2U * 4 + 2 * 2) << "exchanges where each takes long";
  });
}

TEST(TimeInternode, WhoCannotBeReachedEndsItInTime) {
  const TopologyView topology({kNodes});
  LoopbackOptions options;
  options.dead_rank = 5;
  LoopbackHub hub(topology.size(), options);
  std::vector<Status> said(kNodes.size());
  test::run_ranks(topology.size(), [&](Rank& me) {
    const std::unique_ptr<Transport> transport = hub.transport(me.rank);
    said[static_cast<std::size_t>(me.rank)] =
        reach_internode(*transport, topology, me.rank, patient_for(std::chrono::milliseconds(300)));
  });
  EXPECT_FALSE(said[0].ok());
  EXPECT_FALSE(said[6].ok());
  // What rank 5 sends to the next node up.
  EXPECT_NE(said[6].message().find("rank 5"), std::string::npos) << said[6].message();
  EXPECT_TRUE(said[1].ok());
}

}  // namespace
}  // namespace heddle
