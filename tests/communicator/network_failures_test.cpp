// Failures between nodes: what those hear who wait for a rank that has failed and lives on, and what a lender
// of messages may go on with.
#include <gtest/gtest.h>
#include <regex.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "communicator/party.hpp"

namespace heddle::test {
namespace {

using std::chrono::seconds;

// Its module is beside these tests where it was built.
class OverUcx : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* modules = std::getenv("UCX_MODULES_OF_TESTS");
    if (modules == nullptr) GTEST_SKIP() << "without UCX";
    config_.modules = modules;
    config_.transports = "ucx";
    config_.timeout = seconds(20);
    for (int rank = 0; rank < 2; ++rank)
      party_.lend_nothing(rank);
  }

  // Rank 1 fails and stays until rank 0 has heard.
  template <typename Fail, typename Wait>
  void run(Fail fail, Wait wait) {
    std::atomic<bool> through{false};
    party_.run(config_, [&](Rank& me, Communicator& comm) {
      if (me.rank == 1) {
        fail(comm);
        EXPECT_TRUE(comm.failed());
        me.until([&] { return through.load(); });
        return;
      }
      const Status status = wait(comm);
      EXPECT_EQ(status.code(), Code::peer_failed);
      EXPECT_NE(status.message().find("rank 1 "), std::string::npos) << status.message();
      through = true;
    });
  }

  Party party_{{1, 2}};
  Config config_ = quiet();
};

TEST_F(OverUcx, WhoHasFailedIsNotWaitedFor) {
  run(
      [](Communicator& comm) {
        std::vector<std::byte> data(50);
        EXPECT_FALSE(comm.recv(data.data(), 50, 0).ok());
      },
      [](Communicator& comm) {
        const std::vector<std::byte> data(60);
        EXPECT_TRUE(comm.send(data.data(), 60, 1).ok());
        return comm.barrier();
      });
}

TEST_F(OverUcx, WhoGivesUpIsNotWaitedFor) {
  run([](Communicator& comm) { comm.give_up(Status(Code::out_of_memory, "no room")); },
      [](Communicator& comm) {
        int value = 0;
        return comm.bcast(&value, sizeof value, 1);
      });
}

bool says(const Status& status, const std::string& pattern) {
  regex_t compiled{};
  EXPECT_EQ(regcomp(&compiled, pattern.c_str(), REG_EXTENDED | REG_NOSUB), 0) << pattern;
  const bool found = regexec(&compiled, status.message().c_str(), 0, nullptr, 0) == 0;
  regfree(&compiled);
  EXPECT_TRUE(found) << status.message();
  return found;
}

// Rank 2 waits for rank 1, which computes, and gives up; rank 0 waits for rank 2.
void who_gives_up_says_for_whom_it_has_waited(std::vector<std::uint64_t> nodes, const std::string& between) {
  Party party(std::move(nodes));
  std::atomic<bool> has_given_up{false};
  std::atomic<bool> has_heard{false};
  run_ranks(3, [&](Rank& me) {
    Config config = quiet();
    config.transports = "shm," + between;
    config.timeout = me.rank == 2 ? std::chrono::milliseconds(300) : seconds(20);
    auto comm = Communicator::create(party.bootstrap(me.rank), config);
    ASSERT_TRUE(comm.ok()) << comm.status().message();
    int value = 0;
    if (me.rank == 0) {
      const Status status = comm.value()->recv(&value, sizeof value, 2);
      EXPECT_EQ(status.code(), Code::peer_failed);
      says(status, "^rank 2 [(]?.* has waited 0[.][3-9] s for rank 1 .*, and given up .HEDDLE_TIMEOUT.");
      has_heard = true;
    } else if (me.rank == 1) {
      me.until([&] { return has_given_up.load(); });
      Status status;
      for (int i = 0; i < 1000 && status.ok(); ++i)
        status = comm.value()->send(&value, sizeof value, 2);
      if (status.ok()) status = comm.value()->recv(&value, sizeof value, 2);
      says(status, "^rank 2 .* has waited 0[.][3-9] s for this rank, and given up .HEDDLE_TIMEOUT.");
    } else {
      EXPECT_EQ(comm.value()->recv(&value, sizeof value, 1).code(), Code::timeout);
      has_given_up = true;
    }
    me.until([&] { return has_heard.load(); });
  });
}

