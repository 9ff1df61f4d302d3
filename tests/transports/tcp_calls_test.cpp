// TCP: system calls, counted, or failing.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <numeric>
#include <string>
#include <vector>

#include "half_memory.hpp"
#include "support/worlds.hpp"
#include "tcp_pair.hpp"

namespace {

unsigned long reads = 0;
unsigned long writes = 0;
std::deque<int> refusals;  // errors of the next calls of accept4

}  // namespace

// In place of the library's, to be counted.
extern "C" ssize_t recvmsg(int fd, msghdr* message, int flags) {
  ++reads;
  return ::syscall(SYS_recvmsg, fd, message, flags);
}

extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  ++writes;
  return ::syscall(SYS_sendmsg, fd, message, flags);
}

extern "C" int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  if (refusals.empty()) return static_cast<int>(::syscall(SYS_accept4, fd, address, length, flags));
  errno = refusals.front();
  refusals.pop_front();
  return -1;
}

namespace heddle::tcp {
namespace {

// Rank 0 has a receive open from each other one.
struct Many : test::NetworkWorld {
  explicit Many(int size)
      : NetworkWorld(size, [](int) { return open_tcp_network({}); }),
        out(static_cast<std::size_t>(size)),
        in(out.size()),
        sent(out.size()),
        received(out.size()) {}

  TcpTransport& zero() { return dynamic_cast<TcpTransport&>(of(0)); }
  void receive_all() {
    received.assign(received.size(), {});
    for (std::size_t rank = 1; rank < in.size(); ++rank)
      ASSERT_TRUE(of(0).recv(static_cast<int>(rank), 1, &in[rank], 1, received[rank]).ok());
  }
  void send_all(char what) {
    for (std::size_t rank = 1; rank < out.size(); ++rank) {
      out[rank] = static_cast<char>(what + static_cast<char>(rank));
      sent[rank] = {};
      ASSERT_TRUE(of(static_cast<int>(rank)).send(0, 1, &out[rank], 1, sent[rank]).ok());
    }
  }
  void all_came() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (std::size_t rank = 1; rank < received.size(); ++rank) {
      while (!received[rank].done && std::chrono::steady_clock::now() < end) {
        for (const auto& each : transports)
          ASSERT_TRUE(each->progress().ok());
      }
      ASSERT_TRUE(received[rank].done) << rank;
    }
    EXPECT_EQ(in, out);
  }

