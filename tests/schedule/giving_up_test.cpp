// Where a price is known to be above a bound before all of it has been run.
#include <gtest/gtest.h>

#include <limits>

#include "sample_algorithms.hpp"
#include "schedule/builder.hpp"
#include "schedule/priced_run.hpp"

namespace heddle {
namespace {

constexpr double kLatency = 1000;
constexpr double kPerByte = 0.5;
constexpr double kToTheEnd = std::numeric_limits<double>::infinity();

CostModel simple_model() {
  CostModel model;
  model.levels = {{kLatency, 0, {0, kPerByte}}};
  model.fold = {0, 0.25};
  return model;
}

// A bound above the price changes nothing; below it what is said is above the bound, and the price is no
// less.
TEST(GivingUp, IsAboveTheBoundAndNotAboveThePrice) {
  const CostModel model = simple_model();
  for (const test::Sample& sample : test::samples()) {
    const auto schedule_of = test::schedule_of(sample.schedules);
    const double whole_ns = price(sample.topology, schedule_of, 4096, model);
    EXPECT_EQ(price(sample.topology, schedule_of, 4096, model, whole_ns), whole_ns) << sample.name;
    for (const double part : {0.0, 0.3, 0.9}) {
      const double got_ns = price(sample.topology, schedule_of, 4096, model, part * whole_ns);
      EXPECT_GE(got_ns, part * whole_ns) << sample.name << ' ' << part;
      EXPECT_LE(got_ns, whole_ns) << sample.name << ' ' << part;
    }
  }
  // Nor is more of a run looked at than the bound asks for: of one that is no ring, whose iterations would be
  // counted.
  const auto long_run = [](std::int32_t rank) {
    Builder b(Collective::allreduce, 1);
    b.repeat(100'000, 0, [&](Builder& to) {
      for (const std::int32_t away : {1, 2})
        to.recv_scratch((rank + away) % 3, {0, 1}).send((rank + away) % 3, {0, 1}, Slot::input);
      to.wait();
    });
    return std::move(b).finish();
  };
  const double got_ns = price(TopologyView::flat(3), long_run, 0, model, 10 * kLatency);
  EXPECT_GT(got_ns, 10 * kLatency);
  EXPECT_LE(got_ns, 11 * kLatency);
}

// It is known from the beginning how long messages keep a link: of the rank that gives to three others or
// takes from them, or that two ranks of a node share.
TEST(GivingUp, IsAtOnceWhereALinkCannotCarryAllInTime) {
  constexpr std::uint32_t kTimes = 1000;
  constexpr std::size_t kBytes = 100;
  struct Pair {
    std::int32_t from;
    std::int32_t to;
  };
  struct Case {
    std::vector<Pair> messages;
    std::vector<std::int32_t> node_of;
    double messages_of_link;
    double idle_ns;  // until the first one comes
  };
  for (const Case& each :
       {Case{{{0, 1}, {0, 2}, {0, 3}}, {0, 1, 2, 3}, 3, 0},
        Case{{{1, 0}, {2, 0}, {3, 0}}, {0, 1, 2, 3}, 3, kLatency},
        Case{{{1, 0}, {2, 0}, {3, 0}}, {0, 0, 0, 0}, 3, kLatency}, Case{{{0, 2}, {1, 3}}, {0, 0, 1, 2}, 2, 0},
        Case{{{2, 0}, {3, 1}}, {0, 0, 1, 2}, 2, kLatency}}) {
    std::vector<Schedule> all;
    for (std::int32_t rank = 0; rank < 4; ++rank) {
      Builder b(Collective::bcast, 1);
      b.repeat(kTimes, 0, [&](Builder& to) {
        for (const Pair& pair : each.messages) {
          if (rank == pair.from) to.send(pair.to, {0, 1});
          if (rank == pair.to) to.recv(pair.from, {0, 1});
        }
      });
      all.push_back(std::move(b).finish());
    }
    const TopologyView topology({each.node_of});
    const CostModel model = simple_model();
    const auto price_up_to = [&](double give_up_ns) {
      return PricedRun(topology, all, kBytes, nullptr, model).finish_ns(give_up_ns);
    };
    const double keeps_ns = kTimes * each.messages_of_link * kBytes * kPerByte;
    const double got_ns = price_up_to(kLatency / 2);
    EXPECT_GE(got_ns, keeps_ns * (1 - 1e-9));
    EXPECT_LE(got_ns, price_up_to(kToTheEnd));
    EXPECT_GE(price_up_to(keeps_ns), (keeps_ns + each.idle_ns) * (1 - 1e-9));
  }
}

}  // namespace
}  // namespace heddle
