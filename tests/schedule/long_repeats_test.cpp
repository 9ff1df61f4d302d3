#include "schedule/long_repeats.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <tuple>

#include "sample_algorithms.hpp"
#include "schedule/cursor.hpp"
#include "schedule/priced_run.hpp"

namespace heddle {
namespace {

using ScheduleFn = std::function<Schedule(std::int32_t rank)>;

std::vector<Schedule> schedules(std::int32_t size, const ScheduleFn& schedule_of) {
  std::vector<Schedule> all;
  for (std::int32_t rank = 0; rank < size; ++rank)
    all.push_back(schedule_of(rank));
  return all;
}

// From one rank to another on a lane: sends less receives.
std::map<std::tuple<std::int32_t, std::int32_t, int>, int> without_other_half(
    const std::vector<Schedule>& all) {
  std::map<std::tuple<std::int32_t, std::int32_t, int>, int> open;
  for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(all.size()); ++rank) {
    for (Cursor at(all[static_cast<std::size_t>(rank)]); !at.done(); at.advance()) {
      const Step& step = at.step();
      if (step.kind == StepKind::send) ++open[{rank, step.peer, step.lane}];
      if (step.kind == StepKind::recv) --open[{step.peer, rank, step.lane}];
    }
  }
  std::erase_if(open, [](const auto& channel) { return channel.second == 0; });
  return open;
}

Schedule around(std::int32_t size, std::int32_t rank, std::uint32_t times) {
  Builder b(Collective::allreduce, 1);
  b.repeat(times, 0, [&](Builder& to) {
    to.recv_scratch((rank + size - 1) % size, {0, 1}).send((rank + 1) % size, {0, 1}).wait();
  });
  return std::move(b).finish();
}

TEST(LongRepeats, OfRingsAndChainsAllLoseEquallyMany) {
  const TopologyView flat = TopologyView::flat(9);
  for (const bool is_ring : {true, false}) {
    std::vector<Schedule> all = schedules(
        9, [&](auto rank) { return is_ring ? test::ring(9, rank) : test::chain_bcast(9, rank, 40); });
    const std::vector<Schedule> whole = all;
    LongRepeats repeats(flat, all);
    ASSERT_GT(repeats.iterations(), 3U);
    EXPECT_EQ(repeats.filling(), 0U);
    repeats.shorten(3);
    EXPECT_TRUE(without_other_half(all).empty());
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      std::uint32_t fewer = 0;
      for (std::size_t i = 0; i < all[rank].steps.size(); ++i)
        fewer = std::max(fewer, whole[rank].steps[i].count - all[rank].steps[i].count);
      EXPECT_EQ(fewer, repeats.iterations() - 3) << rank;
    }
    repeats.shorten(repeats.iterations());
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      EXPECT_EQ(all[rank].steps, whole[rank].steps);
  }
}

// What is taken from one rank alone would leave others waiting.
TEST(LongRepeats, AreNoneWhereAnOperationWouldLoseItsOtherHalf) {
  const TopologyView pair = TopologyView::one_node(2);
  const auto found = [&](const ScheduleFn& schedule_of) {
    std::vector<Schedule> all = schedules(2, schedule_of);
    return LongRepeats(pair, all).iterations();
  };
  EXPECT_EQ(found([](auto rank) { return around(2, rank, 30); }), 30U);
  EXPECT_EQ(found([](auto rank) {
              Builder b(Collective::bcast, 30);
              if (rank == 0) b.repeat(30, 1, [&](Builder& to) { to.send(1, {0, 1}); });
              for (std::uint32_t i = 0; rank == 1 && i < 30; ++i)
                b.recv(0, {i, 1});
              return std::move(b).finish();
            }),
            0U)
      << "one does not repeat";
  const auto verbs = [](std::int32_t of_second) {
    return [of_second](std::int32_t rank) {
      Builder b(Collective::bcast, 60);
      b.repeat(30, 1, [&](Builder& to) {
        for (std::int32_t i = 0; i < (rank == 0 ? 1 : of_second); ++i)
          to.team(StepKind::team_bcast, Slot::data, 0, {0, 1});
      });
      return std::move(b).finish();
    };
  };
  EXPECT_EQ(found(verbs(1)), 30U);
  EXPECT_EQ(found(verbs(2)), 0U) << "the second member comes twice";
}

