// Flow control: never more under way than there are receives for, and never a standstill.
#include "transports/verbs/credit.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace heddle::verbs {
namespace {

struct Side {
  explicit Side(std::uint16_t receives) : credits(receives, receives) {}
  Credits credits;
  std::deque<std::uint16_t> coming;  // messages from the other side: the credits that each returns
  unsigned to_send = 0;
  unsigned delivered = 0;
};

// One step of a side, as the transport makes it; false: there was nothing to do.
bool send(Side& me, Side& other) {
  if (me.to_send > 0 && me.credits.may_send()) {
    --me.to_send;
    ++other.delivered;
  } else if (!me.credits.should_return() || !me.credits.may_return()) {
    return false;
  }
  other.coming.push_back(me.credits.take_owed());
  me.credits.sent();
  return true;
}
bool receive(Side& me) {
  if (me.coming.empty()) return false;
  EXPECT_TRUE(me.credits.received());  // a receive was open
  EXPECT_TRUE(me.credits.returned(me.coming.front()));
  me.coming.pop_front();
  me.credits.reopened();
  return true;
}

TEST(VerbsCredit, NeverRunsDryAndNeverStops) {
  for (std::uint16_t credits = 2; credits <= 9; ++credits) {
    for (unsigned seed = 0; seed < 200; ++seed) {
      std::mt19937 random(seed);
      std::uniform_int_distribution<unsigned> messages(0, 299);
      Side a(credits);
      Side b(credits);
      a.to_send = messages(random);
      b.to_send = seed % 3 == 0 ? 0 : messages(random);
      const unsigned all = a.to_send + b.to_send;
      unsigned idle = 0;
      while (a.delivered + b.delivered < all || !a.coming.empty() || !b.coming.empty()) {
        bool moved = false;
        switch (random() % 4) {
          case 0:
            moved = send(a, b);
            break;
          case 1:
            moved = send(b, a);
            break;
          case 2:
            moved = receive(a);
            break;
          default:
            moved = receive(b);
        }
        idle = moved ? 0 : idle + 1;
        ASSERT_LT(idle, 200U) << credits << " credits, seed " << seed << ": " << a.to_send << " and "
                              << b.to_send << " wait for ever";
      }
    }
  }
}

TEST(VerbsCredit, TheLastOneIsForReturns) {
  Credits c(3, 3);
  c.sent();
  EXPECT_TRUE(c.may_send());
  c.sent();
  EXPECT_FALSE(c.may_send());
  EXPECT_TRUE(c.may_return());
  c.sent();
  EXPECT_FALSE(c.may_return());
}

TEST(VerbsCredit, NoticesAPeerThatCannotCount) {
  Credits c(3, 2);
  EXPECT_FALSE(c.returned(1));  // none was used
  c.sent();
  EXPECT_FALSE(c.returned(2));
  EXPECT_TRUE(c.returned(1));
  EXPECT_TRUE(c.received());
  EXPECT_TRUE(c.received());
  EXPECT_FALSE(c.received());  // both receives are in use
  c.reopened();
  EXPECT_TRUE(c.received());
}

TEST(VerbsCredit, TheWindowHoldsWhatNobodyTook) {
  EagerWindow w(1000);
  EXPECT_TRUE(w.fits(1000));
  EXPECT_FALSE(w.fits(1001));
  w.sent(900);
  EXPECT_FALSE(w.fits(101));
  EXPECT_FALSE(w.told(901));  // more than was sent
  EXPECT_TRUE(w.told(500));
  EXPECT_FALSE(w.told(499));  // it does not become less
  EXPECT_TRUE(w.fits(600));
  EXPECT_FALSE(w.fits(601));
}

}  // namespace
}  // namespace heddle::verbs
