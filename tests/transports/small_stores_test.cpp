// Which way of storing small payloads is chosen, with a team whose times are made up.
#include "transports/shm/small_stores.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>

namespace heddle::test {
namespace {

using std::chrono::microseconds;

// Operations of `bytes` take `time[way]` under each way.
struct MadeUpTeam {
  std::map<StoreWay, microseconds> middle;
  std::map<StoreWay, microseconds> large;
  SmallStores used = default_small_stores();
  int operations = 0;
  int fails_at = -1;

  StoreTrial trial() {
    return {[this](const SmallStores& stores) { used = stores; },
            [this](TeamOp& op) -> Status {
              if (operations++ == fails_at) return Status(Code::peer_failed, "rank 1 is gone");
              const bool is_large = op.count >= kLargePayload;
              std::this_thread::sleep_for(is_large ? large[used.large] : middle[used.middle]);
              return {};
            },
            nullptr};
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
    Result<SmallStores> found = measure_small_stores(team.trial());
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
  Result<SmallStores> found = measure_small_stores(team.trial());
  ASSERT_TRUE(found.ok());
  EXPECT_NE(found->middle, unmeasured.middle);
  EXPECT_NE(found->large, unmeasured.large);
}

// Members that measure different times must still do the same operations.
TEST(SmallStores, TheNumberOfOperationsDoesNotDependOnTimes) {
  MadeUpTeam one{fast_is(StoreWay::cached), fast_is(StoreWay::cached)};
  MadeUpTeam other{fast_is(StoreWay::streamed), fast_is(StoreWay::streamed)};
  ASSERT_TRUE(measure_small_stores(one.trial()).ok());
  ASSERT_TRUE(measure_small_stores(other.trial()).ok());
  EXPECT_EQ(one.operations, other.operations);
}

TEST(SmallStores, AFailureEndsIt) {
  for (const int at : {0, 40, 200}) {
    MadeUpTeam team{fast_is(StoreWay::cached), fast_is(StoreWay::cached)};
    team.fails_at = at;
    Result<SmallStores> found = measure_small_stores(team.trial());
    ASSERT_FALSE(found.ok()) << at;
    EXPECT_EQ(found.status().code(), Code::peer_failed);
    EXPECT_EQ(team.operations, at + 1);
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
