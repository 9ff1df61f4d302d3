// Who waits for long says so, and drives its host meanwhile.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "communicator/party.hpp"

namespace heddle::test {
namespace {

using std::chrono::milliseconds;

// Rank 0, and rank 2 when that has gone on for long.
TEST(Waiting, OneWarningSaysWhoIsMissing) {
  Party party({1, 1, 1});
  for (int rank = 0; rank < 3; ++rank)
    party.processes.push_back(std::make_shared<ProcessState>());
  Config config;
  config.measure = false;
  config.warn_after = std::chrono::hours(1);
  std::atomic<int> hours_ahead{0};
  std::atomic<int> coming{0};
  const Clock clock = [&] {
    return std::chrono::steady_clock::now() + std::chrono::hours(hours_ahead.load());
  };
  const auto has_warned = [&](std::size_t rank) { return !party.processes[rank]->may_warn(clock()); };
  ::testing::internal::CaptureStderr();
  run_ranks(3, [&](Rank& me) {
    Bootstrap bootstrap = party.bootstrap(me.rank);
    bootstrap.clock = clock;
    const auto comm = Communicator::create(bootstrap, config);
    ASSERT_TRUE(comm.ok()) << comm.status().message();
    if (me.rank == 1) {
      // Until the others wait, by this clock.
      me.until([&] { return coming.load() == 2; });
      std::this_thread::sleep_for(milliseconds(300));
      hours_ahead = 2;
      me.until([&] { return has_warned(0); });
      std::this_thread::sleep_for(milliseconds(300));
      EXPECT_FALSE(has_warned(2));
      hours_ahead = 20;
      me.until([&] { return has_warned(2); });
    }
    ++coming;
    EXPECT_TRUE(comm.value()->barrier().ok());
  });
  const std::string log = ::testing::internal::GetCapturedStderr();
  for (const char* rank : {"heddle[0] warning: ", "heddle[2] warning: "}) {
    const std::size_t at = log.find(rank);
    ASSERT_NE(at, std::string::npos) << log;
    EXPECT_EQ(log.find("waiting for rank 1 (process", at), at + std::strlen(rank)) << log;
    EXPECT_EQ(log.find(rank, at + 1), std::string::npos) << log;
  }
}

TEST(Waiting, TheHostIsDrivenWhileARankWaits) {
  Party party({1, 1});
  std::atomic<int> driven{0};
  run_ranks(2, [&](Rank& me) {
    Bootstrap b = party.bootstrap(me.rank);
    if (me.rank == 0) b.host_progress = [&] { ++driven; };
    const auto comm = Communicator::create(b, quiet());
    ASSERT_TRUE(comm.ok());
    Communicator& c = *const_cast<std::unique_ptr<Communicator>&>(comm.value());
    // Rank 1 comes once rank 0 has driven its host: were it never to, this would hang.
    if (me.rank == 1) me.until([&] { return driven.load() > 0; });
    EXPECT_TRUE(c.barrier().ok());
  });
  EXPECT_GT(driven.load(), 0);
}

}  // namespace
}  // namespace heddle::test
