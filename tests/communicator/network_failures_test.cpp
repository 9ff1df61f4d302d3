// Failures between nodes: what those hear who wait for a rank that has failed and lives on.
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

}  // namespace
}  // namespace heddle::test
