// Memory for entries.
#include "sparse/storage.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

namespace heddle::test {
namespace {

// Whoever reaches it keeps all of it.
class CountedMemory final : public NodeMemory {
 public:
  std::byte* allocate(std::size_t bytes) override {
    if (has_none) return nullptr;
    given += bytes;
    return static_cast<std::byte*>(std::malloc(bytes));
  }
  void release(std::byte* memory) override { std::free(memory); }
  bool place_of(const void*, std::size_t, NodePlace*) const override { return false; }
  const std::byte* at(int, const NodePlace&) override { return nullptr; }
  std::size_t given = 0;
  bool has_none = false;
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

TEST(Storage, WhereSharedMemoryIsMissingItsOwnServes) {
  CountedMemory memory;
  StoragePool pool;
  pool.use(&memory);
  const auto first = pool.take(10, IndexType::u32, DType::f32);
  ASSERT_NE(first, nullptr);
  std::memset(first->values.data(), 7, 40);
  memory.has_none = true;
  const auto second = pool.take(10, IndexType::u32, DType::f32);
  ASSERT_NE(second, nullptr);
  std::memset(second->values.data(), 8, 40);
  EXPECT_EQ(first->values.data()[39], std::byte{7});
  EXPECT_EQ(memory.given, 80U);
  memory.has_none = false;
  const auto third = pool.take(10, IndexType::u32, DType::f32);
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(memory.given, 160U) << "the next ones are shared again";
  EXPECT_FALSE(second->is_shared());
  EXPECT_TRUE(first->is_shared() && third->is_shared());
}

TEST(Storage, AfterAShortageWhatIsGivenOutIsSharedAgain) {
  CountedMemory memory;
  StoragePool pool;
  pool.use(&memory);
  memory.has_none = true;
  EXPECT_FALSE(pool.take(10, IndexType::u32, DType::f32)->is_shared());
  EXPECT_FALSE(pool.take(20, IndexType::u32, DType::f32)->is_shared());
  memory.has_none = false;
  EXPECT_TRUE(pool.take(10, IndexType::u32, DType::f32)->is_shared());
}

TEST(Storage, ItsOwnMemoryIsNoMoreThanWasAskedFor) {
  Buffer buffer;
  ASSERT_TRUE(buffer.grow(1000));
  ASSERT_TRUE(buffer.grow(1001));
  EXPECT_EQ(buffer.size(), 1001U);
}

}  // namespace
}  // namespace heddle::test
