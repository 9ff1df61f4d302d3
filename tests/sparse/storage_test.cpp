// Memory for entries.
#include "sparse/storage.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace heddle::test {
namespace {

// Whoever reaches it keeps all of it.
class CountedMemory final : public NodeMemory {
 public:
  std::byte* allocate(std::size_t bytes) override {
    given += bytes;
    return static_cast<std::byte*>(std::malloc(bytes));
  }
  void release(std::byte* memory) override { std::free(memory); }
  bool place_of(const void*, std::size_t, NodePlace*) const override { return false; }
  const std::byte* at(int, const NodePlace&) override { return nullptr; }
  std::size_t given = 0;
};

TEST(Storage, WhatGrowsAgainAndAgainTakesNoMoreOfTheOthersThanItHas) {
  CountedMemory memory;
  Buffer buffer(&memory);
  constexpr std::size_t kEnd = 1'000'000;
  for (std::size_t bytes = 1000; bytes <= kEnd; bytes += 1000)
    ASSERT_TRUE(buffer.grow(bytes));
  EXPECT_GE(buffer.size(), kEnd);
  EXPECT_LE(memory.given, 4 * kEnd);
}

TEST(Storage, ItsOwnMemoryIsNoMoreThanWasAskedFor) {
  Buffer buffer;
  ASSERT_TRUE(buffer.grow(1000));
  ASSERT_TRUE(buffer.grow(1001));
  EXPECT_EQ(buffer.size(), 1001U);
}

}  // namespace
}  // namespace heddle::test
