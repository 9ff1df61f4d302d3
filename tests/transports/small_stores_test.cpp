// Which way of storing small payloads is chosen, with a team whose times are made up.
#include "transports/shm/small_stores.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "engine/kernels/kernels.hpp"
#include "support/ranks.hpp"
#include "transports/team_fixture.hpp"

namespace heddle::test {
namespace {

using std::chrono::microseconds;

// Bcasts of `bytes` take `time[way]` under each way, and allreduces no time.
struct MadeUpTeam {
  std::map<StoreWay, microseconds> middle;
  std::map<StoreWay, microseconds> large;
  SmallStores used = default_small_stores();
  int operations = 0;
  std::map<int, int> bcasts = {};  // by root
  int fails_at = -1;
  bool another_is_late = false;  // and says so in every operation

  StoreTrial trial(microseconds budget = std::chrono::seconds(60)) {
    return {[this](const SmallStores& stores) { used = stores; },
            [this](TeamOp& op) -> Status {
              if (operations++ == fails_at) return Status(Code::peer_failed, "rank 1 is gone");
              if (op.verb == TeamVerb::bcast) {
                const bool is_large = op.count >= kLargePayload;
                std::this_thread::sleep_for(is_large ? large[used.large] : middle[used.middle]);
                ++bcasts[op.root];
                return {};
              }
              std::memcpy(op.out, op.in, op.count);
              if (another_is_late) op.out[0] |= std::byte{1};
              return {};
            },
            nullptr, budget};
  }
};

const std::map<StoreWay, microseconds> kSlow = {{StoreWay::cached, microseconds(600)},
                                                {StoreWay::demoted, microseconds(600)},
                                                {StoreWay::streamed, microseconds(600)}};

std::map<StoreWay, microseconds> fast_is(StoreWay way) {
  std::map<StoreWay, microseconds> times = kSlow;
  times[way] = microseconds(50);
  return times;
}

TEST(SmallStores, TheFastestWayOfEachSizeIsTaken) {
  for (const auto& [middle, large] :
       {std::pair(StoreWay::cached, StoreWay::streamed), {StoreWay::streamed, StoreWay::cached}}) {
    MadeUpTeam team{fast_is(middle), fast_is(large)};
    Result<SmallStores> found = measure_small_stores(team.trial(), 2);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(store_way_name(found->middle), std::string(store_way_name(middle)));
    EXPECT_EQ(store_way_name(found->large), std::string(store_way_name(large)));
    EXPECT_EQ(pack(team.used), pack(found.value())) << "it is not in use";
  }
}

TEST(SmallStores, TheOneSlowWayIsLeft) {
  const SmallStores unmeasured = default_small_stores();
  MadeUpTeam team{kSlow, kSlow};
  for (auto& [way, time] : team.middle)
    if (way != unmeasured.middle) time = microseconds(60);
  for (auto& [way, time] : team.large)
    if (way != unmeasured.large) time = microseconds(60);
  Result<SmallStores> found = measure_small_stores(team.trial(), 2);
  ASSERT_TRUE(found.ok());
  EXPECT_NE(found->middle, unmeasured.middle);
  EXPECT_NE(found->large, unmeasured.large);
}

// Members that measure different times must still do the same operations.
TEST(SmallStores, TheNumberOfOperationsDoesNotDependOnTimes) {
  MadeUpTeam one{fast_is(StoreWay::cached), fast_is(StoreWay::cached)};
  MadeUpTeam other{fast_is(StoreWay::streamed), fast_is(StoreWay::streamed)};
  ASSERT_TRUE(measure_small_stores(one.trial(), 2).ok());
  ASSERT_TRUE(measure_small_stores(other.trial(), 2).ok());
  EXPECT_EQ(one.operations, other.operations);
}

TEST(SmallStores, MembersAreTheRootInTurn) {
  MadeUpTeam team{fast_is(StoreWay::cached), fast_is(StoreWay::cached)};
  ASSERT_TRUE(measure_small_stores(team.trial(), 3).ok());
  ASSERT_EQ(team.bcasts.size(), 3u);
  for (int root = 0; root < 3; ++root)
    EXPECT_NEAR(team.bcasts[root], team.bcasts[0], 1) << root;
}

// Else the ways would not differ at all, and chance would choose. Of many members an allreduce is handed over
// only if it is short.
TEST(SmallStores, WhatIsTimedIsHandedOver) {
  for (const int members : {2, 5, 20}) {
    TeamWorld world(members, 4096);
    run_ranks(members, [&](Rank& me) {
      ShmTeam& team = world.of(me.rank);
      const auto run = [&](TeamOp& op) -> Status {
        team.start(op);
        EXPECT_TRUE(op.small) << op.count << " bytes by " << members;
        me.until([&] { return team.poll(op); });
        return {};
      };
      const auto use = [&](const SmallStores& stores) { team.use(stores); };
      EXPECT_TRUE(
          measure_small_stores({use, run, fold_kernel(DType::u8, Op::bor), std::chrono::seconds(60)}, members)
              .ok());
    });
  }
}

TEST(SmallStores, AFailureEndsIt) {
  for (const int at : {0, 40, 200}) {
    MadeUpTeam team{fast_is(StoreWay::cached), fast_is(StoreWay::cached)};
    team.fails_at = at;
    Result<SmallStores> found = measure_small_stores(team.trial(), 2);
    ASSERT_FALSE(found.ok()) << at;
    EXPECT_EQ(found.status().code(), Code::peer_failed);
    EXPECT_EQ(team.operations, at + 1);
  }
}

// Where cores are busy with something else, set-up must not take long, and no member may stop alone.
TEST(SmallStores, BeyondTheBudgetTheDefaultIsTaken) {
  const SmallStores unmeasured = default_small_stores();
  const StoreWay other = unmeasured.large == StoreWay::cached ? StoreWay::streamed : StoreWay::cached;
  MadeUpTeam in_time{fast_is(other), fast_is(other)};
  ASSERT_TRUE(measure_small_stores(in_time.trial(), 2).ok());
  MadeUpTeam slow{fast_is(other), fast_is(other)};
  MadeUpTeam beside_a_slow_one{fast_is(other), fast_is(other)};
  beside_a_slow_one.another_is_late = true;
  for (auto& [team, budget] :
       {std::pair(&slow, microseconds(1)), {&beside_a_slow_one, std::chrono::seconds(60)}}) {
    Result<SmallStores> found = measure_small_stores(team->trial(budget), 2);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(pack(found.value()), pack(unmeasured));
    EXPECT_EQ(pack(team->used), pack(unmeasured));
    EXPECT_LT(team->operations, in_time.operations / 4);
  }
}

TEST(SmallStores, TravelAsANumber) {
  for (const StoreWay middle : {StoreWay::cached, StoreWay::demoted, StoreWay::streamed}) {
    for (const StoreWay large : {StoreWay::cached, StoreWay::demoted, StoreWay::streamed}) {
      const std::uint32_t packed = pack({middle, large});
      EXPECT_NE(packed, 0u);
      EXPECT_EQ(unpack_small_stores(packed).middle, middle);
      EXPECT_EQ(unpack_small_stores(packed).large, large);
    }
  }
}

}  // namespace
}  // namespace heddle::test
