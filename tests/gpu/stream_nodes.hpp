// What the tests of streams over several nodes with several ranks on each share (stream_nodes_test.cpp):
// ranks are threads of one process, which nodes are made up for and which reach the others by TCP, on the
// double of CUDA's driver.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "../communicator/party.hpp"
#include "api/handles.hpp"
#include "cuda_streams.hpp"
#include "device/stream_relay.hpp"
#include "node_ranks_of_threads.hpp"

namespace heddle::test {

using Nodes = std::vector<std::uint64_t>;
inline constexpr std::size_t kLeast = StreamShares::kFrom / 4;  // elements

// Shares of 20 KiB for two lanes: vectors of many pieces, the last of which is short.
inline Config little(std::size_t scratch = std::size_t{144} << 10) {
  Config config = quiet();
  config.transports = "shm,tcp";
  config.device_bytes = scratch;
  config.shared_context = true;
  return config;
}

template <typename T>
constexpr DType kType = std::is_same_v<T, float> ? DType::f32 : DType::i32;

template <typename T>
std::vector<T> values(std::size_t count, int rank, int step) {
  std::vector<T> all(count);
  for (std::size_t i = 0; i < count; ++i)
    all[i] = static_cast<T>(static_cast<double>(i % 10007 + 13 * static_cast<std::size_t>(step)) *
                            (1.37 + static_cast<double>(rank)));
  return all;
}
// Each node's in the order of its ranks, and then the nodes': for two nodes, and for integers, there is no
// other result.
template <typename T>
std::vector<T> sum_of(const Nodes& nodes, std::size_t count, int step) {
  std::vector<T> all(count);
  for (std::uint64_t node = 0; node < nodes.size(); ++node) {
    std::vector<T> here(count);
    for (std::size_t r = 0; r < nodes.size(); ++r) {
      if (nodes[r] != node) continue;
      const std::vector<T> one = values<T>(count, static_cast<int>(r), step);
      for (std::size_t i = 0; i < count; ++i)
        here[i] += one[i];
    }
    for (std::size_t i = 0; i < count; ++i)
      all[i] += here[i];
  }
  return all;
}

// A rank with its communicator.
class Seat {
 public:
  Seat(Party& party, int number, const Nodes& where, const Config& config, Node& everybody,
       std::barrier<>& barrier)
      : rank(number), nodes(where), all(everybody), together(barrier) {
    comm.gpu.configure({true, config.pinned_bytes});
    auto made = Communicator::create(party.bootstrap(number), config);
    EXPECT_TRUE(made.ok()) << made.status().message();
    comm.communicator = std::move(made).value();
  }
  StreamRelay& relay() { return *comm.communicator->stream_relay(); }
  // Makes a later call of a function fail, on whichever rank makes it.
  void fail(const char* name, int later = 0, CUresult error = CUDA_ERROR_ILLEGAL_ADDRESS) {
    all.counted(name, [&] {
      if (rank == 0) driver->fail_after(name, later, error);
    });
  }

  heddle_comm comm;
  const int rank;
  const Nodes& nodes;
  Node& all;
  std::barrier<>& together;
};

template <typename Body>
void on_nodes(const Nodes& nodes, const Config& config, const Body& body) {
  Party party(nodes);
  Node all(party.size());
  std::barrier together(party.size());
  run_ranks(party.size(), [&](Rank& me) {
    driver->set_current(driver->primary(0));
    Seat seat(party, me.rank, nodes, config, all, together);
    body(seat);
  });
}

// A program's step on one rank: work that makes the input, a collective, and work that takes the result and
// then overwrites both.
template <typename T>
class Step {
 public:
  // `on`: null for a stream of its own.
  Step(Seat& seat, int device, std::size_t count, int step, const TestStream* on = nullptr)
      : own_(on == nullptr ? std::make_unique<TestStream>(*driver, device) : nullptr),
        stream(on == nullptr ? *own_ : *on),
        seat_(seat),
        count_(count),
        made_(*driver, Memory::device, bytes(), device),
        spoiled_(*driver, Memory::device, bytes(), device),
        in_(*driver, kind_of(seat.rank, step), bytes(), device),
        out_(*driver, kind_of(seat.rank, 2 * step), bytes(), device),
        taken_(*driver, Memory::device, bytes(), device) {
    make(step);
  }
  // Another input, when the stream has done its work.
  void make(int step) {
    step_ = step;
    made_.put(values<T>(count_, seat_.rank, step).data(), bytes());
  }
  Status allreduce(bool in_place) const {
    const TestMemory& to = in_place ? in_ : out_;
    const std::uint64_t before = seat_.relay().shared();
    stream.copy(in_.data(), made_.data(), bytes());
    Status status = seat_.relay().allreduce_on(seat_.comm.gpu, stream.get(), in_.data(), to.data(), count_,
                                               kType<T>, Op::sum);
    take(to.data());
    exact_ = !std::is_floating_point_v<T> || seat_.relay().shared() > before;
    return status;
  }
  Status bcast(int root) const {
    stream.copy(in_.data(), made_.data(), bytes());
    Status status = seat_.relay().bcast_on(seat_.comm.gpu, stream.get(), in_.data(), bytes(), root);
    take(in_.data());
    return status;
  }
  void check(const Status& status, const std::vector<T>& wanted, bool exact) const {
    EXPECT_TRUE(status.ok()) << status.message();
    // One after the other: what a stream does not wait for has not been done by another rank's then.
    const int size = static_cast<int>(seat_.nodes.size());
    for (int i = 0; i < size; ++i) {
      if ((i + step_) % size == seat_.rank) stream.wait();
      seat_.together.arrive_and_wait();
    }
    std::vector<T> got(count_);
    taken_.get(got.data(), bytes());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      // The host's order may be another one: each addition of positive floats rounds by half an epsilon of
      // what is less than the sum.
      const double most =
          exact ? 0 : double{FLT_EPSILON} * seat_.all.ranks() * static_cast<double>(wanted[i]);
      wrong += std::abs(static_cast<double>(got[i]) - static_cast<double>(wanted[i])) <= most ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0U) << "rank " << seat_.rank << ", " << count_ << " elements, step " << step_;
  }
  void check_sum(const Status& status) const { check(status, sum_of<T>(seat_.nodes, count_, step_), exact_); }
  void check_bcast(const Status& status, int root) const {
    check(status, values<T>(count_, root, step_), true);
  }
  // A sum that everybody waits for at once.
  void works(bool in_place = false) const { check_sum(allreduce(in_place)); }
  std::size_t bytes() const { return count_ * sizeof(T); }

 private:
  const std::unique_ptr<TestStream> own_;

 public:
  const TestStream& stream;

 private:
  void take(const void* result) const {
    stream.copy(taken_.data(), result, bytes());
    stream.copy(in_.data(), spoiled_.data(), bytes());
    stream.copy(out_.data(), spoiled_.data(), bytes());
  }

  Seat& seat_;
  const std::size_t count_;
  int step_ = 0;
  const TestMemory made_;
  const TestMemory spoiled_;
  const TestMemory in_;
  const TestMemory out_;
  const TestMemory taken_;
  mutable bool exact_ = true;  // all know the bits of the last sum
};

}  // namespace heddle::test
