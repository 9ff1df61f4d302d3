// Sparse and compressed sums of the C API where memory runs out on one rank: as heddle_sparse.h says, either
// the communicator has failed, and the others hear of it, or all of them do not have their sum. Nobody waits.
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "heddle/heddle.h"
#include "heddle/heddle_compress.h"
#include "heddle/heddle_sparse.h"
#include "ranks.hpp"
#include "sparse_vectors.hpp"
#include "support/failing_allocations.hpp"

namespace {

using heddle::testing_ranks::on_ranks;
using heddle::testing_ranks::Vector;

constexpr std::size_t kDimension = 4000;
constexpr long kMost = 20;  // allocations: those before the first message, and some more

struct Vectors {
  Vectors() : out_indices(kDimension), values(kDimension, 1), sum(kDimension) {}
  heddle_sparse in() { return entries.view(kDimension); }
  heddle_sparse out() {
    heddle_sparse out = {};
    out.capacity = kDimension;
    out.indices = out_indices.data();
    out.values = sum.data();
    return out;
  }
  Vector entries{{3, 1000}, {1, 1}};
  std::vector<std::uint64_t> out_indices;
  std::vector<float> values;
  std::vector<float> sum;
};

struct Call {
  const char* name;
  std::function<heddle_status(Vectors&, heddle_comm_t)> make;
};

const std::vector<Call> kCalls = {
    {"heddle_sparse_allreduce",
     [](Vectors& v, heddle_comm_t comm) {
       const heddle_sparse in = v.in();
       heddle_sparse out = v.out();
       return heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm);
     }},
    {"heddle_sparse_allreduce_dense",
     [](Vectors& v, heddle_comm_t comm) {
       const heddle_sparse in = v.in();
       return heddle_sparse_allreduce_dense(&in, v.sum.data(), HEDDLE_SUM, comm);
     }},
    {"heddle_sparse_allreduce_in_place",
     [](Vectors& v, heddle_comm_t comm) {
       return heddle_sparse_allreduce_in_place(v.values.data(), kDimension, HEDDLE_FLOAT32, comm);
     }},
    {"heddle_sparse_allreduce_coded",
     [](Vectors& v, heddle_comm_t comm) {
       const heddle_sparse in = v.in();
       return heddle_sparse_allreduce_coded(&in, v.sum.data(), "fp16", 1, nullptr, comm);
     }},
    {"heddle_compressed_allreduce",
     [](Vectors& v, heddle_comm_t comm) {
       return heddle_compressed_allreduce(v.values.data(), v.sum.data(), kDimension, "topk:0.01", 1, nullptr,
                                          comm);
     }},
};

// Whether so many allocations were made.
bool fails_at(const Call& call, long number) {
  bool reached = false;
  std::array<int, 2> failed{};
  std::barrier through(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    Vectors vectors;
    if (rank == 1) heddle::test::allocations_left = number;
    const heddle_status status = call.make(vectors, comm);
    if (rank == 1) {
      reached = heddle::test::allocations_left < 0;
      heddle::test::allocations_left = -1;
    }
    if (status != HEDDLE_OK) {
      const heddle_status expected = rank == 1 ? HEDDLE_ERR_MEMORY : HEDDLE_ERR_PEER;
      EXPECT_EQ(status, expected) << "rank " << rank << ": " << heddle_last_error();
    }
    EXPECT_EQ(heddle_comm_failed(comm, &failed[static_cast<std::size_t>(rank)]), HEDDLE_OK);
    // Nobody hears of the failure by the communicator's end.
    through.arrive_and_wait();
  });
  EXPECT_EQ(failed[0], failed[1]);
  return reached;
}

TEST(MemoryThatRunsOut, LeavesNobodyWaiting) {
  ASSERT_EQ(::setenv("HEDDLE_TIMEOUT", "3", 1), 0);
  ASSERT_EQ(::setenv("HEDDLE_MEASURE", "0", 1), 0);
  for (const Call& call : kCalls) {
    for (long number = 0; number < kMost; ++number) {
      SCOPED_TRACE(std::string(call.name) + ", allocation " + std::to_string(number));
      if (!fails_at(call, number) || HasFailure()) break;
    }
  }
  ::unsetenv("HEDDLE_MEASURE");
  ::unsetenv("HEDDLE_TIMEOUT");
}

}  // namespace
