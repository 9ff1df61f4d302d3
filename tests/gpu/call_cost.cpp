// What it costs to ask whether buffers may lie on a GPU, and where: run by hand, with the path of a driver.
// On the double it tells heddle's share alone, which is the difference to the driver's own answer.
#include <chrono>
#include <cstdio>
#include <iterator>

#include "cuda_memory.hpp"
#include "gpu/gpu.hpp"

namespace {

using namespace heddle;

template <typename Call>
double nanoseconds(int calls, const Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) {
    if (call()) std::puts("");
    asm volatile("" ::: "memory");
  }
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
  return time.count() / calls;
}

}  // namespace

int main(int argc, char** argv) {
  gpu::Gpu gpu;
  constexpr int kMany = 50'000'000;
  std::printf("a loop of nothing             %8.2f ns\n", nanoseconds(kMany, [] { return false; }));
  std::printf("in a process without CUDA     %8.2f ns\n", nanoseconds(kMany, [&] { return gpu.present(); }));
  if (argc < 2) return 0;
  const test::TestDriver driver(argv[1]);
  if (!gpu.present()) return 1;
  const auto attributes = driver.find<PFN_cuPointerGetAttributes_v7000>("cuPointerGetAttributes");
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                 CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_IS_MANAGED};
  unsigned long long answers[std::size(names)] = {};
  void* values[] = {&answers[0], &answers[1], &answers[2], &answers[3], &answers[4]};
  for (const test::Memory kind : test::kMemories) {
    const test::TestMemory memory(driver, kind, 4096);
    const auto at = reinterpret_cast<CUdeviceptr>(memory.data());
    const double all =
        nanoseconds(300'000, [&] { return gpu.present() && gpu.place(memory.data())->device > 9; });
    const double drivers =
        nanoseconds(300'000, [&] { return attributes(std::size(names), names, values, at) != CUDA_SUCCESS; });
    std::printf("%-8s memory that is known %8.2f ns, of which the driver's answer takes %.2f\n",
                memory_name(kind), all, drivers);
  }
  return 0;
}
