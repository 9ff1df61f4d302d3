// That quantisation's quotients (gpu/kernels/division.hpp) are those of a division, whatever the numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>

#include "gpu/kernels/division.hpp"

namespace heddle::gpu {
namespace {

// All pairs a, b of 24 bits whose quotient lies less than 2^-22 of a last place beside the middle between two
// numbers. The middle is m / 2^bits with an odd m of 25 bits, and a 2^bits = b m + rest: that is rest / 2b of
// a last place, and each rest has its m.
template <class F>
void for_each_near_middle(F f) {
  for (std::uint32_t b = 1U << 23; b < 1U << 24; ++b) {
    const auto zeros = static_cast<unsigned>(std::countr_zero(b));
    const std::uint32_t odd = b >> zeros;
    std::uint32_t inverse = odd;  // modulo 2^32, of which each turn knows twice the bits
    for (int turn = 0; turn < 4; ++turn)
      inverse *= 2 - odd * inverse;
    for (const unsigned bits : {24U, 25U}) {  // where a is no less than b, and where it is
      for (std::int32_t rest = -8; rest <= 8; ++rest) {
        // m is odd, so the rest has the zeros of b.
        if (rest == 0 || static_cast<unsigned>(std::countr_zero(static_cast<std::uint32_t>(rest))) != zeros)
          continue;
        const std::uint32_t period = 1U << (bits - zeros);
        std::uint64_t m = static_cast<std::uint32_t>(-(rest >> zeros)) * inverse & (period - 1);
        for (; m < 1U << 25; m += period) {
          if (m <= 1U << 24) continue;
          const std::uint64_t a = (b * m + static_cast<std::uint64_t>(std::int64_t{rest})) >> bits;
          if (a >> 23 == 1 && (a >= b) == (bits == 24)) f(static_cast<float>(a), static_cast<float>(b));
        }
      }
    }
  }
}

TEST(Quotient, IsThatOfADivision) {
  std::size_t pairs = 0;
  std::size_t wrong = 0;
  for_each_near_middle([&](float a, float b) {
    ++pairs;
    if (kernels::quotient(a, b, 1.0F / b) != a / b) ++wrong;
  });
  EXPECT_GT(pairs, 45'000'000U);
  EXPECT_EQ(wrong, 0U);
}

// Every exponent that is_ordinary() admits, with mantissas that are drawn; those that are too little for a
// level come out as such.
TEST(Quotient, OfAllExponents) {
  std::minstd_rand random(3);
  const auto drawn = [&](unsigned exponent) {
    return std::bit_cast<float>(exponent << 23 | (static_cast<std::uint32_t>(random()) & 0x7FFFFFU));
  };
  for (unsigned of_scale = 127 - 64; of_scale <= 127 + 63; ++of_scale) {
    for (unsigned below = 0; below <= of_scale; ++below) {
      for (int turn = 0; turn < 8; ++turn) {
        const float scale = drawn(of_scale);
        const float magnitude = std::min(drawn(of_scale - below), scale);
        ASSERT_TRUE(kernels::is_ordinary(std::bit_cast<std::uint32_t>(scale)));
        const float got = kernels::quotient(magnitude, scale, 1.0F / scale);
        if (below <= 32)
          ASSERT_EQ(got, magnitude / scale) << magnitude << " / " << scale;
        else
          ASSERT_TRUE(got >= 0 && got < 0x1p-31F) << magnitude << " / " << scale;
      }
    }
  }
  for (const float scale : {0.0F, 0x1p-65F, 0x1.8p64F, INFINITY, NAN})
    EXPECT_FALSE(kernels::is_ordinary(std::bit_cast<std::uint32_t>(scale))) << scale;
}

}  // namespace
}  // namespace heddle::gpu
