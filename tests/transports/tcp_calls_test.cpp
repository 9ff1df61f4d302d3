// TCP: system calls of a rank that waits for many.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "tcp_pair.hpp"

namespace {

unsigned long reads = 0;

}  // namespace

// In place of the library's, to be counted.
extern "C" ssize_t recvmsg(int fd, msghdr* message, int flags) {
  ++reads;
  return ::syscall(SYS_recvmsg, fd, message, flags);
}

namespace heddle::tcp {
namespace {

TEST(TcpCalls, OfManyPeersThoseAreReadThatHaveSentSomething) {
  constexpr int kRanks = 32;
  std::vector<TcpTransport::Setup> setups;
  std::vector<Place> places;
  for (std::uint64_t rank = 0; rank < kRanks; ++rank) {
    Socket listener = tcp_listen(0).value();
    places.push_back({"here", rank, static_cast<std::uint16_t>(tcp_local_port(listener)), {kLoopback}});
    setups.push_back({std::move(listener), rank, {kLoopback}, std::chrono::milliseconds(0)});
  }
  std::vector<std::unique_ptr<TcpTransport>> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.push_back(
        TcpTransport::make(std::move(setups[static_cast<std::size_t>(rank)]), rank, places).value());
  TcpTransport& zero = *ranks[0];

  std::vector<char> out(kRanks);
  std::vector<char> in(kRanks);
  std::vector<Ticket> sent(kRanks);
  std::vector<Ticket> received(kRanks);
  const auto receive_all = [&] {
    received.assign(kRanks, {});
    for (std::size_t rank = 1; rank < kRanks; ++rank)
      ASSERT_TRUE(zero.recv(static_cast<int>(rank), 1, &in[rank], 1, received[rank]).ok());
  };
  const auto send_all = [&](std::size_t from, char what) {
    for (std::size_t rank = from; rank < kRanks; ++rank) {
      out[rank] = static_cast<char>(what + static_cast<char>(rank));
      sent[rank] = {};
      ASSERT_TRUE(ranks[rank]->send(0, 1, &out[rank], 1, sent[rank]).ok());
    }
  };
  const auto all_came = [&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (std::size_t rank = 1; rank < kRanks; ++rank) {
      while (!received[rank].done && std::chrono::steady_clock::now() < end) {
        for (const auto& each : ranks)
          ASSERT_TRUE(each->progress().ok());
      }
      ASSERT_TRUE(received[rank].done) << rank;
    }
    EXPECT_EQ(in, out);
  };
  receive_all();
  send_all(1, 0);
  ASSERT_NO_FATAL_FAILURE(all_came());

  receive_all();
  ASSERT_TRUE(zero.progress().ok());
  reads = 0;
  for (int i = 0; i < 1000; ++i)
    ASSERT_TRUE(zero.progress().ok());
  EXPECT_EQ(reads, 0U);
  send_all(1, 50);
  ASSERT_NO_FATAL_FAILURE(all_came());
}

}  // namespace
}  // namespace heddle::tcp
