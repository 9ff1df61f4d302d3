// TCP: connections that cross, addresses, strangers and nonsense.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptors.hpp"
#include "base/port_range.hpp"
#include "support/ranks.hpp"
#include "tcp_ipv4.hpp"
#include "tcp_pair.hpp"
#include "transports/tcp/addresses.hpp"
#include "transports/tcp/socket.hpp"
#include "transports/tcp/tcp_transport.hpp"

namespace heddle::tcp {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST(Tcp, ConnectionsThatCrossBecomeOne) {
  for (int round = 0; round < 50; ++round) {
    Pair pair;
    int out[2] = {7, 8};
    int in[2] = {};
    Ticket tickets[4];
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(pair.of(rank).send(1 - rank, 1, &out[rank], sizeof(int), tickets[rank]).ok());
      ASSERT_TRUE(pair.of(rank).recv(1 - rank, 1, &in[rank], sizeof(int), tickets[2 + rank]).ok());
    }
    // In any order, and one of them far ahead of the other.
    for (int i = 0; i < round % 7; ++i)
      ASSERT_TRUE(pair.of(round % 2).progress().ok());
    ASSERT_TRUE(pair.drive([&] {
      return std::all_of(std::begin(tickets), std::end(tickets), [](const Ticket& t) { return t.done; });
    })) << round;
    EXPECT_EQ(in[0], 8);
    EXPECT_EQ(in[1], 7);
    EXPECT_EQ(pair.of(0).connections(), 1);
    EXPECT_EQ(pair.of(1).connections(), 1);
  }
}

TEST(Tcp, TheNextAddressIsTriedWhereOneRefuses) {
  // Nobody can connect to the broadcast address.
  Pair pair({ipv4({255, 255, 255, 255}, 8), kLoopback});
  int value = 5;
  int got = 0;
  Ticket sent;
  Ticket received;
  ASSERT_TRUE(pair.of(1).recv(0, 1, &got, sizeof got, received).ok());
  ASSERT_TRUE(pair.of(0).send(1, 1, &value, sizeof value, sent).ok());
  ASSERT_TRUE(pair.drive([&] { return sent.done && received.done; }));
  EXPECT_EQ(got, 5);
}

// Rank 0 knows no way to rank 1, which has one: whoever wants the connection first.
TEST(Tcp, OneWayIsEnough) {
  for (const int first : {0, 1}) {
    Pair pair({kLoopback}, {ipv4({255, 255, 255, 255}, 8)});
    int value[2] = {5, 6};
    int got[2] = {};
    Ticket tickets[4];
    for (const int rank : {first, 1 - first}) {
      ASSERT_TRUE(pair.of(rank).send(1 - rank, 1, &value[rank], sizeof(int), tickets[rank]).ok());
      ASSERT_TRUE(pair.of(rank).recv(1 - rank, 1, &got[rank], sizeof(int), tickets[2 + rank]).ok());
      for (int i = 0; i < 1000; ++i)
        ASSERT_TRUE(pair.of(rank).progress().ok());
    }
    ASSERT_TRUE(pair.drive([&] {
      return std::all_of(std::begin(tickets), std::end(tickets), [](const Ticket& t) { return t.done; });
    })) << pair.status[0].message();
    EXPECT_EQ(got[0], 6);
    EXPECT_EQ(got[1], 5);
  }
}

// The port is another program's on one of the addresses, which answers, or which hangs up.
TEST(Tcp, TheNextAddressIsTriedWhereSomebodyElseAnswers) {
  const Address other = ipv4({127, 0, 0, 2}, 8);
  for (const bool hangs_up : {false, true}) {
    Socket own = listen_at(kLoopback, 0);
    const auto port = static_cast<std::uint16_t>(tcp_local_port(own));
    Socket false_one = listen_at(other, port);
    ASSERT_TRUE(own.open() && false_one.open());
    std::vector<Place> places{{"here", 1, 1, {kLoopback}}, {"here", 2, port, {other, kLoopback}}};
    auto zero = TcpTransport::make({tcp_listen(0).value(), 1, {}, milliseconds(0)}, 0, places).value();
    auto one = TcpTransport::make({std::move(own), 2, {}, milliseconds(0)}, 1, places).value();
    int value = 5;
    int got = 0;
    Ticket sent;
    Ticket received;
    ASSERT_TRUE(one->recv(0, 1, &got, sizeof got, received).ok());
    ASSERT_TRUE(zero->send(1, 1, &value, sizeof value, sent).ok());
    Socket answering;
    const auto end = steady_clock::now() + milliseconds(5000);
    while (!received.done && steady_clock::now() < end) {
      ASSERT_TRUE(zero->progress().ok());
      ASSERT_TRUE(one->progress().ok());
      if (answering.open()) continue;
      answering = tcp_accept(false_one).value();
      if (answering.open() && hangs_up) answering = Socket();
      if (answering.open()) (void)tcp_write_some(answering, "220 ready", 9).value();
    }
    EXPECT_EQ(got, 5) << hangs_up;
  }
}

