#include "schedule/pricer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "sample_algorithms.hpp"
#include "schedule/builder.hpp"

namespace heddle {
namespace {

constexpr double kLatency = 1000;
constexpr double kPerByte = 0.5;
constexpr double kPerByteFold = 0.25;
constexpr double kTolerance = 1e-6;

CostModel simple_model() {
  CostModel model;
  model.levels = {{kLatency, 0, {0, kPerByte}}};
  model.fold = {0, kPerByteFold};
  return model;
}

double log_of(std::int32_t size) {
  return std::log2(static_cast<double>(size));
}

TEST(Pricer, RecursiveDoublingIsLogPTimesLatencyBytesAndFold) {
  for (const std::int32_t p : {1, 2, 4, 16, 64}) {
    for (const std::size_t n : {0u, 8u, 4096u}) {
      const auto bytes = static_cast<double>(n);
      const double got = price(
          TopologyView::flat(p), [p](auto r) { return test::recursive_doubling(p, r); }, n, simple_model());
      EXPECT_NEAR(got, log_of(p) * (kLatency + bytes * (kPerByte + kPerByteFold)), kTolerance)
          << p << " " << n;
    }
  }
}

TEST(Pricer, RingSendsAPthOfTheVectorTwicePMinusOneTimes) {
  for (const std::int32_t p : {1, 2, 3, 8, 31}) {
    const std::size_t part = 640;
    const std::size_t n = part * static_cast<std::size_t>(p);
    const double got = price(
        TopologyView::flat(p), [p](auto r) { return test::ring(p, r); }, n, simple_model());
    const double steps = p - 1;
    const double expected = 2 * steps * (kLatency + part * kPerByte) + steps * part * kPerByteFold;
    EXPECT_NEAR(got, expected, kTolerance) << p;
  }
}

TEST(Pricer, BinomialBcastIsLogPMessages) {
  for (const std::int32_t p : {1, 2, 8, 32, 128}) {
    const std::size_t n = 4000;
    const double got = price(
        TopologyView::flat(p), [p](auto r) { return test::binomial_bcast(p, r, p / 3); }, n, simple_model());
    EXPECT_NEAR(got, log_of(p) * (kLatency + n * kPerByte), kTolerance) << p;
  }
}

// (p - 2 + chunks)(alpha + chunk beta) where the latency does not overlap; in LogGP a piece leaves before the
// one ahead of it has arrived, so the latency is paid once per hop and not once per piece.
TEST(Pricer, ChainOverlapsItsPieces) {
  const std::size_t piece = 1024;
  CostModel model = simple_model();
  for (const std::int32_t p : {2, 3, 8}) {
    for (const std::uint32_t pieces : {1u, 2u, 16u}) {
      const auto chain = [&](std::int32_t r) { return test::chain_bcast(p, r, pieces); };
      model.levels[0].latency_ns = 0;
      const double no_latency = price(TopologyView::flat(p), chain, piece * pieces, model);
      EXPECT_NEAR(no_latency, (p - 2 + pieces) * (piece * kPerByte), kTolerance) << p << " " << pieces;
      model.levels[0].latency_ns = kLatency;
      const double got = price(TopologyView::flat(p), chain, piece * pieces, model);
      EXPECT_NEAR(got, (p - 1) * kLatency + (p - 2 + pieces) * (piece * kPerByte), kTolerance)
          << p << " " << pieces;
    }
  }
}

TEST(Pricer, ALinkCarriesOneMessageAtATime) {
  const std::size_t n = 6000;
  for (const std::int32_t p : {2, 3, 5}) {
    const auto rotated_all_to_all = [p](std::int32_t rank) {
      Builder b(Collective::allreduce, 1);
      for (std::int32_t i = 1; i < p; ++i)
        b.recv_scratch((rank + p - i) % p, {0, 1}, static_cast<std::uint32_t>(i));
      for (std::int32_t i = 1; i < p; ++i)
        b.send((rank + i) % p, {0, 1}, Slot::input);
      return std::move(b).finish();
    };
    const double got = price(TopologyView::flat(p), rotated_all_to_all, n, simple_model());
    EXPECT_NEAR(got, kLatency + (p - 1) * (n * kPerByte), kTolerance) << p;
  }
  // Many senders, one receiver: its link is what takes time.
  const auto gather = [](std::int32_t rank) {
    Builder b(Collective::allreduce, 1);
    for (std::int32_t r = 1; r < 5 && rank == 0; ++r)
      b.recv_scratch(r, {0, 1}, static_cast<std::uint32_t>(r));
    if (rank != 0) b.send(0, {0, 1}, Slot::input);
    return std::move(b).finish();
  };
  EXPECT_NEAR(price(TopologyView::flat(5), gather, n, simple_model()), kLatency + 4 * (n * kPerByte),
              kTolerance);
}

// Two nodes of two ranks: every rank sends to its partner on the other node, first alone and then beside its
// neighbour.
TEST(Pricer, RanksOfANodeShareItsLink) {
  const std::size_t n = 6000;
  CostModel model = simple_model();
  model.levels = {{0, 0, {0, 0}}, model.levels[0]};
  const auto pairs = [](std::int32_t pairs_talking) {
    return [pairs_talking](std::int32_t rank) {
      Builder b(Collective::allreduce, 1);
      if (rank % 2 < pairs_talking) {
        b.recv_scratch((rank + 2) % 4, {0, 1}, 0);
        b.send((rank + 2) % 4, {0, 1}, Slot::input);
      }
      return std::move(b).finish();
    };
  };
  const TopologyView nodes({{0, 0, 1, 1}});
  EXPECT_NEAR(price(nodes, pairs(1), n, model), kLatency + n * kPerByte, kTolerance);
  EXPECT_NEAR(price(nodes, pairs(2), n, model), kLatency + 2 * (n * kPerByte), kTolerance);
  EXPECT_NEAR(price(TopologyView({{0, 1, 2, 3}}), pairs(2), n, model), kLatency + n * kPerByte, kTolerance);
}

// Rank 0 handles three messages, one after the other; its neighbour's single one has the node's link
// meanwhile.
TEST(Pricer, WhatARankHandlesDoesNotKeepItsNodesLink) {
  CostModel model = simple_model();
  constexpr double kHandling = 2000;
  constexpr double kMuchLater = 50'000;
  model.levels = {{}, {kLatency, 0, {kHandling, 0}}};
  model.copy = {kMuchLater, 0};
  const TopologyView nodes({{0, 0, 1, 1, 1, 1}});
  const auto schedule_of = [](std::int32_t rank, bool busy_sends) {
    Builder b(Collective::bcast, 1);
    const auto message = [&](std::int32_t busy_side, std::int32_t other, std::uint32_t unit) {
      const std::int32_t from = busy_sends ? busy_side : other;
      const std::int32_t to = busy_sends ? other : busy_side;
      if (rank == from) b.send(to, {0, 1}, Slot::input);
      if (rank == to) b.recv_scratch(from, {0, 1}, unit);
    };
    for (std::int32_t other = 2; other < 5; ++other)
      message(0, other, static_cast<std::uint32_t>(other - 2));
    message(1, 5, 0);
    b.wait();
    // So late that the price is this rank's.
    if (rank == (busy_sends ? 5 : 1)) b.copy_input();
    return std::move(b).finish();
  };
  for (const bool busy_sends : {false, true}) {
    const double got = price(
        nodes, [&](std::int32_t rank) { return schedule_of(rank, busy_sends); }, 0, model);
    EXPECT_NEAR(got, kLatency + kHandling + kMuchLater, kTolerance) << busy_sends;
  }
}

TEST(Pricer, OverheadIsPaidBySendersForEveryMessage) {
  CostModel model = simple_model();
  model.levels[0] = {0, 100, {0, 0}};
  const auto fan = [](std::int32_t rank) {
    Builder b(Collective::bcast, 1);
    for (std::int32_t r = 1; r < 4 && rank == 0; ++r)
      b.send(r, {0, 1});
    if (rank != 0) b.recv(0, {0, 1});
    return std::move(b).finish();
  };
  EXPECT_NEAR(price(TopologyView::flat(4), fan, 8, model), 300, kTolerance);
}

// The receiver is busy for 10 us first. Its link takes the message in when the receive is open, and the
// sender, whose memory is being read, is not done before.
TEST(Pricer, ALateReceiverHoldsItsSenderBack) {
  const std::size_t n = 4000;
  CostModel model = simple_model();
  model.copy = {10000, 0};
  const auto late = [](std::int32_t rank) {
    Builder b(Collective::allreduce, 1);
    if (rank == 0) b.send(1, {0, 1}, Slot::input).wait().copy_input();
    if (rank == 1) b.copy_input().recv(0, {0, 1});
    return std::move(b).finish();
  };
  const double received = 10000 + n * kPerByte;
  EXPECT_NEAR(price(TopologyView::flat(2), late, n, model), received - kLatency + 10000, kTolerance);
}

TEST(Pricer, EachPairPaysForTheFirstLevelItShares) {
  const TopologyView view({{0, 0, 1, 1, 2}, {0, 0, 0, 0, 1}});
  CostModel model;
  model.levels = {{1, 0, {}}, {10, 0, {}}, {100, 0, {}}};
  const auto pair = [](std::int32_t to) {
    return [to](std::int32_t rank) {
      Builder b(Collective::bcast, 1);
      if (rank == 0) b.send(to, {0, 1});
      if (rank == to) b.recv(0, {0, 1});
      return std::move(b).finish();
    };
  };
  EXPECT_NEAR(price(view, pair(1), 8, model), 1, kTolerance);
  EXPECT_NEAR(price(view, pair(2), 8, model), 10, kTolerance);
  EXPECT_NEAR(price(view, pair(4), 8, model), 100, kTolerance);
  model.levels.pop_back();
  EXPECT_NEAR(price(view, pair(4), 8, model), 10, kTolerance) << "the last level serves everything beyond";
}

TEST(Pricer, TeamVerbsTakeTheCheaperWayAndWaitForEveryMember) {
  CostModel model = simple_model();
  model.copy = {7, 0};
  model.team.fill({{50, 1}, {100, 0.04}});
  const auto verb = [](std::int32_t) {
    return test::finished(
        Builder(Collective::allreduce, 1).team(StepKind::team_allreduce, Slot::input, 0, {0, 1}));
  };
  EXPECT_NEAR(price(TopologyView::one_node(4), verb, 8, model), 4 * (50 + 8), kTolerance);
  EXPECT_NEAR(price(TopologyView::one_node(4), verb, 100000, model), 4 * 100 + 0.04 * 100000, kTolerance);
  EXPECT_NEAR(price(TopologyView::flat(4), verb, 8, model), 7, kTolerance) << "a node of one: a copy";
  const auto late = [&](std::int32_t rank) {
    Builder b(Collective::allreduce, 1);
    if (rank == 2) b.recv_scratch(3, {0, 1});
    if (rank == 3) b.send(2, {0, 1}, Slot::input);
    b.wait().team(StepKind::team_allreduce, Slot::input, 0, {0, 1});
    return std::move(b).finish();
  };
  EXPECT_NEAR(price(TopologyView::one_node(4), late, 8, model), kLatency + 8 * kPerByte + 4 * (50 + 8),
              kTolerance);
}

TEST(Pricer, EachKindOfTeamHasItsOwnCost) {
  CostModel model = simple_model();
  model.team[static_cast<std::size_t>(TeamKind::node)].small = {1000, 0};
  model.team[static_cast<std::size_t>(TeamKind::domain)].small = {10, 0};
  model.team[static_cast<std::size_t>(TeamKind::peers)].small = {100, 0};
  for (CostModel::TeamCost& team : model.team)
    team.large = {1e6, 0};
  const TopologyView view = TopologyView::of_domains({0, 0, 0, 1, 1, 1});
  const auto cost_of = [&](TeamKind kind) {
    return price(
        view,
        [&](std::int32_t) {
          Builder b(Collective::allreduce, 1);
          b.team(StepKind::team_allreduce, Slot::input, 0, {0, 1}, kind);
          return std::move(b).finish();
        },
        8, model);
  };
  EXPECT_NEAR(cost_of(TeamKind::node), 6 * 1000, kTolerance);
  EXPECT_NEAR(cost_of(TeamKind::domain), 3 * 10, kTolerance);
  EXPECT_NEAR(cost_of(TeamKind::peers), 2 * 100, kTolerance);
}

TEST(Pricer, TwoLevelsAreTwoTeamVerbsAndLogOfTheNodes) {
  CostModel model = simple_model();
  model.levels = {{kLatency, 0, {}}, {5 * kLatency, 0, {}}};
  model.fold = {};
  model.team.fill({{50, 0}, {100, 0}});
  const TopologyView view = TopologyView::uniform(8, 4);
  const auto two_level = [&](std::int32_t r) { return test::two_level_allreduce(view, r); };
  EXPECT_NEAR(price(view, two_level, 8, model), 2 * 4 * 50 + 3 * 5 * kLatency, kTolerance);
}

TEST(Pricer, MoreBytesNeverCostLessAndThePriceIsTheSameEachTime) {
  CostModel model = simple_model();
  model.levels[0].overhead_ns = 30;
  model.copy = {5, 0.1};
  model.team.fill({{50, 1}, {100, 0.04}});
  for (const test::Sample& sample : test::samples()) {
    double last = 0;
    for (std::size_t n = 0; n < 300000; n = n * 3 / 2 + 1) {
      const double now = price(sample.topology, test::schedule_of(sample.schedules), n, model);
      EXPECT_GE(now, last) << sample.name << " " << n;
      EXPECT_EQ(now, price(sample.topology, test::schedule_of(sample.schedules), n, model)) << sample.name;
      last = now;
    }
    EXPECT_TRUE(std::isfinite(last)) << sample.name;
  }
}

// Streams that have nothing in common: what meets adds up.
StreamCosts disjoint(std::int32_t ranks, double bytes) {
  StreamCosts costs;
  for (std::int32_t m = 0; m <= ranks; ++m) {
    costs.entries.push_back(m * bytes / 8);
    costs.bytes.push_back(m * bytes);
  }
  return costs;
}

TEST(Pricer, StreamsGrowAsTheyMeet) {
  // Recursive doubling: lg p alpha + (p - 1) k beta (SparCML, its worst case).
  for (const std::int32_t p : {2, 4, 16, 64}) {
    const double bytes = 800;
    const double got = price_streams(
        TopologyView::flat(p), [p](auto r) { return test::recursive_doubling(p, r); }, disjoint(p, bytes),
        simple_model());
    EXPECT_NEAR(got, log_of(p) * kLatency + (p - 1) * bytes * kPerByte, kTolerance) << p;
  }
  // Equal patterns do not: lg p (alpha + k beta), its best.
  StreamCosts equal = disjoint(16, 0);
  equal.bytes.assign(17, 800);
  const double got = price_streams(
      TopologyView::flat(16), [](auto r) { return test::recursive_doubling(16, r); }, equal, simple_model());
  EXPECT_NEAR(got, 4 * (kLatency + 800 * kPerByte), kTolerance);
}

TEST(Pricer, StreamsArePackedReadAndMergedByTheirEntries) {
  StreamCosts costs = disjoint(2, 800);
  costs.code_ns_per_entry = 3;
  costs.fold_ns_per_entry = 5;
  const double got = price_streams(
      TopologyView::flat(2), [](auto r) { return test::recursive_doubling(2, r); }, costs, simple_model());
  // 100 entries written, sent, read, and merged with 100.
  EXPECT_NEAR(got, 300 + kLatency + 800 * kPerByte + 300 + 200 * 5, kTolerance);
}

// Each block goes once around as it grows from one contribution to all, and once with all.
TEST(Pricer, ARingOfStreamsSendsEveryLengthOnce) {
  constexpr std::int32_t kRanks = 5;
  const double part = 640;
  const double got = price_streams(
      TopologyView::flat(kRanks), [](auto r) { return test::ring(kRanks, r); },
      disjoint(kRanks, part * kRanks), simple_model());
  const double growing = (1 + 2 + 3 + 4) * part * kPerByte;
  EXPECT_NEAR(got, 8 * kLatency + growing + 4 * 5 * part * kPerByte, kTolerance);
}

// Where all ranks do the same, one of them alone tells the price of all; for trees it is less.
TEST(PriceAlone, IsThePriceOfAllWhereAllDoTheSame) {
  CostModel model = simple_model();
  model.levels[0].overhead_ns = 100;
  model.levels[0].gap.fixed_ns = 50;
  for (const std::int32_t p : {2, 8, 64}) {
    const TopologyView flat = TopologyView::flat(p);
    for (const std::size_t n : {std::size_t{0}, std::size_t{64} << 10}) {
      const auto ring = [p](auto r) { return test::ring(p, r); };
      const auto doubling = [p](auto r) { return test::recursive_doubling(p, r); };
      const auto tree = [p](auto r) { return test::binomial_bcast(p, r, 0); };
      const double all_ns = price(flat, ring, n, model);
      EXPECT_NEAR(price_alone(flat, ring(p / 2), p / 2, n, model), all_ns, 1e-6 * all_ns) << p;
      EXPECT_NEAR(price_alone(flat, doubling(p - 1), p - 1, n, model), price(flat, doubling, n, model), 1e-3);
      EXPECT_LE(price_alone(flat, tree(p - 1), p - 1, n, model), price(flat, tree, n, model) + 1e-3);
    }
  }
}

// What crowded ends add to short messages is none of long ones.
TEST(Pricer, NoMessageTakesLessThanTheLeast) {
  CostModel model = simple_model();
  constexpr double kLeast = 1000 * kPerByte;
  model.levels[0].least_gap_ns = kLeast;
  const TopologyView flat = TopologyView::flat(4);
  const auto doubling = [](auto r) { return test::recursive_doubling(4, r); };
  for (const double bytes : {8.0, 4000.0}) {
    const auto n = static_cast<std::size_t>(bytes);
    const double expected = 2 * (kLatency + std::max(kLeast, bytes * kPerByte) + bytes * kPerByteFold);
    EXPECT_NEAR(price(flat, doubling, n, model), expected, kTolerance) << n;
    EXPECT_NEAR(price_alone(flat, doubling(1), 1, n, model), expected, kTolerance) << n;
  }
}

// The receivers are crowded, and each takes in a message of its own: a root that sends to all of them goes on
// at once.
TEST(Pricer, CrowdedReceiversDoNotHoldUpARoot) {
  CostModel model = simple_model();
  constexpr double kLeast = 50'000;
  constexpr double kHandling = 1000;
  model.levels[0].overhead_ns = kHandling;
  model.levels[0].gap.fixed_ns = kHandling;
  model.levels[0].least_gap_ns = kLeast;
  const auto star = [](std::int32_t rank, bool from_root) {
    Builder b(Collective::bcast, 1);
    for (std::int32_t other = 1; other < 4 && rank == 0; ++other)
      from_root ? b.send(other, {0, 1}) : b.recv_scratch(other, {0, 1});
    if (rank != 0) from_root ? b.recv(0, {0, 1}) : b.send(0, {0, 1});
    b.wait();
    return std::move(b).finish();
  };
  const TopologyView flat = TopologyView::flat(4);
  const auto from = [&](auto r) { return star(r, true); };
  const auto to = [&](auto r) { return star(r, false); };
  EXPECT_NEAR(price(flat, from, 0, model), 3 * kHandling + kLatency + kLeast, kTolerance);
  EXPECT_NEAR(price(flat, to, 0, model), kHandling + kLatency + 3 * kLeast, kTolerance);
}

// A million steps of a ring are not taken one by one, and still counted.
TEST(PriceAlone, CountsIterationsWithoutRunningThem) {
  const std::int32_t p = 1 << 20;
  const TopologyView pair = TopologyView::flat(2);
  Builder b(Collective::allreduce, 1);
  b.repeat(p, 0, [](Builder& to) { to.recv_scratch(1, {0, 1}).send(1, {0, 1}).wait(); });
  const Schedule schedule = std::move(b).finish();
  EXPECT_NEAR(price_alone(pair, schedule, 0, 0, simple_model()), p * kLatency, 1);
}

TEST(Pricer, ADeadlockIsInfinitelyExpensive) {
  const auto lonely = [](std::int32_t rank) {
    Builder b(Collective::bcast, 1);
    if (rank == 0) b.send(1, {0, 1});
    return std::move(b).finish();
  };
  EXPECT_TRUE(std::isinf(price(TopologyView::flat(2), lonely, 8, simple_model())));
}

TEST(Pricer, ServesAThousandRanks) {
  const std::int32_t p = 1024;
  const double doubling = price(
      TopologyView::flat(p), [p](auto r) { return test::recursive_doubling(p, r); }, 8, simple_model());
  const double ring = price(
      TopologyView::flat(p), [p](auto r) { return test::ring(p, r); }, 8, simple_model());
  EXPECT_LT(doubling, ring);
}

}  // namespace
}  // namespace heddle
