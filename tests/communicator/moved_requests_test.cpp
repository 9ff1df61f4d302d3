// Calls that are over at their first look move requests as well: a rank that makes only such calls keeps
// nobody waiting.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>

#include "communicator/party.hpp"

namespace heddle::test {
namespace {

struct Call {
  const char* name;
  const char* algorithms;
  std::function<Status(Communicator& comm, int rank)> make;  // rank 0's part is over at once
};

std::ostream& operator<<(std::ostream& out, const Call& call) {
  return out << call.name;
}

Status bcast(Communicator& comm, int /*rank*/) {
  int value = 0;
  return comm.bcast(&value, sizeof value, 0);
}

Status message(Communicator& comm, int rank) {
  int value = 0;
  return rank == 0 ? comm.send(&value, sizeof value, 1) : comm.recv(&value, sizeof value, 0);
}

class MovedRequests : public ::testing::TestWithParam<Call> {};
INSTANTIATE_TEST_SUITE_P(Calls, MovedRequests,
                         ::testing::Values(Call{"by_team", "allreduce:ring", bcast},
                                           Call{"by_messages", "allreduce:ring,bcast:binomial", bcast},
                                           Call{"message", "allreduce:ring", message}),
                         [](const auto& call) { return std::string(call.param.name); });

TEST_P(MovedRequests, ByCallsThatAreOverAtOnce) {
  constexpr int kCalls = 6;
  Party party({1, 1});
  Config config = quiet();
  config.algorithm = GetParam().algorithms;
  std::atomic<bool> started{false};
  std::atomic<bool> complete{false};
  std::atomic<int> tests{0};
  party.run(config, [&](Rank& me, Communicator& comm) {
    std::int64_t sum = me.rank + 1;
    auto made = comm.allreduce_request(&sum, &sum, 1, DType::i64, Op::sum);
    ASSERT_TRUE(made.ok());
    Request& request = *made.value();
    // Rank 0's start finds nothing of rank 1's.
    if (me.rank == 1) me.until([&] { return started.load(); });
    ASSERT_TRUE(request.start().ok());
    if (me.rank == 0) {
      started = true;
      const auto until_rank_1_has_looked = [&] {
        const int before = tests;
        me.until([&] { return complete || tests > before + 1; });
      };
      for (int i = 0; i < kCalls; ++i) {
        until_rank_1_has_looked();
        ASSERT_TRUE(GetParam().make(comm, 0).ok());
      }
      until_rank_1_has_looked();
      EXPECT_TRUE(complete) << "rank 1 has waited for rank 0's next test all the while";
      ASSERT_TRUE(request.wait().ok());
    } else {
      me.until([&] {
        bool done = false;
        EXPECT_TRUE(request.test(&done).ok());
        ++tests;
        return done;
      });
      complete = true;
      for (int i = 0; i < kCalls; ++i)
        ASSERT_TRUE(GetParam().make(comm, 1).ok());
    }
    EXPECT_EQ(sum, 3);
  });
}

}  // namespace
}  // namespace heddle::test
