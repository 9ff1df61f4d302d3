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

// However short the deadline of waits is: nobody waits here.
TEST(TcpEarly, APeerThatComputesForLongIsNotTakenForDead) {
  Pair pair({kLoopback}, std::chrono::milliseconds(500));
  Flood flood(pair);
  std::this_thread::sleep_for(std::chrono::seconds(4));
  flood.receive_all();
}

}  // namespace
}  // namespace heddle::tcp
