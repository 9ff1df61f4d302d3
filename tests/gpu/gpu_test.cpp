// Kinds of memory, images, and what goes wrong with them, on the double of CUDA's driver (its path is the
// argument).
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/link.hpp"
#include "gpu/readable.hpp"
#include "gpu/survey.hpp"
#include "gpu_fixture.hpp"

namespace heddle::gpu {
namespace {

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

// What was reserved is longer than what is mapped, and may have another device's memory in it.
TEST_F(GpuTest, LinksHoldWhatIsMapped) {
  constexpr std::size_t kPart = std::size_t{2} << 20;
  CUdeviceptr at = 0;
  driver->call<PFN_cuMemAddressReserve_v10020>("cuMemAddressReserve", &at, 5 * kPart, std::size_t{0},
                                               CUdeviceptr{0}, 0ULL);
  const auto map = [&](std::size_t part, int device) {
    CUmemAllocationProp what = {};
    what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    what.location.id = device;
    CUmemGenericAllocationHandle handle = 0;
    driver->call<PFN_cuMemCreate_v10020>("cuMemCreate", &handle, kPart, &what, 0ULL);
    driver->call<PFN_cuMemMap_v10020>("cuMemMap", at + part * kPart, kPart, std::size_t{0}, handle, 0ULL);
    driver->call<PFN_cuMemRelease_v10020>("cuMemRelease", handle);
  };
  map(0, 0);
  map(1, 0);
  map(3, 0);
  map(4, 1);
  const auto* const begin = reinterpret_cast<const std::byte*>(at);
  const Result<std::unique_ptr<Link>> link = make_link(gpu_, gpu_.place(begin).value());
  ASSERT_TRUE(link.ok()) << link.status().message();
  const auto holds = [&](std::size_t from, std::size_t bytes) {
    return link.value()->holds(begin + from, bytes);
  };
  EXPECT_TRUE(holds(0, 2 * kPart).value());
  EXPECT_TRUE(holds(kPart - 1, 2).value());
  EXPECT_TRUE(holds(3 * kPart, kPart).value());
  EXPECT_EQ(holds(0, 2 * kPart + 1).status().code(), Code::invalid_argument);
  EXPECT_EQ(holds(2 * kPart - 1, 4).status().code(), Code::invalid_argument);
  EXPECT_FALSE(holds(3 * kPart, kPart + 1).value());
  for (const std::size_t part : {0, 1, 3, 4})
    driver->call<PFN_cuMemUnmap_v10020>("cuMemUnmap", at + part * kPart, kPart);
}

// Others wait for what a link is given: that goes before what the program does beside it.
TEST_F(GpuTest, LinksHaveStreamsOfTheGreatestPriority) {
  const TestMemory memory(*driver, Memory::device, 64);
  const int before = calls("a stream of the greatest priority");
  ASSERT_TRUE(make_link(gpu_, gpu_.place(memory.data()).value()).ok());
  EXPECT_EQ(calls("a stream of the greatest priority"), before + 1);
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
  // The piece that was pinned in that context is in nobody's way.
  open = Image();
  const TestMemory other(*driver, Memory::device, 100, 0);
  Result<Image> next = gpu.image(other.data(), 100);
  ASSERT_TRUE(next.ok());
  EXPECT_TRUE(next->load().ok());
  memory.forget();
}

// Whoever asks the driver about a context that is gone asks for trouble, so that one which is used does not
// go.
TEST_F(GpuTest, APrimaryContextThatTheProgramLetsGoOfStays) {
  constexpr int kDevice = 1;
  // The driver is asked about the device: whether about the context would be the question.
  const auto is_there = [] {
    unsigned flags = 0;
    int active = 0;
    driver->call<PFN_cuDevicePrimaryCtxGetState_v7000>("cuDevicePrimaryCtxGetState", CUdevice{kDevice},
                                                       &flags, &active);
    return active != 0;
  };
  const auto let_go = [] {
    driver->call<PFN_cuDevicePrimaryCtxRelease_v11000>("cuDevicePrimaryCtxRelease_v2", CUdevice{kDevice});
  };
  (void)driver->primary(kDevice);
  // What other tests have kept of it.
  while (is_there())
    let_go();
  std::optional<Gpu> gpu(std::in_place);
  ASSERT_TRUE(gpu->present());
  {
    const TestMemory memory(*driver, Memory::device, 100, kDevice);
    Result<Image> image = gpu->image(memory.data(), 100);
    ASSERT_TRUE(image.ok() && image->load().ok());
  }
  let_go();
  EXPECT_TRUE(is_there());
  gpu.reset();
  EXPECT_FALSE(is_there());
}

// CUDA takes it for any memory by then, and may read it before its time.
TEST_F(GpuTest, WhatWasPinnedBeforeAContextWasResetIsPinnedAnew) {
  constexpr int kDevice = 1;
  const auto pinned_by_use = [&] {
    const int before = driver->calls("cuMemHostRegister");
    const TestMemory memory(*driver, Memory::device, 100, kDevice);
    Result<Image> image = gpu_.image(memory.data(), 100);
    EXPECT_TRUE(image.ok() && image->load().ok());
    return driver->calls("cuMemHostRegister") - before;
  };
  EXPECT_EQ(pinned_by_use(), 1);
  EXPECT_EQ(pinned_by_use(), 0);
  driver->set_current(nullptr);
  driver->call<PFN_cuDevicePrimaryCtxReset_v11000>("cuDevicePrimaryCtxReset_v2", CUdevice{kDevice});
  EXPECT_EQ(pinned_by_use(), 1);
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

// While there is a forked process that has it too, what either writes first gets other pages: those that the
// GPU knows would be the other one's. (Not by each kernel; those before 5.12.)
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

// As in a container that forbids it to ask for memory: in a process of its own, which keeps the filter until
// it ends.
bool forbid_process_vm_readv(unsigned error) {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program = {static_cast<unsigned short>(std::size(filter)), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(Readable, WhereTheKernelDoesNotSay) {
  const TestMemory memory(*driver, Memory::device, 100);
  const int plain = 7;
  EXPECT_TRUE(is_readable(&plain));
  EXPECT_FALSE(is_readable(memory.data()));
  for (const unsigned error : {EPERM, ENOSYS}) {
    const pid_t child = fork();
    if (child == 0) {
      if (!forbid_process_vm_readv(error)) _exit(77);
      errno = 5;
      const bool told = is_readable(&plain) && !is_readable(memory.data()) && !is_readable(nullptr);
      _exit(told && errno == 5 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no filters of system calls here";
    EXPECT_EQ(status, 0) << "after error " << error;
  }
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
  ASSERT_EQ(found->pairs.size(), 1U);
  EXPECT_EQ(found->pairs[0].second, 1);
  EXPECT_TRUE(found->pairs[0].reach);
  EXPECT_FALSE(found->pairs[0].atomics);
}

}  // namespace
}  // namespace heddle::gpu

// LeakSanitizer's own process dies by signal 11 when it looks through this one at its end, which has had
// threads, a fork and memory that nobody may read. The other programs with the double are looked through.
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
