// Collectives on streams of ranks on several nodes, through the C API on the double of CUDA's driver (its
// path is the argument): threads of one process that reach each other by TCP alone, so that each is a node of
// its own. In the double a stream does nothing before somebody waits for it.
#include <gtest/gtest.h>

#include <barrier>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "../api/ranks.hpp"
#include "cuda_streams.hpp"
#include "heddle/heddle_cuda.h"
#include "node_ranks_of_threads.hpp"
#include "relay_step.hpp"

namespace heddle::test {
const TestDriver* driver = nullptr;
}

namespace {

using heddle::test::driver;
using heddle::test::kind_of;
using heddle::test::Memory;
using heddle::test::TestGate;
using heddle::test::TestMemory;
using heddle::test::relay::kPiece;
using heddle::test::relay::Step;
using heddle::test::relay::Stream;
using heddle::test::relay::sum_of;
using heddle::test::relay::values;
using heddle::testing_ranks::on_ranks;

// From one element to more pieces than there are slots.
TEST(StreamRelay, Steps) {
  for (int ranks = 2; ranks <= 4; ++ranks) {
    on_ranks(ranks, [&](heddle_comm_t comm, int rank) {
      int number = 0;
      for (const std::size_t count :
           {std::size_t{1}, std::size_t{63}, kPiece - 1, kPiece, kPiece + 1, 4 * kPiece, 6 * kPiece + 17}) {
        ++number;
        const Step step(rank, rank % 2, count, number, kind_of(rank, number));
        for (const bool in_place : {false, true}) {
          step.allreduce(comm, in_place);
          step.stream.wait();
          step.check_sum(ranks);
        }
        const int root = number % ranks;
        step.bcast(comm, root);
        step.stream.wait();
        step.check_bcast(root);
      }
    });
  }
}

// Many calls before anybody waits, on several streams, beside others on the same communicator; nothing waits
// for a GPU.
TEST(StreamRelay, SeveralStreams) {
  heddle::test::Node all(3);
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    std::vector<std::unique_ptr<Step>> steps;
    for (int i = 0; i < 6; ++i)
      steps.push_back(std::make_unique<Step>(rank, 0, kPiece * 5 / 2, i));
    steps[0]->allreduce(comm, true);
    std::vector<float> host(1000, static_cast<float>(rank + 1));
    heddle_request_t request = nullptr;
    const int waits = all.counted("cuStreamSynchronize", [&] {
      OK(heddle_iallreduce(HEDDLE_IN_PLACE, host.data(), host.size(), HEDDLE_FLOAT32, HEDDLE_SUM, comm,
                           &request));
      for (int i = 1; i < 6; ++i) {
        i % 2 == 0 ? steps[static_cast<std::size_t>(i)]->allreduce(comm, false)
                   : steps[static_cast<std::size_t>(i)]->bcast(comm, i % 3);
        std::int64_t number = rank;
        OK(heddle_allreduce(HEDDLE_IN_PLACE, &number, 1, HEDDLE_INT64, HEDDLE_MAX, comm));
        EXPECT_EQ(number, 2);
      }
      OK(heddle_wait(&request));
    });
    EXPECT_EQ(waits, 0);
    EXPECT_EQ(host[999], 6.0F);
    for (int i = 5; i >= 0; --i) {
      const Step& step = *steps[static_cast<std::size_t>(i)];
      step.stream.wait();
      i % 2 == 0 ? step.check_sum(3) : step.check_bcast(i % 3);
    }
  });
}

