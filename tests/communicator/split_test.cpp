// Communicators of some ranks of another one, on several nodes.
#include <gtest/gtest.h>

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
