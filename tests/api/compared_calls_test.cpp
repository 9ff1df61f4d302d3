// HEDDLE_CHECK=1 through libheddle.so: what one rank calls by mistake all ranks hear of, and nobody waits.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "heddle/heddle.h"
#include "heddle/heddle_compress.h"
#include "heddle/heddle_sparse.h"
#include "ranks.hpp"

namespace {

using heddle::testing_ranks::on_ranks;

// Each ends with the status that it had.
using Call = std::function<heddle_status(heddle_comm_t)>;

class ComparedCalls : public testing::Test {
 protected:
  void SetUp() override { ::setenv("HEDDLE_CHECK", "1", 1); }
  void TearDown() override { ::unsetenv("HEDDLE_CHECK"); }
};

struct Named {
  Call call;
  std::string name;  // to the others
};

const std::vector<Named>& calls() {
  static const auto bcast = [](int root) {
    return [root](heddle_comm_t comm) {
      float x[4] = {};
      return heddle_bcast(x, sizeof x, root, comm);
    };
  };
  static const auto allreduce = [](std::size_t count, heddle_dtype dtype, heddle_op op) {
    return [=](heddle_comm_t comm) {
      std::vector<double> x(count);
      return heddle_allreduce(HEDDLE_IN_PLACE, x.data(), count, dtype, op, comm);
    };
  };
  static const auto reduce = [](int root) {
    return [root](heddle_comm_t comm) {
      float from[4] = {};
      float to[4];
      return heddle_reduce(from, to, 4, HEDDLE_FLOAT32, HEDDLE_SUM, root, comm);
    };
  };
  static const auto allgather = [](std::size_t bytes) {
    return [bytes](heddle_comm_t comm) {
      int size = 0;
      EXPECT_EQ(heddle_comm_size(comm, &size), HEDDLE_OK);
      std::vector<char> from(bytes);
      std::vector<char> to(bytes * static_cast<std::size_t>(size));
      return heddle_allgather(from.data(), to.data(), bytes, comm);
    };
  };
  static float dense[64];
  static heddle_sparse none = {64, 0, HEDDLE_INDEX32, HEDDLE_FLOAT32, nullptr, nullptr, 0, nullptr, nullptr};
  static const std::vector<Named> all = {
      {allreduce(4, HEDDLE_FLOAT32, HEDDLE_SUM), "an allreduce of 4 elements (sum of float32)"},
      {allreduce(5, HEDDLE_FLOAT32, HEDDLE_SUM), "an allreduce of 5 elements (sum of float32)"},
      {allreduce(4, HEDDLE_INT32, HEDDLE_SUM), "an allreduce of 4 elements (sum of int32 or uint32)"},
      {allreduce(4, HEDDLE_FLOAT32, HEDDLE_MAX), "an allreduce of 4 elements (max of float32)"},
      {bcast(0), "a bcast of 16 bytes from rank 0"},
      {bcast(1), "a bcast of 16 bytes from rank 1"},
      {reduce(0), "a reduce of 4 elements (sum of float32) to rank 0"},
      {reduce(1), "a reduce of 4 elements (sum of float32) to rank 1"},
      {allgather(16), "an allgather of 16 bytes of each rank"},
      {allgather(1), "an allgather of 1 byte of each rank"},
      {heddle_barrier, "a barrier"},
      {[](heddle_comm_t comm) {
         heddle_sparse out = none;
         return heddle_sparse_allreduce(&none, &out, HEDDLE_SUM, comm);
       },
       "a sparse allreduce"},
      {[](heddle_comm_t comm) {
         std::vector<float> to(64);
         return heddle_sparse_allreduce_dense(&none, to.data(), HEDDLE_SUM, comm);
       },
       "a sparse allreduce into a vector"},
      {[](heddle_comm_t comm) {
         std::vector<float> both(64);
         return heddle_sparse_allreduce_in_place(both.data(), 64, HEDDLE_FLOAT32, comm);
       },
       "a sparse allreduce in place"},
      {[](heddle_comm_t comm) {
         std::vector<float> to(64);
         return heddle_sparse_allreduce_coded(&none, to.data(), "fp16", 1, nullptr, comm);
       },
       "a coded sparse allreduce"},
      {[](heddle_comm_t comm) {
         std::vector<float> to(64);
         return heddle_compressed_allreduce(dense, to.data(), 64, "fp16", 1, nullptr, comm);
       },
       "a compressed allreduce"},
      {[](heddle_comm_t comm) {
         heddle_comm_t half = nullptr;
         const heddle_status status = heddle_comm_split(comm, 0, 0, &half);
         EXPECT_EQ(heddle_comm_destroy(half), HEDDLE_OK);
         return status;
       },
       "a split"},
  };
  return all;
}

TEST_F(ComparedCalls, AllCallsThatAgreeAreServed) {
  on_ranks(3, [](heddle_comm_t comm, int) {
    for (const Named& each : calls())
      ASSERT_EQ(each.call(comm), HEDDLE_OK) << each.name << ": " << heddle_last_error();
  });
}

// Every two of them.
TEST_F(ComparedCalls, CallsThatDifferAreNamed) {
  on_ranks(3, [](heddle_comm_t comm, int rank) {
    for (const Named& most : calls()) {
      for (const Named& one : calls()) {
        if (&most == &one) continue;
        ASSERT_EQ((rank == 1 ? one : most).call(comm), HEDDLE_ERR_ARGUMENT) << most.name << ", " << one.name;
        const std::string text = heddle_last_error();
        EXPECT_NE(text.find("ranks 0, 2 are in " + most.name + "; rank 1 is in " + one.name + "."),
                  std::string::npos)
            << text;
      }
    }
    float x = 1;
    ASSERT_EQ(heddle_allreduce(HEDDLE_IN_PLACE, &x, 1, HEDDLE_FLOAT32, HEDDLE_SUM, comm), HEDDLE_OK);
    EXPECT_EQ(x, 3);
  });
}

// The one that makes the mistake hears what it is, the others that there is one.
TEST_F(ComparedCalls, RefusedArgumentsAreToldToAll) {
  const auto wrong_bcast = [](heddle_comm_t comm) {
    char x = 0;
    return heddle_bcast(&x, 1, 17, comm);
  };
  const auto wrong_allreduce = [](heddle_comm_t comm) {
    return heddle_allreduce(HEDDLE_IN_PLACE, nullptr, 4, HEDDLE_FLOAT32, HEDDLE_SUM, comm);
  };
  const auto wrong_split = [](heddle_comm_t comm) {
    heddle_comm_t half = nullptr;
    return heddle_comm_split(comm, -17, 0, &half);
  };
  const auto wrong_allgather = [](heddle_comm_t comm) {
    char x = 0;
    return heddle_allgather(&x, &x, 1, comm);
  };
  struct Mistake {
    Call call;
    std::string why;
  };
  const std::vector<Mistake> mistakes = {{wrong_bcast, "root 17 is not a rank"},
                                         {wrong_allreduce, "recvbuf is null"},
                                         {wrong_allgather, "sendbuf and recvbuf overlap"},
                                         {wrong_split, "color -17 is neither"}};
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    for (const Mistake& mistake : mistakes) {
      for (const Named& right : calls()) {
        ASSERT_EQ((rank == 2 ? mistake.call : right.call)(comm), HEDDLE_ERR_ARGUMENT);
        const std::string text = heddle_last_error();
        const std::string wanted = rank == 2 ? mistake.why
                                             : "ranks 0, 1 are in " + right.name +
                                                   "; rank 2 is in a call with arguments that are refused";
        EXPECT_NE(text.find(wanted), std::string::npos) << text;
      }
    }
    ASSERT_EQ(heddle_barrier(comm), HEDDLE_OK);
  });
}

