// TCP: addresses that take connections and never answer, or late.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "tcp_pair.hpp"

namespace heddle::tcp {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

const Address kOther = ipv4({127, 0, 0, 2}, 8);
const Address kThird = ipv4({127, 0, 0, 3}, 8);

// A message each way.
struct Exchange {
  Pair& pair;
  int out[2] = {7, 8};
  int in[2] = {};
  Ticket tickets[4];

  explicit Exchange(Pair& between) : pair(between) {
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(pair.of(rank).send(1 - rank, 1, &out[rank], sizeof(int), tickets[rank]).ok());
      EXPECT_TRUE(pair.of(rank).recv(1 - rank, 1, &in[rank], sizeof(int), tickets[2 + rank]).ok());
    }
  }
  bool done() const { return tickets[0].done && tickets[1].done && tickets[2].done && tickets[3].done; }
  void expect_one_connection() {
    EXPECT_EQ(in[0], 8);
    EXPECT_EQ(in[1], 7);
    pair.rest();
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(pair.status[rank].ok()) << pair.status[rank].message();
      EXPECT_EQ(pair.of(rank).connections(), 1);
    }
  }
};

// Addresses of one rank, which itself listens at the first of the loopback alone.
struct Listens {
  Socket own = listen_at(kLoopback, 0);
  std::uint16_t port = static_cast<std::uint16_t>(tcp_local_port(own));
};

TEST(TcpSilent, TheNextAddressIsTriedWhereNothingAnswers) {
  Listens one;
  const Socket silent = listen_at(kOther, one.port);
  const Socket as_silent = listen_at(kThird, one.port);
  ASSERT_TRUE(silent.open() && as_silent.open());
  Pair pair(tcp_listen(0).value(), std::move(one.own), {}, {kOther, kThird, kLoopback});
  int value = 5;
  int got = 0;
  Ticket sent;
  Ticket received;
  ASSERT_TRUE(pair.of(0).send(1, 1, &value, sizeof value, sent).ok());
  ASSERT_TRUE(
      pair.drive([&] { return pair.of(0).trouble(1).find("has not answered") != std::string::npos; }));
  const std::string where = "what takes connections at 127.0.0.2:" + std::to_string(one.port);
  EXPECT_NE(pair.of(0).trouble(1).find(where), std::string::npos) << pair.of(0).trouble(1);
  ASSERT_TRUE(pair.drive([&] { return sent.done; }, 20)) << pair.of(0).trouble(1);
  ASSERT_TRUE(pair.of(1).recv(0, 1, &got, sizeof got, received).ok());
  ASSERT_TRUE(pair.drive([&] { return received.done; }));
  EXPECT_EQ(got, 5);
  EXPECT_EQ(pair.of(0).connections(), 1);
  EXPECT_EQ(pair.of(1).connections(), 1);
}

// One that had a moment of trouble, while the silent one stands.
TEST(TcpSilent, OtherAddressesAreTriedAgainBesideOneThatIsSilent) {
  Listens one;
  const std::uint16_t port = one.port;
  const Socket silent = listen_at(kOther, port);
  Pair pair(tcp_listen(0).value(), std::move(one.own), {}, {kOther, kThird});
  Ticket sent;
  int value = 5;
  ASSERT_TRUE(pair.of(0).send(1, 1, &value, sizeof value, sent).ok());
  ASSERT_TRUE(pair.drive([&] { return pair.of(0).trouble(1).find("refused") != std::string::npos; }, 20));
  EXPECT_NE(pair.of(0).trouble(1).find("127.0.0.2:" + std::to_string(port) + " has not answered; 127.0.0.3:"),
            std::string::npos)
      << pair.of(0).trouble(1);
  const Socket now = listen_at(kThird, port);
  pollfd come{now.fd(), POLLIN, 0};
  ASSERT_TRUE(pair.drive([&] { return ::poll(&come, 1, 0) == 1; }, 20));
  pair.of(0).cancel(sent);
}

