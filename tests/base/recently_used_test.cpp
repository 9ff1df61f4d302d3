#include "base/recently_used.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace heddle {
namespace {

TEST(RecentlyUsed, MakesRoomByWhatWasUsedLongestAgo) {
  RecentlyUsed<int, int> values(3);
  std::vector<int> made;
  const auto get = [&](int key) {
    return values.get(key, [&] {
      made.push_back(key);
      return 10 * key;
    });
  };
  for (const int key : {1, 2, 3, 1, 4, 1, 3, 2, 1})
    EXPECT_EQ(get(key), 10 * key);
  EXPECT_EQ(made, (std::vector{1, 2, 3, 4, 2})) << "4 takes the place of 2, and that of 4";
  EXPECT_EQ(values.size(), 3U);
  values.clear();
  EXPECT_EQ(values.size(), 0U);
}

}  // namespace
}  // namespace heddle