// Outside of the contract, and else a wait without end: whichever comes second is told so, while the first
// one waits for the other rank.
TEST_F(ComparedCalls, TwoThreadsOnOneCommunicator) {
  std::latch told(1);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    std::atomic<int> served = 0;
    const auto sum = [&] {
      float x = 1;
      const heddle_status status = heddle_allreduce(HEDDLE_IN_PLACE, &x, 1, HEDDLE_FLOAT32, HEDDLE_SUM, comm);
      if (status == HEDDLE_OK) {
        EXPECT_EQ(x, 2);
        ++served;
        return;
      }
      EXPECT_EQ(status, HEDDLE_ERR_ARGUMENT);
      EXPECT_NE(std::string(heddle_last_error()).find("two threads are in calls on one communicator"),
                std::string::npos)
          << heddle_last_error();
      told.count_down();
    };
    if (rank == 1) {
      told.wait();
      sum();
    } else {
      std::thread other(sum);
      sum();
      other.join();
    }
    EXPECT_EQ(served, 1);
  });
}

heddle_status wait_for(heddle_status started, heddle_request_t* request) {
  return started == HEDDLE_OK ? heddle_wait(request) : started;
}

TEST_F(ComparedCalls, RequestsThatDifferFail) {
  on_ranks(2, [](heddle_comm_t comm, int rank) {
    int x = 1;
    heddle_request_t request = nullptr;
    ASSERT_EQ(wait_for(heddle_iallreduce(HEDDLE_IN_PLACE, &x, 1, HEDDLE_INT32, HEDDLE_SUM, comm, &request),
                       &request),
              HEDDLE_OK);
    EXPECT_EQ(x, 2);
    int both[2] = {-1, -1};
    ASSERT_EQ(wait_for(heddle_iallgather(&rank, both, sizeof rank, comm, &request), &request), HEDDLE_OK);
    EXPECT_EQ(both[0], 0);
    EXPECT_EQ(both[1], 1);
    ASSERT_EQ(wait_for(heddle_ibarrier(comm, &request), &request), HEDDLE_OK);
    // Nobody would notice on one node: both are roots.
    EXPECT_EQ(wait_for(heddle_ibcast(&x, sizeof x, rank, comm, &request), &request), HEDDLE_ERR_ARGUMENT);
    EXPECT_NE(std::string(heddle_last_error()).find("bcast of 4 bytes from rank 1 by a request"),
              std::string::npos)
        << heddle_last_error();
    EXPECT_EQ(heddle_barrier(comm), HEDDLE_ERR_ARGUMENT);  // the communicator has failed
  });
}

