// What the programs that look at memory by the double of CUDA's driver begin with.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "cuda_memory.hpp"
#include "gpu/gpu.hpp"

namespace heddle::gpu {

using test::Memory;
using test::TestDriver;
using test::TestMemory;

inline const TestDriver* driver = nullptr;  // main() says which

inline int calls(const char* name) {
  return driver->find<int (*)(const char*)>("fake_cuda_calls")(name);
}
inline void fail(const char* name, CUresult error, int times = 1) {
  driver->find<void (*)(const char*, int, int)>("fake_cuda_fail")(name, error, times);
}
inline int registered() {
  return driver->find<int (*)()>("fake_cuda_registered")();
}

inline std::vector<std::uint32_t> numbers(std::size_t count) {
  std::vector<std::uint32_t> all(count);
  std::iota(all.begin(), all.end(), 7U);
  return all;
}

inline bool says(const Status& status, const char* text) {
  return status.message().find(text) != std::string::npos;
}

class GpuTest : public ::testing::Test {
 protected:
  GpuTest() { EXPECT_TRUE(gpu_.present()); }
  Gpu gpu_;
};

inline Kind expected(Memory memory) {
  static constexpr Kind kKinds[] = {Kind::host,    Kind::pinned, Kind::device,
                                    Kind::managed, Kind::pool,   Kind::vmm};
  return kKinds[static_cast<int>(memory)];
}

}  // namespace heddle::gpu