// The communicator's end waits for what streams were given.
TEST(StreamRelay, EndWaits) {
  constexpr std::size_t kCount = 3 * kPiece;
  std::vector<std::unique_ptr<TestMemory>> sums(2);
  std::vector<std::unique_ptr<Stream>> streams(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const auto at = static_cast<std::size_t>(rank);
    streams[at] = std::make_unique<Stream>(0);
    sums[at] = std::make_unique<TestMemory>(*driver, Memory::device, kCount * 4);
    sums[at]->put(values(kCount, rank, 1).data(), kCount * 4);
    OK(heddle_allreduce_on_stream(HEDDLE_IN_PLACE, sums[at]->data(), kCount, HEDDLE_INT32, HEDDLE_SUM, comm,
                                  streams[at]->get()));
  });
  driver->set_current(driver->primary(0));
  for (const auto& sum : sums) {
    std::vector<std::int32_t> got(kCount);
    sum->get(got.data(), kCount * 4);
    EXPECT_EQ(got, sum_of(kCount, 2, 1));
  }
}

// The host does it: types without a kernel are served as well.
TEST(StreamRelay, LongDouble) {
  on_ranks(2, [](heddle_comm_t comm, int rank) {
    const Stream stream(0);
    const long double mine[] = {1.5L + static_cast<long double>(rank), -2.0L};
    const TestMemory words(*driver, Memory::device, sizeof mine);
    words.put(mine, sizeof mine);
    OK(heddle_allreduce_on_stream(HEDDLE_IN_PLACE, words.data(), 2, HEDDLE_LONG_DOUBLE, HEDDLE_SUM, comm,
                                  stream.get()));
    stream.wait();
    long double sum[2] = {};
    words.get(sum, sizeof sum);
    EXPECT_EQ(sum[0], 4.0L);
    EXPECT_EQ(sum[1], -4.0L);
  });
}

// What cannot be is refused on all ranks, and what can goes on.
TEST(StreamRelay, Refused) {
  heddle::test::Node all(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const Step good(rank, 0, 1000, 3);
    const Stream stream(0);
    const Stream elsewhere(1);
    driver->set_current(driver->primary(0));
    const TestMemory far(*driver, Memory::device, 64, 1);
    const TestMemory near(*driver, Memory::device, 64, 0);
    std::int32_t host = 1;
    const auto refused = [&](void* buffer, CUstream on, const char* why) {
      EXPECT_EQ(heddle_allreduce_on_stream(HEDDLE_IN_PLACE, buffer, 1, HEDDLE_INT32, HEDDLE_SUM, comm, on),
                HEDDLE_ERR_UNSUPPORTED);
      const std::string text = heddle_last_error();
      EXPECT_NE(text.find(rank == 1 ? why : "rank 1 could not do its part"), std::string::npos) << text;
      EXPECT_NE(text.find("synchronise the stream"), std::string::npos) << text;
    };
    // Before it is set up and afterwards.
    for (const char* why : {"is host memory", "is not in the GPU context"}) {
      refused(rank == 1 ? &host : near.data(), stream.get(), why);
      good.allreduce(comm, false);
      good.stream.wait();
      good.check_sum(2);
    }
    refused(rank == 1 ? far.data() : near.data(), stream.get(), "is not in the GPU context");
    EXPECT_EQ(heddle_allreduce_on_stream(HEDDLE_IN_PLACE, near.data(), 1, HEDDLE_INT32, HEDDLE_SUM, comm,
                                         rank == 1 ? elsewhere.get() : stream.get()),
              HEDDLE_ERR_UNSUPPORTED);
    good.allreduce(comm, true);
    good.stream.wait();
    good.check_sum(2);
  });
}

