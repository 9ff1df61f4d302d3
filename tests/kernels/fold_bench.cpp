// Bandwidth of the kernels against memcpy, in cache and in memory. Not a test: it prints a table and judges
// nothing.
//
//   fold_bench [milliseconds per figure]
//
// Figures are GB/s of bytes read plus bytes written by the program (n + 1 buffers for n inputs, n + 2 with a
// second output, 2 for memcpy), so that the columns compare. Sizes are per buffer.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/kernels/kernels.hpp"

namespace heddle::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Case {
  const char* name;
  DType type;
  unsigned n_inputs;
  bool second_output;
};

class Buffers {
 public:
  // `offset` bytes off a cache line each.
  Buffers(std::size_t bytes, std::size_t offset) {
    for (auto& memory : memory_) {
      // Starts that differ in their distance from a page boundary, as those of separate allocations do.
      const std::size_t stagger = (pointers_.size() * 5 + 1) * 64;
      memory.reset(static_cast<char*>(std::aligned_alloc(4096, (bytes + 8192) / 4096 * 4096)));
      std::memset(memory.get(), 0, bytes + 64);
      pointers_.push_back(memory.get() + (bytes + stagger + 64 < (bytes + 8192) / 4096 * 4096 ? stagger : 0) +
                          offset);
    }
  }
  char* operator[](std::size_t k) const { return pointers_[k]; }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  std::unique_ptr<char, Free> memory_[6];
  std::vector<char*> pointers_;
};

// Best time of one call in nanoseconds: the least of many batches, each long enough for the clock.
template <class Call>
double best_ns(Call call, double budget_ms) {
  call();
  std::size_t batch = 1;
  double best = 1e300;
  const auto start = Clock::now();
  do {
    const auto before = Clock::now();
    for (std::size_t i = 0; i < batch; ++i)
      call();
    const double elapsed = std::chrono::duration<double, std::nano>(Clock::now() - before).count();
    best = std::min(best, elapsed / static_cast<double>(batch));
    if (elapsed < 20'000) batch *= 2;
  } while (std::chrono::duration<double, std::milli>(Clock::now() - start).count() < budget_ms);
  return best;
}

double fold_gbs(const Case& c, const Buffers& buffers, std::size_t bytes, double budget_ms) {
  const FoldFn kernel = fold_kernel(c.type, Op::sum);
  const void* inputs[4];
  for (unsigned k = 0; k < c.n_inputs; ++k)
    inputs[k] = buffers[k];
  char* out2 = c.second_output ? buffers[5] : nullptr;
  const std::size_t count = bytes / dtype_size(c.type);
  const double ns = best_ns([&] { kernel(buffers[4], out2, inputs, c.n_inputs, count); }, budget_ms);
  return static_cast<double>(bytes) * (c.n_inputs + 1 + (c.second_output ? 1 : 0)) / ns;
}

void print_bandwidths(double budget_ms) {
  const Case cases[] = {
      {"f32, 2 inputs", DType::f32, 2, false},   {"f32, 2 inputs, 2 outputs", DType::f32, 2, true},
      {"f32, 4 inputs", DType::f32, 4, false},   {"f64, 2 inputs", DType::f64, 2, false},
      {"f64, 4 inputs", DType::f64, 4, false},   {"i32, 2 inputs", DType::i32, 2, false},
      {"i32, 4 inputs", DType::i32, 4, false},   {"bf16, 2 inputs", DType::bf16, 2, false},
      {"bf16, 4 inputs", DType::bf16, 4, false}, {"f16, 2 inputs", DType::f16, 2, false},
      {"e4m3, 2 inputs", DType::e4m3, 2, false}, {"e4m3, 4 inputs", DType::e4m3, 4, false},
      {"e5m2, 2 inputs", DType::e5m2, 2, false}, {"e5m2, 4 inputs", DType::e5m2, 4, false},
      {"f80, 2 inputs", DType::f80, 2, false},
  };
  struct Size {
    const char* name;
    std::size_t bytes;
    std::size_t offset;
  };
  const Size sizes[] = {{"8 Ki", 8 << 10, 0},        {"8 Ki +16", 8 << 10, 16}, {"32 Ki", 32 << 10, 0},
                        {"32 Ki +16", 32 << 10, 16}, {"512 Ki", 512 << 10, 0},  {"64 Mi", 64 << 20, 0}};
  std::printf("%-26s", "GB/s, sum");
  for (const Size& size : sizes)
    std::printf("%11s", size.name);
  std::printf("\n%-26s", "memcpy");
  for (const Size& size : sizes) {
    const Buffers buffers(size.bytes, size.offset);
    const double ns = best_ns([&] { std::memcpy(buffers[4], buffers[0], size.bytes); }, budget_ms);
    std::printf("%11.1f", 2.0 * static_cast<double>(size.bytes) / ns);
    std::fflush(stdout);
  }
  std::printf("\n");
  for (const Case& c : cases) {
    std::printf("%-26s", c.name);
    for (const Size& size : sizes) {
      const Buffers buffers(size.bytes, size.offset);
      std::printf("%11.1f", fold_gbs(c, buffers, size.bytes, budget_ms));
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

void print_small(double budget_ms) {
  std::printf("\n%-26s", "ns per call, elements");
  const std::size_t counts[] = {1, 2, 3, 4, 7, 8, 16, 31, 64, 256};
  for (const std::size_t count : counts)
    std::printf("%7zu", count);
  std::printf("\n");
  const Buffers buffers(8192, 0);
  const Case cases[] = {
      {"f32, 2 inputs", DType::f32, 2, false},   {"f32, 2 inputs, 2 outputs", DType::f32, 2, true},
      {"f32, 4 inputs", DType::f32, 4, false},   {"i8, 2 inputs", DType::i8, 2, false},
      {"bf16, 2 inputs", DType::bf16, 2, false}, {"e4m3, 2 inputs", DType::e4m3, 2, false}};
  for (const Case& c : cases) {
    std::printf("%-26s", c.name);
    for (const std::size_t count : counts) {
      const double gbs = fold_gbs(c, buffers, count * dtype_size(c.type), budget_ms / 4);
      std::printf("%7.1f", static_cast<double>(count * dtype_size(c.type)) *
                               (c.n_inputs + 1 + (c.second_output ? 1 : 0)) / gbs);
    }
    std::printf("\n");
  }
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) {
  const double budget_ms = argc > 1 ? std::atof(argv[1]) : 100;
  if (budget_ms <= 0) {
    std::fprintf(stderr, "fold_bench: \"%s\" is not a positive number of milliseconds\n", argv[1]);
    return 2;
  }
  std::printf("kernels for %s\n", heddle::fold_target());
  heddle::bench::print_bandwidths(budget_ms);
  heddle::bench::print_small(budget_ms);
  return 0;
}
