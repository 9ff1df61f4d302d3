// Collectives on streams of ranks on several nodes with several on each, whose GPUs share large vectors out;
// on the double of CUDA's driver (its path is the argument). In the double a stream does nothing before
// somebody waits for it.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "api/device_buffers.hpp"
#include "stream_nodes.hpp"

namespace heddle::test {
namespace {

// Alike, uneven with one lane, with two, in turns, of three nodes.
const std::vector<Nodes>& shapes() {
  static const std::vector<Nodes> all = {
      {0, 0, 1, 1}, {0, 0, 0, 1}, {0, 0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 2, 2, 2}};
  return all;
}

template <typename T>
void check_steps(const Nodes& nodes, const Config& config) {
  on_nodes(nodes, config, [&](Seat& seat) {
    int number = 0;
    std::uint64_t shared = 0;
    for (const std::size_t count : {kLeast - 1, kLeast, kLeast + 40'003}) {
      const Step<T> step(seat, seat.rank % 2, count, ++number);
      const std::uint64_t more = count >= kLeast ? 1 : 0;
      for (const bool in_place : {false, true}) {
        step.works(in_place);
        EXPECT_EQ(seat.relay().shared(), shared += more);
      }
      for (int root = 0; root < static_cast<int>(nodes.size()); ++root) {
        step.check_bcast(step.bcast(root), root);
        EXPECT_EQ(seat.relay().shared(), shared += more);
      }
    }
  });
}

// In many pieces, and in a few by way of much memory.
TEST(StreamNodes, Steps) {
  for (const Nodes& nodes : shapes()) {
    const bool two = *std::max_element(nodes.begin(), nodes.end()) == 1;
    two ? check_steps<float>(nodes, little()) : check_steps<std::int32_t>(nodes, little());
  }
  check_steps<float>({0, 0, 1, 1}, little(std::size_t{8} << 20));
}

// What crosses the bus: of a long vector once a node, of a short one once a rank.
TEST(StreamNodes, Traffic) {
  for (const Nodes& nodes : {Nodes{0, 0, 1, 1}, Nodes{0, 0, 0, 1}}) {
    on_nodes(nodes, little(), [&](Seat& seat) {
      const Step<std::int32_t> first(seat, 0, 1, 0);
      first.works();
      const auto moved = [&](const char* name, const std::function<void()>& call) {
        return seat.all.copied(name, call);
      };
      for (const std::size_t count : {kLeast + 7, kLeast - 7}) {
        const bool shared = count >= kLeast;
        const Step<std::int32_t> step(seat, 0, count, 1);
        for (const char* name : {"cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"})
          EXPECT_EQ(moved(name, [&] { step.works(); }), step.bytes() * (shared ? 2 : 4)) << name;
        EXPECT_EQ(moved("cuMemcpyDtoHAsync", [&] { step.check_bcast(step.bcast(1), 1); }), step.bytes());
        EXPECT_EQ(moved("cuMemcpyHtoDAsync", [&] { step.check_bcast(step.bcast(1), 1); }),
                  step.bytes() * (shared ? 1 : 3));
      }
    });
  }
}

// Long and short ones by turns, many before anybody waits, on several streams, beside others on the same
// communicator; nothing waits for a GPU.
TEST(StreamNodes, SeveralStreams) {
  const Nodes nodes = {0, 0, 1, 1, 1};
  on_nodes(nodes, little(), [&](Seat& seat) {
    std::vector<std::unique_ptr<Step<std::int32_t>>> steps;
    for (int i = 0; i < 8; ++i)
      steps.push_back(std::make_unique<Step<std::int32_t>>(
          seat, 0, i % 3 == 2 ? std::size_t{5000} : kLeast + static_cast<std::size_t>(100 * i), i));
    std::vector<Status> said;
    said.push_back(steps[0]->allreduce(true));
    const int waits = seat.all.counted("cuStreamSynchronize", [&] {
      for (int i = 1; i < 8; ++i) {
        const Step<std::int32_t>& step = *steps[static_cast<std::size_t>(i)];
        said.push_back(i % 2 == 0 ? step.allreduce(i % 4 == 0) : step.bcast(i % 5));
        std::int64_t number = seat.rank;
        EXPECT_TRUE(seat.comm.communicator->allreduce(&number, &number, 1, DType::i64, Op::max).ok());
        EXPECT_EQ(number, 4);
      }
    });
    EXPECT_EQ(waits, 0);
    EXPECT_EQ(seat.relay().shared(), 6U);
    for (int i = 7; i >= 0; --i) {
      const auto at = static_cast<std::size_t>(i);
      i % 2 == 0 ? steps[at]->check_sum(said[at]) : steps[at]->check_bcast(said[at], i % 5);
    }
  });
}

// Blocking sums of GPU memory have links of their own.
TEST(StreamNodes, BesideBlockingSums) {
  const Nodes nodes = {0, 0, 1, 1};
  on_nodes(nodes, little(), [&](Seat& seat) {
    const TestMemory vector(*driver, Memory::device, kLeast * 4, 0);
    for (int i = 0; i < 11; ++i) {
      const Step<float> step(seat, 0, kLeast + 17, i);
      const Status given = step.allreduce(i % 2 == 0);
      const std::vector<std::int32_t> ones(kLeast, 1);
      vector.put(ones.data(), kLeast * 4);
      const Status status = heddle::edge::allreduce_anywhere(
          seat.comm, {vector.data(), vector.data(), kLeast, DType::i32, Op::sum});
      EXPECT_TRUE(status.ok()) << status.message();
      std::int32_t last = 0;
      vector.get(&last, 4, (kLeast - 1) * 4);
      EXPECT_EQ(last, 4);
      step.check_sum(given);
    }
    EXPECT_EQ(seat.relay().shared(), 11U);
  });
}

// The communicator's end waits for what streams were given.
TEST(StreamNodes, EndWaits) {
  const Nodes nodes = {0, 0, 1};
  std::vector<std::unique_ptr<TestMemory>> sums(3);
  std::vector<std::unique_ptr<TestStream>> streams(3);
  on_nodes(nodes, little(), [&](Seat& seat) {
    const auto at = static_cast<std::size_t>(seat.rank);
    streams[at] = std::make_unique<TestStream>(*driver, 0);
    sums[at] = std::make_unique<TestMemory>(*driver, Memory::device, kLeast * 4);
    sums[at]->put(values<std::int32_t>(kLeast, seat.rank, 1).data(), kLeast * 4);
    const Status status = seat.relay().allreduce_on(seat.comm.gpu, streams[at]->get(), sums[at]->data(),
                                                    sums[at]->data(), kLeast, DType::i32, Op::sum);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(seat.relay().shared(), 1U);
  });
  driver->set_current(driver->primary(0));
  for (const auto& sum : sums) {
    std::vector<std::int32_t> got(kLeast);
    sum->get(got.data(), kLeast * 4);
    EXPECT_EQ(got, sum_of<std::int32_t>(nodes, kLeast, 1));
  }
}

// Types without a kernel, and a kernel that one rank lacks: the host does it, and the next is shared out
// again.
TEST(StreamNodes, NoKernel) {
  on_nodes({0, 0, 1, 1}, little(), [](Seat& seat) {
    const Step<float> step(seat, 0, kLeast, 1);
    step.works();
    const std::size_t count = StreamShares::kFrom / sizeof(long double);
    const TestMemory words(*driver, Memory::device, StreamShares::kFrom);
    const std::vector<long double> mine(count, 1.5L + static_cast<long double>(seat.rank));
    words.put(mine.data(), StreamShares::kFrom);
    EXPECT_TRUE(seat.relay()
                    .allreduce_on(seat.comm.gpu, step.stream.get(), words.data(), words.data(), count,
                                  DType::f80, Op::sum)
                    .ok());
    step.stream.wait();
    long double last = 0;
    words.get(&last, sizeof last, StreamShares::kFrom - sizeof last);
    EXPECT_EQ(last, 12.0L);
    EXPECT_EQ(seat.relay().shared(), 1U);

    const Step<std::int32_t> other(seat, 0, kLeast, 2);
    seat.fail("cuLibraryGetKernel", 0, CUDA_ERROR_OUT_OF_MEMORY);
    other.works();
    EXPECT_EQ(seat.relay().shared(), 1U);
    step.works();
    EXPECT_EQ(seat.relay().shared(), 2U);
  });
}

}  // namespace
}  // namespace heddle::test

const heddle::test::TestDriver* heddle::test::driver = nullptr;

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  static const heddle::test::TestDriver cuda(argv[1]);
  heddle::test::driver = &cuda;
  return RUN_ALL_TESTS();
}
