// Ranks whose GPUs do their own part of sums by entries (src/device/local_gpu.hpp), as threads whose nodes
// are made up. Each has two communicators: one that does, and one that goes by images alone. What that gives
// is right.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../communicator/party.hpp"
#include "api/device_buffers.hpp"
#include "device/local_gpu.hpp"
#include "node_ranks_of_threads.hpp"

namespace heddle::test {

// What all ranks' copies between host and GPU moved, and the kernels they started.
struct Traffic {
  std::size_t to_host = 0;
  std::size_t to_gpu = 0;
  int kernels = 0;
};

// What a call gave on this rank.
struct Outcome {
  Status status;
  std::vector<std::byte> result;  // where the status is good
  Traffic traffic;
  SparseStats stats;
};

class LocalSeat {
 public:
  LocalSeat(Party& images, Party& own, int rank, Config config, Node& all) : rank_(rank), all_(all) {
    make(own, config, &own_);
    config.device_bytes = 0;
    make(images, config, &by_images_);
  }

  // A call on either communicator.
  using Call = std::function<Status(heddle_comm& comm)>;
  // `result`: what the call writes, and what its memory has before, bytes that are not zero if nothing.
  Outcome on_own(const Call& call, const TestMemory& result, std::size_t bytes) {
    return run(own_, call, result, bytes);
  }
  Outcome by_images(const Call& call, const TestMemory& result, std::size_t bytes) {
    return run(by_images_, call, result, bytes);
  }
  void fail_after(const char* name, int calls) {
    all_.counted(name, [&] {
      if (rank_ == 0) driver->fail_after(name, calls, CUDA_ERROR_LAUNCH_FAILED);
    });
  }
  void fail_no_more(const char* name) {
    all_.counted(name, [&] {
      if (rank_ == 0) driver->fail_no_more(name);
    });
  }
  heddle_comm& own() { return own_; }
  const heddle_comm& own() const { return own_; }
  int rank() const { return rank_; }
  int ranks() const { return all_.ranks(); }
  Node& all() { return all_; }

 private:
  void make(Party& party, const Config& config, heddle_comm* comm) {
    comm->gpu.configure({true, config.pinned_bytes});
    auto made = Communicator::create(party.bootstrap(rank_), config);
    ASSERT_TRUE(made.ok()) << made.status().message();
    comm->communicator = std::move(made).value();
  }
  Outcome run(heddle_comm& comm, const Call& call, const TestMemory& result, std::size_t bytes) {
    Outcome outcome;
    Traffic& traffic = outcome.traffic;
    std::size_t pieces = 0;
    traffic.to_host = all_.copied("cuMemcpyDtoHAsync", [&] {
      pieces = all_.copied("cuMemcpy2DAsync", [&] {
        traffic.to_gpu = all_.copied("cuMemcpyHtoDAsync", [&] {
          traffic.kernels = all_.counted("cuLaunchKernel", [&] { outcome.status = call(comm); });
        });
      });
    });
    traffic.to_host += pieces;
    outcome.stats = comm.communicator->sparse_stats();
    outcome.result.resize(bytes);
    if (outcome.status.ok()) result.get(outcome.result.data(), bytes);
    return outcome;
  }

  const int rank_;
  Node& all_;
  heddle_comm own_;
  heddle_comm by_images_;
};

// One algorithm for all sums.
inline Config plain(const char* sparse = "recursive_doubling") {
  Config config = quiet();
  config.algorithm = std::string("allreduce:recursive_doubling,sparse:") + sparse;
  return config;
}

template <typename Body>
void on_seats(const std::vector<std::uint64_t>& nodes, const Config& config, const Body& body) {
  Party images(nodes);
  Party own(nodes);
  // What the first communicator of a process measures counts for the second, whose prices are the same then.
  for (std::size_t r = 0; r < nodes.size(); ++r)
    own.processes.push_back(std::make_shared<ProcessState>());
  images.processes = own.processes;
  Node all(own.size());
  run_ranks(
      own.size(),
      [&](Rank& me) {
        LocalSeat seat(images, own, me.rank, config, all);
        body(seat);
      },
      std::chrono::seconds(400));
}

// One call both ways.
struct Compared {
  Outcome got;
  Outcome wanted;
};

// Samples of 16 KiB and entries, of `width` bytes and an index each, are all that went over the bus.
inline void expect_entries_alone(const Compared& both, int ranks, std::size_t width) {
  const auto all = static_cast<std::size_t>(ranks);
  const std::size_t each = 4 + width;
  EXPECT_GT(both.got.traffic.kernels, 0);
  EXPECT_LE(both.got.traffic.to_host, all * (std::size_t{17} << 10) + both.got.stats.entries * each);
  EXPECT_LE(both.got.traffic.to_gpu, all * (both.got.stats.result_entries * each + 1024));
}

// The same bits, by the same exchange.
inline void expect_same(const Outcome& got, const Outcome& wanted, const std::string& what) {
  ASSERT_TRUE(wanted.status.ok()) << what << ": " << wanted.status.message();
  ASSERT_TRUE(got.status.ok()) << what << ": " << got.status.message();
  ASSERT_EQ(got.result.size(), wanted.result.size());
  EXPECT_EQ(std::memcmp(got.result.data(), wanted.result.data(), wanted.result.size()), 0) << what;
  EXPECT_STREQ(got.stats.algorithm, wanted.stats.algorithm) << what;
  EXPECT_EQ(got.stats.entries, wanted.stats.entries) << what;
  EXPECT_EQ(got.stats.result_entries, wanted.stats.result_entries) << what;
  EXPECT_EQ(got.stats.bytes_sent, wanted.stats.bytes_sent) << what;
}

// Nodes alike, of one rank each, uneven, with ranks in turns; and one that has not agreed on anything yet.
inline const std::vector<std::vector<std::uint64_t>>& node_shapes() {
  static const std::vector<std::vector<std::uint64_t>> all = {{0, 1}, {0, 0, 1, 1}, {0, 1, 0}, {0, 0}, {0}};
  return all;
}

}  // namespace heddle::test
