#include "schedule/split.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace heddle {
namespace {

TEST(Split, PartsCoverTheCountInOrderAndDifferByAtMostOne) {
  for (std::size_t count = 0; count <= 50; ++count) {
    for (std::uint32_t parts = 1; parts <= 20; ++parts) {
      const Split split(count, parts);
      EXPECT_EQ(split.begin(0), 0u);
      EXPECT_EQ(split.begin(parts), count);
      std::size_t covered = 0;
      for (std::size_t i = 0; i < parts; ++i) {
        ASSERT_EQ(split.begin(i), covered) << count << " in " << parts << ", part " << i;
        const std::size_t length = split.length(i, 1);
        EXPECT_EQ(length, count / parts + (i < count % parts ? 1 : 0))
            << count << " in " << parts << ", part " << i;
        covered += length;
      }
    }
  }
}

TEST(Split, LongestIsTheMostThatAnyRunOfPartsHolds) {
  for (std::size_t count = 0; count <= 50; ++count) {
    for (std::uint32_t parts = 1; parts <= 20; ++parts) {
      const Split split(count, parts);
      for (std::size_t n = 0; n <= parts; ++n) {
        std::size_t most = 0;
        for (std::size_t i = 0; i + n <= parts; ++i)
          most = std::max(most, split.length(i, n));
        ASSERT_EQ(split.longest(n), most) << count << " in " << parts << ", runs of " << n;
      }
    }
  }
}

}  // namespace
}  // namespace heddle
