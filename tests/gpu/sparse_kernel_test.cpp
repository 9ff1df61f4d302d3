// Kernels of sparse vectors beside their bits (sparse_check.cpp) and blocks that run at once
// (sparse_blocks_test.cpp): what is given to the driver, and what is said where a selection cannot be
// started. On the double of CUDA's driver, whose path is the argument.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cuda_memory.hpp"
#include "fake_cuda.h"
#include "gpu/gpu.hpp"
#include "gpu/kernels/sparse_list.hpp"
#include "gpu/link.hpp"
#include "gpu/sparse_kernels.hpp"
#include "gpu/sparse_link.hpp"

namespace heddle::gpu {
namespace {

using kernels::Workspace;
using test::Memory;
using test::TestDriver;
using test::TestMemory;

const TestDriver* cuda = nullptr;
const char* cuda_path = nullptr;

// ---- What is given to the driver

class SparseKernelTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kCount = 10 * 4096;
  SparseKernelTest() {
    cuda->set_current(cuda->primary(0));
    const std::vector<float> ones(kCount, 1.0F);
    values_.put(ones.data(), kCount * 4);
    EXPECT_TRUE(kernels_.prepare(default_stream(), work_.data()).ok());
  }
  Selected to(bool wide = false) const {
    return {indices_.data(), taken_.data(), kCount, count_.as<std::uint64_t>(), wide};
  }
  Status select(SparseKernels& kernels, const Selected& to) {
    return kernels.select_nonzero(default_stream(), DType::f32, values_.data(), kCount, to, work_.data());
  }
  std::uint64_t count() const {
    std::uint64_t count = 0;
    count_.get(&count, sizeof count);
    return count;
  }

