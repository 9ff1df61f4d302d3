// Kinds of memory, images, and what goes wrong with them, on the double of CUDA's driver (its path is the argument).
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "cuda_memory.hpp"
#include "gpu/gpu.hpp"
#include "gpu/readable.hpp"
#include "gpu/survey.hpp"

namespace heddle::gpu {
namespace {

using test::Memory;
using test::TestDriver;
using test::TestMemory;

const TestDriver* driver = nullptr;

int calls(const char* name) {
  return driver->find<int (*)(const char*)>("fake_cuda_calls")(name);
}
void fail(const char* name, CUresult error, int times = 1) {
  driver->find<void (*)(const char*, int, int)>("fake_cuda_fail")(name, error, times);
}
int registered() {
  return driver->find<int (*)()>("fake_cuda_registered")();
}

std::vector<std::uint32_t> numbers(std::size_t count) {
  std::vector<std::uint32_t> all(count);
  std::iota(all.begin(), all.end(), 7U);
  return all;
}

bool says(const Status& status, const char* text) {
  return status.message().find(text) != std::string::npos;
}

class GpuTest : public ::testing::Test {
 protected:
  GpuTest() { EXPECT_TRUE(gpu_.present()); }
  Gpu gpu_;
};

Kind expected(Memory memory) {
  static constexpr Kind kKinds[] = {Kind::host,    Kind::pinned, Kind::device,
                                    Kind::managed, Kind::pool,   Kind::vmm};
  return kKinds[static_cast<int>(memory)];
}

TEST_F(GpuTest, TellsKindsAndDevices) {
  for (int device = 0; device < 2; ++device) {
    for (const Memory kind : test::kMemories) {
      const TestMemory memory(*driver, kind, 5000, device);
      for (const std::size_t at : {0, 4999}) {
        const Result<Place> place = gpu_.place(memory.as<char>() + at);
        ASSERT_TRUE(place.ok()) << place.status().message();
        EXPECT_EQ(place->kind, expected(kind)) << memory_name(kind);
        if (needs_image(place->kind)) {
          EXPECT_EQ(place->device, device);
        }
      }
    }
  }
  int on_stack = 0;
  static const int constant = 1;
  EXPECT_EQ(gpu_.place(&on_stack)->kind, Kind::host);
  EXPECT_EQ(gpu_.place(&constant)->kind, Kind::host);
}

TEST_F(GpuTest, AsksOnceAboutWhatItKnows) {
  for (const Memory kind : test::kMemories) {
    const TestMemory memory(*driver, kind, 100);
    (void)gpu_.place(memory.data());
    const int asked = calls("cuPointerGetAttributes");
    const int retained = calls("cuMemRetainAllocationHandle");
    EXPECT_EQ(gpu_.place(memory.data())->kind, expected(kind));
    EXPECT_EQ(calls("cuPointerGetAttributes"), asked + 1) << memory_name(kind);
    EXPECT_EQ(calls("cuMemRetainAllocationHandle"), retained) << memory_name(kind);
  }
}

// The address comes back as memory of another kind and device.
TEST_F(GpuTest, NewMemoryAtAnOldAddressIsNew) {
  const Memory kinds[] = {Memory::device, Memory::managed, Memory::pool, Memory::device};
  void* last = nullptr;
  int met_again = 0;
  for (int i = 0; i < 64; ++i) {
    const Memory kind = kinds[i % 4];
    const int device = i / 2 % 2;
    const TestMemory memory(*driver, kind, 4096, device);
    met_again += memory.data() == last ? 1 : 0;
    last = memory.data();
    const Result<Place> place = gpu_.place(memory.data());
    EXPECT_EQ(place->kind, expected(kind));
    EXPECT_EQ(place->device, device);
  }
  EXPECT_GT(met_again, 10) << "the double does not use addresses again: nothing was tested";
}

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

TEST_F(GpuTest, LeavesTheCurrentContextAlone) {
  CUcontext mine = driver->primary(1);
  for (CUcontext current : {static_cast<CUcontext>(nullptr), mine}) {
    for (const Memory kind : test::kMemories) {
      const TestMemory memory(*driver, kind, 100, 0);
      driver->set_current(current);
      Result<Image> image = gpu_.image(memory.data(), 100);
      ASSERT_TRUE(image.ok()) << image.status().message();
      EXPECT_TRUE(image->load().ok());
      EXPECT_TRUE(image->store().ok());
      EXPECT_TRUE(gpu_.write(memory.data(), "text", 4).ok());
      EXPECT_EQ(driver->current(), current);
    }
  }
  driver->set_current(nullptr);
  // Also where something fails.
  const TestMemory memory(*driver, Memory::device, 100, 0);
  Result<Image> image = gpu_.image(memory.data(), 100);
  driver->set_current(mine);
  fail("cuMemcpyDtoHAsync", CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_FALSE(image->load().ok());
  EXPECT_EQ(driver->current(), mine);
  driver->set_current(nullptr);
}

TEST_F(GpuTest, ThreadsWithoutAContext) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 50; ++i) {
        const TestMemory memory(*driver, i % 2 == 0 ? Memory::device : Memory::pool, 40'000, t % 2);
        const std::vector<std::uint32_t> in = numbers(10'000);
        memory.put(in.data(), 40'000);
        Result<Image> image = gpu_.image(memory.data(), 40'000);
        ASSERT_TRUE(image->load().ok());
        ASSERT_TRUE(std::equal(in.begin(), in.end(), static_cast<std::uint32_t*>(image->host())));
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
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

TEST_F(GpuTest, FreedMemoryIsAnError) {
  for (const Memory kind : {Memory::device, Memory::pool, Memory::mapped}) {
    TestMemory memory(*driver, kind, 100);
    EXPECT_TRUE(gpu_.place(memory.data()).ok());
    void* const address = memory.lose();
    const Result<Image> image = gpu_.image(address, 100);
    ASSERT_FALSE(image.ok()) << memory_name(kind);
    EXPECT_EQ(image.status().code(), Code::invalid_argument);
    EXPECT_TRUE(says(image.status(), "freed")) << image.status().message();
  }
}

TEST_F(GpuTest, DestroyedContextIsAnError) {
  CUcontext context = nullptr;
  driver->call<PFN_cuCtxCreate_v3020>("cuCtxCreate_v2", &context, 0U, 0);
  driver->set_current(nullptr);
  Gpu gpu;
  ASSERT_TRUE(gpu.present());
  TestMemory memory(*driver, Memory::device, 100, 0, context);
  Result<Image> open = gpu.image(memory.data(), 100);
  ASSERT_TRUE(open.ok());
  ASSERT_TRUE(open->load().ok());
  driver->call<PFN_cuCtxDestroy_v4000>("cuCtxDestroy_v2", context);
  EXPECT_FALSE(open->load().ok());
  EXPECT_FALSE(open->store().ok());
  std::memset(open->host(), 1, 100);  // is still there
  const Result<Image> image = gpu.image(memory.data(), 100);
  EXPECT_FALSE(image.ok());
  // The piece that was pinned in that context serves others.
  open = Image();
  const TestMemory other(*driver, Memory::device, 100, 0);
  Result<Image> next = gpu.image(other.data(), 100);
  ASSERT_TRUE(next.ok());
  EXPECT_TRUE(next->load().ok());
  memory.forget();
}

TEST_F(GpuTest, CopyThatFailsSaysWhat) {
  const TestMemory memory(*driver, Memory::device, 100, 1);
  Result<Image> image = gpu_.image(memory.data(), 100);
  fail("cuMemcpyHtoDAsync", CUDA_ERROR_ILLEGAL_ADDRESS);
  const Status status = image->store();
  EXPECT_EQ(status.code(), Code::system);
  for (const char* part : {"100 bytes", "to device memory of GPU 1", "CUDA_ERROR_ILLEGAL_ADDRESS (700"})
    EXPECT_TRUE(says(status, part)) << status.message();
}

// Before anything is read or sent, and whatever the driver would make of it.
TEST_F(GpuTest, LongerThanItsAllocationIsAnError) {
  for (const Memory kind : {Memory::device, Memory::managed, Memory::pool}) {
    const TestMemory memory(*driver, kind, 100, 1);
    EXPECT_TRUE(gpu_.image(memory.as<char>() + 10, 90).ok());
    for (const std::size_t bytes : {std::size_t{91}, std::size_t{200}, SIZE_MAX - 5}) {
      const Status longer = gpu_.image(memory.as<char>() + 10, bytes).status();
      EXPECT_EQ(longer.code(), Code::invalid_argument) << memory_name(kind);
      EXPECT_TRUE(says(longer, "ends 90 bytes further on")) << longer.message();
      EXPECT_EQ(gpu_.write(memory.as<char>() + 10, memory.data(), bytes).code(), Code::invalid_argument);
    }
  }
}

TEST_F(GpuTest, ForkedProcessIsTold) {
  const TestMemory memory(*driver, Memory::device, 100);
  std::vector<int> plain(10);
  EXPECT_TRUE(gpu_.place(memory.data()).ok());
  const pid_t child = fork();
  if (child == 0) {
    const Result<Image> image = gpu_.image(memory.data(), 100);
    const bool told = !image.ok() && says(image.status(), "by executing a program");
    const Result<Image> host = gpu_.image(plain.data(), 40);
    _exit(told && host.ok() && host->host() == plain.data() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// While there is a forked process that has it too, what either writes first gets other pages: those that the GPU knows would be the other one's. (Not by each kernel; those before 5.12.)
TEST_F(GpuTest, ForkedProcessHasNoPinnedMemory) {
  for (const std::size_t bytes : {std::size_t{100}, std::size_t{3} << 20}) {
    const TestMemory memory(*driver, Memory::device, bytes);
    const Result<Image> image = gpu_.image(memory.data(), bytes);
    ASSERT_TRUE(image.ok() && image->beside());
    std::memset(image->host(), 1, bytes);
    const pid_t child = fork();
    if (child == 0) {
      const auto* const at = static_cast<const char*>(image->host());
      _exit(is_readable(at) || is_readable(at + bytes - 1) ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

// What it has in that place by now stays, when the pool ends there as well.
TEST(Gpu, ForkedProcessKeepsWhatIsItsOwn) {
  constexpr std::size_t kBytes = std::size_t{2} << 20;
  const TestMemory memory(*driver, Memory::device, kBytes);
  auto gpu = std::make_unique<Gpu>();
  ASSERT_TRUE(gpu->present());
  void* host = nullptr;
  {
    const Result<Image> image = gpu->image(memory.data(), kBytes);
    ASSERT_TRUE(image.ok());
    host = image->host();
  }
  const pid_t child = fork();
  if (child == 0) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (mmap(host, kBytes, PROT_READ | PROT_WRITE, flags, -1, 0) != host) _exit(2);
    gpu.reset();
    _exit(is_readable(host) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Gpu, SwitchedOffDoesNotLook) {
  Gpu off(Settings{false, 0});
  EXPECT_FALSE(off.present());
  Gpu later;
  later.configure(Settings{false, 0});
  EXPECT_FALSE(later.present());
}

TEST(Survey, NamesTheDevices) {
  const Result<Survey> found = survey();
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->driver, CUDA_VERSION);
  ASSERT_EQ(found->devices.size(), 2U);
  EXPECT_EQ(found->devices[1].name, "double of a GPU, number 1");
  EXPECT_EQ(found->devices[1].capability, 90);
}

}  // namespace
}  // namespace heddle::gpu

// LeakSanitizer's own process dies by signal 11 when it looks through this one at its end, which has had threads, a fork and memory that
// nobody may read. The other programs with the double are looked through.
extern "C" [[gnu::visibility("default")]] int
__lsan_is_turned_off() {  // NOLINT(bugprone-reserved-identifier)
  return 1;
}

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  static const heddle::test::TestDriver cuda(argv[1]);
  heddle::gpu::driver = &cuda;
  return RUN_ALL_TESTS();
}
