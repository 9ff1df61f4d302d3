// What MPI programs with buffers in memory of any kind have in common.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "../preload/job.hpp"
#include "cuda_memory.hpp"

namespace gpu_job {

using heddle::test::Memory;
using heddle::test::TestDriver;
using heddle::test::TestMemory;

inline constexpr unsigned char kGuard = 0x5a;
inline constexpr std::size_t kBeside = 64;  // bytes before and after a buffer that must stay as they are

// A buffer in memory of some kind, with guards.
class Buffer {
 public:
  Buffer(const TestDriver& driver, Memory kind, std::size_t bytes, int device)
      : memory_(driver, kind, bytes + 2 * kBeside, device), bytes_(bytes) {
    const std::vector<unsigned char> guards(bytes + 2 * kBeside, kGuard);
    memory_.put(guards.data(), guards.size());
  }
  void* at(std::ptrdiff_t offset = 0) const { return memory_.as<char>() + kBeside + offset; }
  void set(const std::vector<unsigned char>& to) const {
    if (!to.empty()) memory_.put(to.data(), to.size(), kBeside);
  }
  std::vector<unsigned char> value() const {
    std::vector<unsigned char> all(bytes_ + 2 * kBeside);
    memory_.get(all.data(), all.size());
    const auto untouched = [](unsigned char c) { return c == kGuard; };
    if (!std::all_of(all.begin(), all.begin() + kBeside, untouched) ||
        !std::all_of(all.end() - kBeside, all.end(), untouched))
      job::fail("memory beside the buffer has changed");
    return {all.begin() + kBeside, all.end() - kBeside};
  }

 private:
  TestMemory memory_;
  std::size_t bytes_;
};

struct Job {
  const TestDriver& driver;
  job::Random random;  // the same on all ranks

  // Another kind on every rank; which, changes from call to call.
  Memory kind(int rank) {
    return heddle::test::kMemories[(random.next() % 6 + static_cast<std::size_t>(rank)) % 6];
  }
};

inline void expect(const char* what, int rc, int wanted) {
  int error_class = MPI_SUCCESS;
  PMPI_Error_class(rc, &error_class);
  if (error_class != wanted) job::fail("%s: class %d instead of %d", what, error_class, wanted);
}

}  // namespace gpu_job
