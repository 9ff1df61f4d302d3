// Particular values: overflow, NaN, signed zeros, rounding of the half types, and agreement between
// instruction sets.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>

#include "engine/kernels/kernels.hpp"
#include "reference.hpp"
#include "targets.hpp"

namespace heddle::test {
namespace {

// Folds single elements.
template <typename T, typename... Rest>
T fold_values(DType type, Op op, T first, Rest... rest) {
  const T values[] = {first, static_cast<T>(rest)...};
  const void* inputs[1 + sizeof...(rest)];
  for (std::size_t k = 0; k < std::size(values); ++k)
    inputs[k] = &values[k];
  T result{};
  fold_kernel(type, op)(&result, nullptr, inputs, static_cast<unsigned>(std::size(values)), 1);
  return result;
}

class ValuesTest : public testing::TestWithParam<std::int64_t> {
  ScopedTarget target_{GetParam()};
};

TEST(Kernels, InvalidPairsHaveNone) {
  for (const DType type : kAllTypes)
    for (const Op op : kAllOps)
      EXPECT_EQ(fold_kernel(type, op) != nullptr, is_valid(type, op))
          << dtype_name(type) << " " << op_name(op);
  EXPECT_EQ(fold_kernel(static_cast<DType>(200), Op::sum), nullptr);
  EXPECT_EQ(fold_kernel(DType::i32, static_cast<Op>(200)), nullptr);
}

TEST(Kernels, SeveralInstructionSetsAreTested) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    EXPECT_GE(runnable_targets().size(), 2u);
  }
#endif
  EXPECT_GE(runnable_targets().size(), 1u);
}

TEST_P(ValuesTest, IntegersWrapAround) {
  EXPECT_EQ(fold_values<std::int8_t>(DType::i8, Op::sum, 127, 1), -128);
  EXPECT_EQ(fold_values<std::int8_t>(DType::i8, Op::prod, -128, -1), -128);
  EXPECT_EQ(fold_values<std::uint16_t>(DType::u16, Op::prod, 65535, 65535), 1);
  EXPECT_EQ(fold_values<std::int32_t>(DType::i32, Op::sum, INT32_MIN, -1), INT32_MAX);
  EXPECT_EQ(fold_values<std::int64_t>(DType::i64, Op::prod, INT64_MIN, -1), INT64_MIN);
  EXPECT_EQ(fold_values<std::int64_t>(DType::i64, Op::prod, 3'000'000'000, 3), 9'000'000'000);
  EXPECT_EQ(fold_values<std::uint64_t>(DType::u64, Op::max, 1, UINT64_MAX), UINT64_MAX);
  EXPECT_EQ(fold_values<std::int64_t>(DType::i64, Op::max, 1, -1), 1);
}

TEST_P(ValuesTest, LogicalGivesZeroOrOne) {
  EXPECT_EQ(fold_values<std::int16_t>(DType::i16, Op::land, 0x0100, -7), 1);
  EXPECT_EQ(fold_values<std::int16_t>(DType::i16, Op::lor, 0x0100, 0), 1);
  EXPECT_EQ(fold_values<std::int32_t>(DType::i32, Op::lxor, 2, 3), 0);
  EXPECT_EQ(fold_values<std::int32_t>(DType::i32, Op::lxor, 2, 3, 4), 1);
  EXPECT_EQ(fold_values<std::int64_t>(DType::i64, Op::land, INT64_MIN, 0), 0);
  EXPECT_EQ(fold_values<std::uint8_t>(DType::u8, Op::land, 2, 1), 1);
}

TEST_P(ValuesTest, ExtremesKeepTheLeftOperandOnTiesAndNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Op op : {Op::max, Op::min}) {
    EXPECT_TRUE(std::isnan(fold_values(DType::f32, op, nan, 1.0f)));
    EXPECT_EQ(fold_values(DType::f32, op, 1.0f, nan), 1.0f);
    EXPECT_FALSE(std::signbit(fold_values(DType::f32, op, 0.0f, -0.0f)));
    EXPECT_TRUE(std::signbit(fold_values(DType::f64, op, -0.0, 0.0)));
    EXPECT_TRUE(std::signbit(fold_values(DType::f80, op, -0.0L, 0.0L)));
  }
  EXPECT_EQ(fold_values(DType::f32, Op::max, -INFINITY, -3.0f), -3.0f);
  EXPECT_EQ(fold_values(DType::f64, Op::min, 5.0, -1.0, 7.0), -1.0);
}

TEST_P(ValuesTest, LeftPayloadSurvives) {
  const auto a = std::bit_cast<float>(0x7FC00123u);
  const auto b = std::bit_cast<float>(0xFFC00456u);
  const auto signalling = std::bit_cast<float>(0xFF800789u);
  for (const Op op : {Op::sum, Op::prod}) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(fold_values(DType::f32, op, a, b)), 0x7FC00123u);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(fold_values(DType::f32, op, b, a)), 0xFFC00456u);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(fold_values(DType::f32, op, 1.0f, b, a)), 0xFFC00456u);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(fold_values(DType::f32, op, a, signalling)), 0x7FC00123u);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(fold_values(DType::f32, op, signalling, a)), 0xFFC00789u);
  }
}

TEST_P(ValuesTest, ComplexProductRecoversInfinities) {
  using C = std::complex<double>;
  EXPECT_EQ(fold_values(DType::c64, Op::prod, C(1, 2), C(3, -4)), C(11, 2));
  const C z = fold_values(DType::c64, Op::prod, C(INFINITY, INFINITY), C(1, 1));
  EXPECT_TRUE(std::isinf(z.real()) || std::isinf(z.imag()));
}

