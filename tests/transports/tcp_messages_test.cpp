// TCP: messages that wait for their receive, are given up, or are left unread.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "half_memory.hpp"
#include "tcp_pair.hpp"

namespace heddle::tcp {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A long message waits at the sender, not in the receiver's memory, and others go on beside it.
TEST(Tcp, LongMessagesWaitForTheirReceive) {
  Pair pair;
  std::vector<char> data(kEager + 1, 3);
  std::vector<char> again(kEager + 5, 4);
  std::vector<char> buffer(data.size());
  std::vector<char> second(again.size());
  char small = 9;
  char of_tag = 0;
  char of_other = 0;
  Ticket sent[4];
  Ticket received[4];
  ASSERT_TRUE(pair.of(0).send(1, 1, data.data(), data.size(), sent[0]).ok());
  ASSERT_TRUE(pair.of(0).send(1, 1, &small, 1, sent[1]).ok());
  ASSERT_TRUE(pair.of(0).send(1, 1, again.data(), again.size(), sent[2]).ok());
  ASSERT_TRUE(pair.of(0).send(1, 2, &small, 1, sent[3]).ok());
  ASSERT_TRUE(pair.of(1).recv(0, 2, &of_other, 1, received[3]).ok());
  ASSERT_TRUE(pair.drive([&] { return received[3].done && sent[3].done; }));
  EXPECT_EQ(of_other, 9);
  pair.rest();
  EXPECT_FALSE(sent[0].done || sent[1].done || sent[2].done);
  // All at once: an announcement that overtook a message would be taken for another length.
  ASSERT_TRUE(pair.of(1).recv(0, 1, buffer.data(), buffer.size(), received[0]).ok());
  ASSERT_TRUE(pair.of(1).recv(0, 1, &of_tag, 1, received[1]).ok());
  ASSERT_TRUE(pair.of(1).recv(0, 1, second.data(), second.size(), received[2]).ok());
  ASSERT_TRUE(pair.drive([&] { return received[0].done && received[1].done && received[2].done; }))
      << pair.status[1].message();
  EXPECT_EQ(buffer, data);
  EXPECT_EQ(of_tag, 9);
  EXPECT_EQ(second, again);
}

TEST(Tcp, ALongMessageWhoseReceiveIsOpenGoesUnasked) {
  Pair pair;
  std::vector<char> data(4 * kEager, 3);
  std::vector<char> buffer(data.size());
  Ticket sent;
  Ticket received;
  ASSERT_TRUE(pair.of(1).recv(0, 1, buffer.data(), buffer.size(), received).ok());
  // What it says arrives before the send.
  ASSERT_TRUE(pair.drive([&] { return pair.of(0).connections() == 1; }));
  pair.rest();
  ASSERT_TRUE(pair.of(0).send(1, 1, data.data(), data.size(), sent).ok());
  ASSERT_TRUE(pair.drive([&] { return sent.done && received.done; }));
  EXPECT_EQ(buffer, data);
}

// A receive that was opened has called its message, and the announcement is on its way when it is given up.
TEST(Tcp, ALongMessageWhoseReceiveWasGivenUpIsStillOne) {
  Pair pair;
  pair.greet();
  std::vector<char> data(kEager + 1, 3);
  std::vector<char> buffer(data.size());
  Ticket sent;
  Ticket given_up;
  Ticket received;
  ASSERT_TRUE(pair.of(1).recv(0, 1, buffer.data(), buffer.size(), given_up).ok());
  pair.of(1).cancel(given_up);
  ASSERT_TRUE(pair.of(0).send(1, 1, data.data(), data.size(), sent).ok());
  ASSERT_TRUE(pair.drive([&] { return sent.done; }));
  pair.rest();
  EXPECT_EQ(buffer[0], 0);
  ASSERT_TRUE(pair.of(1).recv(0, 1, buffer.data(), buffer.size(), received).ok());
  ASSERT_TRUE(pair.drive([&] { return received.done; }));
  EXPECT_EQ(buffer, data);
  Ticket next_sent;
  Ticket next;
  ASSERT_TRUE(pair.of(0).send(1, 1, data.data(), 1, next_sent).ok());
  ASSERT_TRUE(pair.of(1).recv(0, 1, buffer.data(), 1, next).ok());
  ASSERT_TRUE(pair.drive([&] { return next.done; })) << pair.status[1].message();
}

// A message that does not fit into the sockets, part of which has come.
struct Underway {
  Underway() {
    EXPECT_TRUE(pair.of(1).recv(0, 1, buffer.data(), buffer.size(), received).ok());
    EXPECT_TRUE(pair.of(0).send(1, 1, data.data(), data.size(), sent).ok());
    EXPECT_TRUE(pair.drive([&] { return buffer[0] != 0; }));
  }

