// Whether ranks have cores to themselves.
#include "common/placement.hpp"

#include <gtest/gtest.h>

namespace heddle::bench {
namespace {

TEST(Placement, ReadsTheKernelsLists) {
  EXPECT_EQ(cores_in("0-3,8"), (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(cores_in("5"), std::vector<int>{5});
  EXPECT_TRUE(cores_in("").empty());
}

TEST(Placement, CountsHostsByName) {
  EXPECT_EQ(count_hosts({{"a", "0"}, {"b", "0"}, {"a", "1"}}), 2);
}

TEST(Placement, MoreRanksThanCoresAreNamed) {
  EXPECT_EQ(lack_of_cores({{"a", "0-1"}, {"a", "0-1"}}), "");
  EXPECT_EQ(lack_of_cores({{"a", "0-1"}, {"a", "0-1"}, {"a", "0-1"}}), "3 ranks on a share 2 cores");
  EXPECT_EQ(lack_of_cores({{"a", "0"}, {"b", "0"}}), "") << "each on a host of its own";
  EXPECT_EQ(lack_of_cores({{"a", ""}, {"a", ""}}), "") << "nobody knows";
}

TEST(Placement, RanksThatMustShareACoreAreNamed) {
  // There are cores enough, but two of three may use one alone.
  EXPECT_EQ(lack_of_cores({{"a", "2"}, {"a", "0-3"}, {"a", "2"}}),
            "the 3 ranks on a are bound so that 1 of them have no core of their own");
  // Who came first moves to the core that is left.
  EXPECT_EQ(lack_of_cores({{"a", "0-2"}, {"a", "0-1"}, {"a", "0"}}), "");
}

TEST(Placement, FewInterruptionsAreNoMatter) {
  EXPECT_EQ((Interruptions{9, 900}).complaint(), "");
  EXPECT_EQ((Interruptions{1000, 3}).complaint(), "");
  EXPECT_NE((Interruptions{300, 60}).complaint().find("300 times, 60 times a second"), std::string::npos);
}

}  // namespace
}  // namespace heddle::bench
