// Images of buffers, and the pinned memory for them.
#include <cstring>

#include "gpu_fixture.hpp"

namespace heddle::gpu {
namespace {

TEST_F(GpuTest, ImagesOfEveryKindAndSize) {
  // The largest images do not fit, but the pieces do through which they are copied.
  const Settings little{true, std::size_t{3} << 20};
  Gpu small(little);
  Gpu none(Settings{true, 0});
  ASSERT_TRUE(small.present() && none.present());
  for (Gpu* gpu : {&gpu_, &small, &none}) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{262'144},
                                    std::size_t{262'145}, std::size_t{1'900'000}}) {
      for (const Memory kind : test::kMemories) {
        const std::vector<std::uint32_t> in = numbers(count);
        const TestMemory memory(*driver, kind, count * 4);
        memory.put(in.data(), count * 4);
        Result<Image> image = gpu->image(memory.data(), count * 4);
        ASSERT_TRUE(image.ok()) << image.status().message();
        EXPECT_EQ(image->beside(), needs_image(expected(kind)));
        ASSERT_TRUE(image->load().ok());
        auto* const host = static_cast<std::uint32_t*>(image->host());
        ASSERT_TRUE(std::equal(in.begin(), in.end(), host)) << memory_name(kind) << " " << count;
        for (std::size_t i = 0; i < count; ++i)
          host[i] = ~host[i];
        ASSERT_TRUE(image->store().ok());
        std::vector<std::uint32_t> out(count);
        memory.get(out.data(), count * 4);
        for (std::size_t i = 0; i < count; ++i)
          ASSERT_EQ(out[i], ~in[i]) << memory_name(kind) << " " << i << " of " << count;
      }
    }
  }
}

// Not at the beginning of the allocation, and nothing beside the buffer changes.
TEST_F(GpuTest, ImagesOfParts) {
  for (const Memory kind : {Memory::device, Memory::managed, Memory::mapped}) {
    const TestMemory memory(*driver, kind, std::size_t{5} << 20);
    std::string before(std::size_t{5} << 20, 'b');
    memory.put(before.data(), before.size());
    constexpr std::size_t kAt = (std::size_t{2} << 20) - 33;
    constexpr std::size_t kBytes = (std::size_t{2} << 20) + 77;  // over three mappings
    Result<Image> image = gpu_.image(memory.as<char>() + kAt, kBytes);
    ASSERT_TRUE(image->load().ok());
    EXPECT_EQ(std::count(static_cast<char*>(image->host()), static_cast<char*>(image->host()) + kBytes, 'b'),
              kBytes);
    std::memset(image->host(), 'n', kBytes);
    ASSERT_TRUE(image->store().ok());
    std::fill_n(before.begin() + kAt, kBytes, 'n');
    std::string after(before.size(), ' ');
    memory.get(after.data(), after.size());
    EXPECT_TRUE(after == before) << memory_name(kind);
  }
}

// The rest is what somebody else has put there meanwhile.
TEST_F(GpuTest, PartsOfImagesAreStored) {
  constexpr std::size_t kBytes = 40;
  const gpu::Rows rows[] = {{0, 4, 4, 1}, {7, 2, 5, 3}, {26, 2, 9, 2}};
  for (const Memory kind : {Memory::device, Memory::managed, Memory::mapped}) {
    const TestMemory memory(*driver, kind, kBytes);
    Result<Image> image = gpu_.image(memory.data(), kBytes);
    std::string expected(kBytes, 'm');
    memory.put(expected.data(), kBytes);
    std::memset(image->host(), 'n', kBytes);
    for (const gpu::Rows& each : rows) {
      for (std::size_t row = 0; row < each.height; ++row)
        expected.replace(each.begin + row * each.pitch, each.width, each.width, 'n');
    }
    const int copies = calls("cuMemcpy2DAsync");
    ASSERT_TRUE(image->store_rows(rows).ok());
    EXPECT_EQ(calls("cuMemcpy2DAsync"), copies + 2);
    std::string after(kBytes, ' ');
    memory.get(after.data(), kBytes);
    EXPECT_EQ(after, expected) << memory_name(kind);
    ASSERT_TRUE(image->store_front(7).ok());
    memory.get(after.data(), kBytes);
    EXPECT_EQ(after, expected.replace(0, 7, 7, 'n')) << memory_name(kind);
  }
}

TEST_F(GpuTest, ComesAfterWorkOnTheDefaultStream) {
  const auto later = driver->find<void (*)(void*, const void*, std::size_t)>("fake_cuda_write_later");
  for (const Memory kind : {Memory::device, Memory::managed, Memory::pool, Memory::mapped}) {
    const TestMemory memory(*driver, kind, 8);
    memory.put("before!", 8);
    later(memory.data(), "kernel!", 8);
    Result<Image> image = gpu_.image(memory.data(), 8);
    ASSERT_TRUE(image->load().ok());
    EXPECT_STREQ(static_cast<char*>(image->host()), "kernel!") << memory_name(kind);
    later(memory.data(), "kernel2", 8);
    std::memcpy(image->host(), "result!", 8);
    ASSERT_TRUE(image->store().ok());
    char out[8];
    memory.get(out, 8);
    EXPECT_STREQ(out, "result!") << memory_name(kind);
  }
}

TEST_F(GpuTest, PinnedMemoryIsKeptAndBounded) {
  const int before = registered();
  {
    Gpu gpu(Settings{true, std::size_t{4} << 20});
    ASSERT_TRUE(gpu.present());
    const TestMemory memory(*driver, Memory::device, std::size_t{16} << 20);
    const int pinned = calls("cuMemHostRegister");
    for (int i = 0; i < 10; ++i)
      EXPECT_TRUE(gpu.image(memory.data(), 1 << 20)->load().ok());
    EXPECT_EQ(calls("cuMemHostRegister"), pinned + 1) << "pinned again for the same size";
    std::vector<Image> open;
    for (int i = 0; i < 10; ++i) {
      Result<Image> image = gpu.image(memory.data(), 1 << 20);
      ASSERT_TRUE(image.ok());
      open.push_back(std::move(image).value());
    }
    EXPECT_EQ(registered(), before + 4);
    // Another size makes room for itself.
    open.clear();
    EXPECT_TRUE(gpu.image(memory.data(), std::size_t{4} << 20)->load().ok());
    EXPECT_EQ(registered(), before + 1);
    EXPECT_TRUE(gpu.image(memory.data(), std::size_t{16} << 20)->load().ok());
  }
  EXPECT_EQ(registered(), before);
}

// Who asks whether there is CUDA may do so before anybody has read the settings.
TEST_F(GpuTest, ABoundThatComesLateCounts) {
  Gpu gpu;
  ASSERT_TRUE(gpu.present());
  gpu.configure(Settings{true, 0});
  const TestMemory memory(*driver, Memory::device, 100);
  const int pinned = calls("cuMemHostRegister");
  EXPECT_TRUE(gpu.image(memory.data(), 100)->load().ok());
  EXPECT_EQ(calls("cuMemHostRegister"), pinned);
}

TEST_F(GpuTest, ImagesWithoutPinnedMemory) {
  Gpu gpu;
  ASSERT_TRUE(gpu.present());
  constexpr std::size_t kBytes = std::size_t{3} << 20;
  const TestMemory memory(*driver, Memory::device, kBytes);
  const std::string in(kBytes, 'x');
  memory.put(in.data(), kBytes);
  fail("cuMemHostRegister", CUDA_ERROR_OUT_OF_MEMORY, 100);
  Result<Image> image = gpu.image(memory.data(), kBytes);
  ASSERT_TRUE(image.ok()) << image.status().message();
  ASSERT_TRUE(image->load().ok());
  EXPECT_EQ(std::memcmp(image->host(), in.data(), kBytes), 0);
  EXPECT_TRUE(image->store().ok());
  fail("cuMemHostRegister", CUDA_SUCCESS, 0);
}

}  // namespace
}  // namespace heddle::gpu
