// What tests of collectives in CUDA graphs share: streams, graphs and words of the double of CUDA's driver,
// for ranks that are threads.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "../api/ranks.hpp"
#include "cuda_memory.hpp"
#include "cuda_streams.hpp"
#include "heddle/heddle_cuda.h"

namespace heddle::test::graphs {

inline const TestDriver* driver = nullptr;  // set by main()

#define OK(call) ASSERT_EQ(call, HEDDLE_OK) << heddle_last_error()
#define CAPTURED(graph) ASSERT_EQ(static_cast<int>((graph).end()), 0)

struct Stream : TestStream {
  explicit Stream(int device) : TestStream(*driver, device) {}
};
struct Graph : TestGraph {
  explicit Graph(const Stream& stream) : TestGraph(*driver, stream) { begin(); }
};
struct Words : TestWords {
  Words(int device, std::size_t count, std::int32_t value) : TestWords(*driver, device, count, value) {}
};

inline heddle_status sum(heddle_comm_t comm, const Stream& stream, const void* in, void* out,
                         std::size_t count) {
  return heddle_allreduce_on_stream(in, out, count, HEDDLE_INT32, HEDDLE_SUM, comm, stream.get());
}

// The first call, which no capture may make.
inline void set_up(heddle_comm_t comm, int device) {
  const Stream stream(device);
  const Words words(device, 1, 1);
  OK(sum(comm, stream, HEDDLE_IN_PLACE, words.at(), 1));
  stream.wait();
}

}  // namespace heddle::test::graphs
