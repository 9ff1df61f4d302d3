// Which way vectors go, by what ways took in made-up trials.
#include "comm/device_ways.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace {

using heddle::DeviceTrials;
using heddle::DeviceWay;
using heddle::DeviceWays;

constexpr std::size_t kMost = std::size_t{32} << 20;
constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

// Seconds of a way: a constant, and so much for each byte.
struct Line {
  double fixed;
  double per_byte;
};
using Lines = std::map<DeviceWay, Line>;
const Lines kAlike{{DeviceWay::images, {1, 1}},
                   {DeviceWay::exchanged, {1, 1}},
                   {DeviceWay::whole, {1, 1}},
                   {DeviceWay::shared, {1, 1}}};

struct Tried {
  bool sum;
  DeviceWay way;
  std::size_t bytes;
};

DeviceWays ways_of(const Lines& sums, const Lines& bcasts, int ranks = 2, std::size_t exchanged = 0,
                   std::vector<Tried>* tried = nullptr, std::size_t most = kMost) {
  DeviceTrials trials;
  trials.time = [&](bool sum, DeviceWay way, std::size_t bytes) -> heddle::Result<double> {
    if (tried != nullptr) tried->push_back({sum, way, bytes});
    const Line line = (sum ? sums : bcasts).at(way);
    return line.fixed + line.per_byte * static_cast<double>(bytes);
  };
  trials.ranks = ranks;
  trials.most = most;
  trials.exchanged = exchanged;
  const heddle::Result<DeviceWays> ways = heddle::try_device_ways(trials);
  EXPECT_TRUE(ways.ok());
  return ways.ok() ? ways.value() : DeviceWays{};
}
Lines with(Lines lines, DeviceWay way, Line line) {
  lines[way] = line;
  return lines;
}

TEST(DeviceWays, GpusServeAllWhereTheyAreNoSlower) {
  const DeviceWays ways = ways_of(kAlike, kAlike);
  EXPECT_EQ(ways.sums_from, 0U);
  EXPECT_EQ(ways.bcasts_from, 0U);
}

// Images cost less to begin with, and more for each byte: of sums to 1,000 bytes, of bcasts to 100,000.
TEST(DeviceWays, ShortVectorsGoByImages) {
  const Lines sums = with(kAlike, DeviceWay::images, {1, 1});
  const DeviceWays ways =
      ways_of(with(sums, DeviceWay::whole, {1000, 0.01}), with(sums, DeviceWay::whole, {100'000, 0.01}));
  EXPECT_EQ(ways.sums_from, 4'096U);
  EXPECT_EQ(ways.bcasts_from, 262'144U);
}

TEST(DeviceWays, ImagesThatAreALittleFasterAreNotTaken) {
  const DeviceWays ways =
      ways_of(with(kAlike, DeviceWay::images, {0.95, 0.95}), with(kAlike, DeviceWay::images, {0.8, 0.8}));
  EXPECT_EQ(ways.sums_from, 0U);
  EXPECT_EQ(ways.bcasts_from, kNone);
}

// Not tried any more once they took twice as long as the fastest way.
TEST(DeviceWays, ImagesAreGivenUp) {
  std::vector<Tried> tried;
  ways_of(with(kAlike, DeviceWay::images, {1, 1}), kAlike, 2, 0, &tried);
  const auto images = [&] {
    std::size_t longest = 0;
    for (const Tried& one : tried) {
      if (one.sum && one.way == DeviceWay::images) longest = one.bytes;
    }
    return longest;
  };
  EXPECT_EQ(images(), std::size_t{2} << 20);
  tried.clear();
  const DeviceWays ways = ways_of(with(kAlike, DeviceWay::images, {1, 3}), kAlike, 2, 0, &tried);
  EXPECT_EQ(images(), 64U);
  EXPECT_EQ(ways.sums_from, 0U);
}

// Up to the last length at which kernels that wait for each other are no slower, and no longer than they may be.
TEST(DeviceWays, Exchanged) {
  const Lines exchanges = with(with(kAlike, DeviceWay::exchanged, {1, 2}), DeviceWay::whole, {1000, 1});
  EXPECT_EQ(ways_of(exchanges, kAlike, 2, 65'536).exchanged, 512U);
  EXPECT_EQ(ways_of(exchanges, kAlike, 2, 600).exchanged, 600U);
  EXPECT_EQ(ways_of(exchanges, kAlike, 2, 0).exchanged, 0U);
  EXPECT_EQ(ways_of(with(kAlike, DeviceWay::exchanged, {2, 1}), kAlike, 2, 65'536).exchanged, 0U);
  EXPECT_EQ(ways_of(kAlike, kAlike, 2, 65'536).exchanged, 65'536U);
  // Of three ranks what is shared out counts as well.
  EXPECT_EQ(ways_of(with(exchanges, DeviceWay::shared, {0, 0}), kAlike, 3, 65'536).exchanged, 0U);
}

TEST(DeviceWays, SharedOut) {
  const Lines shared = with(with(kAlike, DeviceWay::shared, {1000, 0.5}), DeviceWay::images, {1e9, 1});
  EXPECT_EQ(ways_of(shared, kAlike, 3).shared_from, 4'096U);
  // Two ranks have nothing to share.
  std::vector<Tried> tried;
  EXPECT_EQ(ways_of(shared, kAlike, 2, 0, &tried).shared_from, DeviceWays().shared_from);
  for (const Tried& one : tried)
    EXPECT_NE(one.way, DeviceWay::shared);
  // Longer than what was tried.
  EXPECT_EQ(ways_of(with(shared, DeviceWay::shared, {1, 2}), kAlike, 3).shared_from, std::size_t{16} << 20);
}

// Scratch that holds nothing of what would be tried: as if nothing were known.
TEST(DeviceWays, LittleScratch) {
  std::vector<Tried> tried;
  const Lines slow = with(kAlike, DeviceWay::whole, {1000, 1000});
  EXPECT_EQ(ways_of(slow, slow, 3, 32, &tried, 60), (DeviceWays{0, 0, 32, std::size_t{512} << 10}));
  EXPECT_TRUE(tried.empty());
  EXPECT_EQ(ways_of(kAlike, kAlike, 2, 0, &tried, 5000).sums_from, 0U);
  for (const Tried& one : tried)
    EXPECT_LE(one.bytes, 5000U);
}

TEST(DeviceWays, FailuresAreTold) {
  DeviceTrials trials;
  trials.most = kMost;
  trials.time = [](bool sum, DeviceWay, std::size_t) -> heddle::Result<double> {
    if (sum) return 1.0;
    return heddle::Status(heddle::Code::system, "no");
  };
  EXPECT_EQ(heddle::try_device_ways(trials).status().message(), "no");
}

TEST(DeviceWays, InWords) {
  EXPECT_EQ(heddle::text_of({0, kNone, 512, 0}),
            "of allreduces all, of bcasts none; up to 512 bytes by kernels that wait for each other");
  EXPECT_EQ(heddle::text_of({64, 4'096, 0, 0}),
            "of allreduces those from 64 bytes on, of bcasts those from 4096 bytes on");
}

}  // namespace
