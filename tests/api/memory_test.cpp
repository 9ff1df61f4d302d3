// Sparse and compressed sums of the C API where memory runs out on one rank: as heddle_sparse.h says, either
// the communicator has failed, and the others hear of it, or all of them do not have their sum. Nobody waits.
// And allgathers, of which heddle.h says that nothing has happened, and that the same call may be made again.
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

using Bytes = std::vector<char>;
using Gather = std::function<heddle_status(const Bytes& from, Bytes& to, heddle_comm_t comm)>;

enum class Outcome { enough, began_again, failed };

Outcome gathers_at(const Gather& gather, long number) {
  Outcome outcome = Outcome::enough;
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const Bytes from(1000, static_cast<char>('a' + rank));
    Bytes to(2000, '?');
    if (rank == 1) heddle::test::allocations_left = number;
    heddle_status status = gather(from, to, comm);
    if (rank == 1) heddle::test::allocations_left = -1;
    if (rank == 1 && status != HEDDLE_OK) {
      EXPECT_EQ(status, HEDDLE_ERR_MEMORY) << heddle_last_error();
      int failed = 0;
      ASSERT_EQ(heddle_comm_failed(comm, &failed), HEDDLE_OK);
      outcome = failed != 0 ? Outcome::failed : Outcome::began_again;
      if (failed != 0) return;
      EXPECT_EQ(to, Bytes(2000, '?')) << "it has not begun";
      status = gather(from, to, comm);
    }
    if (status == HEDDLE_ERR_PEER) return;  // where it had begun
    ASSERT_EQ(status, HEDDLE_OK) << "rank " << rank << ": " << heddle_last_error();
    Bytes expected(1000, 'a');
    expected.resize(2000, 'b');
    EXPECT_EQ(to, expected);
  });
  return outcome;
}

TEST(MemoryThatRunsOut, LeavesAnAllgatherToBeginAgain) {
  ASSERT_EQ(::setenv("HEDDLE_TIMEOUT", "3", 1), 0);
  ASSERT_EQ(::setenv("HEDDLE_MEASURE", "0", 1), 0);
  const Gather blocking = [](const Bytes& from, Bytes& to, heddle_comm_t comm) {
    return heddle_allgather(from.data(), to.data(), from.size(), comm);
  };
  const Gather requested = [](const Bytes& from, Bytes& to, heddle_comm_t comm) {
    heddle_request_t request = nullptr;
    const heddle_status made = heddle_iallgather(from.data(), to.data(), from.size(), comm, &request);
    return made == HEDDLE_OK ? heddle_wait(&request) : made;
  };
  for (const char* algorithm : {"allgather:team", "allgather:ring"}) {
    ASSERT_EQ(::setenv("HEDDLE_ALGORITHM", algorithm, 1), 0);
    for (const Gather& gather : {blocking, requested}) {
      int began_again = 0;
      for (long number = 0; !HasFailure(); ++number) {
        const Outcome outcome = gathers_at(gather, number);
        if (outcome == Outcome::enough) break;
        if (outcome == Outcome::began_again) ++began_again;
      }
      EXPECT_GT(began_again, 0) << algorithm << ": no memory was asked for";
    }
  }
  ::unsetenv("HEDDLE_ALGORITHM");
  ::unsetenv("HEDDLE_MEASURE");
  ::unsetenv("HEDDLE_TIMEOUT");
}

}  // namespace
