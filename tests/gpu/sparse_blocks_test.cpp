// Kernels of sparse vectors whose blocks run at once, as threads: what they tell each other.
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "blocks_at_once.hpp"
#include "gpu/kernels/sparse_list.hpp"

namespace heddle::gpu {
namespace {

using kernels::Tile;
using kernels::Workspace;
using test::run_at_once;

// ---- Words of tiles

// What is before `tile` where words of these tiles are given, the first one last.
std::uint64_t before(const std::vector<std::uint64_t>& words) {
  return kernels::look_back(kernels::Warp(), words.data(), words.size());
}

TEST(LookBack, SumsUpToTheNearestTileThatKnowsAllBeforeIt) {
  EXPECT_EQ(before({}), 0U);
  EXPECT_EQ(before({Tile::kKnown | Tile::counts(3, 5)}), Tile::counts(3, 5));
  EXPECT_EQ(before({Tile::kKnown | Tile::counts(1000, 2000), Tile::kKnown | 7, Tile::kCounted | 2}), 9U);
  // What lies before one that knows is not waited for.
  EXPECT_EQ(before({0, 0, Tile::kKnown | 7, Tile::kCounted | 2}), 9U);
  const std::uint64_t most = Tile::kMask;
  EXPECT_EQ(before({Tile::kKnown | Tile::counts(most - 1, most - 2), Tile::kCounted | Tile::counts(1, 2)}),
            Tile::counts(most, most));
}

TEST(LookBack, GoesBackOverAnyNumberOfWarps) {
  for (const std::size_t n : {31U, 32U, 33U, 64U, 65U, 200U}) {
    std::vector<std::uint64_t> words(n, Tile::kCounted | Tile::counts(1, 2));
    words[0] = Tile::kKnown | Tile::counts(1, 2);
    EXPECT_EQ(before(words), Tile::counts(n, 2 * n)) << n;
  }
}

TEST(LookBack, WaitsForTilesThatAreNotCountedYet) {
  std::vector<std::uint64_t> words(40, Tile::kCounted | 1);
  words[0] = 0;
  words[35] = 0;
  std::thread other([&] {
    for (const std::size_t tile : {std::size_t{35}, std::size_t{0}}) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      kernels::store_shared_word(&words[tile], (tile == 0 ? Tile::kKnown : Tile::kCounted) | 100);
    }
  });
  EXPECT_EQ(before(words), 238U);
  other.join();
}

// ---- Blocks that run at once, as threads

struct Selection {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  std::uint64_t count = 0;
};

TEST(BlocksAtOnce, SelectInOrderAndLeaveTheWorkspaceAsItWas) {
  constexpr std::size_t kCount = 50 * 4096 + 100;
  std::vector<float> values(kCount);
  std::vector<std::uint32_t> want;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    if (i * 2654435761U >> 24 > 20) continue;
    values[i] = static_cast<float>(i + 1);
    want.push_back(i);
  }
  const auto work = std::make_unique<Workspace>();
  const auto clean = std::make_unique<Workspace>();
  for (int round = 0; round < 10; ++round) {
    Selection got{std::vector<std::uint32_t>(kCount), std::vector<float>(kCount)};
    kernels::SelectArguments a{};
    a.source.values = reinterpret_cast<const unsigned char*>(values.data());
    a.source.count = kCount;
    a.mask = a.ceiling = 0xFFFFFFFFU;
    a.threshold = 1;
    a.is_first = 1;
    a.all_tiles = 30;
    a.most_tiles = kernels::kMostTiles;
    a.indices = reinterpret_cast<unsigned char*>(got.indices.data());
    a.values = reinterpret_cast<unsigned char*>(got.values.data());
    a.capacity = kCount;
    a.needed = &got.count;
    a.workspace = work.get();
    run_at_once(7, [&](const kernels::Block& block) {
      kernels::SelectShared shared;
      kernels::select_by<std::uint32_t, std::uint32_t, kernels::Pass::plain>(block, a, shared);
    });
    ASSERT_EQ(got.count, want.size()) << round;
    got.indices.resize(want.size());
    ASSERT_EQ(got.indices, want) << round;
    work->above = 0;
    ASSERT_EQ(std::memcmp(work.get(), clean.get(), sizeof *work), 0) << round;
  }
}

