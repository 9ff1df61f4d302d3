// What messages between nodes cost: the line through what was measured, and which messages the measuring
// sends.
#include "comm/message_costs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "communicator/party.hpp"

namespace heddle {
namespace {

using namespace std::chrono_literals;

constexpr auto kMiddle = MessageTimes::kMiddle;
constexpr auto kLarge = MessageTimes::kLarge;

TEST(FitMessageCost, IsTheLineThroughTheLargerSizes) {
  const double per_byte = 0.5;
  const double fixed = 30'000;
  const MessageCost cost = fit_message_cost({7'000, fixed + per_byte * static_cast<double>(kMiddle),
                                             fixed + per_byte * static_cast<double>(kLarge)});
  EXPECT_NEAR(cost.per_byte_ns, per_byte, 1e-9);
  EXPECT_NEAR(cost.fixed_ns, fixed, 1e-3);
}

TEST(FitMessageCost, NeverStartsBelowASmallMessage) {
  const MessageCost cost = fit_message_cost({50'000, 60'000, 700'000});
  EXPECT_EQ(cost.fixed_ns, 50'000);
  EXPECT_GT(cost.per_byte_ns, 1);
}

TEST(FitMessageCost, WithoutLargeMessagesTheMiddleOnesServe) {
  const MessageCost cost = fit_message_cost({10'000, 10'000 + 65'536 * 100.0, 0});
  EXPECT_NEAR(cost.per_byte_ns, 100, 1e-9);
  EXPECT_NEAR(cost.fixed_ns, 10'000, 1e-3);
}

// Times that wobble may fall with the size; a price may not.
TEST(FitMessageCost, NoByteIsCheaperThanNothing) {
  const MessageCost cost = fit_message_cost({10'000, 90'000, 80'000});
  EXPECT_EQ(cost.per_byte_ns, 0);
  EXPECT_EQ(cost.fixed_ns, 90'000);
}

// Stands in for a partner: notes what is exchanged, which takes what it says on a clock of its own.
struct Partner {
  struct Message {
    bool sends;
    std::size_t bytes;
  };
  std::vector<Message> messages;
  std::chrono::microseconds middle{1};
  std::chrono::microseconds small{1};
  std::deque<std::byte> opinions;        // of the first: what it says, or what the second is told
  std::map<std::size_t, int> disturbed;  // so many messages of that size take longer
  std::chrono::microseconds late{0};     // of the first message
  int fails_at = -1;
  TimePoint time;

  Clock clock() {
    return [this] { return time; };
  }
  Exchange exchange() {
    return [this](bool sends, void* data, std::size_t bytes) -> Status {
      if (static_cast<int>(messages.size()) == fails_at) return Status(Code::peer_failed, "rank 1 is gone");
      if (messages.empty()) time += late;
      messages.push_back({sends, bytes});
      time += bytes == kMiddle ? middle : bytes == MessageTimes::kSmall ? small : 1us;
      // One message longer each time, so that no two of them seem alike.
      if (int& left = disturbed[bytes]; left > 0) time += left-- * 100us;
      if (bytes == 1 && sends) opinions.push_back(*static_cast<std::byte*>(data));
      if (bytes == 1 && !sends) {
        *static_cast<std::byte*>(data) = opinions.empty() ? std::byte{0} : opinions.front();
        if (!opinions.empty()) opinions.pop_front();
      }
      return {};
    };
  }
  std::size_t of(std::size_t bytes) const {
    std::size_t n = 0;
    for (const Message& m : messages)
      n += m.bytes == bytes ? 1 : 0;
    return n;
  }
};

// What the first of two partners measures; the second is told what the first found, and has to do the same.
MessageTimes of_both(Partner& of_first) {
  Partner of_second;
  const Result<MessageTimes> times = time_messages(of_first.exchange(), true, of_first.clock());
  EXPECT_TRUE(times.ok());
  of_second.opinions = of_first.opinions;
  EXPECT_TRUE(time_messages(of_second.exchange(), false, of_second.clock()).ok());
  EXPECT_EQ(of_first.messages.size(), of_second.messages.size());
  const std::size_t both = std::min(of_first.messages.size(), of_second.messages.size());
  for (std::size_t i = 0; i < both; ++i) {
    EXPECT_EQ(of_first.messages[i].bytes, of_second.messages[i].bytes) << i;
    EXPECT_NE(of_first.messages[i].sends, of_second.messages[i].sends) << i;
  }
  return times.value();
}

TEST(TimeMessages, BothPartnersExchangeTheSame) {
  for (const bool large : {true, false}) {
    Partner of_first;
    of_first.middle = large ? 1us : 3000us;
    const MessageTimes times = of_both(of_first);
    EXPECT_EQ(of_first.of(kLarge) > 0, large);
    EXPECT_EQ(times.large_ns > 0, large);
    EXPECT_EQ(times.middle_ns, large ? 1e3 : 3e6);
    EXPECT_LE(of_first.messages.size(), 85u);
  }
}

TEST(TimeMessages, WhatSeemsSlowIsTimedAgainForAWhile) {
  Partner usual;
  of_both(usual);
  Partner slow;
  slow.small = 400us;
  const MessageTimes times = of_both(slow);
  EXPECT_EQ(times.small_ns, 4e5);
  EXPECT_GT(slow.of(MessageTimes::kSmall), 2 * usual.of(MessageTimes::kSmall));
  EXPECT_LT(slow.time - TimePoint(), 200ms);
}

// Somebody takes the core of a rank again and again: what one batch shows alone is found all the same.
TEST(TimeMessages, WhatIsDisturbedIsTimedUntilItIsNot) {
  Partner busy;
  for (const std::size_t bytes : {MessageTimes::kSmall, kMiddle, kLarge})
    busy.disturbed[bytes] = 14;
  const MessageTimes times = of_both(busy);
  EXPECT_EQ(times.small_ns, 1e3);
  EXPECT_EQ(times.middle_ns, 1e3);
  EXPECT_EQ(times.large_ns, 1e3);
  EXPECT_EQ(times.handling_ns, 1e3);
}

// A satellite's link, or one of a few kilobytes a second: each message is a wait.
TEST(TimeMessages, OfMessagesThatGoFarADozenHasToDo) {
  Partner far;
  far.small = 300ms;
  far.middle = 5s;
  const MessageTimes times = of_both(far);
  EXPECT_EQ(times.small_ns, 3e8);
  EXPECT_EQ(times.middle_ns, 5e9);
  EXPECT_LE(far.messages.size(), 14u);
  EXPECT_LE(far.of(kMiddle), 4u);
}

TEST(TimeMessages, APartnerThatComesLateIsNotFar) {
  Partner usual;
  of_both(usual);
  Partner late;
  late.late = 300ms;
  EXPECT_EQ(of_both(late).handling_ns, 1e3);
  EXPECT_EQ(late.messages.size(), usual.messages.size());
}

TEST(TimeMessages, AFailureEndsIt) {
  for (const int at : {0, 5, 20, 26}) {
    Partner partner;
    partner.fails_at = at;
    const Result<MessageTimes> times = time_messages(partner.exchange(), true);
    ASSERT_FALSE(times.ok());
    EXPECT_EQ(times.status().code(), Code::peer_failed);
  }
}

// A communicator measures what no communicator before it has, tells all its ranks, and all choose alike.
TEST(LearnedMessageCost, IsMeasuredOnceForAll) {
  using test::Rank;
  test::Party party({1, 2, 2});
  for (int rank = 0; rank < party.size(); ++rank)
    party.processes.push_back(std::make_shared<ProcessState>());
  // Who is told is another one.
  for (const int rank : {0, 1, 2}) {
    party.processes[static_cast<std::size_t>(rank)]->queued_seconds = [rank] {
      return rank == 1
                 ? std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count()
                 : 0;
    };
  }
  std::vector<std::string> said(3);
  std::vector<std::string> chosen(3);
  const auto note = [&](Rank& me, Communicator& comm) {
    const auto rank = static_cast<std::size_t>(me.rank);
    said[rank] = comm.describe();
    chosen[rank] = comm.algorithm(Collective::allreduce, 1 << 20);
  };
  party.run(test::quiet(), note);
  EXPECT_NE(said[0].find("a message between nodes takes"), std::string::npos) << said[0];
  EXPECT_NE(said[0].find("while a rank was without its core for "), std::string::npos) << said[0];
  for (int rank = 0; rank < party.size(); ++rank) {
    EXPECT_EQ(chosen[static_cast<std::size_t>(rank)], chosen[0]);
    EXPECT_EQ(party.processes[static_cast<std::size_t>(rank)]->message_cost(),
              party.processes[0]->message_cost());
    EXPECT_NE(party.processes[static_cast<std::size_t>(rank)]->message_cost(), MessageCost{});
  }
  const int opened = party.lender(0).opened;
  EXPECT_GT(opened, 0);
  EXPECT_GT(party.lender(1).opened, 0);
  EXPECT_EQ(party.lender(2).opened, 0) << "it is not the first rank of its node";
  party.run(test::quiet(), note);
  EXPECT_EQ(party.lender(0).opened, opened) << "measured again";
}

// Where ends share something, a message costs more while all ranks send than between two of them.
TEST(LearnedMessageCost, KnowsWhatACrowdAdds) {
  test::Party party({1, 2, 3, 4});
  test::Wire wire(1us);
  party.share(wire);
  for (int rank = 0; rank < party.size(); ++rank)
    party.processes.push_back(std::make_shared<ProcessState>());
  party.run(test::quiet(), [](test::Rank&, Communicator&) {});
  const MessageCost cost = party.processes[0]->message_cost();
  EXPECT_EQ(cost.fixed_ns, 1e3);
  EXPECT_GT(cost.least_ns, 2.5e3) << "four at a time";
}

// It knows what all nodes add that send far at once: here they share one wire, so that each waits for about
// all others.
TEST(LearnedMessageCost, KnowsWhatTheMiddleBears) {
  const auto cost_of = [&](int ranks) {
    std::vector<std::uint64_t> nodes(static_cast<std::size_t>(ranks));
    std::iota(nodes.begin(), nodes.end(), 1);
    test::Party party(nodes);
    test::Wire wire(100us);
    party.share(wire);
    for (int rank = 0; rank < ranks; ++rank)
      party.processes.push_back(std::make_shared<ProcessState>());
    party.run(test::quiet(), [](test::Rank&, Communicator&) {});
    for (const auto& process : party.processes)
      EXPECT_EQ(process->message_cost(), party.processes[0]->message_cost());
    return party.processes[0]->message_cost();
  };
  EXPECT_EQ(cost_of(2).crossing, 0);
  const MessageCost of_many = cost_of(9);
  const double alone_ns = of_many.fixed_ns + of_many.per_byte_ns * static_cast<double>(kMiddle);
  EXPECT_EQ(alone_ns, 1e5);
  EXPECT_GT(of_many.crossing, 9.0 / 2);
}

// A communicator of far more nodes, or of more ranks on one, sees for itself what all of them add. One that
// is little larger does not, and a smaller one takes over what the larger one saw.
TEST(LearnedMessageCost, IsMeasuredAgainByFarMore) {
  const std::vector<std::shared_ptr<ProcessState>> processes = [] {
    std::vector<std::shared_ptr<ProcessState>> all(9);
    for (auto& each : all)
      each = std::make_shared<ProcessState>();
    return all;
  }();
  const auto measures = [&](const std::vector<std::uint64_t>& nodes) {
    test::Party party(nodes);
    party.processes.assign(processes.begin(), processes.begin() + party.size());
    party.run(test::quiet(), [](test::Rank&, Communicator&) {});
    for (const auto& process : party.processes)
      EXPECT_EQ(process->message_cost(), party.processes[0]->message_cost());
    return party.lender(0).opened > 0;
  };
  const auto seen_by = [&](std::int32_t nodes, std::int32_t ranks_of_node) {
    const MessageCost cost = processes[0]->message_cost();
    return cost.nodes == nodes && cost.ranks_of_node == ranks_of_node;
  };
  EXPECT_TRUE(measures({1, 2, 3}));
  EXPECT_TRUE(seen_by(3, 1));
  EXPECT_FALSE(measures({1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(measures({1, 2, 3, 4, 5, 6, 7}));
  EXPECT_TRUE(seen_by(7, 1));
  EXPECT_FALSE(measures({1, 2, 3}));
  EXPECT_FALSE(measures({1, 1, 2, 2, 3, 3}));
  EXPECT_TRUE(measures({1, 1, 1, 2, 3}));
  EXPECT_TRUE(seen_by(7, 3));
  EXPECT_FALSE(measures({1, 2, 3, 4, 5, 6, 7})) << "in turn with the one before";
}

// Slow messages make the choice another one than fast ones.
TEST(LearnedMessageCost, DecidesTheChoice) {
  const auto choice_at = [](const MessageCost& cost) {
    test::Party party({1, 2, 3, 4});
    for (int rank = 0; rank < party.size(); ++rank) {
      party.processes.push_back(std::make_shared<ProcessState>());
      party.processes.back()->learn(cost);
    }
    std::string chosen;
    party.run(test::quiet(), [&](test::Rank& me, Communicator& comm) {
      if (me.rank == 0) chosen = comm.algorithm(Collective::allreduce, 64 << 10);
    });
    return chosen;
  };
  EXPECT_NE(choice_at({1e6, 0.01, 2.5e5}), choice_at({100, 10, 25}));
}

}  // namespace
}  // namespace heddle