TEST(WhoGivesUp, SaysForWhomItHasWaitedByTcp) {
  who_gives_up_says_for_whom_it_has_waited({1, 2, 3}, "tcp");
}

TEST(WhoGivesUp, SaysForWhomItHasWaitedBySharedMemory) {
  who_gives_up_says_for_whom_it_has_waited({1, 1, 1}, "mpi");
}

class FailedNetworks : public ::testing::Test {
 protected:
  FailedNetworks() {
    for (int rank = 0; rank < party_.size(); ++rank)
      party_.processes.push_back(std::make_shared<ProcessState>());
  }
  std::vector<Status> outcomes(const std::string& transports) {
    return party_.outcomes([&](int) {
      Config config = quiet();
      config.transports = transports;
      config.timeout = std::chrono::milliseconds(500);
      return config;
    });
  }

  Party party_{{1, 2, 3}, LoopbackOptions{.dead_rank = 1}};
};

// Whose messages get nowhere when a communicator is made, a second one does not wait for.
TEST_F(FailedNetworks, AreNotWaitedForAgain) {
  for (const Status& status : outcomes("shm,mpi")) {
    EXPECT_EQ(status.code(), Code::timeout);
    says(status, "within 0[.][5-9] s .HEDDLE_TIMEOUT.*; these ranks do not try mpi again$");
  }
  for (const Status& status : outcomes("shm,mpi")) {
    EXPECT_EQ(status.code(), Code::unsupported);
    says(status, "3 nodes and no transport.*[(]mpi: has not connected ranks of this job before[)]");
  }
}

// Ranks that come together know of different ones: all leave out what one of them knows.
TEST_F(FailedNetworks, OfAnyRankAreLeftOutByAll) {
  party_.processes[2]->note_failed_network("mpi");
  party_.processes[2]->note_failed_network("mpi");
  EXPECT_EQ(party_.processes[2]->failed_networks(), "mpi");
  for (const Status& status : outcomes("shm,mpi,tcp"))
    EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(party_.lender(0).opened, 0);
}

// Also the one that was the fastest before.
TEST_F(FailedNetworks, AreTheFastestNoMore) {
  for (const auto& process : party_.processes)
    process->use_internode("mpi");
  party_.processes[0]->note_failed_network("mpi");
  EXPECT_EQ(party_.processes[0]->internode(), "");
  for (const Status& status : outcomes("shm,mpi,tcp"))
    EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(party_.processes[1]->internode(), "tcp");
}

// An MPI does not take back a receive that has met its message.
TEST(LentMessages, WhoseLenderGoesOnWithThemAreNamed) {
  Party party({1, 2});
  Config config = quiet();
  config.timeout = std::chrono::milliseconds(400);
  static int (*cancel)(void* request, void* context) = nullptr;
  cancel = party.lender(0).functions().cancel;
  std::atomic<bool> through{false};
  run_ranks(2, [&](Rank& me) {
    Bootstrap bootstrap = party.bootstrap(me.rank);
    bootstrap.make_p2p = [&party, &me]() -> Result<heddle_p2p> {
      heddle_p2p p2p = party.lender(me.rank).functions();
      p2p.cancel = [](void* request, void* context) { return (void)cancel(request, context), 1; };
      return p2p;
    };
    auto comm = Communicator::create(bootstrap, config);
    ASSERT_TRUE(comm.ok()) << comm.status().message();
    Communicator& c = *comm.value();
    if (me.rank == 1) {
      me.until([&] { return through.load(); });
      return;
    }
    int value = 0;
    for (int again = 0; again < 2; ++again) {
      const Status status = c.recv(&value, sizeof value, 1);
      EXPECT_EQ(status.code(), Code::timeout);
      EXPECT_NE(
          status.message().find("has not let go of a message from rank 1 that was given up: it may still "
                                "write to its buffer"),
          std::string::npos)
          << status.message();
    }
    through = true;
  });
}

}  // namespace
}  // namespace heddle::test
