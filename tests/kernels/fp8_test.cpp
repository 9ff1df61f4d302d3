// The floats of 8 bits, exhaustively: every pair of codes, and with third ones that break ties, against
// conversions by definition.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "engine/kernels/kernels.hpp"
#include "reference.hpp"
#include "targets.hpp"

namespace heddle::test {
namespace {

constexpr Op kArithmetic[] = {Op::sum, Op::prod, Op::min, Op::max};

struct Format {
  DType type;
  std::uint8_t largest;
  float (*to_float)(std::uint8_t);
  std::uint8_t (*from_float)(float);
};
constexpr Format kE4M3 = {DType::e4m3, 0x7E, &e4m3_to_float, &float_to_e4m3};
constexpr Format kE5M2 = {DType::e5m2, 0x7B, &e5m2_to_float, &float_to_e5m2};

class Fp8Test : public testing::TestWithParam<std::int64_t> {
 protected:
  // Folds single elements.
  template <typename... Rest>
  static unsigned fold(const Format& format, Op op, Rest... codes) {
    const std::uint8_t values[] = {static_cast<std::uint8_t>(codes)...};
    const void* inputs[sizeof...(codes)];
    for (std::size_t k = 0; k < std::size(values); ++k)
      inputs[k] = &values[k];
    std::uint8_t result = 0x55;
    fold_kernel(format.type, op)(&result, nullptr, inputs, static_cast<unsigned>(std::size(values)), 1);
    return result;
  }
  static unsigned sum_of(const Format& format, std::initializer_list<float> values) {
    std::vector<std::uint8_t> codes;
    for (const float value : values) {
      codes.push_back(format.from_float(value));
      EXPECT_EQ(format.to_float(codes.back()), value) << "not a number of " << dtype_name(format.type);
    }
    std::vector<const void*> inputs;
    for (const std::uint8_t& code : codes)
      inputs.push_back(&code);
    std::uint8_t result = 0x55;
    fold_kernel(format.type, Op::sum)(&result, nullptr, inputs.data(), static_cast<unsigned>(inputs.size()),
                                      1);
    return result;
  }

