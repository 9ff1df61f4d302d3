// Collectives in CUDA graphs, through the C API on the double of CUDA's driver (its path is the argument), by
// ranks that are threads of one process: on one device, where all share a context, and on two; and, with
// HEDDLE_TRANSPORTS=tcp, each on a node of its own. For ranks that are processes see node_check.cpp.
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "graph_ranks.hpp"

namespace heddle::test::graphs {
namespace {

using testing_ranks::on_ranks;

// Blocking calls do not wait for streams there.
bool on_several_nodes() {
  const char* const transports = std::getenv("HEDDLE_TRANSPORTS");
  return transports != nullptr && std::strcmp(transports, "tcp") == 0;
}

// A graph of a sum, a sum in place and a bcast from each root, each with its input made before it; results
// are taken, and what they were in is made other.
class Program {
 public:
  Program(int rank, int ranks, int device, std::size_t count, int launches)
      : stream(device),
        ranks_(ranks),
        count_(count),
        launches_(launches),
        inputs_(device, count * static_cast<std::size_t>(launches), 0),
        made_(device, count, 0),
        next_(device, count, 1000),
        in_(device, count, -7),
        out_(device, count, -7),
        taken_(device, count * results(), -7),
        outputs_(device, count * results() * static_cast<std::size_t>(launches), -7) {
    std::vector<std::int32_t> values;
    for (int launch = 0; launch < launches; ++launch)
      values.insert(values.end(), count, input(rank, launch));
    inputs_.put(values);
  }
  void capture(heddle_comm_t comm) {
    graph_ = std::make_unique<Graph>(stream);
    make_input();
    OK(sum(comm, stream, in_.at(), out_.at(), count_));
    take(0, out_);
    make_input();
    OK(sum(comm, stream, HEDDLE_IN_PLACE, in_.at(), count_));
    take(1, in_);
    for (int root = 0; root < ranks_; ++root) {
      make_input();
      OK(heddle_bcast_on_stream(in_.at(), in_.bytes(), root, comm, stream.get()));
      take(2 + static_cast<std::size_t>(root), in_);
    }
    CAPTURED(*graph_);
  }
  void launch(int number) const {
    const std::size_t launch = static_cast<std::size_t>(number);
    stream.copy(made_.at(), inputs_.at(launch * count_), made_.bytes());
    graph_->launch(stream);
    stream.copy(outputs_.at(launch * count_ * results()), taken_.at(), taken_.bytes());
  }
  void check() const {
    for (int launch = 0; launch < launches_; ++launch) {
      std::int32_t total = 0;
      for (int r = 0; r < ranks_; ++r)
        total += input(r, launch);
      const auto result = [&](std::size_t number) {
        return outputs_.value((static_cast<std::size_t>(launch) * results() + number) * count_, count_);
      };
      ASSERT_EQ(result(0), total) << "launch " << launch;
      ASSERT_EQ(result(1), total) << "in place, launch " << launch;
      for (int root = 0; root < ranks_; ++root)
        ASSERT_EQ(result(2 + static_cast<std::size_t>(root)), input(root, launch)) << "launch " << launch;
    }
  }
  const Stream stream;

 private:
  std::size_t results() const { return 2 + static_cast<std::size_t>(ranks_); }
  static std::int32_t input(int rank, int launch) { return (rank + 1) * (launch + 1) + 5 * rank; }
  void make_input() const { stream.copy(in_.at(), made_.at(), in_.bytes()); }
  void take(std::size_t number, const Words& from) const {
    stream.copy(taken_.at(number * count_), from.at(), from.bytes());
    stream.copy(from.at(), next_.at(), from.bytes());
  }