// Nothing has begun then, and the communicator goes on.
TEST(StreamRelay, CallsThatDiffer) {
  heddle::test::Node all(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const bool other = rank == 1;
    const Step good(rank, 0, 1000, 3);
    const Stream stream(0);
    const TestMemory memory(*driver, Memory::device, 4000, 0);
    const auto sum = [&](std::size_t count, heddle_dtype type, heddle_op op) {
      return heddle_allreduce_on_stream(HEDDLE_IN_PLACE, memory.data(), count, type, op, comm, stream.get());
    };
    const auto bcast = [&](std::size_t bytes, int root) {
      return heddle_bcast_on_stream(memory.data(), bytes, root, comm, stream.get());
    };
    const auto refused = [&](heddle_status status) {
      EXPECT_EQ(status, HEDDLE_ERR_ARGUMENT);
      EXPECT_NE(std::string(heddle_last_error()).find("the ranks differ in"), std::string::npos)
          << heddle_last_error();
    };
    OK(sum(1000, HEDDLE_INT32, HEDDLE_SUM));
    refused(sum(other ? 999 : 1000, HEDDLE_INT32, HEDDLE_SUM));
    refused(sum(1000, other ? HEDDLE_FLOAT32 : HEDDLE_INT32, HEDDLE_SUM));
    refused(sum(1000, HEDDLE_INT32, other ? HEDDLE_MAX : HEDDLE_SUM));
    refused(bcast(other ? 4 : 4000, 0));
    refused(bcast(4000, rank));
    refused(other ? bcast(4000, 0) : sum(1000, HEDDLE_INT32, HEDDLE_SUM));
    good.allreduce(comm, true);
    good.stream.wait();
    good.check_sum(2);
  });
}

// Ranks that are threads of one process: two on one GPU are refused, the same on all; each on its own are
// served.
TEST(StreamRelay, ThreadsThatShareAGpu) {
  const heddle::test::ThreadsRefused refused;
  for (const int gpus : {1, 2}) {
    on_ranks(2, [&](heddle_comm_t comm, int rank) {
      const Step step(rank, rank % gpus, 1000, 3);
      if (gpus == 2) {
        step.allreduce(comm, false);
        step.stream.wait();
        return step.check_sum(2);
      }
      const TestMemory word(*driver, Memory::device, 4, rank % gpus);
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(heddle_allreduce_on_stream(HEDDLE_IN_PLACE, word.data(), 1, HEDDLE_INT32, HEDDLE_SUM, comm,
                                             step.stream.get()),
                  HEDDLE_ERR_UNSUPPORTED);
        const std::string text = heddle_last_error();
        EXPECT_NE(text.find("ranks 0 and 1 are threads of one process and share a GPU"), std::string::npos)
            << text;
        EXPECT_NE(text.find("synchronise the stream"), std::string::npos) << text;
      }
      const std::int32_t mine = rank;
      word.put(&mine, sizeof mine);
      OK(heddle_allreduce(HEDDLE_IN_PLACE, word.data(), 1, HEDDLE_INT32, HEDDLE_SUM, comm));
      std::int32_t sum = 0;
      word.get(&sum, sizeof sum);
      EXPECT_EQ(sum, 1);
    });
  }
}

std::int32_t sum_of_words(const Step& step, const TestMemory& words, heddle_comm_t comm) {
  return heddle_allreduce_on_stream(HEDDLE_IN_PLACE, words.data(), 16, HEDDLE_INT32, HEDDLE_SUM, comm,
                                    step.stream.get());
}

// Of four slots the first sizes that fail are not missed.
constexpr const char* kOfSettingUp[] = {"cuEventCreate", "cuStreamCreate", "cuMemHostGetDevicePointer",
                                        "cuStreamBatchMemOp"};

// In setting up what fails once is tried again.
TEST(StreamRelay, OneFailsOnceInSettingUp) {
  for (const char* name : kOfSettingUp) {
    heddle::test::Node all(3);
    on_ranks(3, [&](heddle_comm_t comm, int rank) {
      const Step good(rank, rank % 2, 2 * kPiece, 3);
      const TestMemory words(*driver, Memory::device, 64, rank % 2);
      all.counted(name, [&] {
        if (rank == 0) driver->fail(name, CUDA_ERROR_OUT_OF_MEMORY);
      });
      EXPECT_EQ(sum_of_words(good, words, comm), HEDDLE_ERR_UNSUPPORTED)
          << name << ": " << heddle_last_error();
      good.allreduce(comm, false);
      good.stream.wait();
      good.check_sum(3);
    });
  }
}

