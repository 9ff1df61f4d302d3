// The faults that loopback injects on demand.
#include "transports/loopback/loopback.hpp"

#include <gtest/gtest.h>

#include <string>

#include "support/worlds.hpp"

namespace heddle::test {
namespace {

// Rank 0 sends `bytes` to rank 1; what the receiver's progress says, and whether either end finished.
struct Outcome {
  Status status;
  bool sent = false;
  bool received = false;
};
Outcome exchange(LoopbackOptions options, std::size_t bytes, int polls) {
  LoopbackWorld world(2, options);
  std::string data(bytes, 'x');
  std::string buffer(bytes, '.');
  Ticket send;
  Ticket recv;
  Outcome out;
  EXPECT_TRUE(world.of(0).send(1, 3, data.data(), bytes, send).ok());
  EXPECT_TRUE(world.of(1).recv(0, 3, buffer.data(), bytes, recv).ok());
  for (int i = 0; i < polls && out.status.ok(); ++i) {
    out.status = world.of(1).progress();
    EXPECT_TRUE(world.of(0).progress().ok());
  }
  out.sent = send.done;
  out.received = recv.done;
  if (!recv.done) world.of(1).cancel(recv);
  if (!send.done) world.of(0).cancel(send);
  if (out.received) {
    EXPECT_EQ(buffer, data);
  }
  return out;
}

TEST(Loopback, EagerSendsFinishAtOnce) {
  LoopbackOptions options;
  options.eager_bytes = 10;
  EXPECT_TRUE(exchange(options, 10, 0).sent);
  EXPECT_FALSE(exchange(options, 11, 0).sent);
}

TEST(Loopback, RendezvousSendsFinishWithTheirReceive) {
  LoopbackOptions options;
  options.eager_bytes = 0;
  const Outcome out = exchange(options, 11, 1);
  EXPECT_TRUE(out.received);
  EXPECT_TRUE(out.sent);
}

TEST(Loopback, DelaysHoldMessagesBack) {
  LoopbackOptions options;
  options.max_delay = 100;
  bool late = false;
  for (options.seed = 1; options.seed < 20; ++options.seed) {
    EXPECT_TRUE(exchange(options, 8, 101).received);
    late = late || !exchange(options, 8, 1).received;
  }
  EXPECT_TRUE(late);
}

TEST(Loopback, ADeadRankIsSilentBothWays) {
  for (const int dead : {0, 1}) {
    LoopbackOptions options;
    options.dead_rank = dead;
    const Outcome out = exchange(options, 8, 50);
    EXPECT_TRUE(out.status.ok());
    EXPECT_FALSE(out.received);
  }
}

TEST(Loopback, ACorruptLengthIsNoticed) {
  for (const std::size_t eager : {0, 100}) {
    LoopbackOptions options;
    options.eager_bytes = eager;
    options.corrupt_rank = 0;
    const Outcome out = exchange(options, 8, 5);
    ASSERT_FALSE(out.status.ok());
    EXPECT_NE(out.status.message().find("rank 0 sent 7 bytes where 8 were expected"), std::string::npos)
        << out.status.message();
    EXPECT_FALSE(out.received);
  }
}

}  // namespace
}  // namespace heddle::test