  Pair pair;
  std::vector<char> data = std::vector<char>(32 << 20, 3);
  std::vector<char> buffer = std::vector<char>(data.size());
  Ticket sent;
  Ticket received;
};

// What does not fit into the socket wakes its sender when there is room, and nothing does when it has gone.
TEST(Tcp, SendersSleepUntilThereIsRoom) {
  Underway long_one;
  Pair& pair = long_one.pair;
  while (!sleeps(pair.of(0)))
    ASSERT_TRUE(pair.of(0).progress().ok());
  ASSERT_FALSE(long_one.sent.done);
  const auto end = steady_clock::now() + milliseconds(5000);
  while (!readable(pair.of(0), 0) && steady_clock::now() < end)
    ASSERT_TRUE(pair.of(1).progress().ok());
  EXPECT_TRUE(readable(pair.of(0), 0));
  ASSERT_TRUE(pair.drive([&] { return long_one.sent.done && long_one.received.done; }));
  EXPECT_TRUE(sleeps(pair.of(0)));
  EXPECT_TRUE(sleeps(pair.of(1)));
}

TEST(Tcp, ASendGivenUpInTheMiddleEndsTheConnection) {
  Underway long_one;
  Pair& pair = long_one.pair;
  ASSERT_FALSE(long_one.sent.done);
  pair.of(0).cancel(long_one.sent);
  EXPECT_TRUE(pair.of(0).peer_is_gone(1));
  Ticket next;
  EXPECT_EQ(pair.of(0).send(1, 1, long_one.data.data(), 1, next).code(), Code::peer_failed);
  ASSERT_TRUE(pair.drive([&] { return !pair.status[1].ok(); }));
  EXPECT_EQ(pair.status[1].code(), Code::peer_failed);
  EXPECT_TRUE(pair.status[0].ok());
  pair.of(1).cancel(long_one.received);
}

// Its receiver hears for whose sake this rank leaves, which it does not in the middle of a message.
TEST(Tcp, ASendGivenUpInTheMiddleIsFinishedWhereItsReceiverTakesIt) {
  Underway long_one;
  Pair& pair = long_one.pair;
  ASSERT_FALSE(long_one.sent.done);
  std::atomic<bool> left{false};
  std::thread receiver([&] {
    while (!left && pair.of(1).progress().ok()) {
    }
  });
  pair.of(0).cancel(long_one.sent);
  left = true;
  receiver.join();
  EXPECT_TRUE(long_one.sent.done);
  EXPECT_FALSE(pair.of(0).peer_is_gone(1));
  // Expected before the farewell is sent: one call of progress may read that together with the message's end.
  Ticket next;
  char byte = 0;
  ASSERT_TRUE(pair.of(1).recv(0, 1, &byte, 1, next).ok());
  pair.of(0).leave({17});
  ASSERT_TRUE(pair.drive([&] { return !pair.status[1].ok(); }));
  EXPECT_TRUE(long_one.received.done);
  EXPECT_EQ(long_one.buffer, long_one.data);
  EXPECT_EQ(pair.of(1).peer_left_for(0).culprit, 17);
}

// Nobody is to blame for what a rank gives up itself.
TEST(Tcp, WhatElseIsOpenWithAPeerThatIsGivenUpBlamesNobody) {
  Underway long_one;
  Pair& pair = long_one.pair;
  Ticket next;
  ASSERT_TRUE(pair.of(0).send(1, 1, long_one.data.data(), 1, next).ok());
  pair.of(0).cancel(long_one.sent);
  EXPECT_TRUE(pair.of(0).peer_is_gone(1));
  EXPECT_EQ(pair.of(0).progress().code(), Code::peer_failed);
  EXPECT_EQ(pair.of(0).culprit().culprit, -1);
  pair.of(0).cancel(next);
  pair.of(1).cancel(long_one.received);
}

// A rank that has something to send finds out that its peer has left before it has read why.
TEST(Tcp, WhoWritesToAPeerThatHasLeftHearsForWhoseSake) {
  Pair pair;
  pair.greet();
  char byte = 0;
  Ticket unread;
  ASSERT_TRUE(pair.of(0).send(1, 1, &byte, 1, unread).ok());
  ASSERT_TRUE(readable(pair.of(1), 2000));
  pair.of(1).leave({17});
  pair.ranks[1].reset();
  Status status;
  Ticket sent[50];
  for (int i = 0; i < 50 && status.ok(); ++i) {
    status = pair.of(0).send(1, 1, &byte, 1, sent[i]);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(status.code(), Code::peer_failed);
  EXPECT_EQ(pair.of(0).peer_left_for(1).culprit, 17) << status.message();
}

TEST(Tcp, WhatNobodyExpectsDoesNotKeepAwake) {
  Pair pair;
  pair.greet();
  std::vector<char> data(1000, 3);
  std::vector<char> buffer(data.size());
  Ticket sent;
  ASSERT_TRUE(pair.of(0).send(1, 1, data.data(), data.size(), sent).ok());
  ASSERT_TRUE(readable(pair.of(1), 2000));
  EXPECT_TRUE(sleeps(pair.of(1)));
  Ticket received;
  ASSERT_TRUE(pair.of(1).recv(0, 1, buffer.data(), buffer.size(), received).ok());
  EXPECT_TRUE(received.done);
  EXPECT_EQ(buffer, data);
}

// What it has not read must not become a reset, which would overtake what it has sent.
TEST(Tcp, WhoLeavesWithSomethingUnreadTakesNothingBack) {
  Pair pair;
  pair.greet();
  std::vector<char> data(64 << 10, 3);
  std::vector<Ticket> sent(1000);
  std::size_t count = 0;
  // As much as the system holds beyond what it has given to the other side.
  while (count < 400 && (count == 0 || sent[count - 1].done)) {
    ASSERT_TRUE(pair.of(0).send(1, 1, data.data(), data.size(), sent[count]).ok());
    ++count;
  }
  ASSERT_TRUE(pair.drive([&] { return sent[count - 1].done; }));
  Ticket unread;
  ASSERT_TRUE(pair.of(1).send(0, 1, data.data(), 1, unread).ok());
  pair.ranks[0].reset();
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<char> buffer(data.size());
    Ticket received;
    Status status = pair.of(1).recv(0, 1, buffer.data(), buffer.size(), received);
    while (status.ok() && !received.done)
      status = pair.of(1).progress();
    ASSERT_TRUE(received.done) << i << " of " << count << ": " << status.message();
    ASSERT_EQ(buffer, data);
  }
}

TEST(Tcp, ABufferThatIsNoMemoryIsNoFaultOfThePeer) {
  for (const int at_fault : {0, 1}) {
    Pair pair;
    pair.greet();
    const HalfMemory bad;
    std::vector<char> good(HalfMemory::kBytes, 3);
    Ticket sent;
    Ticket received;
    ASSERT_TRUE(pair.of(1).recv(0, 1, at_fault == 1 ? bad.data() : good.data(), good.size(), received).ok());
    (void)pair.of(0).send(1, 1, at_fault == 0 ? bad.data() : good.data(), good.size(), sent);
    ASSERT_TRUE(pair.drive([&] { return !pair.status[at_fault].ok(); }));
    const Status& status = pair.status[at_fault];
    EXPECT_EQ(status.code(), Code::invalid_argument) << status.message();
    const std::string says = "rank " + std::to_string(at_fault) + ", this one: the buffer of a message " +
                             (at_fault == 0 ? "sent to rank 1" : "received from rank 0") +
                             " is not all memory of this process in its last ";
    EXPECT_EQ(status.message().find(says), 0U) << status.message();
    EXPECT_FALSE(pair.of(at_fault).peer_is_gone(1 - at_fault));
    EXPECT_EQ(pair.of(at_fault).culprit().culprit, -1);
    pair.of(0).cancel(sent);
    pair.of(1).cancel(received);
  }
}

}  // namespace
}  // namespace heddle::tcp
