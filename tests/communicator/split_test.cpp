// Communicators of some ranks of another one, on several nodes.
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "communicator/party.hpp"

namespace heddle::test {
namespace {

void expect_sum(Communicator& comm, std::uint64_t tag) {
  const std::vector<std::int64_t> in = terms(comm.rank(), 3000, tag);
  std::vector<std::int64_t> out(in.size());
  const Status status = comm.allreduce(in.data(), out.data(), in.size(), DType::i64, Op::sum);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(out, sums(comm.size(), in.size(), tag));
}

// As grids are cut into rows and columns. Ranks of a part are on the nodes they were on.
TEST(Split, RowsAndColumnsOfSeveralNodes) {
  Party party({1, 1, 2, 2, 3, 3, 1, 2, 3});
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    me.at("rows");
    Result<std::unique_ptr<Communicator>> row = comm.split(me.rank / 3, 0);
    ASSERT_TRUE(row.ok()) << row.status().message();
    me.at("columns");
    Result<std::unique_ptr<Communicator>> column = comm.split(me.rank % 3, -me.rank);
    ASSERT_TRUE(column.ok()) << column.status().message();
    EXPECT_EQ(row.value()->rank(), me.rank % 3);
    EXPECT_EQ(column.value()->rank(), 2 - me.rank / 3);
    const int nodes[] = {2, 2, 3};
    EXPECT_EQ(row.value()->topology().nodes(), nodes[me.rank / 3]);
    for (std::uint64_t tag = 0; tag < 3; ++tag) {
      expect_sum(*row.value(), tag);
      expect_sum(*column.value(), tag);
      expect_sum(comm, tag);
    }
  });
}

TEST(Split, EverybodyAlone) {
  Party party({1, 2, 2});
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    Result<std::unique_ptr<Communicator>> alone = comm.split(me.rank, 0);
    ASSERT_TRUE(alone.ok()) << alone.status().message();
    EXPECT_EQ(alone.value()->size(), 1);
    expect_sum(*alone.value(), 7);
    Result<std::unique_ptr<Communicator>> none = comm.split(-1, 0);
    ASSERT_TRUE(none.ok());
    EXPECT_EQ(none.value(), nullptr);
    expect_sum(comm, 8);
  });
}

// The first two cores that this process may use, for the calling thread; false: there are not so many.
bool stay_on_two_cores() {
  cpu_set_t all;
  cpu_set_t two;
  CPU_ZERO(&two);
  if (sched_getaffinity(0, sizeof all, &all) != 0) return false;
  for (std::size_t core = 0; core < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++core) {
    if (CPU_ISSET(core, &all)) CPU_SET(core, &two);
  }
  return CPU_COUNT(&two) == 2 && sched_setaffinity(0, sizeof two, &two) == 0;
}

// The other parts' ranks want the cores as well: those of the same node, and those of other nodes under one
// kernel, which every rank is to itself where it shares no memory.
TEST(Split, PartsOfMoreRanksThanCoresHaveNoneOfTheirOwn) {
  std::atomic<bool> two_cores{true};
  for (const char* transports : {"shm", "tcp"}) {
    Config config = quiet();
    config.transports = transports;
    Party party({1, 1, 1, 1});
    run_ranks(4, [&](Rank& me) {
      if (!stay_on_two_cores()) two_cores = false;
      if (!two_cores) return;
      const auto all = Communicator::create(party.bootstrap(me.rank), config);
      ASSERT_TRUE(all.ok()) << all.status().message();
      EXPECT_FALSE(all.value()->has_own_core()) << transports;
      const auto part = all.value()->split(me.rank / 2, 0);
      ASSERT_TRUE(part.ok()) << part.status().message();
      EXPECT_FALSE(part.value()->has_own_core()) << transports;
    });
  }
  if (!two_cores) GTEST_SKIP() << "one core";
}

// The others wait no longer than they would for any collective.
TEST(Split, WhoStaysAwayIsNamed) {
  Config config = quiet();
  config.timeout = std::chrono::milliseconds(300);
  Party party({1, 2, 2});
  std::atomic<int> named{0};
  party.run(config, [&](Rank& me, Communicator& comm) {
    if (me.rank == 2) return;
    const Status status = comm.split(0, 0).status();
    EXPECT_FALSE(status.ok());
    if (status.message().find("rank 2") != std::string::npos) ++named;
  });
  EXPECT_GT(named, 0) << "the one that waits for it itself";
}

}  // namespace
}  // namespace heddle::test
