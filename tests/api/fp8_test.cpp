// Collectives of 8-bit floats through libheddle.so, ranks as threads: results small enough to be exact in any
// order, some that are too large, NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "heddle/heddle.hpp"
#include "heddle/heddle_sparse.h"
#include "ranks.hpp"

namespace {

using heddle::testing_ranks::Meeting;
using heddle::testing_ranks::on_ranks;
using heddle::testing_ranks::on_threads;
using Codes = std::vector<std::uint8_t>;

struct Format {
  heddle_dtype type;
  int mantissa;
  int bias;
  std::uint8_t largest;
  std::uint8_t nan;
};
constexpr Format kFormats[] = {{HEDDLE_FLOAT8_E4M3, 3, 7, 0x7E, 0x7F},
                               {HEDDLE_FLOAT8_E5M2, 2, 15, 0x7B, 0x7E}};

// Of a whole number up to 8, which both formats have.
std::uint8_t code_of(const Format& format, int number) {
  if (number == 0) return 0;
  const int magnitude = std::abs(number);
  const int exponent = std::ilogb(magnitude);
  const int code =
      ((exponent + format.bias - 1) << format.mantissa) + (magnitude << format.mantissa >> exponent);
  return static_cast<std::uint8_t>(code | (number < 0 ? 0x80 : 0));
}

// -1, 0 and 1.
int number_of(int rank, std::size_t i) {
  return static_cast<int>((static_cast<std::size_t>(rank) + i / 3) % 3) - 1;
}
Codes codes_of(const Format& format, std::size_t count, const std::function<int(std::size_t)>& number) {
  Codes codes(count);
  for (std::size_t i = 0; i < count; ++i)
    codes[i] = code_of(format, number(i));
  return codes;
}

int expected(heddle_op op, int size, std::size_t i) {
  int result = number_of(0, i);
  for (int rank = 1; rank < size; ++rank) {
    const int next = number_of(rank, i);
    if (op == HEDDLE_SUM) result += next;
    if (op == HEDDLE_PROD) result *= next;
    if (op == HEDDLE_MIN) result = std::min(result, next);
    if (op == HEDDLE_MAX) result = std::max(result, next);
  }
  return result;
}

class Fp8Ranks : public testing::TestWithParam<int> {};

TEST_P(Fp8Ranks, Allreduce) {
  const int size = GetParam();
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    for (const Format& format : kFormats) {
      for (const std::size_t count :
           {std::size_t{0}, std::size_t{1}, std::size_t{17}, std::size_t{4099}, std::size_t{300'001}}) {
        for (const heddle_op op : {HEDDLE_SUM, HEDDLE_PROD, HEDDLE_MIN, HEDDLE_MAX}) {
          // A product of -1 and 0 is -0.
          const auto wanted = [&](std::size_t i) { return expected(op, size, i); };
          const Codes want = codes_of(format, count, wanted);
          Codes in = codes_of(format, count, [&](std::size_t i) { return number_of(rank, i); });
          Codes out(count, 0x55);
          Codes later(count, 0x55);
          ASSERT_EQ(heddle_allreduce(in.data(), out.data(), count, format.type, op, comm), HEDDLE_OK)
              << heddle_last_error();
          heddle_request_t request = nullptr;
          ASSERT_EQ(heddle_iallreduce(in.data(), later.data(), count, format.type, op, comm, &request),
                    HEDDLE_OK);
          ASSERT_EQ(heddle_wait(&request), HEDDLE_OK) << heddle_last_error();
          ASSERT_EQ(heddle_allreduce(HEDDLE_IN_PLACE, in.data(), count, format.type, op, comm), HEDDLE_OK);
          for (std::size_t i = 0; i < count; ++i) {
            const unsigned zeros = want[i] == 0 && op == HEDDLE_PROD ? 0x80U : 0U;
            ASSERT_EQ(out[i] & ~zeros, want[i]) << "type " << format.type << ", op " << op << ", at " << i;
          }
          ASSERT_EQ(out, later);
          ASSERT_EQ(out, in);
        }
      }
    }
  });
}

TEST_P(Fp8Ranks, WhatIsTooLargeAndNaN) {
  const int size = GetParam();
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    for (const Format& format : kFormats) {
      const auto minus = static_cast<std::uint8_t>(format.largest | 0x80);
      const std::uint8_t one = code_of(format, 1);
      Codes data = {format.largest, minus, rank == size - 1 ? format.nan : one, one};
      ASSERT_EQ(heddle_allreduce(HEDDLE_IN_PLACE, data.data(), 4, format.type, HEDDLE_SUM, comm), HEDDLE_OK);
      EXPECT_EQ(data, (Codes{format.largest, minus, format.nan, code_of(format, size)}));
    }
    Codes infinite = {rank == 0 ? std::uint8_t{0x7C} : std::uint8_t{0x3C}};
    ASSERT_EQ(heddle_allreduce(HEDDLE_IN_PLACE, infinite.data(), 1, HEDDLE_FLOAT8_E5M2, HEDDLE_SUM, comm),
              HEDDLE_OK);
    EXPECT_EQ(infinite[0], 0x7C);
  });
}

// Entries of 8 bits do not travel: the vector does.
TEST_P(Fp8Ranks, MostlyZeros) {
  const int size = GetParam();
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    for (const Format& format : kFormats) {
      Codes data(50'000);
      Codes want(50'000);
      for (int r = 0; r < size; ++r)
        want[static_cast<std::size_t>(r) * 1000] = code_of(format, r % 8 + 1);
      data[static_cast<std::size_t>(rank) * 1000] = code_of(format, rank % 8 + 1);
      ASSERT_EQ(heddle_sparse_allreduce_in_place(data.data(), data.size(), format.type, comm), HEDDLE_OK)
          << heddle_last_error();
      EXPECT_EQ(data, want);
      heddle_sparse_stats stats{};
      ASSERT_EQ(heddle_sparse_get_stats(comm, &stats), HEDDLE_OK);
      EXPECT_EQ(std::string(stats.algorithm), "dense");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, Fp8Ranks, testing::Values(1, 2, 3, 5, 8));

// A class such as CUDA's __nv_fp8_e4m3.
struct Eight {
  std::uint8_t code;
};

}  // namespace

template <>
struct heddle::api::dtype_of<Eight> {
  static constexpr heddle_dtype value = HEDDLE_FLOAT8_E4M3;
};

namespace {

TEST(Fp8Face, ServesAClassOfTheCallers) {
  Meeting meeting(2);
  on_threads(2, [&](int rank) {
    heddle::api::Comm comm =
        heddle::api::Comm::from_allgather(rank, 2, [&](const void* mine, void* all, std::size_t bytes) {
          meeting.allgather(rank, mine, all, bytes);
          return 0;
        });
    std::vector<Eight> data(10, Eight{0x38});
    comm.allreduce_in_place(std::span(data));
    EXPECT_EQ(data[9].code, 0x40);
  });
}

}  // namespace
