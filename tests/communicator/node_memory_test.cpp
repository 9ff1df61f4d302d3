// Memory of a node's ranks, told from one to another.
#include "comm/node_memory.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace heddle::test {
namespace {

constexpr std::size_t kBytes = 100'000;

struct TwoRanks {
  SharedHeap heaps[2];
  HeapMemory owner{heaps[0], 2};
  HeapMemory other{heaps[1], 2};

  const std::byte* told(const std::byte* memory) {
    NodePlace place;
    EXPECT_TRUE(owner.place_of(memory, kBytes, &place));
    return other.at(0, place);
  }
};

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t found = 0;
  for (std::string line; std::getline(maps, line);)
    found += line.find("memfd:") != std::string::npos ? 1 : 0;
  return found;
}

TEST(HeapMemory, WhatItsOwnerGaveBackIsNotKeptForGood) {
  TwoRanks ranks;
  const std::size_t before = mappings();
  for (int collective = 0; collective < 20; ++collective) {
    ranks.other.begin();
    std::byte* const memory = ranks.owner.allocate(kBytes);
    ASSERT_NE(memory, nullptr);
    std::memset(memory, collective, kBytes);
    const std::byte* const seen = ranks.told(memory);
    ASSERT_NE(seen, nullptr);
    EXPECT_EQ(seen[kBytes - 1], static_cast<std::byte>(collective));
    ranks.owner.release(memory);
    EXPECT_LE(mappings(), before + 4);
  }
}

// The owner has something larger instead, in the middle of a collective.
TEST(HeapMemory, WhatItsOwnerGivesBackMeanwhileStaysForTheCollective) {
  TwoRanks ranks;
  std::byte* const first = ranks.owner.allocate(kBytes);
  std::byte* const second = ranks.owner.allocate(kBytes);
  std::byte* const third = ranks.owner.allocate(kBytes);
  std::memset(first, 1, kBytes);
  ranks.other.begin();
  const std::byte* const seen = ranks.told(first);
  ASSERT_NE(seen, nullptr);
  ranks.owner.release(second);
  ASSERT_NE(ranks.told(third), nullptr);
  EXPECT_EQ(seen[kBytes / 2], std::byte{1});
  ranks.owner.release(first);
  ASSERT_NE(ranks.told(third), nullptr);
  EXPECT_EQ(seen[kBytes / 2], std::byte{1});
}

TEST(HeapMemory, StaysMappedWhileNothingIsGivenBack) {
  TwoRanks ranks;
  std::byte* const memory = ranks.owner.allocate(kBytes);
  ranks.other.begin();
  const std::byte* const seen = ranks.told(memory);
  ranks.other.begin();
  EXPECT_EQ(ranks.told(memory), seen);
}

TEST(HeapMemory, TakesNotTheLastDescriptors) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit few = limit;
  few.rlim_cur = 200;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  SharedHeap heap;
  HeapMemory memory(heap, 2);
  int given = 0;
  while (given < 1000 && memory.allocate(1) != nullptr)
    ++given;
  EXPECT_GT(given, 0);
  EXPECT_LT(given, 100) << "others' descriptors";
  std::vector<std::ifstream> own(50);
  for (std::ifstream& file : own) {
    file.open("/dev/null");
    EXPECT_TRUE(file.is_open());
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

}  // namespace
}  // namespace heddle::test