  const int ranks_;
  const std::size_t count_;
  const int launches_;
  const Words inputs_;
  const Words made_;
  const Words next_;
  const Words in_;
  const Words out_;
  const Words taken_;
  const Words outputs_;
  std::unique_ptr<Graph> graph_;
};

// One rank has launched all and waits before the others launch anything: a different one each time.
void check_launches(int ranks, int devices) {
  std::barrier barrier(ranks);
  const int late = driver->calls("a load at a launch");
  on_ranks(ranks, [&](heddle_comm_t comm, int rank) {
    set_up(comm, rank % devices);
    int first = 0;
    for (const auto& [count, launches] : {std::pair{1, 100}, {1037, 2}, {20'001, 2}, {70'001, 1}}) {
      Program program(rank, ranks, rank % devices, static_cast<std::size_t>(count), launches);
      program.capture(comm);
      barrier.arrive_and_wait();
      if (rank != first) std::this_thread::sleep_for(std::chrono::milliseconds(5 * rank));
      for (int launch = 0; launch < launches; ++launch)
        program.launch(launch);
      program.stream.wait();
      program.check();
      first = (first + 1) % ranks;
      barrier.arrive_and_wait();
    }
  });
  EXPECT_EQ(driver->calls("a load at a launch"), late);
}

TEST(GpuGraphs, OneRank) {
  check_launches(1, 1);
}

TEST(GpuGraphs, InOneContext) {
  for (int ranks = 2; ranks <= 4; ++ranks)
    check_launches(ranks, 1);
}

TEST(GpuGraphs, OnTwoDevices) {
  check_launches(2, 2);
  check_launches(4, 2);
}

TEST(GpuGraphs, EachOnADeviceOfItsOwn) {
  check_launches(3, 3);
  check_launches(4, 4);
}

// Launches, calls on streams and blocking ones, each on another stream and none waited for: they follow each
// other. Waiting for the last must do for all.
void check_beside_others(int devices, std::size_t count) {
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    const int device = rank % devices;
    set_up(comm, device);
    const Stream streams[4] = {Stream(device), Stream(device), Stream(device), Stream(device)};
    const Words in(device, count, rank + 1);
    const Words outs[2] = {{device, count, -7}, {device, count, -7}};
    const Words other(device, count, -7);
    const Words blocking(device, count, -7);
    std::vector<std::unique_ptr<Graph>> graphs;
    for (const Words& out : outs) {
      graphs.push_back(std::make_unique<Graph>(streams[0]));
      OK(sum(comm, streams[0], in.at(), out.at(), count));
      OK(heddle_bcast_on_stream(out.at(), out.bytes(), 1, comm, streams[0].get()));
      CAPTURED(*graphs.back());
    }
    for (int round = 0; round < 3; ++round) {
      for (const Words& out : outs)
        out.set(-7);
      other.set(-7);
      // A graph, and a call after it.
      graphs[0]->launch(streams[1]);
      OK(sum(comm, streams[2], in.at(), other.at(), count));
      streams[2].wait();
      ASSERT_EQ(outs[0].value(), 6);
      ASSERT_EQ(other.value(), 6);
      // A call, a graph, and another.
      other.set(-7);
      outs[0].set(-7);
      OK(sum(comm, streams[3], in.at(), other.at(), count));
      graphs[0]->launch(streams[1]);
      graphs[1]->launch(streams[2]);
      streams[2].wait();
      ASSERT_EQ(other.value(), 6);
      ASSERT_EQ(outs[0].value(), 6);
      ASSERT_EQ(outs[1].value(), 6);
      // And a blocking call.
      outs[1].set(-7);
      graphs[1]->launch(streams[3]);
      OK(heddle_allreduce(in.at(), blocking.at(), count, HEDDLE_INT32, HEDDLE_SUM, comm));
      if (on_several_nodes()) streams[3].wait();
      ASSERT_EQ(outs[1].value(), 6);
      ASSERT_EQ(blocking.value(), 6);
    }
    for (const Stream& stream : streams)
      stream.wait();
  });
}

