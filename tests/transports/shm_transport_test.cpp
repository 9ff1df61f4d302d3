// What is particular to the byte rings.
#include "transports/shm/shm_transport.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "support/ranks.hpp"
#include "support/worlds.hpp"

namespace heddle::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

// Rank 0 sends 8 bytes with tag 1; rank 1 expects 12. `order` says when the receive is opened.
Status mismatch(int polls_before_receive, bool receive_of_other_tag_first, std::size_t sent = 8) {
  ShmWorld world(2);
  Bytes data(sent);
  Bytes buffer(12);
  Ticket send;
  Ticket recv;
  Ticket other;
  if (receive_of_other_tag_first) {
    EXPECT_TRUE(world.of(1).recv(0, 2, buffer.data(), 1, other).ok());
  }
  EXPECT_TRUE(world.of(0).send(1, 1, data.data(), data.size(), send).ok());
  for (int i = 0; i < polls_before_receive; ++i)
    EXPECT_TRUE(world.of(1).progress().ok());
  Status status = world.of(1).recv(0, 1, buffer.data(), buffer.size(), recv);
  for (int i = 0; i < 100 && status.ok(); ++i) {
    EXPECT_TRUE(world.of(0).progress().ok());
    status = world.of(1).progress();
  }
  EXPECT_FALSE(recv.done);
  world.of(1).cancel(recv);
  world.of(1).cancel(other);
  if (!send.done) world.of(0).cancel(send);
  return status;
}

TEST(ShmTransport, AWrongLengthNamesBothLengths) {
  const Status status = mismatch(0, false);
  ASSERT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find("rank 0 sent 8 bytes where 12 were expected"), std::string::npos);
}

TEST(ShmTransport, AWrongLengthIsNoticedInAnEarlyMessage) {
  EXPECT_EQ(mismatch(3, true).code(), Code::invalid_argument);
}

// The receive is opened while the message, longer than a ring, is still coming in.
TEST(ShmTransport, AWrongLengthIsNoticedInAMessageOnItsWay) {
  EXPECT_EQ(mismatch(1, true, 200000).code(), Code::invalid_argument);
}

// Of a message that must be set aside; and of one that is given up in the middle, which takes no memory.
TEST(ShmTransport, AMessageLongerThanMemoryIsAStatus) {
  ShmWorld world(2);
  constexpr std::size_t kLong = std::size_t{1} << 63;  // more than goes through the ring is never read
  Bytes data(256 * 1024);
  Bytes buffer(256 * 1024);
  Ticket send;
  Ticket other;
  ASSERT_TRUE(world.of(0).send(1, 1, data.data(), kLong, send).ok());
  ASSERT_TRUE(world.of(1).recv(0, 2, buffer.data(), 8, other).ok());
  const Status status = world.of(1).progress();
  EXPECT_EQ(status.code(), Code::out_of_memory);
  EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status.message();
  world.of(1).cancel(other);
  world.of(0).cancel(send);

  ShmWorld another(2);
  Ticket receive;
  ASSERT_TRUE(another.of(0).send(1, 1, data.data(), kLong, send).ok());
  ASSERT_TRUE(another.of(1).recv(0, 1, buffer.data(), kLong, receive).ok());
  ASSERT_TRUE(another.of(1).progress().ok());
  another.of(1).cancel(receive);
  buffer.assign(buffer.size(), 7);
  ASSERT_TRUE(another.of(0).progress().ok());
  EXPECT_TRUE(another.of(1).progress().ok());
  EXPECT_EQ(buffer, Bytes(buffer.size(), 7));
  another.of(0).cancel(send);
}