 private:
  ScopedTarget target_{GetParam()};
};

// All pairs.
struct Pairs {
  std::vector<std::uint8_t> left;
  std::vector<std::uint8_t> right;
  Pairs() {
    for (unsigned i = 0; i < 65536; ++i) {
      left.push_back(static_cast<std::uint8_t>(i >> 8));
      right.push_back(static_cast<std::uint8_t>(i));
    }
  }
};

// What min and max of (a, b) are where one is NaN, and sum and product of two where `b` stands for what is
// NaN: quiet.
std::uint8_t quiet(const Format& format, std::uint8_t code) {
  const bool nan = std::isnan(format.to_float(code));
  return nan && format.type == DType::e5m2 ? static_cast<std::uint8_t>(code | 0x02) : code;
}
std::uint8_t with_nan(const Format& format, Op op, std::uint8_t a, std::uint8_t b) {
  const bool left = std::isnan(format.to_float(a)) || op == Op::min || op == Op::max;
  return quiet(format, left ? a : b);
}

void check_pairs(const Format& format) {
  const Pairs pairs;
  std::vector<std::uint8_t> got(65536);
  const void* inputs[] = {pairs.left.data(), pairs.right.data()};
  for (const Op op : kArithmetic) {
    fold_kernel(format.type, op)(got.data(), nullptr, inputs, 2, got.size());
    const Bytes want = reference_fold(format.type, op, {pairs.left.data(), pairs.right.data()}, got.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::uint8_t a = pairs.left[i];
      const std::uint8_t b = pairs.right[i];
      const bool given = std::isnan(format.to_float(a)) || std::isnan(format.to_float(b));
      const bool made = !given && std::isnan(format.to_float(want[i]));
      if (made) {
        ASSERT_TRUE(std::isnan(format.to_float(got[i]))) << op_name(op) << " of " << +a << ", " << +b;
      } else {
        ASSERT_EQ(+got[i], +(given ? with_nan(format, op, a, b) : want[i]))
            << dtype_name(format.type) << " " << op_name(op) << " of " << +a << ", " << +b;
      }
    }
  }
}

// The conversions that all else here is compared with.
TEST(Fp8Formats, AreThoseOfTheStandard) {
  EXPECT_EQ(e4m3_to_float(0x7E), 448.0F);
  EXPECT_EQ(e4m3_to_float(0x38), 1.0F);
  EXPECT_EQ(e4m3_to_float(0x08), 0x1p-6F);
  EXPECT_EQ(e4m3_to_float(0x01), 0x1p-9F);
  EXPECT_EQ(e4m3_to_float(0xF8), -256.0F);
  EXPECT_TRUE(std::isnan(e4m3_to_float(0x7F)) && std::isnan(e4m3_to_float(0xFF)));
  EXPECT_EQ(e5m2_to_float(0x7B), 57344.0F);
  EXPECT_EQ(e5m2_to_float(0x3C), 1.0F);
  EXPECT_EQ(e5m2_to_float(0x04), 0x1p-14F);
  EXPECT_EQ(e5m2_to_float(0x01), 0x1p-16F);
  EXPECT_EQ(e5m2_to_float(0xFC), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(e5m2_to_float(0x7D)) && std::isnan(e5m2_to_float(0xFF)));
  EXPECT_EQ(float_to_e4m3(0x1p-10F), 0x00) << "a tie goes to even";
  EXPECT_EQ(float_to_e4m3(0x3p-10F), 0x02);
  EXPECT_EQ(float_to_e4m3(17.0F), float_to_e4m3(16.0F));
  EXPECT_EQ(float_to_e4m3(19.0F), float_to_e4m3(20.0F));
  for (const Format& format : {kE4M3, kE5M2}) {
    for (unsigned code = 0; code < 256; ++code) {
      const float value = format.to_float(static_cast<std::uint8_t>(code));
      if (std::isnan(value)) continue;
      EXPECT_EQ(format.from_float(value), code) << dtype_name(format.type);
    }
  }
}

TEST_P(Fp8Test, EveryPairOfE4M3) {
  check_pairs(kE4M3);
}
TEST_P(Fp8Test, EveryPairOfE5M2) {
  check_pairs(kE5M2);
}

// A third number that is small makes more than a tie of a tie, or less; one that is large brings sums back
// that were too large.
TEST_P(Fp8Test, EveryPairWithAThird) {
  const Pairs pairs;
  for (const Format& format : {kE4M3, kE5M2}) {
    for (const unsigned third :
         {0x01U, 0x81U, 0x07U, 0x28U, 0xB1U, 0x49U, unsigned{format.largest}, format.largest | 0x80U}) {
      const std::vector<std::uint8_t> thirds(65536, static_cast<std::uint8_t>(third));
      std::vector<std::uint8_t> got(65536);
      const void* inputs[] = {pairs.left.data(), pairs.right.data(), thirds.data()};
      for (const Op op : {Op::sum, Op::prod}) {
        fold_kernel(format.type, op)(got.data(), nullptr, inputs, 3, got.size());
        const Bytes want = reference_fold(format.type, op,
                                          {pairs.left.data(), pairs.right.data(), thirds.data()}, got.size());
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_TRUE(same_element(format.type, got.data(), want.data(), i))
              << dtype_name(format.type) << " " << op_name(op) << " of " << +pairs.left[i] << ", "
              << +pairs.right[i] << ", " << third << " gives " << +got[i];
      }
    }
  }
}

// One after the other, 17 and 9 would become 16 and 8 again, and what was too large would stay at the
// largest.
TEST_P(Fp8Test, RoundsOnce) {
  EXPECT_EQ(sum_of(kE4M3, {16, 1, 1}), float_to_e4m3(18));
  EXPECT_EQ(sum_of(kE5M2, {8, 1, 1}), float_to_e5m2(10));
  EXPECT_EQ(sum_of(kE4M3, {448, 448, -448, -384}), float_to_e4m3(64));
  EXPECT_EQ(sum_of(kE5M2, {57344, 57344, -57344, -49152}), float_to_e5m2(8192));
}

TEST_P(Fp8Test, WhatIsTooLargeBecomesTheLargest) {
  EXPECT_EQ(sum_of(kE4M3, {448, 18}), 0x7EU);
  EXPECT_EQ(sum_of(kE4M3, {-448, -448}), 0xFEU);
  EXPECT_EQ(sum_of(kE5M2, {57344, 4096}), 0x7BU);
  EXPECT_EQ(sum_of(kE5M2, {-57344, -57344}), 0xFBU);
  EXPECT_EQ(fold(kE4M3, Op::prod, 0x7E, 0xFE), 0xFEU);
  EXPECT_EQ(fold(kE5M2, Op::prod, 0x7B, 0x7B), 0x7BU);
  // Sixteen of them are too many for float too; e4m3 has no infinity.
  const std::vector<std::uint8_t> largest(1, 0x7E);
  const std::vector<const void*> inputs(16, largest.data());
  std::uint8_t result = 0;
  fold_kernel(DType::e4m3, Op::prod)(&result, nullptr, inputs.data(), 16, 1);
  EXPECT_EQ(result, 0x7E);
}

TEST_P(Fp8Test, InfinitiesAndNaNStay) {
  constexpr unsigned kInfinity = 0x7C;
  EXPECT_EQ(fold(kE5M2, Op::sum, kInfinity, 0xFB), kInfinity);
  EXPECT_EQ(fold(kE5M2, Op::prod, kInfinity, 0xBC), 0xFCU);
  EXPECT_EQ(fold(kE5M2, Op::max, 0x3C, kInfinity), kInfinity);
  EXPECT_EQ(fold(kE5M2, Op::min, 0xFC, 0x3C), 0xFCU);
  EXPECT_TRUE(std::isnan(e5m2_to_float(static_cast<std::uint8_t>(fold(kE5M2, Op::sum, 0x7C, 0xFC)))));
  EXPECT_EQ(fold(kE4M3, Op::sum, 0x38, 0xFF, 0x38), 0xFFU);
  EXPECT_EQ(fold(kE4M3, Op::sum, 0x7F, 0xFF), 0x7FU) << "the left one";
  EXPECT_EQ(fold(kE5M2, Op::sum, 0x38, 0xFD), 0xFFU) << "quiet";
  EXPECT_EQ(fold(kE4M3, Op::max, 0x38, 0x7F), 0x38U);
  EXPECT_EQ(fold(kE4M3, Op::max, 0x7F, 0x38), 0x7FU);
  EXPECT_EQ(fold(kE5M2, Op::sum, 0x7D), 0x7DU) << "one input is copied";
}

INSTANTIATE_TEST_SUITE_P(Targets, Fp8Test, testing::ValuesIn(runnable_targets()), target_name);

}  // namespace
}  // namespace heddle::test