// An address whose queue of connections is full: it does not answer.
class DeadAddress {
 public:
  DeadAddress(const Address& address, std::uint16_t port) : listener_(listen_at(address, port)) {
    sockaddr_storage where{};
    const socklen_t length = to_sockaddr(address, port, where);
    for (int i = 0; i < 8; ++i) {
      waiting_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      (void)::connect(waiting_.back().fd(), reinterpret_cast<const sockaddr*>(&where), length);
    }
  }

 private:
  Socket listener_;
  std::vector<Socket> waiting_;
};

// Dead ones before the good one cost a fraction of a second each, and nothing where somebody has been there
// before.
TEST(Tcp, AddressesAreTriedSideBySideAndTheGoodOneIsRemembered) {
  Socket own = listen_at(kLoopback, 0);
  const auto port = static_cast<std::uint16_t>(tcp_local_port(own));
  std::vector<Address> addresses;
  std::vector<DeadAddress> dead;
  for (const auto last : std::to_array<std::uint8_t>({2, 3, 4})) {
    addresses.push_back(ipv4({127, 0, 0, last}, 8));
    dead.emplace_back(addresses.back(), port);
  }
  addresses.push_back(kLoopback);
  const std::vector<Place> places{{"here", 1, 1, {kLoopback}}, {"there", 2, port, addresses}};
  const auto known = std::make_shared<KnownWays>();
  {
    auto zero = TcpTransport::make({tcp_listen(0).value(), 1, {}, milliseconds(0), known}, 0, places).value();
    auto one = TcpTransport::make({std::move(own), 2, {}, milliseconds(0)}, 1, places).value();
    int value = 5;
    int got = 0;
    Ticket sent;
    Ticket received;
    ASSERT_TRUE(one->recv(0, 1, &got, sizeof got, received).ok());
    ASSERT_TRUE(zero->send(1, 1, &value, sizeof value, sent).ok());
    // Less than two of three seconds, which each would take alone.
    const auto end = steady_clock::now() + milliseconds(5000);
    while (!received.done && steady_clock::now() < end) {
      ASSERT_TRUE(zero->progress().ok());
      ASSERT_TRUE(one->progress().ok());
    }
    ASSERT_EQ(got, 5) << zero->trouble(1);
  }
  EXPECT_EQ(known->to(places[1]), kLoopback);
  // The others live now, and nobody comes.
  dead.clear();
  own = listen_at(kLoopback, port);
  Socket other = listen_at(addresses[0], port);
  ASSERT_TRUE(own.open() && other.open());
  auto again = TcpTransport::make({tcp_listen(0).value(), 1, {}, milliseconds(0), known}, 0, places).value();
  int value = 5;
  Ticket sent;
  ASSERT_TRUE(again->send(1, 1, &value, sizeof value, sent).ok());
  pollfd come{own.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&come, 1, 5000), 1);
  EXPECT_FALSE(tcp_accept(other).value().open());
  again->cancel(sent);
}

TEST(Tcp, NobodyThereIsSaidWithTheAddress) {
  Pair pair;
  const std::string where = "127.0.0.1:";
  pair.ranks[1].reset();
  int value = 5;
  Ticket sent;
  Status status = pair.of(0).send(1, 1, &value, sizeof value, sent);
  const auto end = steady_clock::now() + milliseconds(20'000);
  while (status.ok() && steady_clock::now() < end)
    status = pair.of(0).progress();
  EXPECT_EQ(status.code(), Code::peer_failed);
  EXPECT_NE(status.message().find("rank 1 on here: no connection: " + where), std::string::npos)
      << status.message();
  EXPECT_TRUE(pair.of(0).peer_is_gone(1));
  pair.of(0).cancel(sent);
}

// Who did not look for that long has not given the peer a chance.
TEST(Tcp, TimeInWhichNobodyLooksDoesNotCount) {
  Pair pair;
  pair.ranks[1].reset();
  int value = 5;
  Ticket sent;
  ASSERT_TRUE(pair.of(0).send(1, 1, &value, sizeof value, sent).ok());
  const auto end = steady_clock::now() + milliseconds(5000);
  while (pair.of(0).trouble(1).find("refused") == std::string::npos && steady_clock::now() < end)
    ASSERT_TRUE(pair.of(0).progress().ok());
  std::this_thread::sleep_for(milliseconds(3500));
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(pair.of(0).progress().ok());
    std::this_thread::sleep_for(milliseconds(2));
  }
  pair.of(0).cancel(sent);
}

