// HEDDLE_CHECK: ranks that do not call the same are told who calls what, on one node and between nodes alike.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "comm/call_table.hpp"
#include "communicator/party.hpp"

namespace heddle::test {
namespace {

using Kind = CollectiveCall::Kind;
using Form = CollectiveCall::Form;

std::string verdict(const std::vector<CollectiveCall>& calls) {
  const auto ranks = static_cast<int>(calls.size());
  CallTable all(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    CallTable one(ranks);
    one.state(rank, calls[static_cast<std::size_t>(rank)]);
    for (std::size_t i = 0; i < all.words().size(); ++i)
      all.words()[i] += one.words()[i];
  }
  return all.judge(7).message();
}

TEST(CallTable, SaysWhoCallsWhat) {
  const CollectiveCall sum = CollectiveCall::allreduce(1000, DType::f32, Op::sum);
  EXPECT_EQ(verdict({sum, sum, sum}), "");
  EXPECT_EQ(
      verdict({sum, CollectiveCall::allreduce(1000, DType::f32, Op::max), sum, sum, sum}),
      "in call 7 of this communicator the ranks differ (HEDDLE_CHECK): ranks 0, 2-4 are in an allreduce "
      "of 1000 elements (sum of float32); rank 1 is in an allreduce of 1000 elements (max of float32). All "
      "ranks must make the same calls in the same order");
  const std::string by_request =
      verdict({CollectiveCall::bcast(8, 1), CollectiveCall::bcast(8, 1).as(Form::request)});
  EXPECT_NE(by_request.find("rank 0 is in a bcast of 8 bytes from rank 1; rank 1 is in a bcast of 8 bytes "
                            "from rank 1 by a request."),
            std::string::npos)
      << by_request;
  const std::string gathers =
      verdict({CollectiveCall::allgather(0), CollectiveCall::of(Kind::allgather_elsewhere)});
  EXPECT_NE(
      gathers.find("rank 0 is in an allgather of 0 bytes of each rank; rank 1 is in an allgather that is "
                   "the host MPI's, by a mistake in its arguments."),
      std::string::npos)
      << gathers;
  // Integers of either kind are added alike, and of nothing all is alike.
  EXPECT_EQ(verdict({CollectiveCall::allreduce(9, DType::i32, Op::sum),
                     CollectiveCall::allreduce(9, DType::u32, Op::sum)}),
            "");
  EXPECT_EQ(verdict({CollectiveCall::allreduce(0, DType::i32, Op::sum),
                     CollectiveCall::allreduce(0, DType::f32, Op::max)}),
            "");
}

TEST(CallTable, HasAnEnd) {
  std::vector<CollectiveCall> calls;
  for (std::size_t count = 0; count < 9; ++count)
    calls.push_back(CollectiveCall::allreduce(count, DType::u8, Op::sum));
  const std::string text = verdict(calls);
  EXPECT_NE(text.find("rank 3 is in an allreduce of 3 elements (sum of int8 or uint8); and 5 other calls."),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("rank 1 is in an allreduce of 1 element (sum of int8 or uint8);"), std::string::npos)
      << text;
}

// What differs from the first of them, each in one thing.
const std::vector<CollectiveCall>& different_calls() {
  static const std::vector<CollectiveCall> all = {CollectiveCall::allreduce(100, DType::f32, Op::sum),
                                                  CollectiveCall::allreduce(101, DType::f32, Op::sum),
                                                  CollectiveCall::allreduce(0, DType::f32, Op::sum),
                                                  CollectiveCall::allreduce(100, DType::i32, Op::sum),
                                                  CollectiveCall::allreduce(100, DType::f32, Op::max),
                                                  CollectiveCall::bcast(400, 0),
                                                  CollectiveCall::bcast(400, 1),
                                                  CollectiveCall::allgather(100),
                                                  CollectiveCall::allgather(101),
                                                  CollectiveCall::of(Kind::barrier),
                                                  CollectiveCall::of(Kind::sparse_allreduce),
                                                  CollectiveCall::of(Kind::refused)};
  return all;
}

Config comparing() {
  Config config = quiet();
  config.check = CheckSetting::calls;
  return config;
}

// Nodes of the ranks.
class ComparedCalls : public testing::TestWithParam<std::vector<std::uint64_t>> {};

TEST_P(ComparedCalls, BlockingCallsLeaveTheCommunicatorAsItWas) {
  Party party(GetParam());
  party.run(comparing(), [&](Rank& me, Communicator& comm) {
    const std::vector<CollectiveCall>& calls = different_calls();
    for (std::size_t i = 1; i < calls.size(); ++i) {
      me.at("calls that differ");
      ASSERT_TRUE(comm.compare(calls[0]).ok());
      const Status status = comm.compare(me.rank == 1 ? calls[i] : calls[0]);
      EXPECT_EQ(status.code(), Code::invalid_argument);
      const std::string number = "in call " + std::to_string(2 * i) + " ";
      EXPECT_NE(status.message().find(number), std::string::npos) << status.message();
      EXPECT_FALSE(comm.failed());
    }
    std::vector<std::int64_t> data = terms(me.rank, 1000, 3);
    ASSERT_TRUE(comm.allreduce(data.data(), data.data(), data.size(), DType::i64, Op::sum).ok());
    EXPECT_EQ(data, sums(party.size(), 1000, 3));
  });
}

Result<std::unique_ptr<Request>> sum_request(Communicator& comm, std::vector<std::int64_t>& data) {
  return comm.allreduce_request(data.data(), data.data(), data.size(), DType::i64, Op::sum);
}

TEST_P(ComparedCalls, RequestsThatAgreeAreServed) {
  Party party(GetParam());
  party.run(comparing(), [&](Rank& me, Communicator& comm) {
    std::vector<std::int64_t> first(500);
    std::vector<std::int64_t> second(20'000);
    auto one = sum_request(comm, first);
    auto two = sum_request(comm, second);
    ASSERT_TRUE(one.ok() && two.ok());
    for (std::uint64_t turn = 0; turn < 3; ++turn) {
      me.at("requests");
      std::ranges::copy(terms(me.rank, first.size(), turn), first.begin());
      std::ranges::copy(terms(me.rank, second.size(), turn + 50), second.begin());
      EXPECT_FALSE(one.value()->active());
      ASSERT_TRUE(one.value()->start().ok());
      ASSERT_TRUE(two.value()->start().ok());
      ASSERT_TRUE(comm.compare(CollectiveCall::of(Kind::barrier)).ok());
      ASSERT_TRUE(two.value()->wait().ok());
      bool done = false;
      while (!done)
        ASSERT_TRUE(one.value()->test(&done).ok());
      EXPECT_FALSE(one.value()->active());
      EXPECT_EQ(first, sums(party.size(), first.size(), turn));
      EXPECT_EQ(second, sums(party.size(), second.size(), turn + 50));
    }
  });
}

// A start waits for nobody.
TEST_P(ComparedCalls, RequestsMayWaitForOthersStarts) {
  Party party(GetParam());
  party.run(comparing(), [&](Rank& me, Communicator& comm) {
    std::vector<std::int64_t> data = terms(me.rank, 1000, 1);
    auto made = sum_request(comm, data);
    ASSERT_TRUE(made.ok());
    // Rank 1 starts when rank 0 has.
    char word = 0;
    if (me.rank == 1) {
      ASSERT_TRUE(comm.recv(&word, 1, 0).ok());
    }
    ASSERT_TRUE(made.value()->start().ok());
    if (me.rank == 0) {
      ASSERT_TRUE(comm.send(&word, 1, 1).ok());
    }
    ASSERT_TRUE(made.value()->wait().ok());
    EXPECT_EQ(data, sums(party.size(), 1000, 1));
  });
}

// Of other sizes, so that what follows the comparison would go wrong: nothing of it is sent.
TEST_P(ComparedCalls, RequestsThatDifferFail) {
  for (const bool tests : {false, true}) {
    Party party(GetParam());
    party.run(comparing(), [&](Rank& me, Communicator& comm) {
      me.at("requests that differ");
      std::vector<std::int64_t> data(me.rank == 1 ? 40'000 : 20'000, 1);
      auto made = sum_request(comm, data);
      ASSERT_TRUE(made.ok());
      bool done = false;
      Status status = made.value()->start();
      while (tests && status.ok() && !done)
        status = made.value()->test(&done);
      if (!tests && status.ok()) status = made.value()->wait();
      EXPECT_EQ(status.code(), Code::invalid_argument);
      EXPECT_NE(status.message().find(
                    "rank 1 is in an allreduce of 40000 elements (sum of int64 or uint64) by a request"),
                std::string::npos)
          << status.message();
      EXPECT_TRUE(comm.failed());
      EXPECT_FALSE(made.value()->test(&done).ok());
      EXPECT_EQ(data[0], 1);
    });
  }
}

// Which never match, as in MPI.
TEST_P(ComparedCalls, RequestsMeetBlockingCalls) {
  Party party(GetParam());
  party.run(comparing(), [&](Rank& me, Communicator& comm) {
    std::vector<std::int64_t> data(100, 1);
    auto made = sum_request(comm, data);
    ASSERT_TRUE(made.ok());
    Status status;
    if (me.rank == 1) {
      status = made.value()->start();
      if (status.ok()) status = made.value()->wait();
    } else {
      status = comm.compare(CollectiveCall::allreduce(100, DType::i64, Op::sum));
    }
    EXPECT_EQ(status.code(), Code::invalid_argument) << status.message();
    EXPECT_NE(status.message().find("(sum of int64 or uint64) by a request"), std::string::npos)
        << status.message();
  });
}

// One that has a pattern to remember is compared again at each start.
TEST_P(ComparedCalls, PersistentSparseRequests) {
  Party party(GetParam());
  party.run(comparing(), [&](Rank& me, Communicator& comm) {
    const std::uint32_t index = static_cast<std::uint32_t>(me.rank);
    const float value = 1;
    SparseJob job;
    job.in = {100, 1, IndexType::u32, DType::f32, &index, &value};
    std::size_t entries = 0;
    job.deliver = [&](std::span<const SparseView> parts) {
      for (const SparseView& part : parts)
        entries += part.count;
      return Status();
    };
    job.keeps_pattern = true;
    auto made = comm.sparse_allreduce_request(job);
    ASSERT_TRUE(made.ok());
    for (int turn = 0; turn < 3; ++turn) {
      entries = 0;
      ASSERT_TRUE(made.value()->start().ok());
      ASSERT_TRUE(made.value()->wait().ok());
      EXPECT_EQ(entries, static_cast<std::size_t>(party.size()));
    }
    Status status;
    if (me.rank == 1) {
      status = comm.compare(CollectiveCall::of(Kind::barrier));
    } else {
      status = made.value()->start();
      if (status.ok()) status = made.value()->wait();
    }
    EXPECT_NE(status.message().find("rank 1 is in a barrier"), std::string::npos) << status.message();
  });
}

std::string placement_name(const testing::TestParamInfo<std::vector<std::uint64_t>>& info) {
  std::string name = "nodes";
  for (const std::uint64_t node : info.param)
    name += "_" + std::to_string(node);
  return name;
}

using NodeOfEach = std::vector<std::uint64_t>;
INSTANTIATE_TEST_SUITE_P(Placements, ComparedCalls,
                         testing::Values(NodeOfEach{1, 1}, NodeOfEach{1, 1, 1, 1, 1}, NodeOfEach{1, 2},
                                         NodeOfEach{1, 1, 2, 2}, NodeOfEach{1, 2, 3, 1, 2, 1, 1}),
                         placement_name);

}  // namespace
}  // namespace heddle::test
