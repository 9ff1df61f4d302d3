// What a network between nodes owes beyond every transport's conformance: peers that leave and die.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "support/worlds.hpp"

namespace heddle::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

struct NetworkKind {
  const char* name;
  Result<std::unique_ptr<Network>> (*open)(const NetworkOptions& options);
};
std::ostream& operator<<(std::ostream& out, const NetworkKind& kind) {
  return out << kind.name;
}

struct Peers : NetworkWorld {
  Peers(const NetworkKind& kind, int size) : NetworkWorld(size, [&kind](int) { return kind.open({}); }) {}
  std::string describe(int rank) { return networks[static_cast<std::size_t>(rank)]->describe(); }
};

class NetworkPeers : public ::testing::TestWithParam<NetworkKind> {};
std::vector<NetworkKind> networks_to_test() {
  std::vector<NetworkKind> kinds{{"tcp", &open_tcp_network}};
#if HEDDLE_TEST_UCX
  kinds.push_back({"ucx", &open_ucx_network});
#endif
  return kinds;
}
INSTANTIATE_TEST_SUITE_P(Networks, NetworkPeers, ::testing::ValuesIn(networks_to_test()),
                         [](const auto& kind) { return std::string(kind.param.name); });

// Progress of all ranks that are there, until `done` or the limit.
template <typename Done>
bool drive(Peers& world, Done done, milliseconds limit = milliseconds(5000)) {
  const auto end = steady_clock::now() + limit;
  while (!done()) {
    for (const auto& transport : world.transports) {
      if (transport) (void)transport->progress();
    }
    if (steady_clock::now() > end) return false;
  }
  return true;
}

void exchange(Peers& world, int from, int to) {
  std::vector<char> data(100, 1);
  std::vector<char> buffer(100);
  Ticket sent;
  Ticket received;
  ASSERT_TRUE(world.of(from).send(to, 3, data.data(), data.size(), sent).ok());
  ASSERT_TRUE(world.of(to).recv(from, 3, buffer.data(), buffer.size(), received).ok());
  ASSERT_TRUE(drive(world, [&] { return sent.done && received.done; }));
  EXPECT_EQ(buffer, data);
}

// Rank 2 has never sent anything to rank 0, nor rank 0 to it.
TEST_P(NetworkPeers, WhoWaitsForADeadRankIsTold) {
  Peers world(GetParam(), 4);
  std::vector<char> buffer(100);
  Ticket ticket;
  ASSERT_TRUE(world.of(0).recv(2, 3, buffer.data(), buffer.size(), ticket).ok());
  Status status;
  // Its connection comes with the waiting.
  ASSERT_FALSE(drive(
      world, [&] { return ticket.done; }, milliseconds(600)));
  EXPECT_FALSE(world.of(0).peer_is_gone(2));
  world.leave(2);
  ASSERT_TRUE(drive(world, [&] {
    status = world.of(0).progress();
    return !status.ok();
  }));
  EXPECT_EQ(status.code(), Code::peer_failed);
  EXPECT_NE(status.message().find("rank 2 on "), std::string::npos) << status.message();
  EXPECT_TRUE(world.of(0).peer_is_gone(2));
  EXPECT_FALSE(world.of(0).peer_is_gone(1));
  world.of(0).cancel(ticket);
  // Final.
  Ticket next;
  EXPECT_EQ(world.of(0).send(1, 3, buffer.data(), 1, next).code(), Code::peer_failed);
}

TEST_P(NetworkPeers, WhoSendsToADeadRankIsTold) {
  Peers world(GetParam(), 3);
  exchange(world, 0, 1);
  exchange(world, 1, 0);
  world.leave(1);
  std::vector<char> data(5'000'000);
  Ticket ticket;
  Status status = world.of(0).send(1, 4, data.data(), data.size(), ticket);
  ASSERT_TRUE(drive(world, [&] {
    if (status.ok()) status = world.of(0).progress();
    return !status.ok();
  }));
  EXPECT_EQ(status.code(), Code::peer_failed) << status.message();
  EXPECT_NE(status.message().find("rank 1 on "), std::string::npos) << status.message();
  world.of(0).cancel(ticket);
}