// The lower rank's connection is taken by something else, for ever, and the higher one knows a way.
TEST(TcpSilent, TheHigherRankInsistsWhereTheLowerOnesNeverComes) {
  Listens one;
  const Socket silent = listen_at(kOther, one.port);
  Pair pair(tcp_listen(0).value(), std::move(one.own), {kLoopback}, {kOther});
  Exchange both(pair);
  ASSERT_TRUE(pair.drive([&] { return both.done(); }, 20)) << pair.of(0).trouble(1);
  both.expect_one_connection();
}

// Somebody else's ways are silent as well, and tried before the one on which it may insist.
TEST(TcpSilent, TheHigherRankInsistsBesideSilentAddresses) {
  Listens zero;
  Listens one;
  const Socket silent = listen_at(kOther, one.port);
  const Socket as_silent = listen_at(kThird, zero.port);
  Pair pair(std::move(zero.own), std::move(one.own), {kThird, kLoopback}, {kOther});
  Exchange both(pair);
  ASSERT_TRUE(pair.drive([&] { return both.done(); }, 20)) << pair.of(0).trouble(1);
  both.expect_one_connection();
}

// Takes connections at an address and passes them on after a while.
class SlowWay {
 public:
  SlowWay(const Address& address, std::uint16_t port, milliseconds delay)
      : listener_(listen_at(address, port)), port_(port), delay_(delay) {}

  void pass_on() {
    Socket come(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (come.open()) passages_.push_back({std::move(come), Socket(), steady_clock::now() + delay_});
    for (Passage& each : passages_) {
      if (!each.from.open() || steady_clock::now() < each.open_at) continue;
      if (!each.to.open())
        each.to = tcp_connect("127.0.0.1", port_, steady_clock::now() + milliseconds(2000)).value();
      if (!copy(each.from, each.to) || !copy(each.to, each.from)) each = Passage();
    }
  }

 private:
  struct Passage {
    Socket from;
    Socket to;
    steady_clock::time_point open_at;
  };
  // False: it has ended.
  static bool copy(const Socket& from, const Socket& to) {
    char bytes[256];
    const ssize_t got = ::recv(from.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0)
      return tcp_write_all(to, bytes, static_cast<std::size_t>(got), steady_clock::now() + milliseconds(2000))
          .ok();
    return got < 0 && errno == EAGAIN;
  }

  Socket listener_;
  std::uint16_t port_;
  milliseconds delay_;
  std::vector<Passage> passages_;
};

// The lower rank's greeting comes before and after the higher one insists: both keep the same connection.
TEST(TcpSilent, AGreetingThatIsLateCrossesOneThatInsists) {
  for (const int delay_ms : {0, 250, 550, 600, 650, 700, 900}) {
    Listens one;
    SlowWay slow(kOther, one.port, milliseconds(delay_ms));
    Pair pair(tcp_listen(0).value(), std::move(one.own), {kLoopback}, {kOther});
    Exchange both(pair);
    ASSERT_TRUE(pair.drive([&] { return slow.pass_on(), both.done() || !pair.status[0].ok(); }, 20))
        << delay_ms << ": " << pair.of(0).trouble(1);
    // Whatever is still under way has come.
    const auto end = steady_clock::now() + milliseconds(50);
    ASSERT_TRUE(pair.drive([&] { return slow.pass_on(), steady_clock::now() > end; }));
    both.expect_one_connection();
    if (HasFailure()) FAIL() << delay_ms;
  }
}

// It comes while the lower rank computes and has not read the one that insists.
TEST(TcpSilent, AGreetingThatIsLateIsRefusedByWhoInsists) {
  Listens one;
  SlowWay slow(kOther, one.port, milliseconds(1200));
  Pair pair(tcp_listen(0).value(), std::move(one.own), {kLoopback}, {kOther});
  Exchange both(pair);
  const auto begin = steady_clock::now();
  const auto since = [begin] { return steady_clock::now() - begin; };
  // It refuses two, and not the third, which insists.
  ASSERT_TRUE(pair.drive([&] { return slow.pass_on(), since() > milliseconds(450); }));
  while (since() < milliseconds(1600)) {
    slow.pass_on();
    ASSERT_TRUE(pair.of(1).progress().ok());
  }
  ASSERT_TRUE(pair.drive([&] { return slow.pass_on(), both.done() || !pair.status[0].ok(); }, 20));
  both.expect_one_connection();
}

}  // namespace
}  // namespace heddle::tcp