// What fails twice in a row is not tried any more, on any rank.
TEST(StreamRelay, OneFailsTwiceInSettingUp) {
  for (const char* name : kOfSettingUp) {
    heddle::test::Node all(3);
    on_ranks(3, [&](heddle_comm_t comm, int rank) {
      const Step good(rank, rank % 2, 2 * kPiece, 3);
      const TestMemory words(*driver, Memory::device, 64, rank % 2);
      for (int call = 0; call < 6; ++call) {
        all.counted(name, [&] {
          if (rank == 0 && call < 2) driver->fail(name, CUDA_ERROR_OUT_OF_MEMORY);
        });
        const int streams = all.counted("cuStreamCreate", [&] {
          EXPECT_EQ(sum_of_words(good, words, comm), HEDDLE_ERR_UNSUPPORTED)
              << name << ": " << heddle_last_error();
        });
        const std::string text = heddle_last_error();
        EXPECT_NE(text.find("synchronise the stream"), std::string::npos) << text;
        if (call < 2)
          EXPECT_EQ(streams, 3) << name;
        else
          EXPECT_EQ(streams, 0) << name;
      }
    });
  }
}

// What fails on one rank before the streams are given anything is told to all, and it goes on.
TEST(StreamRelay, OneFails) {
  heddle::test::Node all(3);
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    const Step good(rank, rank % 2, 2 * kPiece, 3);
    const auto works = [&] {
      good.allreduce(comm, false);
      good.stream.wait();
      good.check_sum(3);
    };
    const TestMemory words(*driver, Memory::device, 64, rank % 2);
    const auto sum = [&](void* buffer) {
      return heddle_allreduce_on_stream(HEDDLE_IN_PLACE, buffer, 16, HEDDLE_INT32, HEDDLE_SUM, comm,
                                        good.stream.get());
    };
    works();
    TestMemory freed(*driver, Memory::device, 64, rank % 2);
    void* const nowhere = freed.lose();
    EXPECT_EQ(sum(rank == 1 ? nowhere : words.data()), rank == 1 ? HEDDLE_ERR_ARGUMENT : HEDDLE_ERR_PEER);
    const std::string wanted = rank == 1 ? "freed" : "rank 1 could not do its part";
    EXPECT_NE(std::string(heddle_last_error()).find(wanted), std::string::npos) << heddle_last_error();
    works();
    for (const char* name :
         {"cuStreamGetCtx", "cuStreamIsCapturing", "cuStreamWaitEvent", "cuStreamBatchMemOp"}) {
      all.counted(name, [&] {
        if (rank == 0) driver->fail(name, CUDA_ERROR_ILLEGAL_ADDRESS);
      });
      EXPECT_NE(sum(words.data()), HEDDLE_OK) << name;
      works();
    }
  });
}

// A stream that cannot be given its work: nobody waits for it, all are told in the next call, and the one
// after that begins anew.
TEST(StreamRelay, OneIsLost) {
  heddle::test::Node all(3);
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    for (const char* name : {"cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuStreamBatchMemOp"}) {
      // Behind the beginnings of the ranks' calls, which fail on all.
      const int begun = name == std::string("cuStreamBatchMemOp") ? 3 : 0;
      for (const int later : {begun, begun + 4}) {
        const Step step(rank, rank % 2, 6 * kPiece, 3);
        step.allreduce(comm, false);
        step.stream.wait();
        step.check_sum(3);
        const TestMemory words(*driver, Memory::device, step.bytes(), rank % 2);
        const auto sum = [&] {
          return heddle_allreduce_on_stream(HEDDLE_IN_PLACE, words.data(), 6 * kPiece, HEDDLE_INT32,
                                            HEDDLE_SUM, comm, step.stream.get());
        };
        heddle_status status = HEDDLE_OK;
        all.counted(name, [&] {
          if (rank == 0) driver->fail_after(name, later, CUDA_ERROR_ILLEGAL_ADDRESS);
        });
        all.counted(name, [&] { status = sum(); });
        EXPECT_TRUE(status == HEDDLE_OK || status == HEDDLE_ERR_SYSTEM) << heddle_last_error();
        step.stream.wait();
        const bool lost = status != HEDDLE_OK;
        EXPECT_EQ(sum(), lost ? HEDDLE_ERR_SYSTEM : HEDDLE_ERR_PEER) << name << " " << later;
        EXPECT_NE(std::string(heddle_last_error())
                      .find(lost ? "an earlier collective on a stream failed" : "could not do its part"),
                  std::string::npos)
            << heddle_last_error();
      }
    }
  });
}

