// What the tests of ranks that are threads of one process share (node_test.cpp): the driver, and how the
// ranks count what the GPUs did.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <cstddef>
#include <random>
#include <vector>

#include "cuda_memory.hpp"
#include "heddle/heddle.h"

#define OK(call) ASSERT_EQ(call, HEDDLE_OK) << heddle_last_error()

namespace heddle::test {

// The double; set before the tests.
extern const TestDriver* driver;

inline int calls(const char* name) {
  return driver->find<int (*)(const char*)>("fake_cuda_calls")(name);
}
inline std::size_t bytes(const char* name) {
  return driver->find<std::size_t (*)(const char*)>("fake_cuda_bytes")(name);
}

// All memory that a device has, in its primary context.
inline constexpr Memory kOnDevice[] = {Memory::device, Memory::managed, Memory::pool, Memory::mapped};
inline Memory kind_of(int rank, int shift) {
  return kOnDevice[static_cast<std::size_t>(rank + shift) % 4];
}

// What a rank sums, which all know: one in four is 0.
inline std::vector<float> gradient(std::size_t n, int rank, int step) {
  std::mt19937 random(static_cast<unsigned>(n) + 77U * static_cast<unsigned>(rank) +
                      1000U * static_cast<unsigned>(step));
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values)
    value = random() % 4 == 0 ? 0 : normal(random);
  return values;
}

// A rank of a test: its communicator, and how all of them count what the GPUs did.
class Node {
 public:
  explicit Node(int ranks) : ranks_(ranks), barrier_(ranks) {}
  int ranks() const { return ranks_; }
  // What `call`, which all ranks make, adds to the number of the driver's calls of `name`; and to the bytes
  // that they copy.
  template <typename Call>
  int counted(const char* name, const Call& call) {
    return added([name] { return calls(name); }, call);
  }
  template <typename Call>
  std::size_t copied(const char* name, const Call& call) {
    return added([name] { return bytes(name); }, call);
  }
  // Calls until the GPUs serve them: how many it took, or -1.
  int begin(heddle_comm_t comm, void* buffer, int most = 40) {
    for (int i = 1; i <= most; ++i) {
      const int kernels = counted("cuLaunchKernel", [&] {
        OK(heddle_allreduce(HEDDLE_IN_PLACE, buffer, 1, HEDDLE_INT32, HEDDLE_SUM, comm));
      });
      if (kernels > 0) return i;
    }
    return -1;
  }

 private:
  template <typename Count, typename Call>
  auto added(const Count& count, const Call& call) {
    barrier_.arrive_and_wait();
    const auto before = count();
    barrier_.arrive_and_wait();
    call();
    barrier_.arrive_and_wait();
    const auto after = count();
    barrier_.arrive_and_wait();
    return after - before;
  }

  const int ranks_;
  std::barrier<> barrier_;
};

}  // namespace heddle::test