TEST_P(ValuesTest, LongDoublePaddingIsZero) {
  if (std::numeric_limits<long double>::digits != 64) GTEST_SKIP() << "long double has no padding here";
  long double inputs[2];
  std::memset(inputs, 0xEE, sizeof(inputs));
  inputs[0] = 1.5L;
  inputs[1] = 2.0L;
  const void* pointers[] = {&inputs[0], &inputs[1]};
  std::uint8_t out[16];
  std::memset(out, 0xDD, sizeof(out));
  fold_kernel(DType::f80, Op::sum)(out, nullptr, pointers, 2, 1);
  for (std::size_t i = 10; i < 16; ++i)
    EXPECT_EQ(out[i], 0) << "byte " << i;
}

// A fold of two rounded after each addition would give 2048 and 256.
TEST_P(ValuesTest, HalvesRoundOnce) {
  const auto f16 = [](float x) { return float_to_f16(x); };
  const auto bf16 = [](float x) { return float_to_bf16(x); };
  EXPECT_EQ(fold_values(DType::f16, Op::sum, f16(2048), f16(1), f16(1)), f16(2050));
  EXPECT_EQ(fold_values(DType::bf16, Op::sum, bf16(256), bf16(1), bf16(1)), bf16(258));
  EXPECT_EQ(fold_values(DType::f16, Op::sum, f16(60000), f16(60000), f16(-60000)), f16(60000));
  EXPECT_EQ(fold_values(DType::f16, Op::prod, f16(60000), f16(2), f16(0.5)), f16(60000));
}

// x + -0 is x, so this is load and store alone, for every bit pattern.
TEST_P(ValuesTest, HalvesSurviveUnchanged) {
  for (const DType type : {DType::f16, DType::bf16}) {
    const unsigned infinity = type == DType::f16 ? 0x7C00 : 0x7F80;
    const unsigned quiet = type == DType::f16 ? 0x0200 : 0x0040;
    std::vector<std::uint16_t> all(65536), minus_zero(65536, 0x8000), got(65536);
    for (unsigned i = 0; i < 65536; ++i)
      all[i] = static_cast<std::uint16_t>(i);
    const void* inputs[] = {all.data(), minus_zero.data()};
    fold_kernel(type, Op::sum)(got.data(), nullptr, inputs, 2, all.size());
    for (unsigned i = 0; i < 65536; ++i) {
      const bool is_nan = (i & 0x7FFF) > infinity;
      ASSERT_EQ(got[i], is_nan ? i | quiet : i) << dtype_name(type) << " pattern " << i;
    }
  }
}

// Every f16 (bf16) against a spread of others: products have twice the mantissa bits, sums exercise ties,
// subnormals and overflow.
TEST_P(ValuesTest, HalvesRoundToNearestEven) {
  std::mt19937_64 random(7);
  for (const DType type : {DType::f16, DType::bf16}) {
    std::vector<std::uint16_t> all(65536), other(65536), got(65536);
    for (unsigned i = 0; i < 65536; ++i)
      all[i] = static_cast<std::uint16_t>(i);
    for (int round = 0; round < 24; ++round) {
      const auto fixed = static_cast<std::uint16_t>(random());
      for (auto& x : other)
        x = round < 12 ? fixed : static_cast<std::uint16_t>(random());
      const std::vector<const std::uint8_t*> inputs{reinterpret_cast<const std::uint8_t*>(all.data()),
                                                    reinterpret_cast<const std::uint8_t*>(other.data())};
      const void* pointers[] = {all.data(), other.data()};
      for (const Op op : {Op::sum, Op::prod}) {
        fold_kernel(type, op)(got.data(), nullptr, pointers, 2, all.size());
        const Bytes want = reference_fold(type, op, inputs, all.size());
        for (std::size_t i = 0; i < all.size(); ++i)
          ASSERT_TRUE(same_element(type, reinterpret_cast<const std::uint8_t*>(got.data()), want.data(), i))
              << dtype_name(type) << " " << op_name(op) << " " << all[i] << ", " << other[i] << " gives "
              << got[i];
      }
    }
  }
}

// Ranks on different processors must agree to the bit.
TEST_P(ValuesTest, EqualToEveryOtherInstructionSet) {
  constexpr std::size_t kCount = 5000;
  std::mt19937_64 random(3);
  for (const DType type : kAllTypes) {
    const std::size_t size = dtype_size(type);
    std::array<Bytes, 3> data;
    for (auto& d : data)
      d = random_elements(type, kCount, random);
    const void* inputs[] = {data[0].data(), data[1].data(), data[2].data()};
    for (const Op op : kAllOps) {
      if (!is_valid(type, op)) continue;
      Bytes here(data[0].size()), there(data[0].size());
      fold_kernel(type, op)(here.data(), nullptr, inputs, 3, kCount);
      for (const std::int64_t other : runnable_targets()) {
        FoldFn kernel = nullptr;
        {
          const ScopedTarget scope(other);
          kernel = fold_kernel(type, op);
        }
        kernel(there.data(), nullptr, inputs, 3, kCount);
        for (std::size_t b = 0; b < here.size(); b += size) {
          ASSERT_TRUE(std::equal(&here[b], &here[b] + size, &there[b]))
              << dtype_name(type) << " " << op_name(op) << " on " << hwy::TargetName(other) << ", element "
              << b / size;
        }
      }
      hwy::GetChosenTarget().Update(GetParam());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ValuesTest, testing::ValuesIn(runnable_targets()), target_name);

}  // namespace
}  // namespace heddle::test
