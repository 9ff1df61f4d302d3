// Of collectives on streams in CUDA graphs over several nodes (stream_graphs_test.cpp): what is refused or
// fails. Each with ranks that are alone on their nodes, whom the host serves alone, and with ranks whose GPUs
// share the vector out.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "stream_nodes.hpp"

namespace heddle::test {
namespace {

using Integers = Step<std::int32_t>;

const std::vector<Nodes>& kinds() {
  static const std::vector<Nodes> all = {{0, 1, 2}, {0, 0, 1, 1}};
  return all;
}
bool are_shared(const Nodes& nodes) {
  return nodes[0] == nodes[1];
}

// Vectors of several pieces either way; there is room for slots twice.
Config small_pieces() {
  Config config = little();
  config.pinned_bytes = std::size_t{1000} << 10;
  return config;
}

// A captured sum, with its input made before it and its result taken after it.
class Captured {
 public:
  Captured(Seat& seat, int step, std::size_t count = kLeast + 11)
      : sum(seat, 0, count, step), graph_(*driver, sum.stream) {
    graph_.begin();
    given = sum.allreduce(false);
    EXPECT_EQ(graph_.end(), CUDA_SUCCESS);
  }
  void launch() const { graph_.launch(sum.stream); }
  void works() const {
    launch();
    sum.check_sum(given);
  }

  const Integers sum;
  Status given;

 private:
  TestGraph graph_;
};

// A sum that is given to a stream by itself.
class Plain {
 public:
  explicit Plain(Seat& seat)
      : stream(*driver, 0), seat_(seat), words_(*driver, Memory::device, 4 * (kLeast + 11)) {}
  Status allreduce() const {
    return seat_.relay().allreduce_on(seat_.comm.gpu, stream.get(), words_.data(), words_.data(), kLeast + 11,
                                      DType::i32, Op::sum);
  }
  const TestStream stream;