TEST(Tcp, StrangersAreSentAway) {
  Pair pair;
  std::vector<Socket> strangers;
  const auto deadline = steady_clock::now() + milliseconds(2000);
  for (int i = 0; i < 3; ++i)
    strangers.push_back(tcp_connect("127.0.0.1", pair.port, deadline).value());
  // One that says nothing, one that says something else, and one that does not know the key.
  const Greeting guess{kMagic, 1, 4};
  const char other[sizeof(Greeting)] = "GET / HTTP/1.1";
  ASSERT_TRUE(tcp_write_all(strangers[1], other, sizeof other, deadline).ok());
  ASSERT_TRUE(tcp_write_all(strangers[2], &guess, sizeof guess, deadline).ok());
  int value = 5;
  int got = 0;
  Ticket sent;
  Ticket received;
  ASSERT_TRUE(pair.of(0).recv(1, 1, &got, sizeof got, received).ok());
  ASSERT_TRUE(pair.of(1).send(0, 1, &value, sizeof value, sent).ok());
  ASSERT_TRUE(pair.drive([&] { return sent.done && received.done; }));
  EXPECT_EQ(got, 5);
  EXPECT_EQ(pair.of(0).connections(), 1);
  for (int i = 1; i < 3; ++i) {
    char byte = 0;
    EXPECT_EQ(tcp_read_all(strangers[static_cast<std::size_t>(i)], &byte, 1, deadline).code(),
              Code::peer_failed)
        << i;
  }
}

bool is_closed(const Socket& socket) {
  char byte = 0;
  return ::recv(socket.fd(), &byte, 1, MSG_DONTWAIT) == 0;
}

TEST(Tcp, OfSilentStrangersTheOldestGo) {
  Pair pair;
  std::vector<Socket> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(
        tcp_connect("127.0.0.1", pair.port, steady_clock::now() + milliseconds(2000)).value());
    (void)pair.of(0).arm();
  }
  ASSERT_TRUE(pair.drive([&] { return (void)pair.of(0).arm(), is_closed(strangers[20]); }));
  EXPECT_TRUE(is_closed(strangers[0]));
  EXPECT_FALSE(is_closed(strangers[99]));
  pair.greet();
}