  std::vector<char> out;
  std::vector<char> in;
  std::vector<Ticket> sent;
  std::vector<Ticket> received;
};

TEST(TcpCalls, OfManyPeersThoseAreReadThatHaveSentSomething) {
  Many world(32);
  world.receive_all();
  world.send_all(0);
  ASSERT_NO_FATAL_FAILURE(world.all_came());

  world.receive_all();
  ASSERT_TRUE(world.zero().progress().ok());
  reads = 0;
  for (int i = 0; i < 1000; ++i)
    ASSERT_TRUE(world.zero().progress().ok());
  EXPECT_EQ(reads, 0U);
  world.send_all(50);
  ASSERT_NO_FATAL_FAILURE(world.all_came());
}

// Few peers are read by themselves, of many those that epoll names. Who computes may not look again soon.
TEST(TcpCalls, AMessageGoesAsSoonAsItsReceiverIsHeard) {
  for (const int size : {2, 6}) {
    Many world(size);
    world.receive_all();
    world.send_all(0);
    ASSERT_NO_FATAL_FAILURE(world.all_came());

    const std::vector<char> data(kEager + 1, 3);
    std::vector<char> buffer(data.size());
    Ticket sent;
    Ticket received;
    world.receive_all();
    ASSERT_TRUE(world.zero().send(1, 2, data.data(), data.size(), sent).ok());
    ASSERT_TRUE(world.zero().progress().ok());
    ASSERT_FALSE(readable(world.zero(), 0));
    ASSERT_TRUE(world.of(1).recv(0, 2, buffer.data(), buffer.size(), received).ok());
    ASSERT_TRUE(readable(world.zero(), 5000));
    writes = 0;
    ASSERT_TRUE(world.zero().progress().ok());
    EXPECT_GT(writes, 0U) << size;
    world.send_all(1);
    while (!sent.done || !received.done) {
      ASSERT_TRUE(world.of(1).progress().ok());
      ASSERT_TRUE(world.zero().progress().ok());
    }
    EXPECT_EQ(buffer, data);
    ASSERT_NO_FATAL_FAILURE(world.all_came());
  }
}

// What waits for the connection, or for room.
TEST(TcpCalls, MessagesThatWaitGoTogether) {
  constexpr std::size_t kMessages = 64;
  Pair pair;
  std::vector<char> out(kMessages);
  std::vector<char> in(kMessages);
  Ticket sent[kMessages];
  Ticket received[kMessages];
  std::iota(out.begin(), out.end(), char{1});
  writes = 0;
  for (std::uint32_t i = 0; i < kMessages; ++i)
    ASSERT_TRUE(pair.of(0).send(1, i, &out[i], 1, sent[i]).ok());
  for (std::uint32_t i = 0; i < kMessages; ++i)
    ASSERT_TRUE(pair.of(1).recv(0, i, &in[i], 1, received[i]).ok());
  ASSERT_TRUE(pair.drive([&] { return received[kMessages - 1].done; }));
  EXPECT_EQ(in, out);
  EXPECT_LE(writes, kMessages / 8);
}

// With its frame.
TEST(TcpCalls, AMessageOf16KiBIsReadAtOnce) {
  Pair pair;
  pair.greet();
  const std::vector<char> out(std::size_t{16} << 10, 5);
  std::vector<char> in(out.size());
  Ticket sent;
  Ticket received;
  ASSERT_TRUE(pair.of(0).send(1, 1, out.data(), out.size(), sent).ok());
  ASSERT_TRUE(sent.done);
  ASSERT_TRUE(readable(pair.of(1), 5000));
  ASSERT_TRUE(pair.of(1).recv(0, 1, in.data(), in.size(), received).ok());
  reads = 0;
  ASSERT_TRUE(pair.of(1).progress().ok());
  EXPECT_TRUE(received.done);
  EXPECT_EQ(reads, 1U);
  EXPECT_EQ(in, out);
}

// The message is blamed whose buffer it is, and those before it go.
TEST(TcpCalls, WhatIsNotThereHoldsUpNothingBeforeIt) {
  Pair pair;
  const HalfMemory bad;
  char good = 7;
  char got = 0;
  Ticket sent[2];
  Ticket received;
  ASSERT_TRUE(pair.of(0).send(1, 1, &good, 1, sent[0]).ok());
  ASSERT_TRUE(pair.of(0).send(1, 2, bad.data() + HalfMemory::kUsable, 100'000, sent[1]).ok());
  ASSERT_TRUE(pair.of(1).recv(0, 1, &got, 1, received).ok());
  ASSERT_TRUE(pair.drive([&] { return received.done && !pair.status[0].ok(); }));
  EXPECT_EQ(got, 7);
  EXPECT_NE(pair.status[0].message().find("in its last 100000 bytes"), std::string::npos)
      << pair.status[0].message();
  EXPECT_FALSE(sent[1].done);
  pair.of(0).cancel(sent[1]);
}

// The rest of a message that is given up is sent, but for what is no memory.
TEST(TcpCalls, WhatIsNotThereIsNotTriedAgainAndAgain) {
  Pair pair;
  pair.greet();
  const HalfMemory bad;
  Ticket sent;
  const Status status = pair.of(0).send(1, 1, bad.data(), HalfMemory::kBytes, sent);
  ASSERT_EQ(status.code(), Code::invalid_argument) << status.message();
  writes = 0;
  pair.of(0).cancel(sent);
  EXPECT_LE(writes, 1U);
  EXPECT_TRUE(pair.of(0).peer_is_gone(1)) << "in the middle of a message";
  EXPECT_EQ(pair.of(0).progress().message(), status.message());
}

// What passes, be it the visitor's trouble or the system's, keeps nobody out.
TEST(TcpCalls, WhoCannotBeTakenAtTheMomentIsTakenLater) {
  Pair pair;
  refusals = {ENOBUFS, ECONNABORTED, ENOMEM, EINTR, ENOMEM};
  pair.greet();
  EXPECT_TRUE(refusals.empty());
  EXPECT_TRUE(pair.status[0].ok() && pair.status[1].ok());

  const Socket listener = tcp_listen(0).value();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const Socket visitor = tcp_connect("127.0.0.1", tcp_local_port(listener), deadline).value();
  for (const int error : {ENOBUFS, ENOMEM}) {
    refusals = {error};
    const Result<Socket> taken = tcp_accept(listener);
    ASSERT_TRUE(taken.ok()) << taken.status().message();
    EXPECT_FALSE(taken->open());
  }
  EXPECT_TRUE(tcp_accept(listener).value().open());
}

}  // namespace
}  // namespace heddle::tcp