TEST(GpuGraphs, BesideOtherCalls) {
  for (const int devices : {1, 2, 3}) {
    check_beside_others(devices, 20'000);
    check_beside_others(devices, 1'000);
  }
}

// Where the call that set it up was refused afterwards, so that nothing has ended on any stream so far.
TEST(GpuGraphs, NothingBefore) {
  on_ranks(2, [](heddle_comm_t comm, int rank) {
    const Words words(rank, 40'000, rank + 1);
    const Words other(rank, 40'000, 1);
    const Stream elsewhere(1 - rank);
    const Stream stream(rank);
    EXPECT_EQ(sum(comm, elsewhere, HEDDLE_IN_PLACE, words.at(), 1), HEDDLE_ERR_UNSUPPORTED);
    Graph graph(stream);
    OK(sum(comm, stream, HEDDLE_IN_PLACE, words.at(), words.count()));
    CAPTURED(graph);
    graph.launch(stream);
    OK(heddle_allreduce(HEDDLE_IN_PLACE, other.at(), other.count(), HEDDLE_INT32, HEDDLE_SUM, comm));
    if (on_several_nodes()) stream.wait();
    EXPECT_EQ(words.value(), 3);
    EXPECT_EQ(other.value(), 2);
  });
}

// Two streams in one capture.
TEST(GpuGraphs, TwoStreamsOfOneCapture) {
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    set_up(comm, rank);
    const Stream one(rank);
    const Stream two(rank);
    const Words words(rank, 5000, 0);
    CUevent fork = nullptr;
    CUevent join = nullptr;
    for (CUevent* event : {&fork, &join})
      driver->call<PFN_cuEventCreate_v2000>("cuEventCreate", event, unsigned{CU_EVENT_DISABLE_TIMING});
    Graph graph(one);
    driver->call<PFN_cuEventRecord_v2000>("cuEventRecord", fork, one.get());
    driver->call<PFN_cuStreamWaitEvent_v3020>("cuStreamWaitEvent", two.get(), fork, 0U);
    OK(sum(comm, two, HEDDLE_IN_PLACE, words.at(), words.count()));
    OK(sum(comm, one, HEDDLE_IN_PLACE, words.at(), words.count()));
    OK(sum(comm, two, HEDDLE_IN_PLACE, words.at(), words.count()));
    driver->call<PFN_cuEventRecord_v2000>("cuEventRecord", join, two.get());
    driver->call<PFN_cuStreamWaitEvent_v3020>("cuStreamWaitEvent", one.get(), join, 0U);
    CAPTURED(graph);
    for (CUevent event : {fork, join})
      driver->call<PFN_cuEventDestroy_v4000>("cuEventDestroy_v2", event);
    words.set(rank + 1);
    for (int launch = 0; launch < 2; ++launch)
      graph.launch(two);
    two.wait();
    EXPECT_EQ(words.value(), 3 * 32);
  });
}

// A communicator that ends waits for what was launched.
TEST(GpuGraphs, EndOfTheCommunicator) {
  struct Rank {
    explicit Rank(int rank) : stream(rank), words(rank, 40'000, rank + 1), graph(stream) {}
    const Stream stream;
    const Words words;
    Graph graph;
  };
  std::unique_ptr<Rank> all[2];
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    set_up(comm, rank);
    all[rank] = std::make_unique<Rank>(rank);
    OK(sum(comm, all[rank]->stream, HEDDLE_IN_PLACE, all[rank]->words.at(), 40'000));
    CAPTURED(all[rank]->graph);
    for (int launch = 0; launch < 3; ++launch)
      all[rank]->graph.launch(all[rank]->stream);
  });
  for (const auto& one : all)
    EXPECT_EQ(one->words.value(), 3 * 4);
}

}  // namespace
}  // namespace heddle::test::graphs

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  setenv("FAKE_CUDA_DEVICES", "4", 1);
  // Little scratch, so that vectors are longer.
  setenv("HEDDLE_DEVICE_BYTES", "64K", 0);
  setenv("HEDDLE_MEASURE", "0", 1);
  static const heddle::test::TestDriver cuda(argv[1]);
  heddle::test::graphs::driver = &cuda;
  return RUN_ALL_TESTS();
}