TEST_F(ComparedCalls, GathersThatDifferFail) {
  on_ranks(2, [](heddle_comm_t comm, int rank) {
    const std::vector<char> from(20);
    std::vector<char> to(40);
    heddle_request_t request = nullptr;
    const std::size_t bytes = rank == 0 ? 16 : 20;
    EXPECT_EQ(wait_for(heddle_iallgather(from.data(), to.data(), bytes, comm, &request), &request),
              HEDDLE_ERR_ARGUMENT);
    const std::string text = heddle_last_error();
    EXPECT_NE(text.find("an allgather of 16 bytes of each rank by a request"), std::string::npos) << text;
    EXPECT_NE(text.find("an allgather of 20 bytes of each rank by a request"), std::string::npos) << text;
  });
}

// Without the comparison only values would travel, and be summed as if the indices were those of the first
// start.
TEST_F(ComparedCalls, IndicesOfPersistentRequestsStay) {
  for (const int ranks : {1, 2, 3}) {
    on_ranks(ranks, [ranks](heddle_comm_t comm, int rank) {
      std::uint32_t indices[] = {1, 5, 9};
      float values[] = {1, 2, 3};
      std::uint32_t found[9];
      float sums[9];
      const heddle_sparse in{64, 3, HEDDLE_INDEX32, HEDDLE_FLOAT32, indices, values, 3, nullptr, nullptr};
      heddle_sparse out{64, 0, HEDDLE_INDEX32, HEDDLE_FLOAT32, found, sums, 9, nullptr, nullptr};
      heddle_request_t request = nullptr;
      ASSERT_EQ(heddle_sparse_allreduce_init(&in, &out, HEDDLE_SUM, comm, &request), HEDDLE_OK);
      const bool last = rank == ranks - 1;
      for (int start = 0; start < 4; ++start) {
        if (last) indices[1] = start == 2 ? 7 : 5;
        ASSERT_EQ(heddle_start(request), HEDDLE_OK) << heddle_last_error();
        if (start != 2) {
          ASSERT_EQ(heddle_wait(&request), HEDDLE_OK) << heddle_last_error();
          ASSERT_EQ(out.count, 3U);
          EXPECT_EQ(found[1], 5U);
          EXPECT_EQ(sums[1], 2.0F * static_cast<float>(ranks));
          continue;
        }
        EXPECT_EQ(heddle_wait(&request), HEDDLE_ERR_ARGUMENT);
        const std::string said = heddle_last_error();
        const std::string wanted = last ? "the index of entry 1 is 7, and was 5 at the first start"
                                        : "rank " + std::to_string(ranks - 1) + " passed";
        EXPECT_NE(said.find(wanted), std::string::npos) << said;
      }
      EXPECT_EQ(heddle_request_free(&request), HEDDLE_OK);
    });
  }
}

TEST_F(ComparedCalls, OneRankHasNobodyToAsk) {
  on_ranks(1, [](heddle_comm_t comm, int) {
    for (const Named& each : calls()) {
      if (!each.name.ends_with("rank 1")) {
        ASSERT_EQ(each.call(comm), HEDDLE_OK) << each.name;
      }
    }
  });
}

}  // namespace