 private:
  Seat& seat_;
  const TestMemory words_;
};

bool says(const Status& status, const char* what) {
  return !status.ok() && status.message().find(what) != std::string::npos;
}

// The first call of all, and what not all ranks capture; what was captured before goes on.
TEST(StreamGraphs, Refused) {
  for (const Nodes& nodes : kinds()) {
    on_nodes(nodes, small_pieces(), [](Seat& seat) {
      const Captured first(seat, 1);
      EXPECT_TRUE(says(first.given, "call it once outside the capture first")) << first.given.message();
      const Integers step(seat, 0, kLeast, 2);
      step.works();
      const Captured good(seat, 3);
      good.works();
      const Plain sum(seat);
      for (int odd = 0; odd < 2; ++odd) {
        TestGraph mixed(*driver, sum.stream);
        const bool captures = seat.rank % 2 == odd;
        if (captures) mixed.begin();
        const Status said = sum.allreduce();
        if (captures) {
          EXPECT_EQ(mixed.end(), CUDA_SUCCESS);
        }
        EXPECT_EQ(said.code(), Code::unsupported);
        EXPECT_TRUE(says(said, captures ? "is being captured" : "is not being captured")) << said.message();
        good.works();
        step.works();
      }
      // One that is launched all the same does nothing, and holds up nobody.
      TestGraph refused(*driver, sum.stream);
      const bool captures = seat.rank == 1;
      if (captures) refused.begin();
      EXPECT_FALSE(sum.allreduce().ok());
      if (captures) {
        EXPECT_EQ(refused.end(), CUDA_SUCCESS);
        for (int launch = 0; launch < 2; ++launch)
          refused.launch(sum.stream);
        sum.stream.wait();
      }
      good.works();
    });
  }
}

// Whatever fails on one rank in a capture, all are told in that call, nothing has ended, and nothing is
// waited for, which would make the captures fail.
TEST(StreamGraphs, OneFails) {
  for (const Nodes& nodes : kinds()) {
    const int size = static_cast<int>(nodes.size());
    std::atomic<int> own = 0;
    std::atomic<int> heard = 0;
    int failures = 0;
    std::vector<std::pair<const char*, int>> failing = {
        {"cuStreamGetCaptureInfo", 0}, {"cuEventRecord", 0}, {"cuStreamBatchMemOp", 0}};
    // Behind the beginnings of the ranks' calls.
    for (const int later : {0, 7})
      failing.emplace_back("cuStreamBatchMemOp", size + later);
    for (const int later : {0, 3}) {
      failing.emplace_back("cuMemcpyDtoHAsync", later);
      failing.emplace_back("cuMemcpyHtoDAsync", later);
      if (are_shared(nodes)) failing.emplace_back("cuLaunchKernel", later);
      if (are_shared(nodes)) failing.emplace_back("cuMemcpyDtoDAsync", later);
    }
    on_nodes(nodes, small_pieces(), [&](Seat& seat) {
      const Integers step(seat, 0, kLeast, 2);
      step.works();
      const Captured before(seat, 3);
      const Plain sum(seat);
      for (const auto& [name, later] : failing) {
        if (seat.rank == 0) ++failures;
        TestGraph graph(*driver, sum.stream);
        graph.begin();
        seat.fail(name, later);
        Status said;
        seat.all.counted(name, [&] { said = sum.allreduce(); });
        EXPECT_EQ(graph.end(), CUDA_SUCCESS) << name;
        own += said.code() == Code::system ? 1 : 0;
        heard += said.code() == Code::peer_failed ? 1 : 0;
        const Captured good(seat, 4);
        good.works();
        before.works();
        step.works();
      }
    });
    EXPECT_EQ(own, failures);
    EXPECT_EQ(heard, failures * (size - 1));
  }
}

// A call outside of a capture whose stream cannot be given its work on one rank: the graphs of before go on,
// before all are told of it, and when calls have begun anew.
TEST(StreamGraphs, OutliveACall) {
  for (const Nodes& nodes : kinds()) {
    const int size = static_cast<int>(nodes.size());
    for (const auto& [later, count] : {std::pair{0, kLeast}, {9, kLeast}, {9, std::size_t{5000}}}) {
      on_nodes(nodes, small_pieces(), [&, later = later, count = count](Seat& seat) {
        const Integers step(seat, 0, kLeast, 2);
        step.works();
        const Captured before(seat, 3, count);
        const Plain sum(seat);
        seat.fail("cuStreamBatchMemOp", size + later);
        Status said;
        before.launch();
        seat.all.counted("cuStreamBatchMemOp", [&] { said = sum.allreduce(); });
        before.works();
        sum.stream.wait();
        // In a capture nothing can begin anew.
        const Captured refused(seat, 1, count);
        const char* const wanted =
            said.ok() ? "could not do its part" : "an earlier collective on a stream failed";
        EXPECT_TRUE(says(refused.given, wanted)) << refused.given.message();
        const Status next = sum.allreduce();
        EXPECT_TRUE(says(next, wanted)) << next.message();
        step.works();
        const Captured after(seat, 4);
        for (int round = 0; round < 2; ++round) {
          before.works();
          after.works();
          step.works();
        }
      });
    }
  }
}

// A rank that does not come to its launch in time: the others' streams go on, and so does its own. The next
// call says it; what was captured is of no use then, which the next call after a launch says.
TEST(StreamGraphs, OneIsLate) {
  for (const Nodes& nodes : kinds()) {
    Config config = small_pieces();
    config.timeout = std::chrono::seconds(1);
    TestGate gate(*driver);
    on_nodes(nodes, config, [&](Seat& seat) {
      const int last = static_cast<int>(nodes.size()) - 1;
      const Integers step(seat, 0, kLeast, 2);
      step.works();
      const Captured graph(seat, 3);
      graph.works();
      if (seat.rank == last) gate.hold(graph.sum.stream);
      graph.launch();
      const bool late = nodes[static_cast<std::size_t>(seat.rank)] == nodes.back();
      if (!late) graph.sum.stream.wait();
      seat.together.arrive_and_wait();
      if (seat.rank == last) gate.open();
      const Status said = step.allreduce(false);
      EXPECT_TRUE(says(said, "rank")) << said.message();
      if (!late) {
        EXPECT_TRUE(says(said, "an earlier collective on a stream failed: rank")) << said.message();
      }
      step.works();
      const Captured anew(seat, 4);
      for (int round = 0; round < 2; ++round) {
        graph.launch();
        graph.sum.stream.wait();
        seat.together.arrive_and_wait();
        const Status missed = step.allreduce(false);
        EXPECT_TRUE(says(missed, "has to be captured again")) << missed.message();
        seat.together.arrive_and_wait();
        step.works();
        anew.works();
      }
    });
  }
}

// A communicator ends although launches of one rank's have nobody to meet: what waits for other nodes is let
// go.
TEST(StreamGraphs, EndWithoutTheOthers) {
  Config config = small_pieces();
  config.timeout = std::chrono::seconds(1);
  on_nodes({0, 1, 2}, config, [](Seat& seat) {
    const Integers step(seat, 0, kLeast, 2);
    step.works();
    const Captured graph(seat, 3);
    seat.together.arrive_and_wait();
    if (seat.rank == 1) graph.launch();
    seat.comm.communicator.reset();
  });
}

}  // namespace
}  // namespace heddle::test
