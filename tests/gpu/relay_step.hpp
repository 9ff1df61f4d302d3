// What a program does around collectives on streams over several nodes, for stream_relay_test.cpp.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda_streams.hpp"
#include "heddle/heddle_cuda.h"
#include "node_ranks_of_threads.hpp"

namespace heddle::test::relay {

// Elements of 32 bits in a piece, with HEDDLE_PINNED_BYTES=1M.
inline constexpr std::size_t kPiece = (std::size_t{256} << 10) / 4;

struct Stream : TestStream {
  explicit Stream(int device) : TestStream(*driver, device) {}
};

inline std::vector<std::int32_t> values(std::size_t count, int rank, int step) {
  std::vector<std::int32_t> all(count);
  for (std::size_t i = 0; i < count; ++i)
    all[i] = static_cast<std::int32_t>(i % 1009) * (rank + 1) + 7 * step;
  return all;
}
inline std::vector<std::int32_t> sum_of(std::size_t count, int ranks, int step) {
  std::vector<std::int32_t> all(count);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<std::int32_t> one = values(count, rank, step);
    for (std::size_t i = 0; i < count; ++i)
      all[i] += one[i];
  }
  return all;
}

// A program's step on one rank: work that makes the input, a collective, and work that takes the result and
// then overwrites both.
class Step {
 public:
  Step(int rank, int device, std::size_t count, int step, Memory kind = Memory::device)
      : stream(device),
        count_(count),
        rank_(rank),
        step_(step),
        made_(*driver, Memory::device, bytes(), device),
        spoiled_(*driver, Memory::device, bytes(), device),
        in_(*driver, kind, bytes(), device),
        out_(*driver, kind, bytes(), device),
        taken_(*driver, Memory::device, bytes(), device) {
    made_.put(values(count, rank, step).data(), bytes());
  }
  void allreduce(heddle_comm_t comm, bool in_place) const {
    void* const to = in_place ? in_.data() : out_.data();
    stream.copy(in_.data(), made_.data(), bytes());
    OK(heddle_allreduce_on_stream(in_place ? HEDDLE_IN_PLACE : in_.data(), to, count_, HEDDLE_INT32,
                                  HEDDLE_SUM, comm, stream.get()));
    take(to);
  }
  void bcast(heddle_comm_t comm, int root) const {
    stream.copy(in_.data(), made_.data(), bytes());
    OK(heddle_bcast_on_stream(in_.data(), bytes(), root, comm, stream.get()));
    take(in_.data());
  }
  // After stream.wait().
  std::vector<std::int32_t> taken() const {
    std::vector<std::int32_t> all(count_);
    taken_.get(all.data(), bytes());
    return all;
  }
  void check_sum(int ranks) const {
    EXPECT_EQ(taken(), sum_of(count_, ranks, step_)) << "rank " << rank_ << ", " << count_ << " elements";
  }
  void check_bcast(int root) const {
    EXPECT_EQ(taken(), values(count_, root, step_)) << "rank " << rank_ << ", " << count_ << " elements";
  }
  std::size_t bytes() const { return count_ * sizeof(std::int32_t); }

  const Stream stream;

 private:
  void take(const void* result) const {
    stream.copy(taken_.data(), result, bytes());
    stream.copy(in_.data(), spoiled_.data(), bytes());
    stream.copy(out_.data(), spoiled_.data(), bytes());
  }

  const std::size_t count_;
  const int rank_;
  const int step_;
  const TestMemory made_;
  const TestMemory spoiled_;
  const TestMemory in_;
  const TestMemory out_;
  const TestMemory taken_;
};

}  // namespace heddle::test::relay
