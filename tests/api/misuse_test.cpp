// Misuse of the C API gives a status and a sentence, and breaks nothing.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "heddle/heddle.h"
#include "ranks.hpp"

namespace {

using heddle::testing_ranks::gather_at;
using heddle::testing_ranks::Meeting;
using heddle::testing_ranks::on_ranks;
using heddle::testing_ranks::on_threads;
using heddle::testing_ranks::Seat;

// The last call failed with ARGUMENT, and the sentence has `text` in it.
void expect_refused(heddle_status status, const char* text) {
  EXPECT_EQ(status, HEDDLE_ERR_ARGUMENT) << text;
  EXPECT_NE(std::string(heddle_last_error()).find(text), std::string::npos)
      << "\"" << heddle_last_error() << "\" does not contain \"" << text << "\"";
}

heddle_dtype dtype_number(int number) {
  heddle_dtype dtype;
  std::memcpy(&dtype, &number, sizeof(dtype));
  return dtype;
}

heddle_op op_number(int number) {
  heddle_op op;
  std::memcpy(&op, &number, sizeof(op));
  return op;
}

int alone(const void* mine, void* all, std::size_t bytes, void*) {
  std::memcpy(all, mine, bytes);
  return 0;
}

heddle_comm_t comm_of_one() {
  heddle_comm_t comm = nullptr;
  EXPECT_EQ(heddle_comm_create(0, 1, alone, nullptr, nullptr, &comm), HEDDLE_OK) << heddle_last_error();
  return comm;
}

TEST(Misuse, OfCreate) {
  heddle_comm_t comm = reinterpret_cast<heddle_comm_t>(std::uintptr_t{64});
  expect_refused(heddle_comm_create(0, 1, alone, nullptr, nullptr, nullptr), "comm is null");
  expect_refused(heddle_comm_create(0, 1, nullptr, nullptr, nullptr, &comm), "allgather is null");
  EXPECT_EQ(comm, nullptr);
  expect_refused(heddle_comm_create(2, 2, alone, nullptr, nullptr, &comm),
                 "rank 2 of 2 ranks does not exist");
  expect_refused(heddle_comm_create(-1, 2, alone, nullptr, nullptr, &comm), "rank -1");
  expect_refused(heddle_comm_create(0, 0, alone, nullptr, nullptr, &comm), "of 0 ranks");
  // Refused before anything is gathered, and before there is memory for that.
  const auto gathers = [](const void*, void*, std::size_t, void*) -> int {
    throw std::runtime_error("asked");
  };
  expect_refused(heddle_comm_create(0, (1 << 24) + 1, gathers, nullptr, nullptr, &comm),
                 "size 16777217 is more than the 16777216 ranks");
  expect_refused(heddle_comm_create_env(nullptr), "comm is null");
}

TEST(Misuse, FailingAllgatherIsReported) {
  heddle_comm_t comm = nullptr;
  const auto fails = [](const void*, void*, std::size_t, void*) { return 17; };
  EXPECT_EQ(heddle_comm_create(0, 1, fails, nullptr, nullptr, &comm), HEDDLE_ERR_PEER);
  EXPECT_NE(std::string(heddle_last_error()).find("17"), std::string::npos) << heddle_last_error();
  EXPECT_EQ(comm, nullptr);
}

TEST(Misuse, ThrowingAllgatherDoesNotGetThrough) {
  heddle_comm_t comm = nullptr;
  const auto throws = [](const void*, void*, std::size_t, void*) -> int {
    throw std::runtime_error("from the caller");
  };
  EXPECT_EQ(heddle_comm_create(0, 1, throws, nullptr, nullptr, &comm), HEDDLE_ERR_INTERNAL);
  EXPECT_STREQ(heddle_last_error(), "from the caller");
}

TEST(Misuse, LentMessagesAreReleasedExactlyOnce) {
  int released = 0;
  heddle_p2p p2p{};
  p2p.context = &released;
  p2p.release = [](void* context) { ++*static_cast<int*>(context); };
  heddle_comm_t comm = nullptr;
  expect_refused(heddle_comm_create(0, 1, alone, nullptr, &p2p, &comm), "p2p->send is null");
  EXPECT_EQ(released, 1);
  p2p.send = [](const void*, std::size_t, int, int, void*, void*) { return 1; };
  p2p.recv = [](void*, std::size_t, int, int, void*, void*) { return 1; };
  p2p.test = [](void*, int*, void*) { return 1; };
  p2p.cancel = [](void*, void*) { return 1; };
  const auto fails = [](const void*, void*, std::size_t, void*) { return 1; };
  EXPECT_NE(heddle_comm_create(0, 1, fails, nullptr, &p2p, &comm), HEDDLE_OK);
  EXPECT_EQ(released, 2);
  ASSERT_EQ(heddle_comm_create(0, 1, alone, nullptr, &p2p, &comm), HEDDLE_OK) << heddle_last_error();
  EXPECT_EQ(released, 2);
  EXPECT_EQ(heddle_comm_destroy(comm), HEDDLE_OK);
  EXPECT_EQ(released, 3);
}

TEST(Misuse, OfHandles) {
  int number = 0;
  alignas(64) static char foreign[4096] = {};
  auto* const strange = reinterpret_cast<heddle_comm_t>(foreign);
  for (heddle_comm_t comm : {heddle_comm_t{nullptr}, strange, reinterpret_cast<heddle_comm_t>(foreign + 1),
                             reinterpret_cast<heddle_comm_t>(std::uintptr_t{8})}) {
    const char* says = comm == nullptr ? "communicator is null" : "not a communicator";
    heddle_request_t request = nullptr;
    const char* name = nullptr;
    expect_refused(heddle_comm_rank(comm, &number), says);
    expect_refused(heddle_comm_size(comm, &number), says);
    expect_refused(heddle_allreduce(HEDDLE_IN_PLACE, &number, 1, HEDDLE_INT32, HEDDLE_SUM, comm), says);
    expect_refused(heddle_bcast(&number, 4, 0, comm), says);
    expect_refused(heddle_reduce(&number, &number, 1, HEDDLE_INT32, HEDDLE_SUM, 0, comm), says);
    expect_refused(heddle_allgather(HEDDLE_IN_PLACE, &number, 4, comm), says);
    expect_refused(heddle_barrier(comm), says);
    expect_refused(heddle_send(&number, 4, 0, comm), says);
    expect_refused(heddle_recv(&number, 4, 0, comm), says);
    expect_refused(heddle_iallreduce(HEDDLE_IN_PLACE, &number, 1, HEDDLE_INT32, HEDDLE_SUM, comm, &request),
                   says);
    expect_refused(heddle_ibcast(&number, 4, 0, comm, &request), says);
    expect_refused(heddle_ireduce(&number, &number, 1, HEDDLE_INT32, HEDDLE_SUM, 0, comm, &request), says);
    expect_refused(heddle_iallgather(HEDDLE_IN_PLACE, &number, 4, comm, &request), says);
    expect_refused(heddle_ibarrier(comm, &request), says);
    expect_refused(
        heddle_allreduce_init(HEDDLE_IN_PLACE, &number, 1, HEDDLE_INT32, HEDDLE_SUM, comm, &request), says);
    expect_refused(heddle_bcast_init(&number, 4, 0, comm, &request), says);
    expect_refused(heddle_reduce_init(&number, &number, 1, HEDDLE_INT32, HEDDLE_SUM, 0, comm, &request),
                   says);
    expect_refused(heddle_allgather_init(HEDDLE_IN_PLACE, &number, 4, comm, &request), says);
    expect_refused(heddle_barrier_init(comm, &request), says);
    expect_refused(heddle_allreduce_algorithm(1, HEDDLE_INT32, HEDDLE_SUM, comm, &name), says);
    expect_refused(heddle_bcast_algorithm(1, comm, &name), says);
    expect_refused(heddle_reduce_algorithm(1, HEDDLE_INT32, HEDDLE_SUM, comm, &name), says);
    expect_refused(heddle_allgather_algorithm(1, comm, &name), says);
  }
  EXPECT_EQ(heddle_comm_destroy(nullptr), HEDDLE_OK);
  expect_refused(heddle_comm_destroy(strange), "not a communicator");
  auto* request = reinterpret_cast<heddle_request_t>(foreign);
  expect_refused(heddle_start(request), "not a request");
  expect_refused(heddle_start(nullptr), "request is null");
  expect_refused(heddle_wait(&request), "not a request");
  expect_refused(heddle_test(&request, &number), "not a request");
  expect_refused(heddle_request_free(&request), "not a request");
  expect_refused(heddle_wait(nullptr), "request is null");
  expect_refused(heddle_test(nullptr, &number), "request is null");
  request = nullptr;
  expect_refused(heddle_test(&request, nullptr), "done is null");
}

// Only most of the time can a handle that is gone be told; right after its end it can.
TEST(Misuse, OfDestroyedHandles) {
  heddle_comm_t comm = comm_of_one();
  heddle_request_t request = nullptr;
  ASSERT_EQ(heddle_bcast_init(nullptr, 0, 0, comm, &request), HEDDLE_OK) << heddle_last_error();
  heddle_request_t again = request;
  ASSERT_EQ(heddle_request_free(&request), HEDDLE_OK);
  expect_refused(heddle_request_free(&again), "not a request, or it has been freed");
  expect_refused(heddle_start(again), "not a request, or it has been freed");
  ASSERT_EQ(heddle_comm_destroy(comm), HEDDLE_OK);
  expect_refused(heddle_barrier(comm), "or it has been destroyed");
  expect_refused(heddle_comm_destroy(comm), "or it has been destroyed");
}

TEST(Misuse, OfAResult) {
  heddle_comm_t comm = comm_of_one();
  int number = 0;
  expect_refused(heddle_comm_rank(comm, nullptr), "rank is null");
  expect_refused(heddle_comm_size(comm, nullptr), "size is null");
  expect_refused(heddle_ibarrier(comm, nullptr), "request is null");
  expect_refused(heddle_barrier_init(comm, nullptr), "request is null");
  expect_refused(heddle_iallreduce(HEDDLE_IN_PLACE, &number, 1, HEDDLE_INT32, HEDDLE_SUM, comm, nullptr),
                 "request is null");
  expect_refused(heddle_bcast_algorithm(1, comm, nullptr), "name is null");
  expect_refused(heddle_allgather_algorithm(1, comm, nullptr), "name is null");
  expect_refused(heddle_iallgather(HEDDLE_IN_PLACE, &number, 4, comm, nullptr), "request is null");
  EXPECT_EQ(heddle_comm_destroy(comm), HEDDLE_OK);
}

TEST(Misuse, OfAllreduceArguments) {
  heddle_comm_t comm = comm_of_one();
  float a[8] = {};
  float b[8] = {};
  const auto reduce = [&](const void* in, void* out, std::size_t count, heddle_dtype dtype, heddle_op op) {
    heddle_request_t request = nullptr;
    const heddle_status blocking = heddle_allreduce(in, out, count, dtype, op, comm);
    EXPECT_EQ(heddle_iallreduce(in, out, count, dtype, op, comm, &request), blocking);
    EXPECT_EQ(request, nullptr);
    EXPECT_EQ(heddle_allreduce_init(in, out, count, dtype, op, comm, &request), blocking);
    EXPECT_EQ(request, nullptr);
    return blocking;
  };
  expect_refused(reduce(a, b, 8, dtype_number(18), HEDDLE_SUM), "dtype 18");
  expect_refused(reduce(a, b, 8, dtype_number(-1), HEDDLE_SUM), "dtype -1");
  expect_refused(reduce(a, b, 8, HEDDLE_FLOAT32, op_number(10)), "op 10");
  expect_refused(reduce(a, b, 8, HEDDLE_FLOAT32, op_number(1 << 20)), "op 1048576");
  expect_refused(reduce(a, b, 8, HEDDLE_FLOAT32, HEDDLE_BAND), "op band has no meaning on float32");
  expect_refused(reduce(a, b, 1, HEDDLE_COMPLEX_FLOAT, HEDDLE_MIN), "op min has no meaning on complex_float");
  expect_refused(reduce(a, b, 8, HEDDLE_FLOAT8_E4M3, HEDDLE_BXOR), "op bxor has no meaning on float8_e4m3");
  expect_refused(reduce(a, b, 8, HEDDLE_FLOAT8_E5M2, HEDDLE_LAND), "op land has no meaning on float8_e5m2");
  expect_refused(reduce(nullptr, b, 8, HEDDLE_FLOAT32, HEDDLE_SUM), "sendbuf is null");
  expect_refused(reduce(a, nullptr, 8, HEDDLE_FLOAT32, HEDDLE_SUM), "recvbuf is null");
  expect_refused(reduce(a, const_cast<void*>(HEDDLE_IN_PLACE), 8, HEDDLE_FLOAT32, HEDDLE_SUM),
                 "goes into sendbuf");
  expect_refused(reduce(a, a, 8, HEDDLE_FLOAT32, HEDDLE_SUM), "pass HEDDLE_IN_PLACE");
  expect_refused(reduce(a, a + 7, 1 + 7, HEDDLE_FLOAT32, HEDDLE_SUM), "overlap");
  expect_refused(reduce(a + 1, a, 2, HEDDLE_FLOAT32, HEDDLE_SUM), "overlap");
  expect_refused(reduce(a, b, SIZE_MAX / 2, HEDDLE_FLOAT32, HEDDLE_SUM), "more than memory can hold");
  expect_refused(reduce(HEDDLE_IN_PLACE, b, SIZE_MAX, HEDDLE_COMPLEX_LONG_DOUBLE, HEDDLE_SUM),
                 "more than memory");
  // Not misuse: neighbours, and nothing at all.
  EXPECT_EQ(heddle_allreduce(a, a + 4, 4, HEDDLE_FLOAT32, HEDDLE_SUM, comm), HEDDLE_OK);
  EXPECT_EQ(heddle_allreduce(nullptr, nullptr, 0, HEDDLE_FLOAT32, HEDDLE_SUM, comm), HEDDLE_OK);
  EXPECT_EQ(heddle_allreduce(a, a, 0, HEDDLE_FLOAT32, HEDDLE_SUM, comm), HEDDLE_OK);
  EXPECT_EQ(heddle_comm_destroy(comm), HEDDLE_OK);
}

TEST(Misuse, OfRootsPeersAndBuffers) {
  on_ranks(2, [](heddle_comm_t comm, int rank) {
    char data[16] = {};
    expect_refused(heddle_bcast(data, 16, 2, comm), "root 2 is not a rank (0 to 1)");
    expect_refused(heddle_bcast(data, 16, -1, comm), "root -1");
    expect_refused(heddle_bcast(nullptr, 16, 0, comm), "buffer is null");
    expect_refused(heddle_bcast(const_cast<void*>(HEDDLE_IN_PLACE), 16, 0, comm), "HEDDLE_IN_PLACE");
    expect_refused(heddle_bcast(data, SIZE_MAX, 0, comm), "more than memory");
    const auto reduce = [&](const void* in, void* out, int root) {
      return heddle_reduce(in, out, 1, HEDDLE_FLOAT32, HEDDLE_SUM, root, comm);
    };
    expect_refused(reduce(data, data + 8, 2), "root 2 is not a rank (0 to 1)");
    expect_refused(reduce(data, data + 8, -1), "root -1");
    expect_refused(reduce(nullptr, data + 8, 0), "sendbuf is null");
    expect_refused(reduce(HEDDLE_IN_PLACE, data, 1 - rank), "only the root may pass");
    expect_refused(reduce(data, nullptr, rank), "recvbuf is null");
    expect_refused(reduce(data, data + 2, rank), "overlap");
    expect_refused(heddle_reduce(data, data, 1, HEDDLE_FLOAT32, HEDDLE_BAND, 0, comm), "has no meaning");
    expect_refused(heddle_send(data, 16, 2, comm), "peer 2 is not a rank");
    expect_refused(heddle_send(data, 16, rank, comm), "this rank itself");
    expect_refused(heddle_recv(nullptr, 16, 1 - rank, comm), "data is null");
    // Nothing was sent by any of that: the communicator still works.
    int sum = 1;
    EXPECT_EQ(heddle_allreduce(HEDDLE_IN_PLACE, &sum, 1, HEDDLE_INT32, HEDDLE_SUM, comm), HEDDLE_OK);
    EXPECT_EQ(sum, 2);
  });
}

TEST(Misuse, OfAllgatherArguments) {
  on_ranks(3, [](heddle_comm_t comm, int rank) {
    char data[16] = {};
    char all[24] = {};
    const auto gather = [&](const void* in, void* out, std::size_t bytes) {
      heddle_request_t request = nullptr;
      const heddle_status blocking = heddle_allgather(in, out, bytes, comm);
      EXPECT_EQ(heddle_iallgather(in, out, bytes, comm, &request), blocking);
      EXPECT_EQ(request, nullptr);
      EXPECT_EQ(heddle_allgather_init(in, out, bytes, comm, &request), blocking);
      EXPECT_EQ(request, nullptr);
      return blocking;
    };
    expect_refused(gather(nullptr, all, 8), "sendbuf is null and bytes is 8");
    expect_refused(gather(data, nullptr, 8), "recvbuf is null and bytes is 8");
    expect_refused(gather(HEDDLE_IN_PLACE, nullptr, 8), "recvbuf is null");
    expect_refused(gather(data, const_cast<void*>(HEDDLE_IN_PLACE), 8),
                   "HEDDLE_IN_PLACE goes into sendbuf, not into recvbuf");
    expect_refused(gather(all, all, 8),
                   "overlap; pass HEDDLE_IN_PLACE as sendbuf where what this rank gives");
    expect_refused(gather(all + 8 * rank, all, 8), "overlap");
    expect_refused(gather(all + 23, all, 8), "overlap");
    expect_refused(gather(all, all + 7, 8), "overlap");
    const std::size_t most = static_cast<std::size_t>(PTRDIFF_MAX) / 3;
    expect_refused(
        gather(data, all, most + 1),
        ("bytes " + std::to_string(most + 1) + " of each of 3 ranks is more than memory can hold").c_str());
    expect_refused(gather(HEDDLE_IN_PLACE, all, SIZE_MAX), "more than memory can hold");
    // Not misuse: neighbours, and nothing at all. Nothing was sent by the rest.
    char both[16] = {};
    both[0] = both[1] = static_cast<char>('a' + rank);
    EXPECT_EQ(heddle_allgather(both, both + 2, 2, comm), HEDDLE_OK) << heddle_last_error();
    EXPECT_EQ(std::string(both + 2, 6), "aabbcc");
    EXPECT_EQ(heddle_allgather(nullptr, nullptr, 0, comm), HEDDLE_OK);
    EXPECT_EQ(heddle_allgather(all, all, 0, comm), HEDDLE_OK);
  });
}

TEST(Misuse, OfMemory) {
  on_ranks(2, [](heddle_comm_t comm, int) {
    void* memory = &comm;
    EXPECT_EQ(heddle_alloc(100, comm, nullptr), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_alloc(100, nullptr, &memory), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(memory, nullptr);
    EXPECT_EQ(heddle_alloc(0, comm, &memory), HEDDLE_OK);
    EXPECT_EQ(memory, nullptr);
    EXPECT_EQ(heddle_alloc(std::size_t{1} << 50, comm, &memory), HEDDLE_ERR_MEMORY) << heddle_last_error();
    EXPECT_EQ(heddle_alloc(std::size_t{1} << 62, comm, &memory), HEDDLE_ERR_MEMORY) << heddle_last_error();
    EXPECT_EQ(memory, nullptr);
    EXPECT_STRNE(heddle_last_error(), "");
    EXPECT_EQ(heddle_free(nullptr, comm), HEDDLE_OK);
    EXPECT_EQ(heddle_free(&memory, comm), HEDDLE_ERR_ARGUMENT);
    ASSERT_EQ(heddle_alloc(10'000, comm, &memory), HEDDLE_OK) << heddle_last_error();
    EXPECT_EQ(heddle_free(static_cast<char*>(memory) + 1, comm), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_free(memory, nullptr), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_free(memory, comm), HEDDLE_OK);
    EXPECT_EQ(heddle_free(memory, comm), HEDDLE_ERR_ARGUMENT);
    EXPECT_NE(std::string(heddle_last_error()).find("heddle_alloc"), std::string::npos)
        << heddle_last_error();
    // What is left goes with the communicator.
    EXPECT_EQ(heddle_alloc(10'000, comm, &memory), HEDDLE_OK);
  });
}

TEST(Misuse, OfRequests) {
  Meeting meeting(2);
  on_threads(2, [&](int rank) {
    Seat seat{&meeting, rank};
    heddle_comm_t comm = nullptr;
    ASSERT_EQ(heddle_comm_create(rank, 2, gather_at, &seat, nullptr, &comm), HEDDLE_OK)
        << heddle_last_error();
    int data = rank;
    heddle_request_t request = nullptr;
    ASSERT_EQ(heddle_allreduce_init(HEDDLE_IN_PLACE, &data, 1, HEDDLE_INT32, HEDDLE_SUM, comm, &request),
              HEDDLE_OK);
    int done = 0;
    EXPECT_EQ(heddle_test(&request, &done), HEDDLE_OK) << "an inactive request is done";
    EXPECT_EQ(done, 1);
    // Rank 0 starts alone, so its request stays active until rank 1 joins.
    if (rank == 0) {
      ASSERT_EQ(heddle_start(request), HEDDLE_OK);
      expect_refused(heddle_start(request), "is active");
      expect_refused(heddle_request_free(&request), "is active");
      EXPECT_NE(request, nullptr);
      expect_refused(heddle_comm_destroy(comm), "1 request is active");
    }
    meeting.barrier();
    if (rank == 1) {
      ASSERT_EQ(heddle_start(request), HEDDLE_OK);
      // Complete it may be, as rank 0 has long begun; but nobody has asked.
      expect_refused(heddle_start(request), "is active");
      expect_refused(heddle_request_free(&request), "is active");
      expect_refused(heddle_comm_destroy(comm), "1 request is active");
    }
    ASSERT_EQ(heddle_wait(&request), HEDDLE_OK) << heddle_last_error();
    EXPECT_EQ(data, 1);
    heddle_request_t once = nullptr;
    ASSERT_EQ(heddle_ibarrier(comm, &once), HEDDLE_OK);
    expect_refused(heddle_start(once), "only a persistent request");
    ASSERT_EQ(heddle_wait(&once), HEDDLE_OK);
    // A request that outlives its communicator can only be freed.
    ASSERT_EQ(heddle_comm_destroy(comm), HEDDLE_OK) << heddle_last_error();
    expect_refused(heddle_start(request), "has been destroyed");
    expect_refused(heddle_wait(&request), "has been destroyed");
    expect_refused(heddle_test(&request, &done), "has been destroyed");
    EXPECT_EQ(heddle_request_free(&request), HEDDLE_OK);
    EXPECT_EQ(request, nullptr);
  });
}

TEST(Misuse, LastErrorBelongsToTheThread) {
  heddle_comm_t comm = nullptr;
  expect_refused(heddle_comm_create(5, 2, alone, nullptr, nullptr, &comm), "rank 5");
  std::thread([] { EXPECT_STREQ(heddle_last_error(), ""); }).join();
  EXPECT_EQ(heddle_set_last_error(HEDDLE_ERR_PEER, "mine"), HEDDLE_ERR_PEER);
  EXPECT_STREQ(heddle_last_error(), "mine");
  heddle_set_last_error(HEDDLE_OK, nullptr);
  EXPECT_STREQ(heddle_last_error(), "");
  const std::string endless(100'000, 'x');
  heddle_set_last_error(HEDDLE_ERR_PEER, endless.c_str());
  EXPECT_GT(std::string(heddle_last_error()).size(), 1000U);
  EXPECT_STREQ(heddle_status_name(HEDDLE_ERR_TIMEOUT), "timeout");
}

TEST(Misuse, OfTheEnvironment) {
  heddle_comm_t comm = nullptr;
  ::unsetenv("WORLD_SIZE");
  expect_refused(heddle_comm_create_env(&comm), "WORLD_SIZE is not set");
  ::setenv("WORLD_SIZE", "1", 1);
  ::setenv("RANK", "one", 1);
  expect_refused(heddle_comm_create_env(&comm), "RANK=\"one\"");
  ::setenv("RANK", "0", 1);
  ASSERT_EQ(heddle_comm_create_env(&comm), HEDDLE_OK) << heddle_last_error();
  EXPECT_EQ(heddle_comm_destroy(comm), HEDDLE_OK);
  ::unsetenv("WORLD_SIZE");
  ::unsetenv("RANK");
}

TEST(Misuse, OddEnvironmentIsSaidOnceForAllRanks) {
  ::setenv("HEDDLE_SPIN", "fast", 1);
  testing::internal::CaptureStderr();
  on_ranks(3, [](heddle_comm_t, int) {});
  const std::string said = testing::internal::GetCapturedStderr();
  ::unsetenv("HEDDLE_SPIN");
  const std::string line =
      "heddle[0] warning: HEDDLE_SPIN=\"fast\" is not a whole number of polls; using the default, -1";
  EXPECT_EQ(said.find(line), 0U) << said;
  EXPECT_EQ(said.find("HEDDLE_SPIN", line.size()), std::string::npos) << said;
}

TEST(Misuse, OddPreferencesAreSaidAsWell) {
  ::setenv("HEDDLE_ALGORITHM", "no_such", 1);
  ::setenv("HEDDLE_TUNING_FILE", "/no/such/file.json", 1);
  testing::internal::CaptureStderr();
  on_ranks(2, [](heddle_comm_t, int) {});
  const std::string said = testing::internal::GetCapturedStderr();
  ::unsetenv("HEDDLE_ALGORITHM");
  ::unsetenv("HEDDLE_TUNING_FILE");
  EXPECT_NE(said.find("no_such"), std::string::npos) << said;
  EXPECT_NE(said.find("/no/such/file.json"), std::string::npos) << said;
  EXPECT_EQ(said.find("heddle[1]"), std::string::npos) << said;
}

}  // namespace
