// Ranks that do not pass the same: who can notice does, and says what differs.
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "communicator/party.hpp"
#include "setup/hello.hpp"

namespace heddle::test {
namespace {

using std::chrono::milliseconds;

TEST(Disagreements, DifferentLengthsAreNoticed) {
  Party party({1, 1});
  Config config = hurried();
  config.timeout = milliseconds(5000);
  party.run(config, [](Rank& me, Communicator& comm) {
    std::vector<std::byte> data(100);
    const Status status = me.rank == 0 ? comm.send(data.data(), 60, 1) : comm.recv(data.data(), 50, 0);
    if (me.rank == 0) return;
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_NE(status.message().find("60 bytes where 50 were expected"), std::string::npos)
        << status.message();
  });
}

// One goes by messages, the other by the team: neither sees anything of the other's.
TEST(Disagreements, CallsThatDoNotMeetAreToldApart) {
  Party party({1, 1});
  Config config = hurried();
  config.timeout = milliseconds(20'000);
  config.algorithm = "bcast:knomial";
  party.run(config, [](Rank& me, Communicator& comm) {
    std::int64_t value = 1;
    const bool bcasts = me.rank == 0;
    const Status status =
        bcasts ? comm.bcast(&value, 4, 1) : comm.allreduce(&value, &value, 1, DType::i64, Op::sum);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    const char* const text = bcasts
                                 ? "(sum of int64 or uint64) where this rank is in a bcast of 4 bytes"
                                 : "is in a bcast of 4 bytes with root 1 where this rank is in an allreduce";
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
  });
}

// On one node. A rank that has given its part and has all others' before one of them differs has its result
// already.
TEST(Disagreements, DifferentTypesAndOperationsAreNoticed) {
  for (const bool type_differs : {true, false}) {
    for (const std::size_t count : {std::size_t{3}, std::size_t{300'000}}) {
      Party party({1, 1});
      party.run(hurried(), [&](Rank& me, Communicator& comm) {
        std::vector<float> data(count, 1.0F);
        const DType type = type_differs && me.rank == 1 ? DType::i32 : DType::f32;
        const Op op = !type_differs && me.rank == 1 ? Op::max : Op::sum;
        const Status status = comm.allreduce(data.data(), data.data(), count, type, op);
        EXPECT_EQ(status.code(), Code::invalid_argument) << status.message();
        EXPECT_NE(status.message().find("sum of float32"), std::string::npos) << status.message();
        EXPECT_NE(status.message().find(type_differs ? "sum of int32 or uint32" : "max of float32"),
                  std::string::npos)
            << status.message();
      });
    }
  }
}

// By name, also those that begin with a small sum of heddle's own.
TEST(Disagreements, DifferentCallsOfANodeAreNamed) {
  using Call = std::function<Status(Communicator&)>;
  const auto sparse_job = [] {
    SparseJob job;
    job.in = {1000, 0, IndexType::u32, DType::f32, nullptr, nullptr};
    job.deliver = [](std::span<const SparseView>) { return Status(); };
    return job;
  };
  struct Named {
    Call call;
    std::string name;
  };
  const Named calls[] = {
      {[](Communicator& comm) { return comm.barrier(); }, "a barrier"},
      {[&](Communicator& comm) { return comm.sparse_allreduce(sparse_job()); }, "a sparse allreduce"},
      {[&](Communicator& comm) {
         auto request = comm.sparse_allreduce_request(sparse_job());
         EXPECT_TRUE(request.ok());
         const Status started = request.value()->start();
         return started.ok() ? request.value()->wait() : started;
       },
       "a sparse allreduce by a request"},
      {[](Communicator& comm) {
         std::vector<float> in(1000, 1.0F);
         std::vector<float> out(1000);
         return comm.compressed_allreduce(
             {in.data(), out.data(), in.size(), parse_compression("topk:0.1").value(), nullptr});
       },
       "a compressed allreduce"},
      {[](Communicator& comm) { return comm.split(0, 0).status(); }, "a split"},
      // As long as the agreement of a compressed one.
      {[](Communicator& comm) {
         std::uint64_t words[2] = {};
         return comm.allreduce(words, words, 2, DType::u64, Op::sum);
       },
       "an allreduce of 16 bytes"},
      {[](Communicator& comm) {
         const std::uint64_t words[2] = {};
         std::uint64_t all[4];
         return comm.allgather(words, all, sizeof words);
       },
       "an allgather of 16 bytes of each rank"},
      {[](Communicator& comm) {
         const std::vector<char> many(100'000);
         std::vector<char> all(200'000);
         return comm.allgather(many.data(), all.data(), many.size());
       },
       "an allgather of 100000 bytes of each rank"}};
  for (const Named& first : calls) {
    for (const Named& second : calls) {
      if (&first == &second) continue;
      Party party({1, 1});
      party.run(hurried(), [&](Rank& me, Communicator& comm) {
        const Status status = (me.rank == 0 ? first : second).call(comm);
        EXPECT_EQ(status.code(), Code::invalid_argument) << status.message();
        const std::string theirs = " is in " + (me.rank == 0 ? second : first).name;
        const std::string ours = " where this rank is in " + (me.rank == 0 ? first : second).name;
        EXPECT_NE(status.message().find(theirs), std::string::npos) << status.message();
        EXPECT_NE(status.message().find(ours), std::string::npos) << status.message();
      });
    }
  }
}

// Programs mix them, and no result depends on it as long as no value is negative.
TEST(Disagreements, SignedAndUnsignedTypesGoTogether) {
  Party party({1, 1});
  party.run(hurried(), [&](Rank& me, Communicator& comm) {
    std::uint32_t value = 3;
    const Status status = comm.allreduce(&value, &value, 1, me.rank == 0 ? DType::u32 : DType::i32, Op::sum);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(value, 6U);
  });
}

TEST(Disagreements, ANumberThatTwoRanksHave) {
  Bootstrap bootstrap;
  bootstrap.rank = 0;
  bootstrap.size = 2;
  const Hello hello = make_hello(bootstrap, quiet(), {});
  const Status status = check_hellos({hello, hello});
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find("in the place of rank 1 of 2 is one that was started as rank 0 of 2"),
            std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace heddle::test
