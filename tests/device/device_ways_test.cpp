// Which way vectors go, by what ways took in made-up trials.
#include "device/device_ways.hpp"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

namespace {

using heddle::DeviceTrials;
using heddle::DeviceWay;
using heddle::DeviceWays;

constexpr std::size_t kMost = std::size_t{32} << 20;
constexpr std::size_t kBeyond = std::size_t{128} << 20;  // the longest that is tried, and another step

// Nanoseconds of a way: a constant, and so much for each byte.
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
    return 1e-9 * (line.fixed + line.per_byte * static_cast<double>(bytes));
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

// Where they win at all lengths that were tried, GPUs still serve what is longer by another step.
TEST(DeviceWays, ImagesThatAreALittleFasterAreNotTaken) {
  const DeviceWays ways =
      ways_of(with(kAlike, DeviceWay::images, {0.95, 0.95}), with(kAlike, DeviceWay::images, {0.8, 0.8}));
  EXPECT_EQ(ways.sums_from, 0U);
  EXPECT_EQ(ways.bcasts_from, kBeyond);
}

// Not tried any more once they took twice as long as the fastest way.
TEST(DeviceWays, ImagesAreGivenUp) {
  std::vector<Tried> tried;
  const auto longest = [&] {
    std::size_t bytes = 0;
    for (const Tried& one : tried) {
      if (one.sum && one.way == DeviceWay::images) bytes = one.bytes;
    }
    return bytes;
  };
  ways_of(kAlike, kAlike, 2, 0, &tried);
  EXPECT_EQ(longest(), kBeyond / 8);
  tried.clear();
  const DeviceWays ways = ways_of(with(kAlike, DeviceWay::images, {1, 3}), kAlike, 2, 0, &tried);
  EXPECT_EQ(longest(), 64U);
  EXPECT_EQ(ways.sums_from, 0U);
}

// Up to the last length at which kernels that wait for each other are no slower, and no longer than they may
// be; of sums and of bcasts.
TEST(DeviceWays, Exchanged) {
  const Lines crossing = with(with(kAlike, DeviceWay::exchanged, {1, 2}), DeviceWay::whole, {1000, 1});
  const Lines slower = with(kAlike, DeviceWay::exchanged, {2, 1});
  EXPECT_EQ(ways_of(crossing, slower, 2, 65'536).sums_exchanged, 512U);
  EXPECT_EQ(ways_of(crossing, slower, 2, 65'536).bcasts_exchanged, 0U);
  EXPECT_EQ(ways_of(slower, crossing, 2, 65'536).bcasts_exchanged, 512U);
  EXPECT_EQ(ways_of(slower, crossing, 2, 65'536).sums_exchanged, 0U);
  EXPECT_EQ(ways_of(crossing, kAlike, 2, 600).sums_exchanged, 600U);
  EXPECT_EQ(ways_of(crossing, kAlike, 2, 0).sums_exchanged, 0U);
  EXPECT_EQ(ways_of(kAlike, kAlike, 2, 65'536).sums_exchanged, 65'536U);
  // Shorter than anything that is tried.
  EXPECT_EQ(ways_of(slower, slower, 2, 40).sums_exchanged, 40U);
  // Of three ranks what is shared out counts as well.
  EXPECT_EQ(ways_of(with(crossing, DeviceWay::shared, {0, 0}), kAlike, 3, 65'536).sums_exchanged, 0U);
}

// Exchanging is given up for good at 64 bytes, and would be faster than images at 4,096: by scratch GPUs are
// slower there.
TEST(DeviceWays, ImagesAreComparedWithWhatIsTaken) {
  Lines lines = with(kAlike, DeviceWay::exchanged, {200, 0.001});
  lines = with(with(lines, DeviceWay::whole, {100, 1}), DeviceWay::images, {1, 0.1});
  EXPECT_EQ(ways_of(lines, lines, 2, 65'536).sums_exchanged, 0U);
  EXPECT_EQ(ways_of(lines, lines, 2, 65'536).sums_from, kBeyond);
}

TEST(DeviceWays, SharedOut) {
  const Lines shared = with(with(kAlike, DeviceWay::shared, {1000, 0.5}), DeviceWay::images, {1e6, 1});
  EXPECT_EQ(ways_of(shared, kAlike, 3).shared_from, 4'096U);
  // Two ranks have nothing to share.
  std::vector<Tried> tried;
  EXPECT_EQ(ways_of(shared, kAlike, 2, 0, &tried).shared_from, DeviceWays().shared_from);
  for (const Tried& one : tried)
    EXPECT_NE(one.way, DeviceWay::shared);
  // Longer than what was tried.
  EXPECT_EQ(ways_of(with(shared, DeviceWay::shared, {1, 2}), kAlike, 3).shared_from, kBeyond);
}

// Scratch that holds nothing of what would be tried: as if nothing were known.
TEST(DeviceWays, LittleScratch) {
  std::vector<Tried> tried;
  const Lines slow = with(kAlike, DeviceWay::whole, {1000, 1000});
  EXPECT_EQ(ways_of(slow, slow, 3, 32, &tried, 60), (DeviceWays{0, 0, 32, 32, std::size_t{512} << 10}));
  EXPECT_TRUE(tried.empty());
  EXPECT_EQ(ways_of(kAlike, kAlike, 2, 0, &tried, 5000).sums_from, 0U);
  for (const Tried& one : tried)
    EXPECT_LE(one.bytes, 5000U);
  // What is longer than anything tried by another step goes by the GPUs.
  EXPECT_EQ(ways_of(slow, slow, 2, 0, nullptr, 5000).sums_from, 32'768U);
}

// Six milliseconds a call of 64 bytes: no other length is tried.
TEST(DeviceWays, TrialsThatTakeLong) {
  std::vector<Tried> tried;
  Lines slow;
  for (const auto& [way, line] : kAlike)
    slow[way] = {6e6, line.per_byte};
  EXPECT_EQ(ways_of(slow, slow, 2, 0, &tried).sums_from, 0U);
  EXPECT_EQ(tried.size(), 4U);
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
  EXPECT_EQ(heddle::text_of({0, 4'096, 512, 0, 0}),
            "allreduces of any length (up to 512 by kernels that wait for each other), bcasts of 4096 bytes "
            "or more");
}

}  // namespace
