// What every transport owes the engine, on every transport there is.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <list>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "support/ranks.hpp"
#include "support/worlds.hpp"
#ifdef HEDDLE_TEST_WORLDS  // a header with worlds_to_test(), for what runs only on machines of its own
#include HEDDLE_TEST_WORLDS
#endif

namespace heddle::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

// The content of message `number` from `from` to `to`: any mix-up shows.
Bytes content(int from, int to, std::uint64_t number, std::size_t bytes) {
  Bytes out(bytes);
  std::uint64_t x = number * 1000003 + static_cast<std::uint64_t>(from * 131 + to * 17 + 1);
  for (auto& b : out) {
    x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    b = static_cast<std::uint8_t>(x >> 56);
  }
  return out;
}

// Sends and receives of one rank that are open together, with their buffers.
class Open {
 public:
  explicit Open(Transport& transport) : transport_(transport) {}
  void send(int peer, std::uint32_t tag, Bytes data) {
    Message& m = messages_.emplace_back();
    m.buffer = std::move(data);
    ASSERT_TRUE(transport_.send(peer, tag, m.buffer.data(), m.buffer.size(), m.ticket).ok());
  }
  void recv(int peer, std::uint32_t tag, Bytes expected) {
    Message& m = messages_.emplace_back();
    m.buffer.assign(expected.size(), 0xee);
    m.expected = std::move(expected);
    m.receives = true;
    ASSERT_TRUE(transport_.recv(peer, tag, m.buffer.data(), m.buffer.size(), m.ticket).ok());
  }
  // Completes everything and compares what came.
  void finish(Rank& me) {
    me.until([&] {
      const Status status = transport_.progress();
      EXPECT_TRUE(status.ok()) << status.message();
      return !status.ok() ||
             std::all_of(messages_.begin(), messages_.end(), [](const Message& m) { return m.ticket.done; });
    });
    for (const Message& m : messages_) {
      if (m.receives) {
        ASSERT_EQ(m.buffer, m.expected);
      }
    }
    messages_.clear();
  }

 private:
  struct Message {
    Bytes buffer;
    Bytes expected;
    bool receives = false;
    Ticket ticket;
  };
  Transport& transport_;
  std::list<Message> messages_;
};

#ifndef HEDDLE_TEST_WORLDS
std::vector<WorldKind> worlds_to_test() {
  return all_worlds();
}
#endif

class Conformance : public ::testing::TestWithParam<WorldKind> {};
INSTANTIATE_TEST_SUITE_P(Transports, Conformance, ::testing::ValuesIn(worlds_to_test()),
                         [](const auto& kind) { return std::string(kind.param.name); });

#if !HEDDLE_TEST_UCX
TEST(Ucx, Conforms) {
  GTEST_SKIP() << "UCX was not there when this was built (libucx-dev)";
}
#endif

TEST_P(Conformance, HasANameAndACost) {
  const auto world = GetParam().make(2);
  EXPECT_STRNE(world->of(0).capabilities().name, "");
  EXPECT_GT(world->of(0).capabilities().cost.fixed_ns, 0);
  EXPECT_EQ(world->of(0).add_memory({}).status().code(), Code::unsupported);
}

TEST_P(Conformance, EverySizeBothWaysAtOnce) {
  const auto world = GetParam().make(2);
  run_ranks(2, [&](Rank& me) {
    const int peer = 1 - me.rank;
    std::uint64_t number = 0;
    // Around a ring of 64 KiB, with its 16-byte headers, and several of them.
    for (const std::size_t bytes :
         {0, 1, 7, 64, 4096, 65519, 65520, 65521, 65535, 65536, 65537, 300000, 1 << 20}) {
      me.at("message of bytes", bytes);
      Open open(world->of(me.rank));
      ++number;
      open.send(peer, 5, content(me.rank, peer, number, bytes));
      open.recv(peer, 5, content(peer, me.rank, number, bytes));
      open.finish(me);
    }
  });
}

