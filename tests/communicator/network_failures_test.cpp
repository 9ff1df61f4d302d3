// Failures between nodes: what those hear who wait for a rank that has failed and lives on, and what a lender
// of messages may go on with.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
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
