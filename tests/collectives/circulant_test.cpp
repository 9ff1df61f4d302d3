// Who receives which piece in which round: what makes a bcast by these rounds correct and optimal, for all
// numbers of places.
#include "collectives/circulant.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

namespace heddle {
namespace {

std::vector<std::int32_t> numbers() {
  std::vector<std::int32_t> all;
  for (std::int32_t p = 2; p <= 130; ++p)
    all.push_back(p);
  all.insert(all.end(), {255, 256, 257, 1000, 1023, 1024, 1025});
  return all;
}

TEST(Circulant, SkipsHalve) {
  for (const std::int32_t p : numbers()) {
    const Circulant circle(p);
    EXPECT_EQ(circle.skip(0), 1) << p;
    EXPECT_EQ(circle.skip(circle.rounds()), p);
    EXPECT_LT(1 << (circle.rounds() - 1), p);
    EXPECT_GE(1 << circle.rounds(), p);
    for (std::int32_t k = 0; k < circle.rounds(); ++k)
      EXPECT_EQ(circle.skip(k), (circle.skip(k + 1) + 1) / 2) << p;
  }
}

// In a phase one new piece, and all others once.
TEST(Circulant, EveryPieceComesOnce) {
  for (const std::int32_t p : numbers()) {
    const Circulant circle(p);
    for (std::int32_t place = 1; place < p; ++place) {
      std::set<std::int32_t> wanted;
      for (std::int32_t k = 1; k <= circle.rounds(); ++k)
        wanted.insert(-k);
      wanted.erase(circle.base(place) - circle.rounds());
      wanted.insert(circle.base(place));
      const std::vector<std::int32_t> received = circle.received(place);
      ASSERT_EQ(received.size(), wanted.size()) << p << ' ' << place;
      ASSERT_EQ(std::set<std::int32_t>(received.begin(), received.end()), wanted) << p << ' ' << place;
    }
  }
}

// Nobody sends what has not come in a round before; the root sends a new one in every round.
TEST(Circulant, WhatIsSentHasCome) {
  for (const std::int32_t p : numbers()) {
    const Circulant circle(p);
    for (std::int32_t place = 0; place < p; ++place) {
      const std::vector<std::int32_t> has = place == 0 ? std::vector<std::int32_t>() : circle.received(place);
      for (std::int32_t k = 0; k < circle.rounds(); ++k) {
        const std::int32_t to = (place + circle.skip(k)) % p;
        if (to == 0) continue;
        const std::int32_t piece = circle.received(to)[static_cast<std::size_t>(k)];
        if (place == 0) {
          ASSERT_EQ(piece, k) << p;
        } else {
          const bool came = std::find(has.begin(), has.begin() + k, piece) != has.begin() + k;
          ASSERT_TRUE(came || piece == circle.base(place) - circle.rounds()) << p << ' ' << place << ' ' << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle
