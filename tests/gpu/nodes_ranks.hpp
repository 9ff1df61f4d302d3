// Ranks on several nodes for tests: threads of one process, which nodes are made up for, through the C API's
// own functions, on the double of CUDA's driver.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "../communicator/party.hpp"
#include "api/device_buffers.hpp"
#include "device/nodes_path.hpp"
#include "node_ranks_of_threads.hpp"

namespace heddle::test {

inline constexpr std::size_t kLeast = NodesPath::kFrom / sizeof(float);
inline constexpr std::size_t kMost = kLeast + 40'000;  // elements

inline Config little_scratch(std::size_t bytes = std::size_t{256} << 10) {
  Config config = quiet();
  config.device_bytes = bytes;
  return config;
}

// Magnitudes are less than kLargest.
inline constexpr double kLargest = 1900;
template <typename T>
std::vector<T> values(std::size_t count, int rank) {
  std::mt19937 random(static_cast<unsigned>(count) + 77U * static_cast<unsigned>(rank));
  std::vector<T> all(count);
  for (T& one : all)
    one = static_cast<T>(static_cast<double>(random() % 2'000'003) / 7e2 - 1000.0);
  return all;
}

inline std::vector<std::uint8_t> bytes_of(std::size_t count, int rank) {
  std::vector<std::uint8_t> all(count);
  std::mt19937 random(static_cast<unsigned>(rank));
  for (std::uint8_t& one : all)
    one = static_cast<std::uint8_t>(random());
  return all;
}

// Each node's in the order of its ranks, and these in the order of nodes: for two nodes, the bits that every
// algorithm has.
template <typename T>
std::vector<T> sum_of(const std::vector<std::uint64_t>& nodes, std::size_t count) {
  std::vector<T> all;
  for (std::uint64_t node = 0; node < nodes.size(); ++node) {
    std::vector<T> here;
    for (std::size_t r = 0; r < nodes.size(); ++r) {
      if (nodes[r] != node) continue;
      const std::vector<T> one = values<T>(count, static_cast<int>(r));
      if (here.empty()) here.resize(count);
      const bool first = std::find(nodes.begin(), nodes.end(), node) == nodes.begin() + static_cast<long>(r);
      for (std::size_t i = 0; i < count; ++i)
        here[i] = first ? one[i] : static_cast<T>(here[i] + one[i]);
    }
    if (here.empty()) continue;
    if (all.empty()) {
      all = here;
    } else {
      for (std::size_t i = 0; i < count; ++i)
        all[i] = static_cast<T>(all[i] + here[i]);
    }
  }
  return all;
}

// A rank: its communicator as the C API has it, and its buffers.
class Seat {
 public:
  Seat(Party& party, int rank, const Config& config, Node& all, int devices = 1)
      : in(*driver, kind_of(rank, 0), kMost * 8 + 8, rank % devices),
        out(*driver, kind_of(2 * rank, 1), kMost * 8 + 8, rank % devices),
        rank_(rank),
        all_(all) {
    comm.gpu.configure({true, config.pinned_bytes});
    auto made = Communicator::create(party.bootstrap(rank), config);
    EXPECT_TRUE(made.ok()) << made.status().message();
    comm.communicator = std::move(made).value();
  }

  Status sum(const void* from, void* to, std::size_t count, DType type) {
    return edge::allreduce_anywhere(comm, {from, to, count, type, Op::sum});
  }
  Status bcast(void* buffer, std::size_t bytes, int root) {
    return edge::bcast_anywhere(comm, buffer, bytes, root);
  }
  NodesPath& path() { return *comm.communicator->nodes_path(); }
  // Whether the GPUs did it.
  bool by_gpus(const std::function<void()>& call) {
    const std::uint64_t before = path().served();
    call();
    return path().served() > before;
  }
  // Makes the next call of a function fail, on whichever rank makes it.
  void fail_next(const char* name) {
    all_.counted(name, [&] {
      if (rank_ == 0) driver->fail(name, CUDA_ERROR_ILLEGAL_ADDRESS);
    });
  }

