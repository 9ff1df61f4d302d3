// What of collectives in CUDA graphs is refused or fails (graph_test.cpp has those that are served, and
// main()).
#include <gtest/gtest.h>

#include <barrier>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "graph_ranks.hpp"

namespace heddle::test::graphs {
namespace {

using testing_ranks::on_ranks;

// What cannot be captured is refused on all ranks, and what can goes on.
TEST(GpuGraphs, Refused) {
  std::barrier barrier(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const Stream stream(0);
    const Words words(0, 4, rank + 1);
    const auto refused = [&](void* buffer, bool captures, const std::string& why) {
      const auto graph = captures ? std::make_unique<Graph>(stream) : nullptr;
      EXPECT_EQ(sum(comm, stream, HEDDLE_IN_PLACE, buffer, 4), HEDDLE_ERR_UNSUPPORTED);
      EXPECT_NE(std::string(heddle_last_error()).find(why), std::string::npos) << heddle_last_error();
      if (graph != nullptr) {
        EXPECT_EQ(graph->end(), CUDA_SUCCESS);
      }
      barrier.arrive_and_wait();
    };
    const std::string first = "call it once outside the capture first";
    const std::string other = "rank 1 could not do its part";
    refused(words.at(), true, first);
    // In no context: that of its device is asked for.
    const TestMemory pool(*driver, Memory::pool, words.bytes());
    refused(pool.data(), true, first);
    refused(words.at(), rank == 1, rank == 1 ? first : other);
  });
  // Flags that cannot be had stop nothing else.
  for (const char* name : {"cuMemHostRegister", "cuMemHostGetDevicePointer", "cuStreamBatchMemOp"}) {
    on_ranks(2, [&](heddle_comm_t comm, int rank) {
      const Stream stream(0);
      const Words words(0, 4, rank + 1);
      if (rank == 1) driver->fail(name, CUDA_ERROR_NOT_SUPPORTED);
      barrier.arrive_and_wait();
      for (int sums = 1; sums <= 2; ++sums) {
        OK(sum(comm, stream, HEDDLE_IN_PLACE, words.at(), 4));
        stream.wait();
        EXPECT_EQ(words.value(), 3 * sums);
        Graph graph(stream);
        EXPECT_EQ(sum(comm, stream, HEDDLE_IN_PLACE, words.at(), 4), HEDDLE_ERR_UNSUPPORTED) << name;
        const std::string text = heddle_last_error();
        EXPECT_NE(text.find("cannot meet inside of CUDA graphs"), std::string::npos) << text;
        CAPTURED(graph);
      }
    });
  }
}

// Ranks that are threads of one process: two on one GPU capture nothing, while their streams are served; each
// on its own capture.
TEST(GpuGraphs, RefusedOfThreadsThatShareAGpu) {
  const ThreadsRefused refused;
  for (const int gpus : {2, 3}) {
    on_ranks(3, [&](heddle_comm_t comm, int rank) {
      set_up(comm, rank % gpus);
      const Stream stream(rank % gpus);
      const Words words(rank % gpus, 4, rank + 1);
      Graph graph(stream);
      const heddle_status status = sum(comm, stream, HEDDLE_IN_PLACE, words.at(), 4);
      const std::string text = heddle_last_error();
      CAPTURED(graph);
      if (gpus == 3) {
        OK(status);
        return;
      }
      EXPECT_EQ(status, HEDDLE_ERR_UNSUPPORTED);
      EXPECT_NE(text.find("ranks 0 and 2 are threads of one process and share a GPU"), std::string::npos)
          << text;
      OK(sum(comm, stream, HEDDLE_IN_PLACE, words.at(), 4));
      stream.wait();
      EXPECT_EQ(words.value(), 6);
    });
  }
}

// A stream of another context, which is not found out by what makes its capture fail.
TEST(GpuGraphs, OfAnotherContext) {
  on_ranks(2, [](heddle_comm_t comm, int rank) {
    set_up(comm, 0);
    const Stream stream(0);
    const Stream elsewhere(1);
    const Words words(0, 4, rank + 1);
    Graph graph(rank == 1 ? elsewhere : stream);
    EXPECT_EQ(sum(comm, rank == 1 ? elsewhere : stream, HEDDLE_IN_PLACE, words.at(), 4),
              HEDDLE_ERR_UNSUPPORTED);
    const std::string wanted = rank == 1 ? "is not of the context" : "rank 1 could not do its part";
    EXPECT_NE(std::string(heddle_last_error()).find(wanted), std::string::npos) << heddle_last_error();
    CAPTURED(graph);
    OK(sum(comm, stream, HEDDLE_IN_PLACE, words.at(), 4));
    stream.wait();
    EXPECT_EQ(words.value(), 3);
  });
}

// The default stream takes no work while one that synchronises with it is captured, and to find that out does
// the capture no harm.
TEST(GpuGraphs, DefaultStreamBesideACapture) {
  on_ranks(2, [](heddle_comm_t comm, int rank) {
    const Words words(rank, 4, rank + 1);
    const auto sum_on_default = [&] {
      return heddle_allreduce_on_stream(HEDDLE_IN_PLACE, words.at(), 4, HEDDLE_INT32, HEDDLE_SUM, comm,
                                        nullptr);
    };
    const TestStream captured(*driver, rank, CU_STREAM_DEFAULT);
    for (const char* why : {"call it once outside the capture first", "takes no work"}) {
      TestGraph graph(*driver, captured);
      if (rank == 1) graph.begin();
      EXPECT_EQ(sum_on_default(), HEDDLE_ERR_UNSUPPORTED);
      const std::string text = heddle_last_error();
      EXPECT_NE(text.find(rank == 1 ? why : "rank 1 could not do its part"), std::string::npos) << text;
      if (rank == 1) {
        CAPTURED(graph);
      }
      words.set(rank + 1);
      OK(sum_on_default());
      EXPECT_EQ(words.value(), 3);
    }
  });
}

// What goes to another stream of the thread's is no part of a capture, and does it no harm; nor does setting
// up for it.
TEST(GpuGraphs, BesideACapture) {
  for (const int devices : {1, 2}) {
    for (const bool is_first : {false, true}) {
      on_ranks(2, [&](heddle_comm_t comm, int rank) {
        const int device = rank % devices;
        if (!is_first) set_up(comm, device);
        const Stream stream(device);
        const Stream captured(device);
        const Words words(device, 4, rank + 1);
        Graph graph(captured);
        OK(sum(comm, stream, HEDDLE_IN_PLACE, words.at(), 4));
        CAPTURED(graph);
        stream.wait();
        EXPECT_EQ(words.value(), 3);
      });
    }
  }
}

// Another thread captures in the mode in which the driver refuses to everybody what may be unsafe, and makes
// the capture fail where somebody tries: communicators that are made meanwhile serve calls by images and by
// GPUs, and end.
TEST(GpuGraphs, BesideAnotherThreadsCapture) {
  constexpr int kSums = 20;
  for (const int devices : {1, 2}) {
    std::vector<std::unique_ptr<Words>> words;
    std::vector<std::unique_ptr<Stream>> streams;
    for (const std::size_t count : {4, 200'000}) {
      for (int rank = 0; rank < 2; ++rank)
        words.push_back(std::make_unique<Words>(rank % devices, count, rank + 1));
    }
    for (int rank = 0; rank < 2; ++rank)
      streams.push_back(std::make_unique<Stream>(rank % devices));
    std::barrier barrier(2);
    std::thread captures([&] {
      const Stream stream(0);
      TestGraph graph(*driver, stream);
      graph.begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
      barrier.arrive_and_wait();
      barrier.arrive_and_wait();
      CAPTURED(graph);
    });
    barrier.arrive_and_wait();
    on_ranks(2, [&](heddle_comm_t comm, int rank) {
      const auto mine = static_cast<std::size_t>(rank);
      for (int i = 0; i < kSums; ++i) {
        for (const std::size_t at : {mine, 2 + mine}) {
          const Words& one = *words[at];
          EXPECT_EQ(heddle_allreduce(HEDDLE_IN_PLACE, one.at(), one.count(), HEDDLE_INT32, HEDDLE_SUM, comm),
                    HEDDLE_OK)
              << heddle_last_error();
        }
      }
      for (const std::size_t at : {mine, 2 + mine})
        EXPECT_EQ(sum(comm, *streams[mine], HEDDLE_IN_PLACE, words[at]->at(), words[at]->count()), HEDDLE_OK)
            << heddle_last_error();
    });
    barrier.arrive_and_wait();
    captures.join();
    for (const auto& one : words)
      EXPECT_EQ(one->value(), 3 << kSums);
  }
}

int allocated() {
  return driver->find<int (*)()>("fake_cuda_allocated")();
}
int registered() {
  return driver->find<int (*)()>("fake_cuda_registered")();
}
heddle_status blocking_sum(heddle_comm_t comm, const Words& words) {
  return heddle_allreduce(HEDDLE_IN_PLACE, words.at(), words.count(), HEDDLE_INT32, HEDDLE_SUM, comm);
}

// As a garbage collector may do it, by whose thread a graph is being captured: the capture goes on, and what
// the communicator had is given back.
TEST(GpuGraphs, CommunicatorsEndInACapture) {
  for (const int devices : {1, 2}) {
    const int allocations = allocated();
    const int registrations = registered();
    testing_ranks::Meeting meeting(2);
    testing_ranks::on_threads(2, [&](int rank) {
      testing_ranks::Seat seat{&meeting, rank};
      heddle_comm_t comm = nullptr;
      OK(heddle_comm_create(rank, 2, testing_ranks::gather_at, &seat, nullptr, &comm));
      set_up(comm, rank % devices);
      const Stream stream(rank % devices);
      const Words words(rank % devices, 200'000, 1);
      for (int sums = 0; sums < 10; ++sums)
        OK(blocking_sum(comm, words));
      OK(sum(comm, stream, HEDDLE_IN_PLACE, words.at(), words.count()));
      stream.wait();
      Graph graph(stream);
      OK(heddle_comm_destroy(comm));
      CAPTURED(graph);
    });
    EXPECT_EQ(allocated(), allocations) << devices;
    EXPECT_EQ(registered(), registrations) << devices;
  }
}

// They fail there, as all that synchronises, and the capture of a rank that has waited; but
// again, and the communicator what it was.
TEST(GpuGraphs, BlockingCallsInACaptureLeaveNothingUnderWay) {
  for (const int devices : {1, 2}) {
    for (const std::size_t count : {std::size_t{4}, std::size_t{50'000}, std::size_t{600'000}}) {
      for (const int before : {0, 8}) {  // by images, or by GPUs
        on_ranks(2, [&](heddle_comm_t comm, int rank) {
          const Stream stream(rank % devices);
          const Words words(rank % devices, count, 1);
          const Words others(rank % devices, count, 1);
          for (int sums = 0; sums < before; ++sums)
            OK(blocking_sum(comm, words));
          Graph graph(stream);
          EXPECT_NE(blocking_sum(comm, words), HEDDLE_OK);
          static_cast<void>(graph.end());
          words.set(77);
          for (int sums = 0; sums < 6; ++sums)
            OK(blocking_sum(comm, others));
          EXPECT_EQ(words.value(), 77) << count << " of " << devices << " after " << before;
          EXPECT_EQ(others.value(), 1 << 6);
        });
      }
    }
  }
}

// All capture a call, or none.
TEST(GpuGraphs, NotAllCapture) {
  for (const int devices : {1, 2, 3}) {
    on_ranks(3, [&](heddle_comm_t comm, int rank) {
      set_up(comm, rank % devices);
      const Stream stream(rank % devices);
      const Words words(rank % devices, 4, rank + 1);
      Graph before(stream);
      OK(sum(comm, stream, HEDDLE_IN_PLACE, words.at(), 4));
      CAPTURED(before);
      const auto mixed = rank == 1 ? std::make_unique<Graph>(stream) : nullptr;
      EXPECT_EQ(sum(comm, stream, HEDDLE_IN_PLACE, words.at(), 4), HEDDLE_ERR_UNSUPPORTED);
      const std::string wanted =
          rank == 1 ? "this rank's stream is being captured" : "this rank's stream is not being captured";
      EXPECT_NE(std::string(heddle_last_error()).find(wanted), std::string::npos) << heddle_last_error();
      if (mixed != nullptr) {
        EXPECT_EQ(mixed->end(), CUDA_SUCCESS);
      }
      before.launch(stream);
      OK(sum(comm, stream, HEDDLE_IN_PLACE, words.at(), 4));
      stream.wait();
      EXPECT_EQ(words.value(), 18);
    });
  }
}

// Whatever fails on one rank in a capture, all are told, and it can go on: in another capture and outside.
// Nothing waits on the host, which would make captures fail.
void check_one_fails(int devices, std::size_t count) {
  std::barrier barrier(3);
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    const int device = rank % devices;
    set_up(comm, device);
    const Stream stream(device);
    const Words words(device, count, 0);
    const auto add = [&](void* buffer) { return sum(comm, stream, HEDDLE_IN_PLACE, buffer, count); };
    TestMemory freed(*driver, Memory::device, 4 * count, device);
    void* const nowhere = freed.lose();
    const int before = driver->calls("heddle_exchange");
    barrier.arrive_and_wait();
    OK(add(words.at()));
    stream.wait();
    barrier.arrive_and_wait();
    // Kernels that wait for each other need no operations on memory.
    const bool exchanges = driver->calls("heddle_exchange") > before;
    for (const char* name : {"freed", exchanges ? "cuStreamWaitEvent" : "cuStreamBatchMemOp",
                             "cuLaunchKernel", "cuStreamGetCaptureInfo"}) {
      const bool is_freed = name == std::string("freed");
      barrier.arrive_and_wait();
      if (rank == 0 && !is_freed) driver->fail(name, CUDA_ERROR_ILLEGAL_ADDRESS);
      barrier.arrive_and_wait();
      Graph failed(stream);
      EXPECT_NE(add(is_freed && rank == 1 ? nowhere : words.at()), HEDDLE_OK) << name;
      CAPTURED(failed);
      barrier.arrive_and_wait();
      words.set(rank + 1);
      Graph graph(stream);
      OK(add(words.at()));
      CAPTURED(graph);
      barrier.arrive_and_wait();
      graph.launch(stream);
      OK(add(words.at()));
      stream.wait();
      ASSERT_EQ(words.value(), 18) << name;
    }
  });
}

TEST(GpuGraphs, OneFails) {
  for (const int devices : {1, 2, 3}) {
    check_one_fails(devices, 50'000);
    check_one_fails(devices, 1'000);
  }
}

// What fails outside of a capture ends what calls use, and the next one makes it anew; graphs go on with what
// they have.
void check_outlive(int devices, std::size_t count) {
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    const int device = rank % devices;
    set_up(comm, device);
    TestMemory freed(*driver, Memory::device, 4 * count, device);
    void* const nowhere = freed.lose();
    const Stream stream(device);
    const Words words(device, count, 0);
    const auto add = [&](void* buffer) { return sum(comm, stream, HEDDLE_IN_PLACE, buffer, count); };
    std::vector<std::unique_ptr<Graph>> graphs;
    for (int round = 0; round < 3; ++round) {
      graphs.push_back(std::make_unique<Graph>(stream));
      OK(add(words.at()));
      CAPTURED(*graphs.back());
      EXPECT_EQ(add(rank == 1 ? nowhere : words.at()), rank == 1 ? HEDDLE_ERR_ARGUMENT : HEDDLE_ERR_PEER);
      words.set(rank + 1);
      for (const auto& graph : graphs)
        graph->launch(stream);
      OK(add(words.at()));
      for (const auto& graph : graphs)
        graph->launch(stream);
      stream.wait();
      std::int32_t wanted = 6;
      for (std::size_t i = 0; i < 2 * graphs.size(); ++i)
        wanted *= 3;
      ASSERT_EQ(words.value(), wanted);
    }
  });
}

TEST(GpuGraphs, OutliveFailures) {
  for (const int devices : {1, 2, 3}) {
    check_outlive(devices, 50'000);
    check_outlive(devices, 1'000);
  }
}

}  // namespace
}  // namespace heddle::test::graphs
