// A rank that does not come, or dies: the others say who, within the deadline, and go on saying it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "communicator/party.hpp"

namespace heddle::test {
namespace {

using std::chrono::milliseconds;

// Rank `absent` makes the communicator and then waits for the others to fail.
template <typename Body>
void without(Party& party, const Config& config, int absent, Body body) {
  std::atomic<int> through{0};
  party.run(config, [&](Rank& me, Communicator& comm) {
    if (me.rank == absent) {
      me.until([&] { return through.load() == party.size() - 1; });
      return;
    }
    body(me, comm);
    ++through;
  });
}

TEST(Failures, AMissingRankIsNamedOnOneNode) {
  Party party({1, 1, 1, 1});
  for (const std::size_t bytes : {8, 400'000}) {
    without(party, hurried(), 2, [&](Rank&, Communicator& comm) {
      std::vector<std::byte> data(bytes);
      const Status status = comm.allreduce(data.data(), data.data(), bytes, DType::u8, Op::bor);
      EXPECT_EQ(status.code(), Code::timeout);
      EXPECT_NE(status.message().find("rank 2 (process " + std::to_string(getpid())), std::string::npos)
          << status.message();
      EXPECT_NE(status.message().find("HEDDLE_TIMEOUT"), std::string::npos);
    });
  }
}

TEST(Failures, AMissingBcastRootIsNamed) {
  Party party({1, 1, 1});
  without(party, hurried(), 1, [](Rank&, Communicator& comm) {
    int value = 0;
    const Status status = comm.bcast(&value, 4, 1);
    EXPECT_EQ(status.code(), Code::timeout);
    EXPECT_NE(status.message().find("rank 1 "), std::string::npos) << status.message();
  });
}

// Whoever waits in vain is told how to find out whether the calls differ, unless they are compared already.
TEST(Failures, TheWayToCompareCallsIsNamed) {
  for (const int check : {0, 1}) {
    Party party({1, 1});
    Config config = hurried();
    config.check = static_cast<CheckSetting>(check);
    without(party, config, 1, [&](Rank&, Communicator& comm) {
      const std::string text = comm.barrier().message();
      EXPECT_EQ(text.find("HEDDLE_CHECK=1") != std::string::npos, check == 0) << text;
    });
  }
}

TEST(Failures, AMissingRankIsNamedBetweenNodes) {
  Party party({1, 2});
  without(party, hurried(), 1, [](Rank&, Communicator& comm) {
    const Status status = comm.barrier();
    EXPECT_EQ(status.code(), Code::timeout);
    EXPECT_NE(status.message().find("rank 1 "), std::string::npos) << status.message();
  });
}

// Where the neighbour of a rank waits itself, nobody claims to know better.
TEST(Failures, ANeighbourIsNamedWithCare) {
  Party party({1, 2, 3, 4});
  Config config = hurried();
  config.algorithm = "allreduce:ring";
  without(party, config, 2, [](Rank& me, Communicator& comm) {
    std::int64_t value = 1;
    const Status status = comm.allreduce(&value, &value, 1, DType::i64, Op::sum);
    EXPECT_EQ(status.code(), Code::timeout);
    const std::string left = "rank " + std::to_string((me.rank + 3) % 4) + " (process ";
    EXPECT_NE(status.message().find(left), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("did not take part, or waits itself"), std::string::npos)
        << status.message();
  });
}

TEST(Failures, AMissingRankIsNamedByARequest) {
  for (const Nodes& nodes : {Nodes{1, 1}, Nodes{1, 2}}) {
    Party party(nodes);
    without(party, hurried(), 1, [](Rank&, Communicator& comm) {
      std::int64_t in = 1;
      std::int64_t out = 0;
      auto request = comm.allreduce_request(&in, &out, 1, DType::i64, Op::sum);
      ASSERT_TRUE(request.ok());
      ASSERT_TRUE(request.value()->start().ok());
      const Status status = request.value()->wait();
      EXPECT_EQ(status.code(), Code::timeout);
      EXPECT_NE(status.message().find("rank 1 "), std::string::npos) << status.message();
    });
  }
}

testing::AssertionResult ends_with(const Status& status, const std::string& text) {
  if (status.message().ends_with(text)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << status.message() << ", not " << text;
}

// Nobody writes there any more, also no thread: neither for the request that was waited for nor for another
// one.
TEST(Failures, BuffersAreTheCallersAfterwards) {
  for (const char* algorithm : {"", "ring"}) {
    Party party({1, 1});
    Config config = hurried();
    config.progress_thread = ProgressThreadSetting::always;
    config.algorithm = algorithm;
    std::atomic<bool> failed{false};
    std::atomic<bool> late{false};
    party.run(config, [&](Rank& me, Communicator& comm) {
      constexpr std::size_t kCount = 4000;
      const std::vector<float> in(kCount, 1);
      std::vector<float> out[2];
      std::unique_ptr<Request> requests[2];
      if (me.rank == 1) me.until([&] { return failed.load(); });
      for (int k = 0; k < 2; ++k) {
        out[k].assign(kCount, 0);
        auto request = comm.allreduce_request(in.data(), out[k].data(), kCount, DType::f32, Op::sum);
        ASSERT_TRUE(request.ok());
        requests[k] = std::move(request).value();
        // Of the late rank these may fail.
        const Status started = requests[k]->start();
        EXPECT_TRUE(started.ok() || me.rank == 1) << started.message();
      }
      if (me.rank == 1) {
        bool done = false;
        for (int i = 0; i < 100; ++i) {
          (void)requests[0]->test(&done);
          std::this_thread::sleep_for(milliseconds(1));
        }
        late = true;
        return;
      }
      const Status status = requests[0]->wait();
      EXPECT_EQ(status.code(), Code::timeout);
      for (std::vector<float>& mine : out)
        mine.assign(kCount, 42);
      failed = true;
      me.until([&] { return late.load(); });
      EXPECT_TRUE(ends_with(requests[1]->wait(), status.message()));
      for (const std::vector<float>& mine : out)
        EXPECT_EQ(mine, std::vector<float>(kCount, 42)) << algorithm;
      EXPECT_FALSE(requests[0]->active());
    });
  }
}

// What a rank that comes late would find in the root's own buffer, whose caller has been told of the failure.
TEST(Failures, ABcastsBufferIsItsRootsAfterwards) {
  Party party({1, 1});
  Config config = hurried();
  config.single_copy = true;
  std::atomic<bool> failed{false};
  std::atomic<bool> late{false};
  party.run(config, [&](Rank& me, Communicator& comm) {
    ASSERT_NE(comm.describe().find("copied once"), std::string::npos);
    std::vector<std::byte> data(32 * 1024);
    if (me.rank == 0) {
      EXPECT_EQ(comm.bcast(data.data(), data.size(), 0).code(), Code::timeout);
      data.assign(data.size(), std::byte{42});
      failed = true;
      me.until([&] { return late.load(); });
      return;
    }
    me.until([&] { return failed.load(); });
    const Status status = comm.bcast(data.data(), data.size(), 0);
    EXPECT_EQ(status.code(), Code::peer_failed);
    EXPECT_NE(status.message().find("rank 0 "), std::string::npos) << status.message();
    late = true;
  });
}

// Who has no memory for its part, as for a buffer to pack into, does not leave the others waiting.
TEST(Failures, WhoGivesUpIsNotWaitedFor) {
  for (const Nodes& nodes : {Nodes{1, 1}, Nodes{1, 2}}) {
    Party party(nodes);
    party.lend_nothing(0);  // whose owner says nothing of others
    party.lend_nothing(1);
    Config config = quiet();
    config.timeout = std::chrono::seconds(20);
    std::atomic<bool> through{false};
    const auto begin = std::chrono::steady_clock::now();
    party.run(config, [&](Rank& me, Communicator& comm) {
      int value = 0;
      if (me.rank == 1) {
        comm.give_up(Status(Code::out_of_memory, "no room"));
        EXPECT_TRUE(comm.failed());
        EXPECT_TRUE(ends_with(comm.bcast(&value, sizeof value, 0), "It failed with: no room"));
        me.until([&] { return through.load(); });
        return;
      }
      const Status status = comm.bcast(&value, sizeof value, 1);
      EXPECT_EQ(status.code(), Code::peer_failed);
      EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
      through = true;
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  }
}

// What comes after a message of another length has no place to go.
TEST(Failures, MessagesOfOtherLengthsGoNowhere) {
  Party party({1, 1});
  Config config = hurried();
  config.progress_thread = ProgressThreadSetting::always;
  config.algorithm = "ring";
  party.run(config, [](Rank& me, Communicator& comm) {
    const std::size_t count = me.rank == 0 ? 1000 : 400'000;
    const std::vector<float> in(count, 1);
    std::vector<float> out[2] = {std::vector<float>(count), std::vector<float>(count)};
    std::unique_ptr<Request> requests[2];
    Status status;
    for (int k = 0; k < 2 && status.ok(); ++k) {
      auto request = comm.allreduce_request(in.data(), out[k].data(), count, DType::f32, Op::sum);
      status = request.status();
      if (!status.ok()) break;
      requests[k] = std::move(request).value();
      status = requests[k]->start();
    }
    if (status.ok()) status = requests[0]->wait();
    EXPECT_FALSE(status.ok());
    std::this_thread::sleep_for(milliseconds(50));
  });
}

// Who only ever tests learns it as well.
TEST(Failures, AMissingRankIsNamedByATest) {
  for (const Nodes& nodes : {Nodes{1, 1}, Nodes{1, 2}}) {
    Party party(nodes);
    without(party, hurried(), 1, [](Rank& me, Communicator& comm) {
      std::int64_t in = 1;
      std::int64_t out = 0;
      auto request = comm.allreduce_request(&in, &out, 1, DType::i64, Op::sum);
      ASSERT_TRUE(request.ok());
      ASSERT_TRUE(request.value()->start().ok());
      Status status;
      me.until([&] {
        bool done = false;
        status = request.value()->test(&done);
        return done || !status.ok();
      });
      EXPECT_EQ(status.code(), Code::timeout);
      EXPECT_NE(status.message().find("rank 1 "), std::string::npos) << status.message();
    });
  }
}

// What a caller does between two tests is not counted as waiting: the others may have waited for it.
TEST(Failures, TestsThatAreFarApartAreNotWaiting) {
  Party party({1, 1});
  std::atomic<bool> tested_twice{false};
  party.run(hurried(), [&](Rank& me, Communicator& comm) {
    std::int64_t in = 1;
    std::int64_t out = 0;
    auto request = comm.allreduce_request(&in, &out, 1, DType::i64, Op::sum);
    ASSERT_TRUE(request.ok());
    if (me.rank == 1) me.until([&] { return tested_twice.load(); });
    ASSERT_TRUE(request.value()->start().ok());
    bool done = false;
    for (int i = 0; i < 2; ++i) {
      if (i > 0 && me.rank == 0) std::this_thread::sleep_for(milliseconds(800));
      const Status status = request.value()->test(&done);
      EXPECT_TRUE(status.ok()) << status.message();
    }
    tested_twice = true;
    const Status status = request.value()->wait();
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(out, 2);
  });
}

// Of three ranks, of which the one that is to send cannot wait for another one. HEDDLE_CHECK compares no
// messages.
TEST(Failures, AMessageThatDoesNotCome) {
  Party party({1, 1, 1});
  without(party, hurried(), 1, [](Rank&, Communicator& comm) {
    int value = 0;
    const Status status = comm.recv(&value, 4, 1);
    EXPECT_EQ(status.code(), Code::timeout);
    EXPECT_NE(status.message().find("rank 1 "), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find("waits itself"), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find("HEDDLE_CHECK"), std::string::npos) << status.message();
  });
}

TEST(Failures, TheFirstErrorIsToldForEver) {
  for (const Nodes& nodes : {Nodes{1, 1}, Nodes{1, 2}}) {
    Party party(nodes);
    without(party, hurried(), 1, [](Rank&, Communicator& comm) {
      std::int64_t value = 1;
      auto request = comm.barrier_request();
      ASSERT_TRUE(request.ok());
      const Status first = comm.allreduce(&value, &value, 1, DType::i64, Op::sum);
      ASSERT_FALSE(first.ok());
      const std::vector<Status> later{comm.barrier(),
                                      comm.bcast(&value, 8, 0),
                                      comm.allreduce(&value, &value, 1, DType::i64, Op::sum),
                                      comm.send(&value, 8, 1),
                                      comm.recv(&value, 8, 1),
                                      comm.barrier_request().status(),
                                      request.value()->start()};
      for (const Status& s : later) {
        EXPECT_EQ(s.code(), first.code());
        EXPECT_EQ(s.message().find("this communicator has failed before"), 0U) << s.message();
        EXPECT_TRUE(ends_with(s, "It failed with: " + first.message()));
      }
    });
  }
}

// Its process lives on, and nobody knows for how long.
TEST(Failures, WhoHasFailedIsNotWaitedFor) {
  Party party({1, 1});
  Config config = hurried();
  config.timeout = milliseconds(20'000);
  std::atomic<bool> through{false};
  party.run(config, [&](Rank& me, Communicator& comm) {
    std::vector<std::byte> data(100);
    if (me.rank == 1) {
      EXPECT_FALSE(comm.recv(data.data(), 50, 0).ok());
      me.until([&] { return through.load(); });
      return;
    }
    EXPECT_TRUE(comm.send(data.data(), 60, 1).ok());
    const Status status = comm.barrier();
    EXPECT_EQ(status.code(), Code::peer_failed);
    EXPECT_NE(status.message().find("rank 1 (process " + std::to_string(getpid())), std::string::npos);
    EXPECT_NE(status.message().find("has failed, or has destroyed its communicator"), std::string::npos)
        << status.message();
    through = true;
  });
}

TEST(Failures, WhoHasDestroyedItsCommunicatorIsNotWaitedFor) {
  Party party({1, 1, 1});
  Config config = hurried();
  config.timeout = milliseconds(20'000);
  for (const char* algorithm : {"", "allreduce:ring"}) {
    config.algorithm = algorithm;
    party.run(config, [](Rank& me, Communicator& comm) {
      std::int64_t value = 1;
      EXPECT_TRUE(comm.allreduce(&value, &value, 1, DType::i64, Op::sum).ok());
      if (me.rank == 2) return;
      const Status status = comm.allreduce(&value, &value, 1, DType::i64, Op::sum);
      EXPECT_EQ(status.code(), Code::peer_failed) << status.message();
    });
  }
}

// Rank 0 waits for rank 1, which takes several times the deadline because it has much to do with rank 2.
TEST(Failures, WhoMovesIsWaitedFor) {
  Party party({1, 1, 1});
  Config config = hurried();
  config.timeout = milliseconds(2000);
  party.run(config, [](Rank& me, Communicator& comm) {
    std::int64_t value = 0;
    if (me.rank == 0) {
      const Status status = comm.recv(&value, sizeof value, 1);
      EXPECT_TRUE(status.ok()) << status.message();
      return;
    }
    for (int round = 0; round < 20; ++round) {
      if (me.rank == 2) std::this_thread::sleep_for(milliseconds(300));
      EXPECT_TRUE(
          (me.rank == 2 ? comm.send(&value, sizeof value, 1) : comm.recv(&value, sizeof value, 2)).ok());
    }
    if (me.rank == 1) {
      EXPECT_TRUE(comm.send(&value, sizeof value, 0).ok());
    }
  });
}

}  // namespace
}  // namespace heddle::test
