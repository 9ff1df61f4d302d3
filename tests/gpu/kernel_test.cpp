// Kernels for GPUs beside their bits (fold_check.cpp): how they are found and launched, on the double of
// CUDA's driver (its path is the argument), what is said where that fails, and their arithmetic on counts,
// halves and 8-bit floats.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "../kernels/reference.hpp"
#include "cuda_memory.hpp"
#include "fake_cuda.h"
#include "gpu/kernels.hpp"
#include "gpu/kernels/fold.hpp"
#include "gpu/kernels/layout.hpp"

namespace heddle::gpu {
namespace {

using test::Memory;
using test::TestDriver;
using test::TestMemory;

const TestDriver* cuda = nullptr;
const char* cuda_path = nullptr;

fake_cuda_launch last_launch() {
  fake_cuda_launch launch;
  cuda->find<void (*)(fake_cuda_launch*)>("fake_cuda_last_launch")(&launch);
  return launch;
}

class KernelTest : public ::testing::Test {
 protected:
  KernelTest() { cuda->set_current(cuda->primary(0)); }

  static constexpr std::size_t kCount = 100;
  // memory[i] := i; of kCount elements.
  static void set(const TestMemory& memory) {
    std::vector<std::uint32_t> values(kCount);
    std::iota(values.begin(), values.end(), 0U);
    memory.put(values.data(), kCount * 4);
  }
  static std::uint32_t last_of(const TestMemory& memory) {
    std::uint32_t value = 0;
    memory.get(&value, 4, (kCount - 1) * 4);
    return value;
  }
  Status add(Kernels& kernels, const TestMemory& memory, std::size_t n_inputs = 2,
             CUstream stream = default_stream(), std::size_t count = kCount) {
    const std::vector<const void*> inputs(n_inputs, memory.data());
    void* const outputs[] = {memory.data()};
    return kernels.fold(stream, DType::u32, Op::sum, inputs, outputs, count);
  }