// A context that is reset with heddle's stream, words and pinned memory in it: all are told in the next call,
// and the one after it begins anew.
TEST(StreamRelay, ContextIsReset) {
  heddle::test::Node all(2);
  const int copied = heddle::test::calls("memory that a fork copies");
  setenv("FAKE_CUDA_FORKS", "1", 1);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const int device = rank;
    const auto works = [&] {
      const Step step(rank, device, 5 * kPiece, 2);
      step.allreduce(comm, false);
      step.stream.wait();
      step.check_sum(2);
    };
    works();
    all.counted("", [&] {
      if (rank != 1) return;
      driver->set_current(nullptr);
      driver->call<PFN_cuDevicePrimaryCtxReset_v11000>("cuDevicePrimaryCtxReset_v2", CUdevice{1});
      (void)driver->primary(1);
    });
    const TestMemory word(*driver, Memory::device, 4, device);
    const heddle_status status =
        heddle_allreduce_on_stream(HEDDLE_IN_PLACE, word.data(), 1, HEDDLE_INT32, HEDDLE_SUM, comm, nullptr);
    EXPECT_EQ(status, rank == 1 ? HEDDLE_ERR_SYSTEM : HEDDLE_ERR_PEER);
    const std::string text = heddle_last_error();
    EXPECT_NE(text.find(rank == 1 ? "reset" : "rank 1 could not do its part"), std::string::npos) << text;
    works();
    works();
  });
  unsetenv("FAKE_CUDA_FORKS");
  EXPECT_EQ(heddle::test::calls("memory that a fork copies"), copied);
}

// A rank whose stream does not come to its part in time: the others' streams go on, the next call says who
// was missing, and the one after it begins anew.
TEST(StreamRelay, OneIsLate) {
  setenv("HEDDLE_TIMEOUT", "2", 1);
  std::barrier together(3);
  TestGate gate(*driver);
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    const Step step(rank, 0, 5 * kPiece, 1);
    const Step again(rank, 0, 5 * kPiece, 2);
    if (rank == 2) gate.hold(step.stream);
    step.allreduce(comm, true);
    if (rank != 2) step.stream.wait();
    together.arrive_and_wait();
    if (rank == 2) gate.open();
    const TestMemory word(*driver, Memory::device, 4, 0);
    const heddle_status status = heddle_allreduce_on_stream(HEDDLE_IN_PLACE, word.data(), 1, HEDDLE_INT32,
                                                            HEDDLE_SUM, comm, again.stream.get());
    const std::string text = heddle_last_error();
    EXPECT_NE(status, HEDDLE_OK);
    const char* const wanted = rank != 2 ? "an earlier collective on a stream failed: rank" : "rank";
    EXPECT_NE(text.find(wanted), std::string::npos) << text;
    again.allreduce(comm, false);
    again.stream.wait();
    again.check_sum(3);
    together.arrive_and_wait();
  });
  unsetenv("HEDDLE_TIMEOUT");
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  setenv("HEDDLE_TRANSPORTS", "tcp", 1);
  setenv("HEDDLE_PINNED_BYTES", "1M", 1);
  setenv("HEDDLE_MEASURE", "0", 1);
  static const heddle::test::TestDriver cuda(argv[1]);
  driver = &cuda;
  return RUN_ALL_TESTS();
}
