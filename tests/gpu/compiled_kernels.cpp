#include "compiled_kernels.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <iterator>
#include <string>

#include "gpu/kernels/arguments.hpp"

namespace heddle::test {
namespace {

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "kernels in PTX: %s\n", why.c_str());
  std::abort();
}

// From "FILE:FILE".
std::deque<ptx::Program> read_programs(std::string_view files) {
  std::deque<ptx::Program> programs;
  while (!files.empty()) {
    const std::string file(files.substr(0, files.find(':')));
    files.remove_prefix(std::min(file.size() + 1, files.size()));
    std::ifstream stream(file);
    if (!stream) die("FAKE_CUDA_PTX: " + file + " cannot be read");
    const std::string text(std::istreambuf_iterator<char>(stream), {});
    try {
      programs.emplace_back(text, file.substr(file.rfind('/') + 1));
    } catch (const ptx::Error& error) {
      die(error.what());
    }
  }
  return programs;
}

}  // namespace

CompiledKernel find_compiled(std::string_view name) {
  const char* files = std::getenv("FAKE_CUDA_PTX");
  if (files == nullptr) return {};
  static const std::deque<ptx::Program> programs = read_programs(files);
  for (const ptx::Program& program : programs) {
    if (const ptx::Kernel* kernel = program.find(name); kernel != nullptr) return {&program, kernel};
  }
  die("no file has " + std::string(name));
}

void run_compiled(const CompiledKernel& compiled, std::span<const std::byte> arguments,
                  const std::vector<ptx::Range>& memory, unsigned blocks) {
  static std::atomic<std::uint64_t> launches{0};
  thread_local std::vector<ptx::Block> running;
  const char* seed = std::getenv("FAKE_CUDA_PTX_SEED");
  const std::uint64_t drawn = launches++ + (seed != nullptr ? std::strtoull(seed, nullptr, 10) << 32U : 0);
  const ptx::Launch launch = {compiled.kernel, arguments, memory, blocks, gpu::kernels::kThreads};
  try {
    ptx::Machine(*compiled.program, launch, running, drawn).run();
  } catch (const ptx::Error& error) {
    die(error.what());
  }
}

}  // namespace heddle::test