  const Driver driver_ = load_driver(dlopen(cuda_path, RTLD_NOW)).value();
  SparseKernels kernels_{driver_};
  const TestMemory values_{*cuda, Memory::device, kCount * 4};
  const TestMemory indices_{*cuda, Memory::device, kCount * 8};
  const TestMemory taken_{*cuda, Memory::device, kCount * 8};
  const TestMemory count_{*cuda, Memory::device, 8};
  const std::size_t bytes_ = SparseKernels::top_k_workspace_bytes(kCount, kCount, true);
  const TestMemory work_{*cuda, Memory::device, bytes_};
};

TEST_F(SparseKernelTest, OneLaunchOrAsManyAsAreNeeded) {
  // Of two multiprocessors eight blocks run at once: tiles have two batches for each warp, and there are
  // five.
  for (const auto& [tiles, launches] : {std::pair{100, 1}, {5, 1}, {4, 2}, {2, 3}}) {
    SparseKernels kernels(driver_, static_cast<std::uint64_t>(tiles));
    const int so_far = cuda->calls("cuLaunchKernel");
    ASSERT_TRUE(select(kernels, to()).ok());
    EXPECT_EQ(cuda->calls("cuLaunchKernel") - so_far, launches) << tiles;
    EXPECT_EQ(count(), kCount);
  }
}

TEST(LongVectors, AreSampledForAListThatIsNotMuchLongerThanK) {
  constexpr std::size_t kCount = std::size_t{1} << 18;
  constexpr std::size_t kWanted = kCount / 100;
  cuda->set_current(cuda->primary(0));
  const Driver driver = load_driver(dlopen(cuda_path, RTLD_NOW)).value();
  std::vector<float> values(kCount);
  std::uint32_t drawn = 1;
  for (float& value : values)
    value = static_cast<float>((drawn = drawn * 1664525U + 1013904223U) >> 8);
  const TestMemory from(*cuda, Memory::device, kCount * 4);
  from.put(values.data(), kCount * 4);
  const TestMemory to(*cuda, Memory::device, kWanted * 8 + 8);
  const std::size_t bytes = SparseKernels::top_k_workspace_bytes(kCount, kWanted, false);
  const TestMemory work(*cuda, Memory::device, bytes);
  const Selected selected{to.as<char>() + 8, to.as<char>() + 8 + kWanted * 4, kWanted,
                          to.as<std::uint64_t>()};
  const auto listed = [&](std::size_t sampled_from) {
    SparseKernels kernels(driver, kernels::kMostTiles, sampled_from);
    EXPECT_TRUE(kernels.prepare(default_stream(), work.data()).ok());
    EXPECT_TRUE(
        kernels.top_k(default_stream(), from.as<float>(), kCount, kWanted, selected, work.data(), bytes)
            .ok());
    auto after = std::make_unique<Workspace>();
    work.get(after.get(), sizeof *after);
    return after->search.listed;
  };
  // The upper digits of 1% of these values are those of an eighth.
  const std::uint64_t by_all = listed(kCount + 1);
  EXPECT_EQ(listed(kCount), by_all);
  EXPECT_GE(by_all, kWanted);
  EXPECT_LE(by_all, kCount / 8);
}

TEST_F(SparseKernelTest, NothingToTakeIsCounted) {
  const std::uint64_t dirt = 7;
  count_.put(&dirt, sizeof dirt);
  const Status none =
      kernels_.select_nonzero(default_stream(), DType::f64, values_.data(), 0, to(), work_.data());
  ASSERT_TRUE(none.ok()) << none.message();
  EXPECT_EQ(count(), 0U);
  count_.put(&dirt, sizeof dirt);
  ASSERT_TRUE(
      kernels_.top_k(default_stream(), values_.as<float>(), kCount, 0, to(), work_.data(), bytes_).ok());
  EXPECT_EQ(count(), 0U);
}

TEST_F(SparseKernelTest, SaysWhatItCannotServe) {
  const Status small =
      kernels_.top_k(default_stream(), values_.as<float>(), kCount, 5, to(), work_.data(), 1000);
  EXPECT_EQ(small.code(), Code::invalid_argument);
  EXPECT_NE(small.message().find("bytes, not 1000"), std::string::npos) << small.message();

  const Status odd =
      kernels_.select_nonzero(default_stream(), DType::f32, values_.as<char>() + 2, 5, to(), work_.data());
  EXPECT_EQ(odd.code(), Code::unsupported);
  EXPECT_NE(odd.message().find("aligned to 4 bytes"), std::string::npos) << odd.message();

  const Status type =
      kernels_.select_nonzero(default_stream(), DType::i8, values_.data(), 5, to(), work_.data());
  EXPECT_EQ(type.code(), Code::unsupported);

  const Status many = kernels_.select_nonzero(default_stream(), DType::f32, values_.data(),
                                              (std::size_t{1} << 32) + 1, to(), work_.data());
  EXPECT_EQ(many.code(), Code::invalid_argument);
  EXPECT_NE(many.message().find("64 bits"), std::string::npos) << many.message();

  const auto merge = [&](DType of, const void* indices, std::size_t dimension, Op op = Op::sum) {
    const Room room{to().indices, to().values, to().capacity, to().wide};
    return kernels_.merge(default_stream(), of, op, {{indices, values_.data(), 5}}, {}, dimension,
                          std::span(&room, 1), {to().count, count_.as<std::uint64_t>()}, work_.data());
  };
  EXPECT_TRUE(merge(DType::f32, indices_.data(), 5).ok());
  EXPECT_EQ(merge(DType::f32, indices_.as<char>() + 2, 5).code(), Code::unsupported);
  EXPECT_EQ(merge(DType::i8, indices_.data(), 5).code(), Code::unsupported);
  const Status prod = merge(DType::f32, indices_.data(), 5, Op::prod);
  EXPECT_EQ(prod.code(), Code::unsupported);
  EXPECT_NE(prod.message().find("by prod; there are sum, min and max"), std::string::npos) << prod.message();
  const Status narrow = merge(DType::f32, indices_.data(), (std::size_t{1} << 32) + 1);
  EXPECT_EQ(narrow.code(), Code::invalid_argument);
  EXPECT_NE(narrow.message().find("64 bits"), std::string::npos) << narrow.message();

  const Status nan = kernels_.select_magnitudes(default_stream(), values_.as<float>(), 5, std::stof("nan"),
                                                to(), work_.data());
  EXPECT_EQ(nan.code(), Code::invalid_argument);
}

TEST_F(SparseKernelTest, SaysWhatNoEncoderWrote) {
  const std::vector<std::uint8_t> good[] = {{0, 0, 0x80, 0x3F, 0, 0, 0, 0x40, 0x05},
                                            {0, 0, 0x80, 0x3F, 0x90, 0x02},
                                            {0, 0, 0x80, 0x3F, 0x0E, 0xE0, 0x0E},
                                            {0, 0, 0x80, 0x3F, 0, 1, 127, 254, 254}};
  // Of five values, behind their scale (of signs: the first one); alone, and among two other vectors.
  const auto is_bad = [&](unsigned bits, std::uint32_t scale, const std::vector<std::uint8_t>& bytes,
                          std::size_t values = 5) {
    std::vector<std::uint8_t> codes(4);
    std::memcpy(codes.data(), &scale, sizeof scale);
    codes.insert(codes.end(), bytes.begin(), bytes.end());
    const std::vector<std::uint8_t>& other = good[std::countr_zero(bits)];
    taken_.put(codes.data(), codes.size());
    indices_.put(other.data(), other.size());
    const void* const all[] = {taken_.data(), indices_.data(), taken_.data(), indices_.data()};
    bool said[2] = {false, false};
    for (const std::size_t others : {0U, 1U}) {
      const std::uint64_t none = 0;
      count_.put(&none, sizeof none);
      EXPECT_TRUE(kernels_
                      .dequantise(default_stream(), {bits, 1024, 0}, std::span(all + others, 1 + 2 * others),
                                  values, values_.as<float>(), count_.as<std::uint64_t>())
                      .ok());
      said[others] = count() != 0;
    }
    EXPECT_EQ(said[0], said[1]);
    return said[0];
  };
  constexpr std::uint32_t kOne = 0x3F800000U;
  EXPECT_FALSE(is_bad(8, kOne, {0, 1, 127, 254, 254}));
  EXPECT_TRUE(is_bad(8, kOne, {0, 1, 127, 255, 254}));
  EXPECT_TRUE(is_bad(8, kOne, {0, 1, 127, 254, 255}));
  EXPECT_TRUE(is_bad(8, kOne, {255, 0, 127, 254, 254}));
  EXPECT_TRUE(is_bad(8, kOne, {254, 255, 128, 253, 254}));
  EXPECT_TRUE(is_bad(8, kOne, {254, 0, 255, 0, 254}));
  EXPECT_FALSE(is_bad(4, kOne, {0x0E, 0xE0, 0x0E}));
  EXPECT_TRUE(is_bad(4, kOne, {0x0F, 0x00, 0x0E}));
  EXPECT_TRUE(is_bad(4, kOne, {0xFE, 0xEE, 0x0E}));
  EXPECT_TRUE(is_bad(4, kOne, {0x0E, 0xF0, 0x0E}));
  EXPECT_TRUE(is_bad(4, kOne, {0x0E, 0xE0, 0x1E}));  // behind the last code
  EXPECT_FALSE(is_bad(2, kOne, {0x90, 0x02}));
  EXPECT_TRUE(is_bad(2, kOne, {0x93, 0x02}));
  EXPECT_TRUE(is_bad(2, kOne, {0x90, 0x06}));
  EXPECT_FALSE(is_bad(2, 0x7FC00000U, {0x55, 0x01}));  // the mark of what is not finite
  EXPECT_TRUE(is_bad(2, 0x7F800000U, {0x55, 0x01}));
  EXPECT_TRUE(is_bad(2, 0xBF800000U, {0x55, 0x01}));
  // Of whole groups alone.
  EXPECT_FALSE(is_bad(8, kOne, {0, 1, 126, 254}, 4));
  EXPECT_TRUE(is_bad(8, 0x7F800000U, {0, 1, 126, 254}, 4));
  EXPECT_TRUE(is_bad(8, 0x80000000U, {0, 1, 126, 254}, 4));
  EXPECT_TRUE(is_bad(8, 0xFFFFFFFFU, {0, 1, 126, 254}, 4));
  EXPECT_TRUE(is_bad(2, 0x80000000U, {0x55, 0x01}));
  EXPECT_TRUE(is_bad(2, 0xFFFFFFFFU, {0x55, 0x01}));
  EXPECT_FALSE(is_bad(1, kOne, {0, 0, 0, 0x40, 0x1F}));
  EXPECT_TRUE(is_bad(1, kOne, {0, 0, 0, 0x40, 0x3F}));
  EXPECT_FALSE(is_bad(1, kOne, {0, 0, 0, 0x40, 0x07}, 3));
  EXPECT_TRUE(is_bad(1, kOne, {0, 0, 0, 0x40, 0x10}, 3));
  EXPECT_TRUE(is_bad(1, kOne, {0, 0, 0, 0x40, 0x10}, 4));
  EXPECT_FALSE(is_bad(1, kOne, {0, 0, 0, 0x40, 0xFF}, 8));
  EXPECT_TRUE(is_bad(1, 0x7F800000U, {0, 0, 0, 0x40, 0xFF}, 8));
  EXPECT_TRUE(is_bad(1, kOne, {0, 0, 0x80, 0xBF, 0}, 8));
  EXPECT_TRUE(is_bad(1, kOne, {0, 0, 0x80, 0xBF, 0}));
  EXPECT_TRUE(is_bad(1, 0xBF800000U, {0, 0, 0, 0x40, 0}));
  EXPECT_FALSE(is_bad(1, 0x7FC00000U, {0, 0, 0xC0, 0x7F, 0}));
  EXPECT_TRUE(is_bad(1, kOne, {0, 0, 0xC0, 0x7F, 0}));  // one of the two is marked
  EXPECT_TRUE(is_bad(1, 0x7FC00000U, {0, 0, 0, 0x40, 0}));
  const auto refused = [&](unsigned bits, std::size_t vectors, const char* why) {
    const std::vector<const void*> all(vectors, taken_.data());
    const Status status = kernels_.dequantise(default_stream(), {bits, 1024, 0}, all, 5, values_.as<float>(),
                                              count_.as<std::uint64_t>());
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
  };
  refused(3, 1, "codes of 3 bits");
  refused(8, 0, "codes of 0 vectors");
  refused(8, 65, "of 1 to 64");
}

TEST_F(SparseKernelTest, WhatCudaSaysComesBackWithAWayOut) {
  cuda->fail("cuLibraryLoadData", CUDA_ERROR_NO_BINARY_FOR_GPU);
  const Status none = select(kernels_, to());
  EXPECT_EQ(none.code(), Code::unsupported);
  EXPECT_NE(none.message().find("loading the kernels for sparse vectors"), std::string::npos)
      << none.message();
  EXPECT_NE(none.message().find("-Dgpu_archs"), std::string::npos) << none.message();
  EXPECT_TRUE(select(kernels_, to()).ok());
  cuda->fail("cuLaunchKernel", CUDA_ERROR_ILLEGAL_ADDRESS);
  const Status broken = select(kernels_, to());
  EXPECT_EQ(broken.code(), Code::system);
  EXPECT_NE(broken.message().find("heddle_select_32_i32: CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos)
      << broken.message();
  cuda->fail("cuMemsetD8Async", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(kernels_.prepare(default_stream(), work_.data()).code(), Code::out_of_memory);
  // Nothing is left on its way when the kernels go.
  EXPECT_EQ(count(), kCount);
}

// ---- A link's

TEST(SparseLink, HasAllKernelsLoadedAndGrowsByHalf) {
  Gpu gpu;
  ASSERT_TRUE(gpu.present());
  const TestMemory memory(*cuda, Memory::device, 64);
  const Result<Place> place = gpu.place(memory.data());
  ASSERT_TRUE(place.ok());
  const Result<std::unique_ptr<Link>> link = make_link(gpu, place.value());
  ASSERT_TRUE(link.ok()) << link.status().message();
  for (const int known : {0, 1}) {
    const int loads = cuda->calls("cuFuncLoad");
    const Result<std::unique_ptr<SparseLink>> sparse = make_sparse_link(*link.value());
    ASSERT_TRUE(sparse.ok()) << sparse.status().message();
    EXPECT_EQ(cuda->calls("cuFuncLoad") - loads > 50, known == 0);
    const int so_far = cuda->calls("cuMemAlloc");
    for (std::size_t bytes = 1000; bytes <= 300'000; bytes += 1000)
      ASSERT_TRUE(sparse.value()->piece(0, bytes).ok());
    EXPECT_LE(cuda->calls("cuMemAlloc") - so_far, 20);
    // Where there is no room for more than is wanted, that will do.
    ASSERT_TRUE(sparse.value()->piece(0, 1'000'000).ok());
    cuda->fail("cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_TRUE(sparse.value()->piece(0, 1'000'001).ok());
    EXPECT_TRUE(link.value()->wait().ok());
  }
}

}  // namespace
}  // namespace heddle::gpu

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  heddle::gpu::cuda_path = argv[1];
  static const heddle::test::TestDriver driver(argv[1]);
  heddle::gpu::cuda = &driver;
  return RUN_ALL_TESTS();
}