  // A sum of values(), that must be right.
  template <typename T>
  bool check(const std::vector<std::uint64_t>& nodes, std::size_t count, DType type, std::size_t at,
             bool in_place, bool on_host = false) {
    std::vector<T> mine = values<T>(count, rank_);
    const TestMemory& from = in_place ? out : in;
    from.put(mine.data(), count * sizeof(T), at);
    void* const to = out.as<char>() + at;
    const bool served = by_gpus([&] {
      const Status status =
          on_host ? sum(mine.data(), mine.data(), count, type) : sum(from.as<char>() + at, to, count, type);
      EXPECT_TRUE(status.ok()) << status.message();
    });
    if (!on_host) out.get(mine.data(), count * sizeof(T), at);
    const std::vector<T> wanted = sum_of<T>(nodes, count);
    // The host's order may be another one: each addition of floats rounds by half an epsilon of what may be
    // the sum of all magnitudes.
    const double ranks = static_cast<double>(nodes.size());
    const double most = served ? 0.0 : ranks * FLT_EPSILON * ranks * kLargest;
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i)
      wrong += std::abs(static_cast<double>(mine[i]) - static_cast<double>(wanted[i])) <= most ? 0 : 1;
    EXPECT_EQ(wrong, 0U) << "rank " << rank_ << ", " << count << " elements at " << at
                         << (in_place ? ", in place" : "") << (served ? ", by GPUs" : ", by images");
    return served;
  }
  // A bcast of bytes_of(), that must be right.
  bool check_bcast(int root, std::size_t bytes, std::size_t at, bool on_host = false) {
    const std::vector<std::uint8_t> wanted = bytes_of(bytes, root);
    std::vector<std::uint8_t> mine = bytes_of(bytes, rank_);
    out.put(mine.data(), bytes, at);
    const bool served = by_gpus([&] {
      const Status status =
          bcast(on_host ? static_cast<void*>(mine.data()) : out.as<char>() + at, bytes, root);
      EXPECT_TRUE(status.ok()) << status.message();
    });
    if (!on_host) out.get(mine.data(), bytes, at);
    EXPECT_EQ(mine, wanted) << "rank " << rank_ << ", " << bytes << " bytes at " << at << " from " << root;
    return served;
  }
  // Calls until the GPUs serve them.
  int begin(int most = 20) {
    return calls_until_served(most, [this] { return sum(out.data(), out.data(), kLeast, DType::i32); });
  }
  int begin_bcasts(int most = 20) {
    return calls_until_served(most, [this] { return bcast(out.data(), NodesPath::kFrom, 0); });
  }

  heddle_comm comm;
  const TestMemory in;
  const TestMemory out;

 private:
  template <typename Call>
  int calls_until_served(int most, const Call& call) {
    for (int i = 1; i <= most; ++i) {
      if (by_gpus([&] {
            const Status status = call();
            EXPECT_TRUE(status.ok()) << status.message();
          }))
        return i;
    }
    return -1;
  }

  const int rank_;
  Node& all_;
};

template <typename Body>
void on_nodes(const std::vector<std::uint64_t>& nodes, const Config& config, const Body& body,
              int devices = 1) {
  Party party(nodes);
  Node all(party.size());
  run_ranks(party.size(), [&](Rank& me) {
    Seat seat(party, me.rank, config, all, devices);
    body(seat, me.rank);
  });
}

// Every shape of nodes: alike, of one rank each, uneven, one of them with a single rank, with ranks in turns.
inline const std::vector<std::vector<std::uint64_t>>& shapes() {
  static const std::vector<std::vector<std::uint64_t>> all = {
      {0, 0, 1, 1}, {0, 1}, {0, 0, 0, 1, 1}, {0, 1, 1}, {0, 1, 0, 1}};
  return all;
}

}  // namespace heddle::test