TEST_P(Conformance, InOrderPerTag) {
  const auto world = GetParam().make(2);
  run_ranks(2, [&](Rank& me) {
    Open open(world->of(me.rank));
    for (std::uint64_t i = 0; i < 200; ++i) {
      // Sizes mix eager and rendezvous.
      const std::size_t bytes = i % 3 == 0 ? 2000 : i % 50;
      if (me.rank == 0) open.send(1, 9, content(0, 1, i, bytes));
      if (me.rank == 1) open.recv(0, 9, content(0, 1, i, bytes));
    }
    open.finish(me);
  });
}

TEST_P(Conformance, TagsAreIndependentAndComeInAnyOrder) {
  const auto world = GetParam().make(3);
  run_ranks(3, [&](Rank& me) {
    for (std::uint64_t round = 0; round < static_cast<std::uint64_t>(rounds(40)); ++round) {
      me.at("round", round);
      Open open(world->of(me.rank));
      std::vector<std::uint32_t> tags(24);
      std::iota(tags.begin(), tags.end(), 0U);
      std::mt19937_64 random(round * 3 + static_cast<std::uint64_t>(me.rank));
      const auto bytes_of = [&](std::uint32_t tag) { return (tag * 977 + round * 131) % 9000; };
      for (int peer = 0; peer < 3; ++peer) {
        if (peer == me.rank) continue;
        std::shuffle(tags.begin(), tags.end(), random);
        for (const std::uint32_t tag : tags)
          open.send(peer, tag, content(me.rank, peer, round * 100 + tag, bytes_of(tag)));
        std::shuffle(tags.begin(), tags.end(), random);
        for (const std::uint32_t tag : tags)
          open.recv(peer, tag, content(peer, me.rank, round * 100 + tag, bytes_of(tag)));
      }
      open.finish(me);
    }
  });
}

// A receive opened while its message, not the one that is expected first, is already coming in.
TEST_P(Conformance, EarlyMessagesWait) {
  const auto world = GetParam().make(2);
  run_ranks(2, [&](Rank& me) {
    Transport& transport = world->of(me.rank);
    for (std::uint64_t round = 0; round < 20; ++round) {
      me.at("round", round);
      Open open(transport);
      if (me.rank == 0) {
        open.send(1, 1, content(0, 1, round, 200000));
        open.send(1, 2, content(0, 1, round + 1000, 100000));
        open.send(1, 1, content(0, 1, round + 2000, 10));
        open.send(1, 3, content(0, 1, round + 3000, 5));
      } else {
        open.recv(0, 3, content(0, 1, round + 3000, 5));
        for (std::uint64_t i = 0; i < round * 3; ++i)
          ASSERT_TRUE(transport.progress().ok());
        open.recv(0, 1, content(0, 1, round, 200000));
        ASSERT_TRUE(transport.progress().ok());
        open.recv(0, 2, content(0, 1, round + 1000, 100000));
        open.recv(0, 1, content(0, 1, round + 2000, 10));
      }
      open.finish(me);
    }
  });
}

// A random conversation that both ends derive from one seed.
TEST_P(Conformance, RandomConversation) {
  constexpr int kRanks = 4;
  const auto world = GetParam().make(kRanks);
  run_ranks(kRanks, [&](Rank& me) {
    Open open(world->of(me.rank));
    std::mt19937_64 random(42);
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(rounds(4000)); ++i) {
      const int from = static_cast<int>(random() % kRanks);
      const int to = (from + 1 + static_cast<int>(random() % (kRanks - 1))) % kRanks;
      const auto tag = static_cast<std::uint32_t>(random() % 4);
      const std::size_t bytes = random() % 20 == 0 ? random() % 150000 : random() % 100;
      if (from == me.rank) open.send(to, tag, content(from, to, i, bytes));
      if (to == me.rank) open.recv(from, tag, content(from, to, i, bytes));
      if (i % 16 == 15) {
        me.at("message", i);
        open.finish(me);
      }
    }
    open.finish(me);
  });
}

