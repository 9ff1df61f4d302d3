// The plan of a node on machines that are not here: hwloc makes them up from a description.
#include "setup/node_plan.hpp"

#include <gtest/gtest.h>
#include <hwloc.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace heddle {
namespace {

using Numbers = std::vector<std::uint16_t>;

// hwloc reads the description from its environment variable, as it would for a user.
class Described {
 public:
  explicit Described(const std::string& text) {
    setenv("HWLOC_SYNTHETIC", text.c_str(), 1);
    Result<Machine> found = discover_machine();
    unsetenv("HWLOC_SYNTHETIC");
    EXPECT_TRUE(found.ok()) << found.status().message();
    if (found.ok()) machine = std::move(found).value();
  }
  Machine machine;
};

// Bound to hardware threads first, first + 1, ..., first + count - 1.
CoreClaim bound(int first, int count = 1) {
  CoreClaim claim;
  for (int i = first; i < first + count; ++i)
    claim.mask[static_cast<std::size_t>(i / 64)] |= std::uint64_t{1} << (i % 64);
  return claim;
}

// One member on each `stride`-th hardware thread.
std::vector<CoreClaim> each(int members, int stride = 1) {
  std::vector<CoreClaim> claims;
  for (int m = 0; m < members; ++m)
    claims.push_back(bound(m * stride));
  return claims;
}

Numbers runs(int domains, int members_each) {
  Numbers numbers;
  for (int d = 0; d < domains; ++d)
    numbers.insert(numbers.end(), static_cast<std::size_t>(members_each), static_cast<std::uint16_t>(d));
  return numbers;
}

TEST(NodePlan, TwoSocketsWithOneCacheEach) {
  const Machine machine = Described("package:2 l3:1(size=60MiB) l2:28(size=2MiB) core:1 pu:1").machine;
  ASSERT_EQ(machine.levels.size(), 3U);
  EXPECT_EQ(machine.levels[0].size(), 2U);
  EXPECT_EQ(plan_node(machine, each(56)).domain_of, runs(2, 28));
  EXPECT_EQ(plan_node(machine, each(28)).domain_of, runs(1, 28)) << "one socket has them all";
  EXPECT_EQ(plan_node(machine, each(4, 14)).domain_of, runs(2, 2));
  EXPECT_EQ(plan_node(machine, {bound(0), bound(28)}).domain_of, runs(1, 2))
      << "a domain of one gains nothing";
}

TEST(NodePlan, EightCachesInASocketAndTwoSockets) {
  const Machine machine = Described("package:2 numa:1 l3:8(size=32MiB) l2:8(size=1MiB) core:1 pu:1").machine;
  ASSERT_EQ(machine.levels.size(), 3U);
  EXPECT_EQ(machine.levels[0].size(), 16U);
  EXPECT_EQ(plan_node(machine, each(128)).domain_of, runs(16, 8));
  EXPECT_EQ(plan_node(machine, each(64)).domain_of, runs(8, 8));
  EXPECT_EQ(plan_node(machine, each(32, 4)).domain_of, runs(16, 2));
  EXPECT_EQ(plan_node(machine, each(16, 8)).domain_of, runs(2, 8)) << "one rank in each cache: by NUMA node";
  EXPECT_EQ(plan_node(machine, each(8)).domain_of, runs(1, 8)) << "all in one cache";
}

TEST(NodePlan, FourNumaNodesInASocketWithoutSharedCache) {
  const Machine machine = Described("package:1 numa:4 l2:16(size=1MiB) core:1 pu:1").machine;
  EXPECT_EQ(plan_node(machine, each(64)).domain_of, runs(4, 16));
}

TEST(NodePlan, HardwareThreadsOfACoreShareADomain) {
  const Machine machine = Described("package:2 l3:1(size=32MiB) l2:4(size=1MiB) core:1 pu:2").machine;
  EXPECT_EQ(plan_node(machine, each(16)).domain_of, runs(2, 8));
  std::vector<CoreClaim> cores;
  for (int core = 0; core < 8; ++core)
    cores.push_back(bound(2 * core, 2));
  EXPECT_EQ(plan_node(machine, cores).domain_of, runs(2, 4)) << "bound to both threads of a core";
}

TEST(NodePlan, RanksDealtOutInTurn) {
  const Machine machine = Described("package:2 l3:1(size=32MiB) l2:4(size=1MiB) core:1 pu:1").machine;
  std::vector<CoreClaim> claims;
  for (const int core : {4, 0, 5, 1, 6, 2})
    claims.push_back(bound(core));
  EXPECT_EQ(plan_node(machine, claims).domain_of, (Numbers{0, 1, 0, 1, 0, 1}));
}

// What is measured with ranks near to each other says nothing of others that are not.
TEST(NodePlan, PlacementsAreToldApart) {
  const Machine machine = Described("package:2 l3:2(size=32MiB) l2:4(size=1MiB) core:1 pu:1").machine;
  EXPECT_EQ(describe_placement(machine, {bound(0), bound(1)}), "0 0/0 0/0 0");
  EXPECT_EQ(describe_placement(machine, {bound(9), bound(8)}), "0 0/0 0/0 0") << "as near to each other";
  EXPECT_EQ(describe_placement(machine, {bound(0), bound(4)}), "0 1/0 0/0 0") << "in one socket";
  EXPECT_EQ(describe_placement(machine, {bound(0), bound(8)}), "0 1/0 0/0 1");
  EXPECT_EQ(describe_placement(machine, {bound(8), bound(0), bound(9)}), "0 1 0/0 0 0/0 1 0");
  EXPECT_EQ(describe_placement(machine, {bound(0, 8), bound(0)}), "-/0 0/0 0");
  EXPECT_EQ(describe_placement(Machine{}, {bound(0)}), "");
}

TEST(NodePlan, UnboundRanksAreOneDomain) {
  const Machine machine = Described("package:2 l3:1(size=32MiB) l2:4(size=1MiB) core:1 pu:1").machine;
  EXPECT_EQ(plan_node(machine, std::vector<CoreClaim>(8, bound(0, 8))).domain_of, runs(1, 8));
  std::vector<CoreClaim> claims = each(8);
  claims[3] = bound(0, 8);
  EXPECT_EQ(plan_node(machine, claims).domain_of, runs(1, 8)) << "one that may run anywhere";
  std::vector<CoreClaim> sockets;
  for (int m = 0; m < 8; ++m)
    sockets.push_back(bound(m / 4 * 4, 4));
  EXPECT_EQ(plan_node(machine, sockets).domain_of, runs(2, 4)) << "bound to a socket each";
  EXPECT_EQ(plan_node(machine, std::vector<CoreClaim>(3)).domain_of, runs(1, 3)) << "no cores at all";
}

TEST(NodePlan, NothingKnown) {
  const NodePlan plan = plan_node(Machine{}, each(5));
  EXPECT_EQ(plan.domain_of, runs(1, 5));
  EXPECT_EQ(plan.slot_bytes, 64U << 10);
}

TEST(NodePlan, SlotsFollowTheCaches) {
  const auto slots = [](const char* text, int members) {
    return plan_node(Described(text).machine, each(members)).slot_bytes;
  };
  EXPECT_EQ(slots("package:1 l3:1(size=32MiB) l2:8(size=1MiB) core:1 pu:1", 2), 64U << 10);
  EXPECT_EQ(slots("package:1 l3:1(size=32MiB) l2:8(size=2MiB) core:1 pu:1", 2), 128U << 10);
  EXPECT_EQ(slots("package:1 l3:1(size=32MiB) l2:8(size=256kiB) core:1 pu:1", 2), 32U << 10);
  EXPECT_EQ(slots("package:1 l3:1(size=32MiB) l2:8(size=1MiB) core:1 pu:1", 8), 64U << 10);
  EXPECT_EQ(slots("package:1 l3:1(size=60MiB) l2:64(size=2MiB) core:1 pu:1", 56), 32U << 10)
      << "many that share one cache";
  EXPECT_EQ(slots("package:1 l3:8(size=32MiB) l2:8(size=1MiB) core:1 pu:1", 64), 64U << 10)
      << "as many, eight to a cache";
}

TEST(NodePlan, ThisMachine) {
  const Result<Machine> machine = discover_machine();
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  ASSERT_FALSE(machine.value().levels.empty());
  const NodePlan plan = plan_node(machine.value(), {core_claim(), core_claim()});
  EXPECT_EQ(plan.domain_of, runs(1, 2));
}

}  // namespace
}  // namespace heddle