// This process may open `more` descriptors and no others.
class FewDescriptors {
 public:
  explicit FewDescriptors(int more) {
    (void)getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest = ::dup(0);
    ::close(lowest);
    limit(static_cast<rlim_t>(lowest) + static_cast<rlim_t>(more));
  }
  ~FewDescriptors() { end(); }
  void limit(rlim_t number) {
    rlimit now = before_;
    now.rlim_cur = number;
    (void)setrlimit(RLIMIT_NOFILE, &now);
  }
  void end() { (void)setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// accept(2) says so also where nobody has come.
TEST(Tcp, NoDescriptorLeftIsNoTroubleWhereNobodyComes) {
  Pair pair;
  FewDescriptors few(2);
  pair.greet();
  pair.rest();
  few.end();
  EXPECT_TRUE(pair.status[0].ok()) << pair.status[0].message();
}

// Where no descriptor is left strangers give theirs, and an error that comes of it tells the number.
TEST(Tcp, SilentStrangersTakeNoDescriptorThatIsWanted) {
  Pair pair;
  std::vector<Socket> strangers;
  for (int i = 0; i < 10; ++i) {
    strangers.push_back(
        tcp_connect("127.0.0.1", pair.port, steady_clock::now() + milliseconds(2000)).value());
    (void)pair.of(0).arm();
  }
  FewDescriptors few(1);  // for who connects; none for who accepts
  char value = 5;
  char got = 0;
  Ticket sent;
  Ticket received;
  const bool opened =
      pair.of(1).send(0, 1, &value, 1, sent).ok() && pair.of(0).recv(1, 1, &got, 1, received).ok();
  const bool came = pair.drive([&] { return received.done || !pair.status[0].ok(); });
  // None at all is left where the first number that is free is not allowed.
  few.limit(3);
  const Status none = no_descriptor("accept", EMFILE);
  few.end();
  EXPECT_TRUE(opened && came && received.done) << pair.status[0].message();
  EXPECT_EQ(none.code(), Code::out_of_memory);
  EXPECT_NE(none.message().find(": 3 of 3 file descriptors are open"), std::string::npos) << none.message();
}

TEST(Tcp, ListensOnAPortOfTheRange) {
  Socket other = tcp_listen(0).value();
  const int taken = tcp_local_port(other);
  const Status none = tcp_listen(PortRange{taken, taken}).status();
  EXPECT_EQ(none.code(), Code::system);
  const std::string range = std::to_string(taken) + "-" + std::to_string(taken);
  EXPECT_NE(none.message().find("all ports of HEDDLE_TCP_PORTS=" + range + " are in use"), std::string::npos)
      << none.message();
  FewDescriptors few(0);
  const Status failed = tcp_listen(PortRange{taken, taken}).status();
  few.end();
  EXPECT_NE(
      failed.message().find("port " + std::to_string(taken) + " of HEDDLE_TCP_PORTS=" + range + ": socket"),
      std::string::npos)
      << failed.message();

  const PortRange ports{std::min(taken, 65000), std::min(taken, 65000) + 99};
  std::set<int> found;
  std::vector<Socket> listeners;
  for (int i = 0; i < 20; ++i) {
    listeners.push_back(tcp_listen(ports).value());
    found.insert(tcp_local_port(listeners.back()));
  }
  EXPECT_EQ(found.size(), 20U);
  EXPECT_GE(*found.begin(), ports.first);
  EXPECT_LE(*found.rbegin(), ports.last);

  other.close();
  EXPECT_EQ(tcp_local_port(tcp_listen(PortRange{taken, taken}).value()), taken);
}

TEST(Tcp, NoConnectionTakesThePlaceOfAClosedStream) {
  const int kept = ::dup(STDIN_FILENO);
  ::close(STDIN_FILENO);
  {
    Pair pair;
    pair.greet();
    EXPECT_EQ(::fcntl(STDIN_FILENO, F_GETFD), -1);
    Socket listener = tcp_listen(0).value();
    Socket client =
        tcp_connect("127.0.0.1", tcp_local_port(listener), steady_clock::now() + std::chrono::seconds(10))
            .value();
    Socket server;
    while (!server.open())
      server = tcp_accept(listener).value();
    EXPECT_EQ(::fcntl(STDIN_FILENO, F_GETFD), -1);
  }
  ::dup2(kept, STDIN_FILENO);
  ::close(kept);
}

// What a frame says is not believed: the peer is dropped, and who waits for it is told.
void expect_no_frame(const Frame& nonsense, const std::string& text) {
  Pair pair;
  const auto deadline = steady_clock::now() + milliseconds(2000);
  char buffer = 0;
  Ticket received;
  ASSERT_TRUE(pair.of(0).recv(1, 1, &buffer, 1, received).ok());
  Socket false_peer = tcp_connect("127.0.0.1", pair.port, deadline).value();
  const Greeting greeting{kMagic, 1, 1000};
  ASSERT_TRUE(tcp_write_all(false_peer, &greeting, sizeof greeting, deadline).ok());
  ASSERT_TRUE(tcp_write_all(false_peer, &nonsense, sizeof nonsense, deadline).ok());
  Status status;
  while (status.ok() && steady_clock::now() < deadline)
    status = pair.of(0).progress();
  EXPECT_EQ(status.code(), Code::peer_failed);
  EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
  pair.of(0).cancel(received);
}

TEST(Tcp, NonsenseEndsTheConnection) {
  expect_no_frame({static_cast<Kind>(77), 1, 1}, "kind 77");
}

TEST(Tcp, ALengthThatNobodyCalledEndsTheConnection) {
  const std::uint64_t bytes = std::uint64_t{1} << 40;
  expect_no_frame({Kind::data, 2, bytes}, "no frame (1099511627776 bytes that nobody called)");
  expect_no_frame({Kind::data, 2, kEager + 1}, "bytes that nobody called");
}

}  // namespace
}  // namespace heddle::tcp