// As at the end of a job: nobody who is through harms those who are not.
TEST_P(NetworkPeers, WhatWasSentOutlivesTheSender) {
  for (const std::size_t bytes : {0, 100, 8000, 20'000}) {
    Peers world(GetParam(), 3);
    exchange(world, 0, 1);
    exchange(world, 1, 0);
    std::vector<char> data(bytes, 7);
    for (std::uint32_t tag = 0; tag < 5; ++tag) {
      Ticket sent;
      ASSERT_TRUE(world.of(0).send(1, tag, data.data(), data.size(), sent).ok());
      const auto sent_or_stuck = [&] {
        (void)world.of(0).progress();
        return sent.done;
      };
      ASSERT_TRUE(drive(world, sent_or_stuck)) << bytes;
    }
    char other = 0;
    Ticket of_another;
    ASSERT_TRUE(world.of(1).recv(2, 77, &other, 1, of_another).ok());
    const auto begin = steady_clock::now();
    world.leave(0);
    EXPECT_LT(steady_clock::now() - begin, milliseconds(2000)) << "leaving waits for nobody";
    // The news of the departure must not overtake the messages, nor count against those who need no more of
    // this rank.
    ASSERT_FALSE(drive(
        world, [] { return false; }, milliseconds(100)));
    exchange(world, 1, 2);
    Ticket last;
    ASSERT_TRUE(world.of(2).send(1, 77, "x", 1, last).ok());
    ASSERT_TRUE(drive(world, [&] { return of_another.done && last.done; }));
    EXPECT_EQ(other, 'x');
    for (std::uint32_t tag = 0; tag < 5; ++tag) {
      std::vector<char> buffer(bytes);
      Ticket received;
      const Status status = world.of(1).recv(0, tag, buffer.data(), buffer.size(), received);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_TRUE(drive(world, [&] { return received.done; })) << bytes;
      EXPECT_EQ(buffer, data);
    }
    Ticket none;
    Status status = world.of(1).recv(0, 9, data.data(), data.size(), none);
    if (status.ok()) {
      ASSERT_TRUE(drive(world, [&] {
        status = world.of(1).progress();
        return !status.ok();
      }));
    }
    EXPECT_EQ(status.code(), Code::peer_failed);
    world.of(1).cancel(none);
  }
}

// It lives on, and does nothing for those who wait.
TEST_P(NetworkPeers, WhoHasLeftIsNotWaitedFor) {
  Peers world(GetParam(), 2);
  exchange(world, 0, 1);
  Ticket sent;
  ASSERT_TRUE(world.of(1).send(0, 4, "x", 1, sent).ok());
  ASSERT_TRUE(drive(world, [&] { return sent.done; }));
  world.of(1).leave({});
  const auto hear = [&](char* data, Ticket& ticket) {
    Status status = world.of(0).recv(1, 4, data, 1, ticket);
    const auto end = steady_clock::now() + milliseconds(5000);
    while (status.ok() && !ticket.done && steady_clock::now() < end)
      status = world.of(0).progress();
    return status;
  };
  char data = 0;
  Ticket first;
  EXPECT_TRUE(hear(&data, first).ok());
  EXPECT_EQ(data, 'x') << "what was sent before";
  Ticket second;
  EXPECT_EQ(hear(&data, second).code(), Code::peer_failed);
  EXPECT_TRUE(world.of(0).peer_is_gone(1));
  world.of(0).cancel(second);
}

// Its end came when nothing was to come from it.
TEST(Tcp, WhoIsMissedLaterIsNamedAsTheReason) {
  const NetworkKind kind{"tcp", &open_tcp_network};
  Peers world(kind, 3);
  exchange(world, 0, 1);
  world.leave(1);
  const auto never = [] { return false; };
  ASSERT_FALSE(drive(world, never, milliseconds(100)));
  EXPECT_EQ(world.of(0).culprit().culprit, -1) << "so far nobody has missed it";
  char data = 0;
  Ticket ticket;
  EXPECT_EQ(world.of(0).send(1, 4, &data, 1, ticket).code(), Code::peer_failed);
  EXPECT_EQ(world.of(0).culprit().culprit, 1);
}

// Who waits for it hears of the rank that failed first.
TEST(Tcp, WhoHasLeftSaysForWhom) {
  const NetworkKind kind{"tcp", &open_tcp_network};
  Peers world(kind, 3);
  exchange(world, 0, 2);
  exchange(world, 1, 2);
  const auto fails = [&](int rank, int from) {
    char data = 0;
    Ticket ticket;
    Status status = world.of(rank).recv(from, 4, &data, 1, ticket);
    const auto end = steady_clock::now() + milliseconds(5000);
    while (status.ok() && steady_clock::now() < end)
      status = world.of(rank).progress();
    world.of(rank).cancel(ticket);
    return status.message();
  };
  world.leave(1);
  EXPECT_NE(fails(2, 1).find("rank 1 on "), std::string::npos);
  world.of(2).leave({});
  const std::string heard = fails(0, 2);
  EXPECT_EQ(heard.find("rank 1 on "), 0U) << heard;
  EXPECT_NE(heard.find(" is gone, as rank 2 on "), std::string::npos) << heard;
}

// Their connections are in its queue, or come later: it has not looked since.
TEST_P(NetworkPeers, WhoHasLeftAnswersNobodyWhoIsNotConnected) {
  Peers world(GetParam(), 3);
  char data = 0;
  Ticket early;
  Ticket late;
  const auto fails = [&](int rank, Status status, Ticket& ticket) {
    const auto end = steady_clock::now() + milliseconds(15'000);
    while (status.ok() && !ticket.done && steady_clock::now() < end)
      status = world.of(rank).progress();
    world.of(rank).cancel(ticket);
    return status;
  };
  ASSERT_TRUE(world.of(0).send(1, 4, "x", 1, early).ok());
  const auto greeted = steady_clock::now() + milliseconds(300);
  while (steady_clock::now() < greeted)
    ASSERT_TRUE(world.of(0).progress().ok());
  world.of(1).leave({});
  EXPECT_EQ(fails(0, {}, early).code(), Code::peer_failed);
  EXPECT_TRUE(world.of(0).peer_is_gone(1));
  EXPECT_EQ(fails(2, world.of(2).recv(1, 4, &data, 1, late), late).code(), Code::peer_failed);
}

TEST_P(NetworkPeers, DamagedAddressesAreRefused) {
  auto network = GetParam().open({}).value();
  const auto made = network->connect(0, {"", "no end of the name"});
  EXPECT_EQ(made.status().code(), Code::internal);
}

#if HEDDLE_TEST_UCX
TEST(Ucx, ConnectionsAreMadeBySendsAlone) {
  Peers world({"ucx", &open_ucx_network}, 6);
  // One each, which showed that there is a way.
  EXPECT_NE(world.describe(0).find(", 1 endpoint,"), std::string::npos) << world.describe(0);
  exchange(world, 0, 1);  // the same one
  EXPECT_NE(world.describe(0).find(", 1 endpoint,"), std::string::npos) << world.describe(0);
  exchange(world, 4, 0);
  EXPECT_NE(world.describe(0).find(", 1 endpoint,"), std::string::npos) << world.describe(0);
  exchange(world, 0, 3);
  EXPECT_NE(world.describe(0).find(", 2 endpoints,"), std::string::npos) << world.describe(0);
  EXPECT_NE(world.describe(0).find("over tcp/"), std::string::npos) << world.describe(0);
}
#endif

}  // namespace
}  // namespace heddle::test
