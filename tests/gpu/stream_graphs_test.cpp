// Collectives on streams in CUDA graphs, of ranks on several nodes with several on each, on the double of
// CUDA's driver: those that are shared out by a node's GPUs, and those that the host does alone. For ranks
// that are alone on their nodes see graph_test.cpp.
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "api/device_buffers.hpp"
#include "stream_nodes.hpp"

namespace heddle::test {
namespace {

using Integers = Step<std::int32_t>;

// A graph of a short sum, a long one, one in place, a long bcast, and a short sum again.
class Program {
 public:
  Program(Seat& seat, int device, int root) : stream(*driver, device), root_(root), graph_(*driver, stream) {
    for (const std::size_t count : {std::size_t{5000}, kLeast, kLeast + 40'003, kLeast + 17, std::size_t{1}})
      steps_.push_back(std::make_unique<Integers>(seat, device, count, 0, &stream));
  }
  void capture() {
    graph_.begin();
    for (std::size_t i = 0; i < steps_.size(); ++i)
      given_.push_back(i == kBcast ? steps_[i]->bcast(root_) : steps_[i]->allreduce(i == 2));
    ASSERT_EQ(static_cast<int>(graph_.end()), 0);
  }
  void make(int number) {
    for (std::size_t i = 0; i < steps_.size(); ++i)
      steps_[i]->make(number + static_cast<int>(i));
  }
  void launch(const TestStream& on) const { graph_.launch(on); }
  // What was launched on its own stream.
  void check() const {
    for (std::size_t i = 0; i < steps_.size(); ++i)
      i == kBcast ? steps_[i]->check_bcast(given_[i], root_) : steps_[i]->check_sum(given_[i]);
  }
  void destroy() { graph_.destroy(); }
  static constexpr std::uint64_t kShared = 3;  // of its collectives
  static constexpr std::size_t kCalls = 5;

  const TestStream stream;

 private:
  static constexpr std::size_t kBcast = 3;
  const int root_;
  std::vector<std::unique_ptr<Integers>> steps_;
  TestGraph graph_;
  std::vector<Status> given_;
};

// Each time with another input, one rank behind the others.
TEST(StreamGraphs, Launches) {
  for (const Nodes& nodes : {Nodes{0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 0, 1}, {0, 1, 1, 2, 2, 2}}) {
    on_nodes(nodes, little(), [&](Seat& seat) {
      const Integers first(seat, seat.rank % 2, 1, 0);
      first.works();
      const int size = static_cast<int>(nodes.size());
      Program program(seat, seat.rank % 2, size - 1);
      program.capture();
      EXPECT_EQ(seat.relay().shared(), Program::kShared);
      for (int launch = 0; launch < 3; ++launch) {
        program.make(launch);
        seat.together.arrive_and_wait();
        if (launch % size == seat.rank) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        program.launch(program.stream);
        program.check();
      }
    });
  }
}

// Two graphs by turns, calls on other streams and blocking ones, none waited for.
TEST(StreamGraphs, BesideOtherCalls) {
  on_nodes({0, 0, 1, 1, 1}, little(), [](Seat& seat) {
    const Integers longer(seat, 0, kLeast + 99, 1);
    const Integers shorter(seat, 0, 7000, 2);
    longer.works();
    Program one(seat, 0, 4);
    Program two(seat, 0, 1);
    one.capture();
    two.capture();
    const TestStream other(*driver, 0);
    for (int round = 0; round < 2; ++round) {
      one.make(10 + round);
      two.make(20 + round);
      std::vector<Status> said;
      const int waits = seat.all.counted("cuStreamSynchronize", [&] {
        one.launch(one.stream);
        said.push_back(longer.allreduce(false));
        two.launch(other);
        said.push_back(shorter.bcast(2));
        std::int64_t number = seat.rank;
        EXPECT_TRUE(seat.comm.communicator->allreduce(&number, &number, 1, DType::i64, Op::max).ok());
        EXPECT_EQ(number, 4);
        one.launch(one.stream);
      });
      EXPECT_EQ(waits, 0);
      one.check();
      other.wait();
      two.check();
      longer.check_sum(said[0]);
      shorter.check_bcast(said[1], 2);
    }
  });
}

// Blocking sums of GPU memory have links of their own.
TEST(StreamGraphs, BesideBlockingSums) {
  on_nodes({0, 0, 1, 1}, little(), [](Seat& seat) {
    const TestMemory vector(*driver, Memory::device, kLeast * 4, 0);
    const Integers first(seat, 0, 1, 0);
    first.works();
    Program program(seat, 0, 0);
    program.capture();
    for (int i = 0; i < 10; ++i) {
      program.make(i);
      const std::vector<std::int32_t> ones(kLeast, 1);
      vector.put(ones.data(), kLeast * 4);
      seat.together.arrive_and_wait();
      program.launch(program.stream);
      const Status status = heddle::edge::allreduce_anywhere(
          seat.comm, {vector.data(), vector.data(), kLeast, DType::i32, Op::sum});
      EXPECT_TRUE(status.ok()) << status.message();
      std::int32_t last = 0;
      vector.get(&last, 4, (kLeast - 1) * 4);
      EXPECT_EQ(last, 4);
      program.check();
    }
  });
}

// A program may capture anew in each step: what is known of its calls goes with the graph, which may be
// destroyed while it runs.
TEST(StreamGraphs, CallsGoWithTheirGraph) {
  on_nodes({0, 0, 1, 1}, little(), [](Seat& seat) {
    const Integers first(seat, 0, 1, 0);
    first.works();
    Program stays(seat, 0, 1);
    stays.capture();
    for (int step = 0; step < 3; ++step) {
      Program program(seat, 0, 3);
      program.capture();
      EXPECT_EQ(seat.relay().in_graphs(), 2 * Program::kCalls);
      program.make(step);
      stays.make(step);
      seat.together.arrive_and_wait();
      program.launch(program.stream);
      program.destroy();
      stays.launch(stays.stream);
      program.check();
      program.stream.wait();
      stays.check();
      EXPECT_EQ(seat.relay().in_graphs(), Program::kCalls);
    }
  });
}

// Where CUDA does not take what would tell, no graph is gone.
TEST(StreamGraphs, CallsStayWhereNobodyTells) {
  on_nodes({0, 0, 1, 1}, little(), [](Seat& seat) {
    const Integers first(seat, 0, 1, 0);
    first.works();
    seat.fail("cuGraphRetainUserObject");
    Program program(seat, 0, 3);
    program.capture();
    EXPECT_EQ(seat.relay().in_graphs(), Program::kCalls);
    program.make(1);
    seat.together.arrive_and_wait();
    program.launch(program.stream);
    program.check();
  });
}

// A communicator that ends waits for what was launched.
TEST(StreamGraphs, EndOfTheCommunicator) {
  const Nodes nodes = {0, 0, 1};
  struct Rank {
    explicit Rank(int rank)
        : stream(*driver, 0), sums(*driver, Memory::device, kLeast * 4), graph(*driver, stream) {
      sums.put(values<std::int32_t>(kLeast, rank, 1).data(), kLeast * 4);
    }
    const TestStream stream;
    const TestMemory sums;
    TestGraph graph;
  };
  std::vector<std::unique_ptr<Rank>> all(3);
  on_nodes(nodes, little(), [&](Seat& seat) {
    const Integers first(seat, 0, 1, 0);
    first.works();
    all[static_cast<std::size_t>(seat.rank)] = std::make_unique<Rank>(seat.rank);
    Rank& mine = *all[static_cast<std::size_t>(seat.rank)];
    mine.graph.begin();
    const Status status = seat.relay().allreduce_on(seat.comm.gpu, mine.stream.get(), mine.sums.data(),
                                                    mine.sums.data(), kLeast, DType::i32, Op::sum);
    EXPECT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(static_cast<int>(mine.graph.end()), 0);
    EXPECT_EQ(seat.relay().shared(), 1U);
    for (int launch = 0; launch < 2; ++launch)
      mine.graph.launch(mine.stream);
  });
  driver->set_current(driver->primary(0));
  std::vector<std::int32_t> wanted = sum_of<std::int32_t>(nodes, kLeast, 1);
  for (std::int32_t& one : wanted)
    one *= 3;
  for (const auto& one : all) {
    std::vector<std::int32_t> got(kLeast);
    one->sums.get(got.data(), kLeast * 4);
    EXPECT_EQ(got, wanted);
  }
}

// Where the GPUs of one node cannot meet in graphs the host does what is captured, and what is not is shared
// out.
TEST(StreamGraphs, WithoutFlags) {
  on_nodes({0, 0, 1, 1}, little(), [](Seat& seat) {
    const Integers first(seat, 0, kLeast, 1);
    seat.fail("cuMemHostRegister", 0, CUDA_ERROR_NOT_SUPPORTED);
    first.works();
    EXPECT_EQ(seat.relay().shared(), 1U);
    Program program(seat, 0, 3);
    program.capture();
    EXPECT_EQ(seat.relay().shared(), 1U);
    for (int launch = 0; launch < 2; ++launch) {
      program.make(launch);
      seat.together.arrive_and_wait();
      program.launch(program.stream);
      program.check();
    }
    first.works();
    EXPECT_EQ(seat.relay().shared(), 2U);
  });
}

}  // namespace
}  // namespace heddle::test
