// Images of buffers on a GPU, and what goes wrong with them, as a plain program: device_check LIBCUDA. The
// tests on the double (gpu_test.cpp) look closer; this one runs on CUDA's driver as well, where there is
// little more than a compiler.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "cuda_memory.hpp"
#include "gpu/gpu.hpp"
#include "gpu/survey.hpp"

namespace heddle::test {
namespace {

int wrong = 0;

void expect(bool right, const std::string& what) {
  if (right) return;
  std::printf("  wrong: %s\n", what.c_str());
  ++wrong;
}

gpu::Kind kind_of(Memory memory) {
  static constexpr gpu::Kind kKinds[] = {gpu::Kind::host,    gpu::Kind::pinned, gpu::Kind::device,
                                         gpu::Kind::managed, gpu::Kind::pool,   gpu::Kind::vmm};
  return kKinds[static_cast<int>(memory)];
}

// There and back, at odd places: through pinned memory, through pieces of it, and through none.
void check_images(const TestDriver& cuda, gpu::Gpu& gpu, Memory kind, std::size_t count) {
  const std::string what = std::string(memory_name(kind)) + " memory, " + std::to_string(count) + " numbers";
  std::vector<std::uint32_t> in(count + 2);
  std::iota(in.begin(), in.end(), 7U);
  const TestMemory memory(cuda, kind, in.size() * 4);
  memory.put(in.data(), in.size() * 4);
  const Result<gpu::Place> place = gpu.place(memory.data());
  expect(place.ok() && place->kind == kind_of(kind), what + ": its kind");
  Result<gpu::Image> image = gpu.image(memory.as<std::uint32_t>() + 1, count * 4);
  expect(image.ok() && image->load().ok(), what + ": an image of it");
  if (!image.ok()) return;
  auto* const host = static_cast<std::uint32_t*>(image->host());
  for (std::size_t i = 0; i < count; ++i) {
    if (host[i] != in[i + 1]) return expect(false, what + ": what the image has");
    host[i] = in[i + 1] = ~in[i + 1];
  }
  expect(image->store().ok(), what + ": storing the image");
  std::vector<std::uint32_t> out(in.size());
  memory.get(out.data(), out.size() * 4);
  expect(out == in, what + ": what was stored");
}

void check_lost(const TestDriver& cuda, gpu::Gpu& gpu) {
  TestMemory memory(cuda, Memory::device, std::size_t{64} << 20);
  expect(gpu.place(memory.data()).ok(), "memory that is there");
  Result<gpu::Image> beyond = gpu.image(memory.data(), (std::size_t{64} << 20) + 4096);
  expect(!beyond.ok() || !beyond->load().ok(), "a buffer that is longer than its allocation");
  void* const address = memory.data();
  memory.free();
  const Result<gpu::Place> place = gpu.place(address);
  expect(!place.ok() && place.status().code() == Code::invalid_argument, "memory that was freed");
  if (!place.ok()) std::printf("freed memory: %s\n", place.status().message().c_str());
}

// The child has no CUDA: host memory goes on, and the message says what is the matter with the rest.
void check_fork(const TestDriver& cuda, gpu::Gpu& gpu) {
  const TestMemory memory(cuda, Memory::device, 4096);
  expect(gpu.place(memory.data()).ok(), "memory before a fork");
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const int on_stack = 0;
    const bool host = gpu.place(&on_stack).ok();
    const Result<gpu::Place> place = gpu.place(memory.data());
    const bool told = !place.ok() && place.status().message().find("fork") != std::string::npos;
    if (!place.ok()) std::printf("after a fork: %s\n", place.status().message().c_str());
    std::fflush(stdout);
    _exit((host ? 0 : 1) + (told ? 0 : 2));
  }
  int status = 0;
  expect(waitpid(child, &status, 0) == child && WIFEXITED(status), "a forked process ends by itself");
  expect(WEXITSTATUS(status) % 2 == 0, "host memory after a fork");
  expect(WEXITSTATUS(status) / 2 == 0, "what is said of device memory after a fork");
  expect(gpu.place(memory.data()).ok(), "device memory in the process that forked");
}

int run(const char* path) {
  gpu::Gpu whole;
  gpu::Gpu little({true, std::size_t{3} << 20});
  gpu::Gpu none({true, 0});
  const TestDriver cuda(path);
  const Result<gpu::Survey> survey = gpu::survey();
  if (survey.ok() && !survey->devices.empty())
    std::printf("images of buffers on %s, driver %d\n", survey->devices[0].name.c_str(), survey->driver);
  for (gpu::Gpu* gpu : {&whole, &little, &none}) {
    expect(gpu->present(), "the process has CUDA");
    for (const Memory kind : kMemories) {
      for (const std::size_t count :
           {std::size_t{1}, std::size_t{1000}, std::size_t{262'145}, std::size_t{1'900'000}})
        check_images(cuda, *gpu, kind, count);
    }
  }
  check_lost(cuda, whole);
  check_fork(cuda, whole);
  std::printf("images, freed memory, fork: %s\n", wrong == 0 ? "all right" : "WRONG");
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  return argc < 2 ? 2 : heddle::test::run(argv[1]);
}