// After a cancel the buffer is the caller's again.
// Where there is a descriptor it is quiet while nothing comes, and readable when something did, over and
// over.
TEST_P(Conformance, SleepersWakeUp) {
  const auto world = GetParam().make(2);
  Transport& sleeper = world->of(1);
  if (sleeper.wake_descriptor() < 0) return;
  const auto drive = [&](const auto& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done() && std::chrono::steady_clock::now() < end) {
      ASSERT_TRUE(world->of(0).progress().ok());
      ASSERT_TRUE(sleeper.progress().ok());
    }
    ASSERT_TRUE(done());
  };
  const auto readable = [&](int limit_ms) {
    pollfd wake{sleeper.wake_descriptor(), POLLIN, 0};
    return poll(&wake, 1, limit_ms) > 0;
  };
  for (const std::size_t bytes : {1, 100, 300000, 0}) {
    Bytes received(bytes);
    const Bytes sent = content(0, 1, bytes, bytes);
    Ticket tickets[2];
    ASSERT_TRUE(sleeper.recv(0, 5, received.data(), bytes, tickets[1]).ok());
    // What is left of the message before may still wake it.
    drive([&] { return sleeper.arm() && !readable(20); });
    ASSERT_TRUE(world->of(0).send(1, 5, sent.data(), bytes, tickets[0]).ok());
    for (int i = 0; i < 100 && !readable(50); ++i)
      ASSERT_TRUE(world->of(0).progress().ok());
    EXPECT_TRUE(readable(0)) << bytes << " bytes";
    drive([&] { return tickets[0].done && tickets[1].done; });
    EXPECT_EQ(received, sent);
  }
}

TEST_P(Conformance, CancelledReceiveLeavesTheBufferAlone) {
  const auto world = GetParam().make(2);
  auto buffer = std::make_unique<Bytes>(300000, std::uint8_t{7});
  Ticket receive;
  ASSERT_TRUE(world->of(1).recv(0, 1, buffer->data(), buffer->size(), receive).ok());
  ASSERT_TRUE(world->of(1).progress().ok());
  const Bytes data = content(0, 1, 1, 300000);
  Ticket sent;
  ASSERT_TRUE(world->of(0).send(1, 1, data.data(), data.size(), sent).ok());
  ASSERT_TRUE(world->of(0).progress().ok());
  world->of(1).cancel(receive);
  buffer.reset();  // a sanitizer sees who still writes
  // Another receive keeps the traffic moving.
  Bytes other(1);
  Ticket second;
  ASSERT_TRUE(world->of(1).recv(0, 2, other.data(), other.size(), second).ok());
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(world->of(0).progress().ok());
    ASSERT_TRUE(world->of(1).progress().ok());
  }
  EXPECT_FALSE(receive.done);
  EXPECT_FALSE(second.done);
  world->of(1).cancel(second);
  if (!sent.done) world->of(0).cancel(sent);
}

TEST_P(Conformance, CancelledSendIsNotReadAgain) {
  const auto world = GetParam().make(2);
  auto data = std::make_unique<Bytes>(content(0, 1, 1, 300000));
  auto ticket = std::make_unique<Ticket>();
  ASSERT_TRUE(world->of(0).send(1, 1, data->data(), data->size(), *ticket).ok());
  ASSERT_TRUE(world->of(0).progress().ok());
  if (!ticket->done) world->of(0).cancel(*ticket);
  data.reset();
  ticket.reset();
  Bytes buffer(300000);
  Ticket receive;
  ASSERT_TRUE(world->of(1).recv(0, 1, buffer.data(), buffer.size(), receive).ok());
  for (int i = 0; i < 50; ++i) {
    // Where a cancel ends the connection, whoever still expects something of it is told.
    ASSERT_TRUE(world->of(1).progress().ok() || GetParam().cancel_ends_connection);
    ASSERT_TRUE(world->of(0).progress().ok());
  }
  if (!receive.done) world->of(1).cancel(receive);
}