TEST(LongRepeats, AreNoneWhereARankServesSeveral) {
  const TopologyView flat = TopologyView::flat(3);
  for (const bool sends : {true, false}) {
    std::vector<Schedule> all = schedules(3, [&](auto rank) {
      Builder b(Collective::bcast, 30);
      b.repeat(30, 1, [&](Builder& to) {
        for (const std::int32_t other : {1, 2}) {
          const bool mine = rank == 0 || rank == other;
          if (mine && (rank == 0) == sends) to.send(rank == 0 ? other : 0, {0, 1});
          if (mine && (rank == 0) != sends) to.recv(rank == 0 ? other : 0, {0, 1});
        }
      });
      return std::move(b).finish();
    });
    EXPECT_EQ(LongRepeats(flat, all).iterations(), 0U) << sends;
  }
}

// Two chains side by side from node to node; around a ring nothing fills.
TEST(LongRepeats, OfChainsThatShareLinksTakeANodeEachToFill) {
  const TopologyView nodes = TopologyView::uniform(4, 2);
  const auto filling = [&](bool is_ring, std::int32_t chains) {
    std::vector<Schedule> all = schedules(8, [&](auto rank) {
      Builder b(Collective::bcast, 30);
      b.repeat(30, 1, [&](Builder& to) {
        if (rank % 2 >= chains) return;
        if (is_ring || rank >= 2) to.recv((rank + 6) % 8, {0, 1});
        if (is_ring || rank < 6) to.send((rank + 2) % 8, {0, 1});
      });
      return std::move(b).finish();
    });
    LongRepeats repeats(nodes, all);
    EXPECT_EQ(repeats.iterations(), 30U);
    return repeats.filling();
  };
  EXPECT_EQ(filling(false, 2), 4U);
  EXPECT_EQ(filling(false, 1), 0U);
  EXPECT_EQ(filling(true, 2), 0U);
}

// Four thousand million iterations: run one by one they would take minutes.
TEST(LongRepeats, AreCountedByThePricer) {
  CostModel model;
  model.levels = {{1000, 0, {}}};
  const std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
  const double got_ns = price(
      TopologyView::flat(4), [&](auto rank) { return around(4, rank, most); }, 0, model);
  EXPECT_DOUBLE_EQ(got_ns, 1000.0 * most);
}

// The first messages are late where ranks come one after the other to a ring of a few rounds: nothing is
// counted that is not even.
TEST(LongRepeats, AreRunWhereIterationsAreUneven) {
  CostModel model;
  model.levels = {{1000, 0, {0, 1}}};
  model.copy = {0, 1};
  const std::int32_t size = 8;
  const TopologyView flat = TopologyView::flat(size);
  const auto late = [&](std::int32_t rank) {
    Builder b(Collective::allreduce, 64);
    for (std::int32_t i = 0; rank == 0 && i < 8; ++i)
      b.copy_input();
    b.repeat(40, 0, [&](Builder& to) {
      to.recv_scratch((rank + size - 1) % size, {0, 1}).send((rank + 1) % size, {0, 1}).wait(4);
    });
    return std::move(b).finish();
  };
  const std::vector<Schedule> all = schedules(size, late);
  const double exact_ns =
      PricedRun(flat, all, 64 << 10, nullptr, model).finish_ns(std::numeric_limits<double>::infinity());
  EXPECT_NEAR(price(flat, late, 64 << 10, model), exact_ns, exact_ns * 0.005);
}

}  // namespace
}  // namespace heddle
