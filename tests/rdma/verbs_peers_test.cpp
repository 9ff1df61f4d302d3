// Peers that are through with a communicator while others are not, as NetworkPeers are for networks that need
// no device.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "rdma/verbs_world.hpp"

// In place of the library's: no device of this program's can make a queue of completions larger.
extern "C" int ibv_resize_cq(ibv_cq*, int) {
  return EOPNOTSUPP;
}

namespace heddle::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Progress of all ranks that are there, until `done`, one fails or the limit.
template <typename Done>
Status drive(VerbsWorld& world, Done done, milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  while (!done() && steady_clock::now() < end) {
    for (const auto& transport : world.transports) {
      if (transport) HEDDLE_TRY(transport->progress());
    }
  }
  return {};
}

constexpr milliseconds kLong{20'000};

void exchange(VerbsWorld& world, int from, int to) {
  std::vector<char> data(1000, 1);
  std::vector<char> buffer(1000);
  Ticket sent;
  Ticket received;
  ASSERT_TRUE(world.of(from).send(to, 3, data.data(), data.size(), sent).ok());
  ASSERT_TRUE(world.of(to).recv(from, 3, buffer.data(), buffer.size(), received).ok());
  const Status status = drive(
      world, [&] { return sent.done && received.done; }, kLong);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(buffer, data);
}

// What a queue of completions takes for all peers is there before the first connection.
TEST(VerbsPeers, ManyOnADeviceWhoseQueuesStayAsTheyAre) {
  constexpr int kRanks = 10;
  VerbsWorld world(kRanks);
  for (int rank = 1; rank < kRanks; ++rank)
    ASSERT_NO_FATAL_FAILURE(exchange(world, 0, rank)) << rank;
}

// Of all ranks those are looked at by the clock with which a connection is begun.
TEST(VerbsPeers, WhoNeverAnswersIsLost) {
  VerbsWorld world(2, NetworkOptions{}.verbs_timeout, milliseconds(1000));
  Ticket sent;
  ASSERT_TRUE(world.of(0).send(1, 3, "x", 1, sent).ok());
  world.transports[1].reset();
  const Status status = drive(
      world, [] { return false; }, kLong);
  EXPECT_NE(status.message().find("rank 1 is gone: it has not answered for"), std::string::npos)
      << status.message();
}

// Ranks that compute for longer than the deadline have not waited for each other.
TEST(VerbsPeers, WhoWasAwayHasNotWaited) {
  constexpr milliseconds kTimeout{1000};
  VerbsWorld world(2, NetworkOptions{}.verbs_timeout, kTimeout);
  char got = 0;
  Ticket sent;
  Ticket received;
  ASSERT_TRUE(world.of(0).send(1, 3, "x", 1, sent).ok());
  std::this_thread::sleep_for(2 * kTimeout);
  const auto end = steady_clock::now() + kTimeout / 4;
  while (steady_clock::now() < end) {
    const Status status = world.of(0).progress();
    ASSERT_TRUE(status.ok()) << status.message();
  }
  ASSERT_TRUE(world.of(1).recv(0, 3, &got, 1, received).ok());
  const Status status = drive(
      world, [&] { return sent.done && received.done; }, kLong);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(got, 'x');
}

// Rank 1 has credits to return for what came, and finds nobody who takes them.
TEST(VerbsPeers, WhoIsThroughHarmsNobody) {
  constexpr milliseconds kSilence{1000};
  constexpr std::uint32_t kMessages = 6;
  VerbsWorld world(3, kSilence);
  ASSERT_NO_FATAL_FAILURE(exchange(world, 0, 1));
  const std::vector<char> data(1000, 7);
  Ticket sent[kMessages];
  for (std::uint32_t tag = 0; tag < kMessages; ++tag)
    ASSERT_TRUE(world.of(0).send(1, tag, data.data(), data.size(), sent[tag]).ok());
  world.leave(0);
  char other = 0;
  Ticket of_another;
  ASSERT_TRUE(world.of(1).recv(2, 77, &other, 1, of_another).ok());
  const Status waited = drive(
      world, [] { return false; }, 5 * kSilence);
  ASSERT_TRUE(waited.ok()) << waited.message();
  ASSERT_NO_FATAL_FAILURE(exchange(world, 1, 2));
  Ticket last;
  ASSERT_TRUE(world.of(2).send(1, 77, "x", 1, last).ok());
  const Status came = drive(
      world, [&] { return of_another.done; }, kLong);
  ASSERT_TRUE(came.ok()) << came.message();
  EXPECT_EQ(other, 'x');
  for (std::uint32_t tag = 0; tag < kMessages; ++tag) {
    std::vector<char> buffer(data.size());
    Ticket received;
    const Status status = world.of(1).recv(0, tag, buffer.data(), buffer.size(), received);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(received.done);
    EXPECT_EQ(buffer, data);
  }
  EXPECT_FALSE(world.of(1).peer_is_gone(0));
  Ticket none;
  EXPECT_EQ(world.of(1).recv(0, 9, &other, 1, none).code(), Code::peer_failed);
  EXPECT_TRUE(world.of(1).peer_is_gone(0));
}

// It lives on, and does nothing for those who wait: rank 0, which has a connection, and rank 2, which has
// begun one.
TEST(VerbsPeers, WhoHasLeftIsNotWaitedFor) {
  VerbsWorld world(3);
  ASSERT_NO_FATAL_FAILURE(exchange(world, 0, 1));
  char data = 0;
  Ticket tickets[3];
  for (const int rank : {0, 2})
    ASSERT_TRUE(world.of(rank).recv(1, 4, &data, 1, tickets[rank]).ok());
  world.of(1).leave({});
  for (const int rank : {0, 2}) {
    Status status;
    const auto end = steady_clock::now() + kLong;
    while (status.ok() && steady_clock::now() < end)
      status = world.of(rank).progress();
    EXPECT_EQ(status.code(), Code::peer_failed) << status.message();
    EXPECT_NE(status.message().find("rank 1 is gone: it has failed"), std::string::npos) << status.message();
    world.of(rank).cancel(tickets[rank]);
  }
}

}  // namespace
}  // namespace heddle::test
