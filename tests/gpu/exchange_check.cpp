// Exchanges of short vectors by kernels that wait for each other, as a plain program: exchange_check LIBCUDA
// [--short]. On one GPU, where a stream stands for each rank: kernels of a few blocks run there at the same
// time, as those of several GPUs do. What is received is looked at byte by byte; on a GPU it also says how
// long an exchange takes there. Through a GPU's own memory, not over a bus.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "cuda_streams.hpp"
#include "gpu/exchange.hpp"
#include "loaded_driver.hpp"

namespace heddle::test {
namespace {

using Clock = std::chrono::steady_clock;
using gpu::ExchangeLayout;

constexpr std::size_t kMost = 65'536;

void stop(const Status& status) {
  if (status.ok()) return;
  std::printf("  wrong: %s\n", status.message().c_str());
  std::exit(1);
}

// What a rank has: as much as a link would have.
struct Rank {
  Rank(const TestDriver& cuda, const gpu::Driver& driver, gpu::ExchangeKernel& kernel,
       const ExchangeLayout& layout)
      : stream(cuda, 0),
        area(cuda, Memory::device, layout.bytes()),
        in(cuda, Memory::device, kMost + 1),
        out(cuda, Memory::device, kMost + 1),
        exchange(driver, kernel) {}
  TestStream stream;
  TestMemory area;
  TestMemory in;
  TestMemory out;
  gpu::Exchange exchange;
};

class Node {
 public:
  Node(const TestDriver& cuda, const gpu::Driver& driver, gpu::ExchangeKernel& kernel, gpu::PinnedPool& pool,
       int size) {
    const ExchangeLayout layout = ExchangeLayout::of(std::size_t{64} << 20, size, kMost);
    std::vector<CUdeviceptr> areas;
    for (int r = 0; r < size; ++r) {
      ranks_.push_back(std::make_unique<Rank>(cuda, driver, kernel, layout));
      areas.push_back(reinterpret_cast<CUdeviceptr>(ranks_.back()->area.data()));
    }
    for (int r = 0; r < size; ++r)
      stop(at(r).exchange.open(layout, areas, r, std::chrono::seconds(10), pool, cuda.primary(0),
                               at(r).stream.get()));
  }
  bool gather(std::size_t bytes, std::size_t shift);
  bool bcast(std::size_t bytes, int root);
  double microseconds(std::size_t bytes, int calls);

 private:
  Rank& at(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(ranks_.size()); }
  std::vector<char> bytes_of(int rank, std::size_t bytes) const {
    std::vector<char> all(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      all[i] = static_cast<char>(static_cast<std::size_t>(calls_) * 13 + static_cast<std::size_t>(rank) * 59 +
                                 i * 7 + i / 256);
    return all;
  }
  void wait() {
    for (int r = 0; r < size(); ++r) {
      at(r).stream.wait();
      stop(at(r).exchange.state());
    }
  }

  std::vector<std::unique_ptr<Rank>> ranks_;
  int calls_ = 0;
};

bool Node::gather(std::size_t bytes, std::size_t shift) {
  ++calls_;
  for (int r = 0; r < size(); ++r)
    at(r).in.put(bytes_of(r, bytes).data(), bytes, shift);
  for (int r = 0; r < size(); ++r)
    stop(at(r).exchange.gather(at(r).stream.get(), at(r).in.as<char>() + shift, bytes, false));
  wait();
  bool right = true;
  for (int reader = 0; reader < size(); ++reader) {
    const auto begin = at(reader).area.as<std::byte>();
    for (int sender = 0; sender < size(); ++sender) {
      std::vector<char> got(bytes);
      const auto offset = static_cast<std::size_t>(at(reader).exchange.gathered(sender) - begin);
      at(reader).area.get(got.data(), bytes, offset);
      if (sender != reader) right &= got == bytes_of(sender, bytes);
    }
  }
  if (!right) std::printf("  wrong: %zu bytes of %d ranks\n", bytes, size());
  return right;
}

bool Node::bcast(std::size_t bytes, int root) {
  ++calls_;
  at(root).out.put(bytes_of(root, bytes).data(), bytes);
  for (int r = 0; r < size(); ++r)
    stop(at(r).exchange.bcast(at(r).stream.get(), at(r).out.data(), bytes, root, false));
  wait();
  bool right = true;
  for (int r = 0; r < size(); ++r) {
    std::vector<char> got(bytes);
    at(r).out.get(got.data(), bytes);
    right &= got == bytes_of(root, bytes);
  }
  if (!right) std::printf("  wrong: a bcast of %zu bytes among %d ranks\n", bytes, size());
  return right;
}

double Node::microseconds(std::size_t bytes, int calls) {
  const auto begin = Clock::now();
  for (int call = 0; call < calls; ++call) {
    for (int r = 0; r < size(); ++r)
      stop(at(r).exchange.gather(at(r).stream.get(), at(r).in.data(), bytes, false));
  }
  wait();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls;
}

int run(const char* path, bool is_short) {
  const TestDriver cuda(path);
  const gpu::Driver driver = loaded_driver(path);
  cuda.set_current(cuda.primary(0));
  gpu::ExchangeKernel kernel(driver);
  gpu::PinnedPool pool(driver, std::size_t{1} << 20);
  bool right = true;
  for (const int size : {2, 3, 8}) {
    Node node(cuda, driver, kernel, pool, size);
    for (int round = 0; round < (is_short ? 3 : 100); ++round) {
      for (const std::size_t bytes : {std::size_t{1}, std::size_t{8}, std::size_t{4'097}, kMost}) {
        right &= node.gather(bytes, static_cast<std::size_t>(round) % 2);
        right &= node.bcast(bytes, round % size);
      }
    }
    if (is_short) continue;
    for (const std::size_t bytes : {std::size_t{8}, kMost})
      std::printf("  %d streams exchange %zu bytes each in %.1f us\n", size, bytes,
                  node.microseconds(bytes, 200));
  }
  std::printf("exchanges: %s\n", right ? "right" : "WRONG");
  return right ? 0 : 1;
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  const bool is_short = argc == 3 && argv[2] == std::string("--short");
  if (argc != 2 && !is_short) {
    std::fprintf(stderr, "usage: %s LIBCUDA [--short]\n", argv[0]);
    return 2;
  }
  // Each of the streams wants one of the GPU's queues to itself, whatever the environment says: behind
  // another one that waits for it nobody comes to it.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  return heddle::test::run(argv[1], is_short);
}