// A receive whose message is on its way, in pieces: those that come after the cancel go nowhere.
TEST_P(Conformance, CancelledInTheMiddle) {
  const auto world = GetParam().make(2);
  auto buffer = std::make_unique<Bytes>(8 << 20, std::uint8_t{7});
  const Bytes data = content(0, 1, 1, buffer->size());
  Ticket receive;
  Ticket sent;
  ASSERT_TRUE(world->of(1).recv(0, 1, buffer->data(), buffer->size(), receive).ok());
  ASSERT_TRUE(world->of(0).send(1, 1, data.data(), data.size(), sent).ok());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while ((*buffer)[0] == 7 && !receive.done && std::chrono::steady_clock::now() < end) {
    ASSERT_TRUE(world->of(0).progress().ok());
    ASSERT_TRUE(world->of(1).progress().ok());
  }
  if (!receive.done) world->of(1).cancel(receive);
  buffer.reset();  // a sanitizer sees who still writes
  for (int i = 0; i < 1000; ++i) {
    const Status status = world->of(0).progress();
    ASSERT_TRUE(status.ok() || GetParam().cancel_ends_connection) << status.message();
    ASSERT_TRUE(world->of(1).progress().ok() || GetParam().cancel_ends_connection);
  }
  if (!sent.done) world->of(0).cancel(sent);
}

// Sent and received lengths differ: an error that says so, on the receiver.
TEST_P(Conformance, AnotherLengthIsAnError) {
  if (!GetParam().tells_lengths) GTEST_SKIP() << GetParam().name << " does not tell lengths";
  const std::pair<std::size_t, std::size_t> kLengths[] = {
      {5, 6}, {7, 5}, {300000, 300001}, {300001, 300000}, {300000, 5}};
  for (const auto& [sends, expects] : kLengths) {
    const auto world = GetParam().make(2);
    Bytes data(sends, 1);
    Bytes buffer(expects, 2);
    Ticket sent;
    Ticket receive;
    ASSERT_TRUE(world->of(0).send(1, 4, data.data(), data.size(), sent).ok());
    Status status = world->of(1).recv(0, 4, buffer.data(), buffer.size(), receive);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (status.ok() && !receive.done && std::chrono::steady_clock::now() < end) {
      (void)world->of(0).progress();
      status = world->of(1).progress();
    }
    EXPECT_FALSE(status.ok()) << sends;
    EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status.message();
    world->of(1).cancel(receive);
    if (!sent.done) world->of(0).cancel(sent);
  }
}

// The receiver's answer to a rendezvous send may cross with its cancellation.
TEST_P(Conformance, CancelMayCrossWithCompletion) {
  const bool again = GetParam().cancel_ends_connection;
  auto world = GetParam().make(2);
  for (int round = 0; round < (again ? 24 : rounds(200)); ++round) {
    if (again) world = GetParam().make(2);
    auto data = std::make_unique<Bytes>(3000);
    auto ticket = std::make_unique<Ticket>();
    const auto tag = static_cast<std::uint32_t>(round);
    ASSERT_TRUE(world->of(0).send(1, tag, data->data(), data->size(), *ticket).ok());
    Bytes buffer(3000);
    Ticket receive;
    ASSERT_TRUE(world->of(1).recv(0, tag, buffer.data(), buffer.size(), receive).ok());
    for (int i = 0; i < round % 12; ++i)
      ASSERT_TRUE(world->of(1).progress().ok());
    ASSERT_TRUE(!again || world->of(0).progress().ok());
    if (!ticket->done) world->of(0).cancel(*ticket);
    ticket.reset();
    data.reset();
    ASSERT_TRUE(world->of(0).progress().ok() || again);
    if (!receive.done) world->of(1).cancel(receive);
  }
}

}  // namespace
}  // namespace heddle::test
