// Buffers at odd addresses that end right before a page nobody may touch, and start right behind one.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "kernels/guarded_buffer.hpp"
#include "ranks.hpp"

namespace heddle::testing_ranks {
namespace {

using test::GuardedBuffer;

constexpr std::size_t kMost = 300'000;  // elements

float element(int rank, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 3) % 1000);
}

void fill(std::uint8_t* to, int rank, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float value = element(rank, i);
    std::memcpy(to + i * sizeof value, &value, sizeof value);
  }
}

// The first wrong element, or count.
std::size_t first_wrong_sum(const std::uint8_t* at, int ranks, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    float wanted = 0;
    for (int r = 0; r < ranks; ++r)
      wanted += element(r, i);
    float got = 0;
    std::memcpy(&got, at + i * sizeof got, sizeof got);
    if (got != wanted) return i;
  }
  return count;
}

class Buffers : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Buffers, testing::Values(2, 3, 5));

// Where in the guarded memory: gap bytes before its end, or at its front.
struct Place {
  std::size_t gap;
  bool front;
};

TEST_P(Buffers, NothingBesideThemIsTouched) {
  const int size = GetParam();
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    GuardedBuffer in(kMost * sizeof(float));
    GuardedBuffer out(kMost * sizeof(float));
    for (const Place& place : {Place{0, false}, {1, false}, {3, false}, {61, false}, {0, true}}) {
      for (const std::size_t count : {1UL, 13UL, 14UL, 15UL, 16UL, 17UL, 63UL, 1000UL, 1023UL, 2049UL, 4097UL,
                                      8191UL, 8193UL, 20'001UL, 100'003UL, kMost}) {
        const std::size_t bytes = count * sizeof(float);
        const auto put = [&](GuardedBuffer& buffer) {
          return place.front ? buffer.place_at_front(bytes) : buffer.place(bytes, place.gap);
        };
        std::uint8_t* from = put(in);
        std::uint8_t* to = put(out);
        fill(from, rank, count);
        ASSERT_EQ(heddle_allreduce(from, to, count, HEDDLE_FLOAT32, HEDDLE_SUM, comm), HEDDLE_OK);
        ASSERT_EQ(first_wrong_sum(to, size, count), count) << "of " << count << ", gap " << place.gap;
        ASSERT_EQ(heddle_allreduce(HEDDLE_IN_PLACE, from, count, HEDDLE_FLOAT32, HEDDLE_SUM, comm),
                  HEDDLE_OK);
        ASSERT_EQ(std::memcmp(from, to, bytes), 0) << "in place, of " << count << ", gap " << place.gap;
        const int root = static_cast<int>(count % static_cast<std::size_t>(size));
        fill(to, rank, count);
        ASSERT_EQ(heddle_bcast(to, bytes, root, comm), HEDDLE_OK);
        fill(from, root, count);
        ASSERT_EQ(std::memcmp(from, to, bytes), 0) << "bcast of " << count << ", gap " << place.gap;
        ASSERT_TRUE(in.surroundings_intact() && out.surroundings_intact()) << count << ", gap " << place.gap;
      }
    }
  });
}

}  // namespace
}  // namespace heddle::testing_ranks