TEST(BlocksAtOnce, MergeInOrderAndLeaveTheWorkspaceAsItWas) {
  // Of the same number of places every second and every third one.
  constexpr std::uint32_t kPlaces = 40'000;
  std::vector<std::uint32_t> indices[2];
  std::vector<float> values[2];
  std::vector<std::uint32_t> want;
  std::vector<float> sums;
  for (std::uint32_t i = 0; i < kPlaces; ++i) {
    for (const std::uint32_t list : {0U, 1U}) {
      if (i % (list + 2) == 0) indices[list].push_back(i);
      if (i % (list + 2) == 0) values[list].push_back(static_cast<float>(i + list));
    }
    if (i % 2 != 0 && i % 3 != 0) continue;
    want.push_back(i);
    sums.push_back(static_cast<float>((i % 2 == 0 ? i : 0) + (i % 3 == 0 ? i + 1 : 0)));
  }
  const auto work = std::make_unique<Workspace>();
  const auto clean = std::make_unique<Workspace>();
  for (int round = 0; round < 10; ++round) {
    Selection got{std::vector<std::uint32_t>(want.size()), std::vector<float>(want.size())};
    std::uint64_t broken = 0;
    const auto list = [&](int k) {
      return kernels::EntryList{reinterpret_cast<const unsigned char*>(indices[k].data()),
                                reinterpret_cast<const unsigned char*>(values[k].data()), indices[k].size(),
                                nullptr, 0};
    };
    kernels::MergeArguments a{};
    a.first = list(0);
    a.second = list(1);
    a.dimension = kPlaces;
    a.is_first = 1;
    a.most_tiles = kernels::kMostTiles;
    a.rooms[0] = {reinterpret_cast<unsigned char*>(got.indices.data()),
                  reinterpret_cast<unsigned char*>(got.values.data()), want.size(), 0};
    a.n_rooms = 1;
    a.needed = &got.count;
    a.broken = &broken;
    a.workspace = work.get();
    run_at_once(7, [&](const kernels::Block& block) {
      kernels::MergeShared<std::uint32_t, float> shared;
      kernels::merge_entries<kernels::Plain<float>, std::uint32_t>(block, a, shared);
    });
    ASSERT_EQ(got.count, want.size()) << round;
    ASSERT_EQ(got.indices, want) << round;
    ASSERT_EQ(got.values, sums) << round;
    ASSERT_EQ(broken, 0U);
    work->above = 0;
    ASSERT_EQ(std::memcmp(work.get(), clean.get(), sizeof *work), 0) << round;
  }
}

TEST(BlocksAtOnce, FindTheDigitOfTheKth) {
  constexpr std::size_t kCount = 20 * 4096 + 3;
  std::vector<float> values(kCount);
  std::iota(values.begin(), values.end(), 1.0F);
  const auto work = std::make_unique<Workspace>();
  kernels::DigitArguments a{};
  a.source.values = reinterpret_cast<const unsigned char*>(values.data());
  a.source.count = kCount;
  a.wanted = 1000;
  a.workspace = work.get();
  run_at_once(5, [&](const kernels::Block& block) {
    kernels::DigitShared shared;
    kernels::count_digits(block, a, shared);
  });
  const auto key = std::bit_cast<std::uint32_t>(values[kCount - 1000]);
  EXPECT_EQ(work->search.key, key >> 20 << 20);
  // Four are larger by this digit already: those from 81,920 = 1.25 * 2^16 on.
  EXPECT_EQ(work->search.wanted, 996U);
  EXPECT_EQ(work->done, 0U);
  for (const std::uint64_t digit : work->digits)
    ASSERT_EQ(digit, 0U);
}

TEST(BlocksAtOnce, FindTheKthDigitByDigitAndTakeTheK) {
  constexpr std::uint32_t kCount = 20 * 4096 + 3;
  constexpr std::uint32_t kWanted = 1000;
  // Each once, in an order of its own.
  std::vector<float> values(kCount);
  std::vector<std::uint32_t> want;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const std::uint64_t rank = std::uint64_t{i} * 30'011 % kCount;
    values[i] = static_cast<float>(rank + 1);
    if (rank >= kCount - kWanted) want.push_back(i);
  }
  const auto work = std::make_unique<Workspace>();
  const auto clean = std::make_unique<Workspace>();
  for (int round = 0; round < 10; ++round) {
    Selection got{std::vector<std::uint32_t>(kWanted), std::vector<float>(kWanted)};
    kernels::SelectArguments a{};
    a.source.values = reinterpret_cast<const unsigned char*>(values.data());
    a.source.count = kCount;
    a.mask = kernels::kMagnitudeBits;
    a.ceiling = kernels::kNanKey;
    a.is_first = 1;
    a.all_tiles = 15;
    a.most_tiles = kernels::kMostTiles;
    a.indices = reinterpret_cast<unsigned char*>(got.indices.data());
    a.values = reinterpret_cast<unsigned char*>(got.values.data());
    a.capacity = kWanted;
    a.needed = &got.count;
    a.workspace = work.get();
    work->search = {0, kWanted, 0, kernels::kNoList, 0};
    run_at_once(7, [&](const kernels::Block& block) {
      kernels::FoundShared shared;
      kernels::find_entries<std::uint32_t>(block, a, shared);
    });
    ASSERT_EQ(got.count, kWanted) << round;
    ASSERT_EQ(got.indices, want) << round;
    EXPECT_EQ(work->search.key, std::bit_cast<std::uint32_t>(static_cast<float>(kCount - kWanted + 1)));
    EXPECT_EQ(work->search.digits, kernels::kAllDigits);
    work->above = work->equal = 0;
    work->search = {};
    for (kernels::Search& found : work->found)
      found = {};
    ASSERT_EQ(std::memcmp(work.get(), clean.get(), sizeof *work), 0) << round;
  }
}

}  // namespace
}  // namespace heddle::gpu
