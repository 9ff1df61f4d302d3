// Two sides come together whatever becomes of their datagrams, and fall silent then.
#include "transports/verbs/handshake.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace heddle::verbs {
namespace {

using Clock = Handshake::Clock;
using std::chrono::milliseconds;

struct End {
  Handshake handshake;
  std::uint32_t queue_pair = 0;
  std::deque<Hello> coming;
  int connects = 0;
  int said = 0;
};

void act(End& me, End& other, const Handshake::Next& next) {
  EXPECT_FALSE(next.broken);
  if (next.connect) ++me.connects;
  if (!next.say) return;
  ++me.said;
  Hello hello;
  hello.queue_pair = me.queue_pair;
  hello.stage = me.handshake.stage();
  other.coming.push_back(hello);
}

struct Pair {
  End a, b;
  Clock::time_point now = Clock::now();
  Pair() {
    a.queue_pair = 10;
    b.queue_pair = 20;
  }
  void deliver(End& me, End& other) {
    const Hello hello = me.coming.front();
    me.coming.pop_front();
    act(me, other, me.handshake.heard(hello, now));
  }
  bool open() const { return a.handshake.is_open() && b.handshake.is_open(); }
};

TEST(VerbsHandshake, OwnAbsenceIsNoWaiting) {
  End a;
  a.handshake.begin(Clock::time_point(milliseconds(1000)));
  const Clock::time_point back(milliseconds(9000));
  a.handshake.was_away(milliseconds(7500), back);
  EXPECT_EQ(a.handshake.waited(back), milliseconds(500));
  a.handshake.was_away(milliseconds(7500), back);  // which began before the handshake
  EXPECT_EQ(a.handshake.waited(back), milliseconds(0));
}

TEST(VerbsHandshake, OneBegins) {
  Pair p;
  act(p.a, p.b, p.a.handshake.begin(p.now));
  p.deliver(p.b, p.a);
  EXPECT_EQ(p.b.handshake.stage(), Stage::known);
  EXPECT_FALSE(p.b.handshake.is_open());  // the other one may not have its queue pair yet
  p.deliver(p.a, p.b);
  p.deliver(p.b, p.a);
  EXPECT_TRUE(p.open());
  EXPECT_TRUE(p.a.coming.empty() && p.b.coming.empty());
  EXPECT_EQ(p.a.said + p.b.said, 3);
}

TEST(VerbsHandshake, BothBeginAtOnce) {
  Pair p;
  act(p.a, p.b, p.a.handshake.begin(p.now));
  act(p.b, p.a, p.b.handshake.begin(p.now));
  while (!p.a.coming.empty() || !p.b.coming.empty()) {
    if (!p.a.coming.empty()) p.deliver(p.a, p.b);
    if (!p.b.coming.empty()) p.deliver(p.b, p.a);
    ASSERT_LT(p.a.said + p.b.said, 20);
  }
  EXPECT_TRUE(p.open());
  EXPECT_EQ(p.a.connects, 1);
  EXPECT_EQ(p.b.connects, 1);
}

TEST(VerbsHandshake, AnyLossAnyOrderAnyCopies) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    Pair p;
    std::mt19937 random(seed);
    const unsigned loss = seed % 4;  // of four
    act(p.a, p.b, p.a.handshake.begin(p.now));
    if (seed % 2 == 0) act(p.b, p.a, p.b.handshake.begin(p.now));
    for (int step = 0; !p.open() || !p.a.coming.empty() || !p.b.coming.empty(); ++step) {
      ASSERT_LT(step, 5000) << "seed " << seed;
      End& me = random() % 2 == 0 ? p.a : p.b;
      End& other = &me == &p.a ? p.b : p.a;
      p.now += milliseconds(random() % 50);
      act(me, other, me.handshake.tick(p.now));
      if (me.coming.empty()) continue;
      if (random() % 3 == 0) std::swap(me.coming.front(), me.coming[random() % me.coming.size()]);
      if (random() % 5 == 0 && me.coming.size() < 50) me.coming.push_back(me.coming.front());
      if (random() % 4 < loss) {
        me.coming.pop_front();
      } else {
        p.deliver(me, other);
      }
    }
    EXPECT_EQ(p.a.connects, 1) << seed;
    EXPECT_EQ(p.b.connects, 1) << seed;
  }
}

TEST(VerbsHandshake, CallsAgainAtLongerAndLongerIntervals) {
  Handshake h;
  const Clock::time_point begin = Clock::now();
  EXPECT_TRUE(h.begin(begin).say);
  EXPECT_FALSE(h.begin(begin).say);
  int said = 0;
  for (int ms = 1; ms <= 10000; ++ms)
    said += h.tick(begin + milliseconds(ms)).say ? 1 : 0;
  EXPECT_GE(said, 19);  // at least twice a second
  EXPECT_LE(said, 30);
  EXPECT_EQ(h.waited(begin + milliseconds(10000)).count(), 10000);
}

TEST(VerbsHandshake, AMessageSaysThatItIsOpen) {
  Handshake h;
  h.message_came();
  EXPECT_FALSE(h.is_open());
  Hello hello;
  hello.queue_pair = 5;
  EXPECT_TRUE(h.heard(hello, Clock::now()).connect);
  EXPECT_FALSE(h.is_open());
  h.message_came();
  EXPECT_TRUE(h.is_open());
  EXPECT_FALSE(h.tick(Clock::now() + std::chrono::hours(1)).say);
}

TEST(VerbsHandshake, AnotherQueuePairIsNotTheSamePeer) {
  Handshake h;
  Hello hello;
  hello.queue_pair = 5;
  EXPECT_FALSE(h.heard(hello, Clock::now()).broken);
  hello.queue_pair = 6;
  EXPECT_TRUE(h.heard(hello, Clock::now()).broken);
}

}  // namespace
}  // namespace heddle::verbs
