// TCP: messages that come long before their receives, and peers that compute meanwhile.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "tcp_pair.hpp"

namespace heddle::tcp {
namespace {

constexpr std::size_t kBytes = 200'000;
constexpr std::uint32_t kLast = 5000;
// More than sockets hold and a rank keeps, by far.
constexpr std::size_t kMany = 400;

// What rank 0 sends to rank 1, which computes.
class Flood {
 public:
  explicit Flood(Pair& pair) : pair_(pair), sent(kMany) {
    pair_.greet();
    for (std::size_t i = 0; i < kMany; ++i) {
      data_.emplace_back(kBytes, static_cast<char>(i));
      EXPECT_TRUE(pair_.of(0).send(1, static_cast<std::uint32_t>(i), data_[i].data(), kBytes, sent[i]).ok());
    }
  }

  std::size_t gone() const {
    std::size_t count = 0;
    while (count < kMany && sent[count].done)
      ++count;
    return count;
  }
  // Until nothing has gone for a while, however long the system takes to move it.
  void settle() {
    std::size_t before = kMany + 1;
    while (before != gone()) {
      before = gone();
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
      while (std::chrono::steady_clock::now() < end)
        pair_.rest();
    }
  }
  void receive_all() {
    std::vector<char> buffer(kBytes);
    for (std::size_t i = 0; i < kMany; ++i) {
      Ticket received;
      ASSERT_TRUE(pair_.of(1).recv(0, static_cast<std::uint32_t>(i), buffer.data(), kBytes, received).ok());
      ASSERT_TRUE(pair_.drive([&] { return received.done; }, 30)) << i;
      ASSERT_EQ(buffer, data_[i]) << i;
    }
    EXPECT_TRUE(pair_.drive([&] { return gone() == kMany; }, 30));
    EXPECT_TRUE(pair_.status[0].ok() && pair_.status[1].ok());
  }

 private:
  Pair& pair_;
  std::vector<std::vector<char>> data_;

 public:
  std::vector<Ticket> sent;
};

TEST(TcpEarly, WhatNobodyReceivesStaysWithItsSender) {
  Pair pair;
  Flood flood(pair);
  flood.settle();
  EXPECT_LT(flood.gone(), kMany);
  EXPECT_GT(flood.gone(), kMostEarly / kBytes);
  EXPECT_TRUE(sleeps(pair.of(1))) << "what is left unread keeps it awake";
  flood.receive_all();
}

TEST(TcpEarly, WhatIsAwaitedIsFoundBehindTheRest) {
  Pair pair;
  Flood flood(pair);
  flood.settle();
  char out = 7;
  char in = 0;
  Ticket sent;
  Ticket received;
  ASSERT_TRUE(pair.of(0).send(1, kLast, &out, 1, sent).ok());
  ASSERT_TRUE(pair.of(1).recv(0, kLast, &in, 1, received).ok());
  ASSERT_TRUE(pair.drive([&] { return received.done; }, 30));
  EXPECT_EQ(in, 7);
  flood.receive_all();
}

// A long message the other way waits for word that its receive is open.
TEST(TcpEarly, WordOfAnOpenReceiveIsFoundBehindTheRest) {
  Pair pair;
  Flood flood(pair);
  flood.settle();
  std::vector<char> out(4 * kEager, 5);
  std::vector<char> in(out.size());
  Ticket sent;
  Ticket received;
  ASSERT_TRUE(pair.of(0).recv(1, kLast, in.data(), in.size(), received).ok());
  ASSERT_TRUE(pair.of(1).send(0, kLast, out.data(), out.size(), sent).ok());
  ASSERT_TRUE(pair.drive([&] { return received.done && sent.done; }, 30));
  EXPECT_EQ(in, out);
  flood.receive_all();
}

// Both send more than the other one wants at the moment.
TEST(TcpEarly, TwoThatHaveNoRoomForEachOtherGoOn) {
  Pair pair;
  Flood flood(pair);
  flood.settle();
  std::vector<char> data(kBytes, 3);
  std::vector<Ticket> sent(kMany);
  for (std::size_t i = 0; i < kMany; ++i)
    ASSERT_TRUE(pair.of(1).send(0, static_cast<std::uint32_t>(i), data.data(), kBytes, sent[i]).ok());
  // The other one goes on when its messages are received.
  EXPECT_TRUE(pair.drive([&] { return flood.gone() == kMany || sent[kMany - 1].done; }, 30));
  flood.receive_all();
}

TEST(TcpEarly, TheEndOfAPeerThatIsLeftUnreadIsSeen) {
  Pair pair;
  Flood flood(pair);
  flood.settle();
  for (Ticket& ticket : flood.sent)
    pair.of(0).cancel(ticket);
  pair.ranks[0].reset();
  char byte = 0;
  Ticket ticket;
  ASSERT_TRUE(pair.of(1).recv(0, kLast, &byte, 1, ticket).ok());
  EXPECT_TRUE(pair.drive([&] { return !pair.status[1].ok(); }, 30));
  EXPECT_EQ(pair.status[1].code(), Code::peer_failed);
  pair.of(1).cancel(ticket);
}

// However short the deadline of waits is: nobody waits here.
TEST(TcpEarly, APeerThatComputesForLongIsNotTakenForDead) {
  Pair pair({kLoopback}, std::chrono::milliseconds(500));
  Flood flood(pair);
  std::this_thread::sleep_for(std::chrono::seconds(4));
  flood.receive_all();
}

}  // namespace
}  // namespace heddle::tcp