TEST(ShmTransport, WhoLeavesSaysForWhom) {
  ShmWorld world(4);
  EXPECT_FALSE(world.of(1).peer_has_left(0));
  EXPECT_EQ(world.of(1).peer_left_for(0).culprit, -1);
  for (const int culprit : {3, -1}) {
    world.of(0).leave({culprit});
    EXPECT_TRUE(world.of(1).peer_has_left(0));
    EXPECT_EQ(world.of(1).peer_left_for(0).culprit, 3) << "what it says first is true";
  }
  world.of(2).leave({});
  EXPECT_TRUE(world.of(1).peer_has_left(2));
  EXPECT_EQ(world.of(1).peer_left_for(2).culprit, -1);
  world.of(3).leave({0});
  EXPECT_EQ(world.of(1).peer_left_for(3).culprit, 0);
  EXPECT_EQ(world.of(1).peer_left_for(3).waited_ms, 0U);
  world.of(1).leave({2, 1500});
  EXPECT_EQ(world.of(0).peer_left_for(1).culprit, 2);
  EXPECT_EQ(world.of(0).peer_left_for(1).waited_ms, 1500U);
}

// A rank's own bytes, and what the others tell of theirs.
TEST(ShmTransport, MovementShows) {
  ShmWorld world(3);
  Bytes data(100'000);
  Ticket send;
  Ticket recv;
  EXPECT_EQ(world.of(0).moved(), 0U);
  ASSERT_TRUE(world.of(0).send(1, 1, data.data(), data.size(), send).ok());
  const std::uint64_t part = world.of(0).moved();
  EXPECT_GT(part, 0U);
  EXPECT_FALSE(send.done);
  ASSERT_TRUE(world.of(1).recv(0, 1, data.data(), data.size(), recv).ok());
  ASSERT_TRUE(world.of(1).progress().ok());
  EXPECT_EQ(world.of(1).moved(), part);
  ASSERT_TRUE(world.of(0).progress().ok());
  EXPECT_GT(world.of(0).moved(), part);
  EXPECT_EQ(world.of(2).others_moved(), 0U);
  world.of(0).tell_moved();
  world.of(2).tell_moved();
  world.of(2).tell_moved();
  EXPECT_EQ(world.of(0).others_moved(), 2U);
  EXPECT_EQ(world.of(1).others_moved(), 3U);
  EXPECT_EQ(world.of(2).others_moved(), 1U);
  world.of(0).cancel(send);
  world.of(1).cancel(recv);
}

TEST(ShmTransport, WhatComesAfterAMessageThatWasGivenUpArrives) {
  ShmWorld world(2);
  Bytes data(200'000, 1);
  Bytes buffer(data.size());
  std::uint32_t sent_next = 5;
  std::uint32_t next = 0;
  Ticket sends[2];
  Ticket receives[2];
  ASSERT_TRUE(world.of(0).send(1, 1, data.data(), data.size(), sends[0]).ok());
  ASSERT_TRUE(world.of(0).send(1, 1, &sent_next, sizeof sent_next, sends[1]).ok());
  ASSERT_TRUE(world.of(1).recv(0, 1, buffer.data(), buffer.size(), receives[0]).ok());
  ASSERT_TRUE(world.of(1).progress().ok());
  ASSERT_FALSE(receives[0].done);
  world.of(1).cancel(receives[0]);
  ASSERT_TRUE(world.of(1).recv(0, 1, &next, sizeof next, receives[1]).ok());
  for (int i = 0; i < 100 && !receives[1].done; ++i) {
    ASSERT_TRUE(world.of(0).progress().ok());
    const Status status = world.of(1).progress();
    ASSERT_TRUE(status.ok()) << status.message();
  }
  EXPECT_TRUE(receives[1].done);
  EXPECT_EQ(next, 5U);
}

// Neither what comes too early nor its sender waits for a receive that has been given up.
TEST(ShmTransport, AMessageUnderWayGoesOnWithoutAReceive) {
  ShmWorld world(3);
  const Bytes data(200'000, 1);
  Bytes buffer(data.size());
  Ticket send;
  Ticket other;
  Ticket receive;
  ASSERT_TRUE(world.of(0).send(1, 1, data.data(), data.size(), send).ok());
  ASSERT_TRUE(world.of(1).recv(0, 2, buffer.data(), 8, other).ok());
  ASSERT_TRUE(world.of(1).progress().ok());
  world.of(1).cancel(other);
  for (int i = 0; i < 100 && !send.done; ++i) {
    ASSERT_TRUE(world.of(0).progress().ok());
    ASSERT_TRUE(world.of(1).progress().ok());
  }
  ASSERT_TRUE(send.done);
  ASSERT_TRUE(world.of(1).recv(0, 1, buffer.data(), buffer.size(), receive).ok());
  EXPECT_TRUE(receive.done) << "it was set aside";
  EXPECT_EQ(buffer, data);
}

// Whoever was through with a peer, or has been busy with others alone, begins anew with it.
TEST(ShmTransport, PeersAreTakenUpAgainInAnyOrder) {
  constexpr int kRanks = 5;
  ShmWorld world(kRanks);
  std::mt19937 random(3);
  const std::size_t sizes[] = {0, 8, 100'000};
  for (std::uint32_t round = 0; round < 300; ++round) {
    const std::size_t bytes = sizes[random() % 3];
    Bytes data[kRanks];
    Bytes buffers[kRanks];
    Ticket sends[kRanks];
    Ticket receives[kRanks];
    std::vector<int> peers;
    for (int peer = 1; peer < kRanks; ++peer) {
      if (random() % 2 == 0) peers.push_back(peer);
    }
    for (const int peer : peers) {
      data[peer].assign(bytes, static_cast<std::uint8_t>(round + static_cast<std::uint32_t>(peer)));
      buffers[peer].resize(bytes);
      const bool out = random() % 2 == 0;
      ASSERT_TRUE(
          world.of(out ? 0 : peer).send(out ? peer : 0, round, data[peer].data(), bytes, sends[peer]).ok());
      ASSERT_TRUE(world.of(out ? peer : 0)
                      .recv(out ? 0 : peer, round, buffers[peer].data(), bytes, receives[peer])
                      .ok());
    }
    for (int i = 0; i < 200; ++i) {
      for (int rank = 0; rank < kRanks; ++rank)
        ASSERT_TRUE(world.of(rank).progress().ok());
    }
    for (const int peer : peers) {
      ASSERT_TRUE(sends[peer].done && receives[peer].done) << "peer " << peer << " in round " << round;
      ASSERT_EQ(buffers[peer], data[peer]);
    }
  }
}

TEST(ShmTransport, DamageIsNoticed) {
  ShmWorld world(2);
  Bytes data(8);
  Bytes buffer(8);
  Ticket send;
  Ticket recv;
  ASSERT_TRUE(world.of(0).send(1, 1, data.data(), data.size(), send).ok());
  // The ring from member 0 to member 1 is the second one; its header line is followed by the message's
  // header.
  const std::size_t stride = ShmTransportGeometry{2}.bytes() / 4;
  std::byte* ring = world.memory.data() + stride;
  const std::size_t header = stride - ShmTransportGeometry{2}.ring_bytes();
  std::memset(ring + header, 0xff, 8);
  ASSERT_TRUE(world.of(1).recv(0, 1, buffer.data(), buffer.size(), recv).ok());
  const Status status = world.of(1).progress();
  EXPECT_EQ(status.code(), Code::internal);
  EXPECT_NE(status.message().find("from rank 0"), std::string::npos);
  world.of(1).cancel(recv);
}

TEST(ShmTransport, MoreMembersHaveSmallerRings) {
  EXPECT_EQ(ShmTransportGeometry{16}.ring_bytes(), 64U * 1024);
  EXPECT_EQ(ShmTransportGeometry{17}.ring_bytes(), 8U * 1024);
}

TEST(ShmTransport, RanksNeedNotBeMembers) {
  const ShmTransportGeometry geometry{2};
  SharedMemory memory = SharedMemory::create(geometry.bytes(), SharedMemory::Backing::memfd).value();
  const std::vector<std::optional<WatchedProcess>> pids(2, WatchedProcess(getpid()));
  const auto a = make_shm_transport(memory.data(), geometry, 0, {3, 11}, pids);
  const auto b = make_shm_transport(memory.data(), geometry, 1, {3, 11}, pids);
  int sent = 77;
  int received = 0;
  Ticket send;
  Ticket recv;
  ASSERT_TRUE(a->send(11, 0, &sent, sizeof sent, send).ok());
  ASSERT_TRUE(b->recv(3, 0, &received, sizeof received, recv).ok());
  ASSERT_TRUE(b->progress().ok());
  EXPECT_TRUE(recv.done);
  EXPECT_EQ(received, 77);
}

// Many members: rings smaller than the pieces that are copied.
TEST(ShmTransport, SmallRings) {
  constexpr int kRanks = 18;
  ShmWorld world(kRanks);
  run_ranks(kRanks, [&](Rank& me) {
    const int to = (me.rank + 1) % kRanks;
    const int from = (me.rank + kRanks - 1) % kRanks;
    Bytes out(50000);
    std::iota(out.begin(), out.end(), static_cast<std::uint8_t>(me.rank));
    Bytes in(50000);
    Ticket send;
    Ticket recv;
    Transport& t = world.of(me.rank);
    ASSERT_TRUE(t.send(to, 0, out.data(), out.size(), send).ok());
    ASSERT_TRUE(t.recv(from, 0, in.data(), in.size(), recv).ok());
    me.until([&] {
      EXPECT_TRUE(t.progress().ok());
      return send.done && recv.done;
    });
    Bytes expected(50000);
    std::iota(expected.begin(), expected.end(), static_cast<std::uint8_t>(from));
    EXPECT_EQ(in, expected);
  });
}

TEST(ShmTransport, APeerThatDiedIsGone) {
  const ShmTransportGeometry geometry{2};
  SharedMemory memory = SharedMemory::create(geometry.bytes(), SharedMemory::Backing::memfd).value();
  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(hold[1]);
    char c = 0;
    const ssize_t n = read(hold[0], &c, 1);
    _exit(n == 0 ? 0 : 1);
  }
  close(hold[0]);
  const auto t = make_shm_transport(memory.data(), geometry, 0, {0, 1},
                                    {WatchedProcess(getpid()), WatchedProcess(child)});
  EXPECT_FALSE(t->peer_is_gone(1));
  EXPECT_FALSE(t->peer_is_gone(0));
  close(hold[1]);
  siginfo_t ended;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(t->peer_is_gone(1)) << "nobody has asked for its status yet";
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(t->peer_is_gone(1));
}

// Two real processes.
TEST(ShmTransport, BetweenProcesses) {
  const ShmTransportGeometry geometry{2};
  SharedMemory memory = SharedMemory::create(geometry.bytes(), SharedMemory::Backing::memfd).value();
  const auto exchange = [&](int member) {
    const auto t = make_shm_transport(memory.data(), geometry, member, {0, 1},
                                      {WatchedProcess(getpid()), WatchedProcess(getpid())});
    for (std::uint8_t round = 0; round < 50; ++round) {
      Bytes out(100000, static_cast<std::uint8_t>(round + member * 100));
      Bytes in(100000);
      Ticket send;
      Ticket recv;
      if (!t->send(1 - member, round, out.data(), out.size(), send).ok()) return false;
      if (!t->recv(1 - member, round, in.data(), in.size(), recv).ok()) return false;
      while (!send.done || !recv.done) {
        if (!t->progress().ok()) return false;
        sched_yield();
      }
      if (in != Bytes(100000, static_cast<std::uint8_t>(round + (1 - member) * 100))) return false;
    }
    return true;
  };
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(exchange(1) ? 0 : 1);
  }
  EXPECT_TRUE(exchange(0));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace heddle::test