  const Driver driver_ = load_driver(dlopen(cuda_path, RTLD_NOW)).value();
  Kernels kernels_{driver_};
};

TEST_F(KernelTest, GivesTheFoldToItsStream) {
  const TestMemory memory(*cuda, Memory::device, kCount * 4);
  set(memory);
  CUstream stream = nullptr;
  cuda->call<PFN_cuStreamCreate_v2000>("cuStreamCreate", &stream, 0U);
  ASSERT_TRUE(add(kernels_, memory, 3, stream).ok());
  const fake_cuda_launch launch = last_launch();
  EXPECT_STREQ(launch.kernel, "heddle_sum_u32");
  EXPECT_EQ(launch.stream, stream);
  EXPECT_EQ(launch.blocks, 1U);
  EXPECT_EQ(launch.threads, 256U);
  EXPECT_EQ(last_of(memory), 3 * (kCount - 1));
  cuda->call<PFN_cuStreamDestroy_v4000>("cuStreamDestroy_v2", stream);
}

TEST_F(KernelTest, LooksUpOnceForAllContextsAndDevices) {
  const int loads = cuda->calls("cuLibraryLoadData");
  const int lookups = cuda->calls("cuLibraryGetKernel");
  for (const int device : {0, 1, 0}) {
    CUcontext context = nullptr;
    cuda->call<PFN_cuCtxCreate_v3020>("cuCtxCreate_v2", &context, 0U, device);
    {
      const TestMemory memory(*cuda, Memory::device, kCount * 4, device, context);
      set(memory);
      ASSERT_TRUE(add(kernels_, memory).ok());
      EXPECT_EQ(last_of(memory), 2 * (kCount - 1));
    }
    cuda->call<PFN_cuCtxDestroy_v4000>("cuCtxDestroy_v2", context);
  }
  EXPECT_EQ(cuda->calls("cuLibraryLoadData"), loads + 1);
  EXPECT_EQ(cuda->calls("cuLibraryGetKernel"), lookups + 1);
}

TEST_F(KernelTest, UnloadsWhatItLoaded) {
  const int loads = cuda->calls("cuLibraryLoadData");
  const int unloads = cuda->calls("cuLibraryUnload");
  {
    Kernels kernels(driver_);
    const TestMemory memory(*cuda, Memory::device, kCount * 4);
    ASSERT_TRUE(add(kernels, memory).ok());
    ASSERT_TRUE(add(kernels, memory, 1).ok());
    cuda->call<PFN_cuStreamSynchronize_v2000>("cuStreamSynchronize", default_stream());
  }
  EXPECT_EQ(cuda->calls("cuLibraryLoadData"), loads + 2);
  EXPECT_EQ(cuda->calls("cuLibraryUnload"), unloads + 2);
}

TEST_F(KernelTest, StartsNothingForNoElements) {
  const TestMemory memory(*cuda, Memory::device, kCount * 4);
  const int launches = cuda->calls("cuLaunchKernel");
  EXPECT_TRUE(add(kernels_, memory, 2, default_stream(), 0).ok());
  EXPECT_EQ(cuda->calls("cuLaunchKernel"), launches);
}

TEST_F(KernelTest, AsManyInputsAndOutputsAsThereMayBe) {
  const TestMemory memory(*cuda, Memory::device, 64 * kCount * 4);
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  std::vector<std::uint32_t> values(64 * kCount);
  for (std::size_t k = 0; k < 64; ++k) {
    inputs.push_back(memory.as<std::uint32_t>() + k * kCount);
    outputs.push_back(memory.as<std::uint32_t>() + k * kCount);
    std::fill_n(&values[k * kCount], kCount, 1U << k % 32);
  }
  memory.put(values.data(), values.size() * 4);
  ASSERT_TRUE(kernels_.fold(default_stream(), DType::i32, Op::bor, inputs, outputs, kCount).ok());
  memory.get(values.data(), values.size() * 4);
  EXPECT_EQ(values, std::vector<std::uint32_t>(64 * kCount, 0xFFFFFFFFU));

  inputs.push_back(memory.data());
  const Status many = kernels_.fold(default_stream(), DType::i32, Op::bor, inputs, outputs, kCount);
  EXPECT_EQ(many.code(), Code::unsupported);
  EXPECT_NE(many.message().find("65 inputs"), std::string::npos) << many.message();
  EXPECT_EQ(kernels_.fold(default_stream(), DType::i32, Op::bor, {}, outputs, kCount).code(),
            Code::unsupported);
}

TEST_F(KernelTest, SaysWhatHasNoKernel) {
  const TestMemory memory(*cuda, Memory::device, kCount * 4);
  const void* inputs[] = {memory.data(), memory.data()};
  void* outputs[] = {memory.data()};
  const Status status = kernels_.fold(default_stream(), DType::f80, Op::sum, inputs, outputs, 1);
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_EQ(status.message(), "there is no kernel for sum of long_double on GPUs");
}

// Whatever step it is that finds no kernel for the GPU: the host can do it, and the message has a way out. A
// later call is not harmed.
TEST_F(KernelTest, AGpuThatKernelsWereNotBuiltFor) {
  const TestMemory memory(*cuda, Memory::device, kCount * 4);
  for (const char* step : {"cuLibraryLoadData", "cuLibraryGetKernel", "cuLaunchKernel"}) {
    for (const CUresult error : {CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_UNSUPPORTED_PTX_VERSION}) {
      Kernels kernels(driver_);
      cuda->fail(step, error);
      const Status status = add(kernels, memory);
      EXPECT_EQ(status.code(), Code::unsupported) << step;
      EXPECT_NE(status.message().find("CUDA_ERROR_"), std::string::npos) << status.message();
      EXPECT_NE(status.message().find("-Dgpu_archs"), std::string::npos) << status.message();
      EXPECT_TRUE(add(kernels, memory).ok()) << step;
      cuda->call<PFN_cuStreamSynchronize_v2000>("cuStreamSynchronize", default_stream());
    }
  }
}

// Into each context before anything is launched there; that is where the driver finds out what it has no code
// for.
TEST_F(KernelTest, LoadsBeforeTheFirstLaunch) {
  for (const int device : {0, 1}) {
    const TestMemory memory(*cuda, Memory::device, kCount * 4, device);
    cuda->set_current(cuda->primary(device));
    cuda->fail("cuKernelGetFunction", CUDA_ERROR_NO_BINARY_FOR_GPU);
    const Status status = kernels_.load(DType::u32, Op::sum);
    EXPECT_EQ(status.code(), Code::unsupported);
    EXPECT_NE(status.message().find("-Dgpu_archs"), std::string::npos) << status.message();
    ASSERT_TRUE(kernels_.load(DType::u32, Op::sum).ok());
    const int asked = cuda->calls("cuKernelGetFunction");
    const int late = cuda->calls("a load at a launch");
    ASSERT_TRUE(kernels_.load(DType::u32, Op::sum).ok());
    ASSERT_TRUE(add(kernels_, memory).ok());
    ASSERT_TRUE(add(kernels_, memory, 1).ok());
    cuda->call<PFN_cuStreamSynchronize_v2000>("cuStreamSynchronize", default_stream());
    EXPECT_EQ(cuda->calls("cuKernelGetFunction"), asked);
    EXPECT_EQ(cuda->calls("a load at a launch"), late);
  }
  cuda->set_current(cuda->primary(0));
}

// Also where threads with a GPU each ask by turns.
TEST_F(KernelTest, LoadsOnceIntoEachContext) {
  const int before = cuda->calls("cuFuncLoad");
  for (int call = 0; call < 100; ++call) {
    cuda->set_current(cuda->primary(call % 2));
    ASSERT_TRUE(kernels_.load(DType::u32, Op::sum).ok());
  }
  EXPECT_EQ(cuda->calls("cuFuncLoad") - before, 4);  // two kernels
  cuda->set_current(cuda->primary(0));
}

// A process loads those kernels that it uses.
TEST_F(KernelTest, WhatCannotBeLoadedIsNamed) {
  const TestMemory memory(*cuda, Memory::device, 64);
  struct Case {
    DType type;
    Op op;
    const char* name;
  };
  for (const Case& c :
       {Case{DType::f64, Op::max, "floating-point numbers"}, Case{DType::bf16, Op::sum, "numbers of 16 bits"},
        Case{DType::e5m2, Op::sum, "floats of 8 bits"}, Case{DType::i8, Op::sum, "integers"},
        Case{DType::i8, Op::lor, "bits"}}) {
    const void* inputs[] = {memory.data(), memory.data()};
    void* outputs[] = {memory.data()};
    Kernels kernels(driver_);
    cuda->fail("cuLibraryLoadData", CUDA_ERROR_OUT_OF_MEMORY);
    const Status status = kernels.fold(default_stream(), c.type, c.op, inputs, outputs, 8);
    EXPECT_EQ(status.message().find(std::string("loading the kernels for ") + c.name + ": "), 0U)
        << status.message();
  }
}

TEST_F(KernelTest, OtherErrorsAreCudas) {
  const TestMemory memory(*cuda, Memory::device, kCount * 4);
  cuda->fail("cuLaunchKernel", CUDA_ERROR_ILLEGAL_ADDRESS);
  const Status status = add(kernels_, memory);
  EXPECT_EQ(status.code(), Code::system);
  EXPECT_EQ(status.message(),
            "starting the kernel heddle_sum_u32: CUDA_ERROR_ILLEGAL_ADDRESS (700: so says the double)");
  cuda->fail("cuCtxGetDevice", CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_NE(add(kernels_, memory).message().find("needs a current context"), std::string::npos);
}

TEST_F(KernelTest, ADriverOfCuda11) {
  Driver old = driver_;
  old.LibraryLoadData = nullptr;
  Kernels kernels(old);
  const TestMemory memory(*cuda, Memory::device, kCount * 4);
  const Status status = add(kernels, memory);
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_NE(status.message().find("CUDA 12.0"), std::string::npos) << status.message();
}

// ---- Arithmetic

TEST(KernelLayout, VectorsWhereAddressesAreCongruent) {
  const auto lay = [](std::uintptr_t a, std::uintptr_t b, std::size_t bytes, std::size_t alignment) {
    const void* const inputs[] = {reinterpret_cast<const void*>(a), reinterpret_cast<const void*>(b)};
    void* const outputs[] = {reinterpret_cast<void*>(a)};
    return kernels::lay_out(inputs, outputs, 1000, bytes, alignment, 132).arguments;
  };
  EXPECT_EQ(lay(4096, 8192, 4, 4).vectors, 250U);
  EXPECT_EQ(lay(4100, 8196, 4, 4).head, 3U);
  EXPECT_EQ(lay(4100, 8196, 4, 4).vectors, 249U);
  EXPECT_EQ(lay(4100, 8200, 4, 4).vectors, 0U);     // apart
  EXPECT_EQ(lay(4100, 8200, 4, 4).by_element, 1U);  // but aligned
  EXPECT_EQ(lay(4097, 8193, 4, 4).vectors, 0U);     // no element begins at a boundary
  EXPECT_EQ(lay(4097, 8193, 4, 4).by_element, 0U);
  EXPECT_EQ(lay(4097, 8193, 1, 1).head, 15U);
  EXPECT_EQ(lay(4104, 8200, 16, 8).vectors, 0U);  // a complex number of two doubles across a boundary
  EXPECT_EQ(lay(4104, 8200, 16, 8).by_element, 1U);
}

TEST(KernelLayout, TilesAndBlocks) {
  const void* const inputs[] = {reinterpret_cast<const void*>(4096)};
  void* const outputs[] = {reinterpret_cast<void*>(8192)};
  const auto lay = [&](std::uint64_t vectors) {
    return kernels::lay_out(inputs, outputs, vectors * 16, 1, 1, 100);
  };
  EXPECT_EQ(lay(99'999).arguments.tiles, 0U);  // spread instead
  EXPECT_EQ(lay(99'999).blocks, 391U);
  EXPECT_EQ(lay(102'400).arguments.tiles, 100U);
  EXPECT_EQ(lay(102'400).blocks, 100U);
  EXPECT_EQ(lay(102'400 + 1000).blocks, 100U);
  EXPECT_EQ(lay(10'240'000).blocks, 1600U);
}

// The last tile of more than 4 GiB: nothing is counted in 32 bits. Memory that nobody touches is not there.
TEST(KernelLayout, MoreThanFourGibibytes) {
  const std::size_t bytes = (std::size_t{5} << 30) + 7;
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const buffer = static_cast<unsigned char*>(memory);
  std::memset(buffer + (std::size_t{5} << 30), 3, 7);
  std::memset(buffer + (std::size_t{5} << 30) - 16, 5, 16);
  const void* const inputs[] = {memory, memory};
  void* const outputs[] = {memory};
  const kernels::FoldArguments arguments = kernels::lay_out(inputs, outputs, bytes, 1, 1, 132).arguments;
  ASSERT_EQ(arguments.tiles, (std::uint64_t{5} << 30) / (16 * kernels::kTileVectors));
  // As many blocks as tiles. The very last thread has the end of the last tile, and the first few the single
  // elements.
  const auto run = [&](std::uint64_t block, unsigned index) {
    kernels::fold_share<kernels::Plain<std::uint8_t>, kernels::IntegerSum>(arguments,
                                                                           {block, arguments.tiles, index});
  };
  run(arguments.tiles - 1, kernels::kThreads - 1);
  run(0, 6);
  EXPECT_EQ(buffer[(std::size_t{5} << 30) - 1], 10);
  EXPECT_EQ(buffer[(std::size_t{5} << 30) - 16], 10);
  EXPECT_EQ(buffer[bytes - 1], 6);
  EXPECT_EQ(buffer[bytes - 2], 3);
  munmap(memory, bytes);
}

TEST(KernelHalves, EveryOneAndWhatLiesBetween) {
  using kernels::bits_as;
  using kernels::Half;
  for (unsigned i = 0; i < 65536; ++i) {
    const auto half = static_cast<std::uint16_t>(i);
    const float value = Half::decode(half);
    const bool nan = (i & 0x7FFFU) > 0x7C00U;
    ASSERT_EQ(kernels::is_nan(value), nan) << i;
    ASSERT_EQ(Half::encode(value), nan ? half | 0x0200U : half) << i;
    if (nan) continue;
    ASSERT_EQ(value, test::f16_to_float(half)) << i;
    // Halfway to the next one away from zero, and the floats beside that.
    const auto next = static_cast<std::uint16_t>(i + 1);
    if ((next & 0x7FFFU) > 0x7C00U || next == 0x8000U || next == 0) continue;
    const float far = (next & 0x7FFFU) == 0x7C00U ? std::copysign(65536.0F, value) : Half::decode(next);
    const auto middle = bits_as<std::uint32_t>((value + far) / 2);
    for (const std::uint32_t bits : {middle - 1, middle, middle + 1}) {
      ASSERT_EQ(Half::encode(bits_as<float>(bits)), test::float_to_f16(bits_as<float>(bits))) << bits;
    }
  }
}

// Each code, and between each two what is halfway and the floats beside that.
template <class Element>
void check_fp8(float (*to_float)(std::uint8_t), std::uint8_t (*from_float)(float), unsigned largest,
               unsigned quiet) {
  using kernels::bits_as;
  for (unsigned i = 0; i < 256; ++i) {
    const auto code = static_cast<std::uint8_t>(i);
    const float value = Element::decode(code);
    const bool nan = std::isnan(to_float(code));
    ASSERT_EQ(kernels::is_nan(value), nan) << i;
    ASSERT_EQ(std::signbit(value), i >= 128) << i;
    ASSERT_EQ(Element::encode(value), nan ? i | quiet : i);
    if (nan) continue;
    ASSERT_EQ(value, to_float(code)) << i;
    if ((i & 0x7FU) >= largest) continue;
    const float middle = (value + Element::decode(static_cast<std::uint8_t>(i + 1))) / 2;
    for (const std::uint32_t step : {0U, 1U, ~0U}) {
      const auto between = bits_as<float>(bits_as<std::uint32_t>(middle) + step);
      ASSERT_EQ(Element::encode(between), from_float(between)) << between;
    }
  }
  for (const float value : {0.0F, 0x1p-149F, 0x1p-126F, 464.0F, 465.0F, 480.0F, 61440.0F, 65536.0F,
                            0x1.FFFFFEp127F, std::numeric_limits<float>::infinity()}) {
    ASSERT_EQ(Element::encode(value), from_float(value)) << value;
    ASSERT_EQ(Element::encode(-value), from_float(-value)) << value;
  }
}

TEST(KernelFp8, EveryCodeAndWhatLiesBetween) {
  check_fp8<kernels::E4M3>(&test::e4m3_to_float, &test::float_to_e4m3, 0x7E, 0);
  check_fp8<kernels::E5M2>(&test::e5m2_to_float, &test::float_to_e5m2, 0x7B, 2);
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
