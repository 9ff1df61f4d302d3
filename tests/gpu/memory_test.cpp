// Calls on buffers in GPU memory where memory runs out on one rank, the host's or what the driver asks for,
// at every allocation that a call makes in turn. As heddle.h says the rank has sent nothing, and makes the
// call again; or all have heard of it in the same call, and the next one is right; or the communicator has
// failed, and the others hear of that. Nobody waits, and nobody meets another step than its own. Ranks are
// threads of one process, which nodes are made up for, on the double of CUDA's driver (its path is the
// argument).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "../communicator/party.hpp"
#include "api/handles.hpp"
#include "comm/device_path.hpp"
#include "comm/nodes_path.hpp"
#include "cuda_streams.hpp"
#include "heddle/heddle_cuda.h"
#include "heddle/heddle_sparse.h"
#include "node_ranks_of_threads.hpp"
#include "support/failing_allocations.hpp"

namespace heddle::test {

const TestDriver* driver = nullptr;

namespace {

using Nodes = std::vector<std::uint64_t>;

constexpr std::size_t kShort = 20'000;  // floats: several pieces of the scratch
constexpr std::size_t kLong = (NodesPath::kFrom >> 2) + 1000;
constexpr std::size_t kApart = 40;  // indices from an entry to the next

// A rank: its communicator as the C API has it, and what it sums.
class Seat {
 public:
  Seat(const Bootstrap& bootstrap, const Config& config, std::size_t floats, int gpus)
      : rank(bootstrap.rank),
        ranks(bootstrap.size),
        count(floats),
        device(rank % gpus),
        stream(*driver, device),
        in(*driver, Memory::device, floats * sizeof(float), device),
        out(*driver, Memory::device, floats * sizeof(float), device),
        indices(*driver, Memory::device, floats * sizeof(std::uint32_t), device),
        here(floats) {
    comm.gpu.configure({true, config.pinned_bytes});
    auto made = Communicator::create(bootstrap, config);
    EXPECT_TRUE(made.ok()) << made.status().message();
    comm.communicator = std::move(made).value();
    std::vector<std::uint32_t> own;
    for (std::size_t i = static_cast<std::size_t>(rank); i < floats; i += kApart)
      own.push_back(static_cast<std::uint32_t>(i));
    entries = own.size();
    indices.put(own.data(), entries * sizeof own[0]);
    fill();
  }
  void fill() {
    std::fill(here.begin(), here.end(), static_cast<float>(rank + 1));
    in.put(here.data(), count * sizeof(float));
    out.put(here.data(), count * sizeof(float));
  }
  bool has_all(float value) const {
    std::vector<float> got(count);
    out.get(got.data(), count * sizeof(float));
    return std::count(got.begin(), got.end(), value) == static_cast<std::ptrdiff_t>(count);
  }
  float sum() const { return static_cast<float>(ranks * (ranks + 1)) / 2; }
  bool by_gpus() const {
    DevicePath* const path = comm.communicator->device_path();
    NodesPath* const nodes = comm.communicator->nodes_path();
    return (path != nullptr && path->on()) || (nodes != nullptr && nodes->on());
  }
  bool failed() {
    int failed = 0;
    EXPECT_EQ(heddle_comm_failed(&comm, &failed), HEDDLE_OK);
    return failed != 0;
  }

  heddle_comm comm;
  const int rank;
  const int ranks;
  const std::size_t count;
  const int device;
  const TestStream stream;
  const TestMemory in;
  const TestMemory out;
  const TestMemory indices;
  std::vector<float> here;
  std::size_t entries = 0;
};

struct Case {
  std::string name;
  Nodes nodes;
  int devices;
  std::size_t count;
  bool begins;  // the call is made before the GPUs serve, and the last that is left to the host
  heddle_status (*call)(Seat& seat);
  bool (*is_right)(const Seat& seat);  // null: by entries, of which any are right here

  bool is_on_one_node() const { return nodes.front() == nodes.back(); }
  bool is_on_stream() const;
  // The rank whose memory runs out: in one context the one that does the others' work.
  int lacking() const { return is_on_one_node() && devices == 1 ? 0 : 1; }
};

heddle_status sum(Seat& s) {
  return heddle_allreduce(s.in.data(), s.out.data(), s.count, HEDDLE_FLOAT32, HEDDLE_SUM, &s.comm);
}
heddle_status mixed_sum(Seat& s) {
  if (s.rank != 0) return sum(s);
  const heddle_status status =
      heddle_allreduce(HEDDLE_IN_PLACE, s.here.data(), s.count, HEDDLE_FLOAT32, HEDDLE_SUM, &s.comm);
  if (status == HEDDLE_OK) s.out.put(s.here.data(), s.count * sizeof(float));
  return status;
}
heddle_status bcast(Seat& s) {
  return heddle_bcast(s.out.data(), s.count * sizeof(float), 0, &s.comm);
}
heddle_status sum_on_stream(Seat& s) {
  return heddle_allreduce_on_stream(s.in.data(), s.out.data(), s.count, HEDDLE_FLOAT32, HEDDLE_SUM, &s.comm,
                                    s.stream.get());
}
heddle_status bcast_on_stream(Seat& s) {
  return heddle_bcast_on_stream(s.out.data(), s.count * sizeof(float), 0, &s.comm, s.stream.get());
}
heddle_sparse entries_of(Seat& s) {
  heddle_sparse in = {};
  in.dimension = s.count;
  in.count = s.entries;
  in.index_type = HEDDLE_INDEX32;
  in.value_type = HEDDLE_FLOAT32;
  in.indices = s.indices.data();
  in.values = s.in.data();
  return in;
}
heddle_status sparse(Seat& s) {
  const heddle_sparse in = entries_of(s);
  return heddle_sparse_allreduce_dense(&in, s.out.data(), HEDDLE_SUM, &s.comm);
}
heddle_status merged(Seat& s) {
  const heddle_sparse in = entries_of(s);
  std::array<std::uint32_t, kLong / 4> to_indices;
  heddle_sparse out = {};
  out.indices = to_indices.data();
  out.values = s.out.data();
  out.capacity = to_indices.size();
  return heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, &s.comm);
}
heddle_status in_place(Seat& s) {
  return heddle_sparse_allreduce_in_place(s.out.data(), s.count, HEDDLE_FLOAT32, &s.comm);
}
heddle_status compressed(Seat& s, const char* method) {
  return heddle_compressed_allreduce(s.in.data(), s.out.as<float>(), s.count, method, 1, nullptr, &s.comm);
}
heddle_status largest(Seat& s) {
  return compressed(s, "topk:0.01");
}
heddle_status coded(Seat& s) {
  return compressed(s, "qsgd:8");
}
bool Case::is_on_stream() const {
  return call == sum_on_stream || call == bcast_on_stream;
}
bool is_sum(const Seat& s) {
  return s.has_all(s.sum());
}
bool is_first(const Seat& s) {
  return s.has_all(1);
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"a sum in one context", {1, 1, 1}, 1, kShort, false, sum, is_sum},
      {"a sum on two GPUs", {1, 1, 1}, 2, kShort, false, sum, is_sum},
      {"a sum with one rank's vector on the host", {1, 1, 1}, 2, kShort, false, mixed_sum, is_sum},
      {"a bcast in one context", {1, 1}, 1, kShort, false, bcast, is_first},
      {"a bcast on two GPUs", {1, 1, 1}, 2, kShort, false, bcast, is_first},
      {"the sum that sets up in one context", {1, 1}, 1, kShort, true, sum, is_sum},
      {"the sum that sets up on two GPUs", {1, 1, 1}, 2, kShort, true, sum, is_sum},
      {"sparse to dense in one context", {1, 1, 1}, 1, kShort, false, sparse, nullptr},
      {"sparse to dense on two GPUs", {1, 1, 1}, 2, kShort, false, sparse, nullptr},
      {"sparse vectors on two GPUs", {1, 1, 1}, 2, kShort, false, merged, nullptr},
      {"the largest on two GPUs", {1, 1}, 2, kShort, false, largest, nullptr},
      {"codes in one context", {1, 1}, 1, kShort, false, coded, nullptr},
      {"codes on two GPUs", {1, 1}, 2, kShort, false, coded, nullptr},
      {"a stream's sum in one context", {1, 1, 1}, 1, kShort, false, sum_on_stream, is_sum},
      {"a stream's sum on two GPUs", {1, 1, 1}, 2, kShort, false, sum_on_stream, is_sum},
      {"a stream's bcast on two GPUs", {1, 1}, 2, kShort, false, bcast_on_stream, is_first},
      {"a stream's first sum", {1, 1}, 2, kShort, true, sum_on_stream, is_sum},
      {"a sum over nodes", {1, 1, 2}, 1, kLong, false, sum, is_sum},
      {"a sum over nodes of one rank", {1, 2}, 1, kLong, false, sum, is_sum},
      {"a sum over nodes, one vector on the host", {1, 2}, 1, kLong, false, mixed_sum, is_sum},
      {"a bcast over nodes", {1, 1, 2}, 1, kLong, false, bcast, is_first},
      {"the sum that sets up over nodes", {1, 1, 2}, 1, kLong, true, sum, is_sum},
      {"a stream's sum over nodes", {1, 2}, 1, kShort, false, sum_on_stream, is_sum},
      {"a stream's long sum over nodes", {1, 1, 2}, 1, kLong, false, sum_on_stream, is_sum},
      {"a stream's bcast over nodes", {1, 1, 2}, 1, kLong, false, bcast_on_stream, is_first},
      {"a stream's first sum over nodes", {1, 1, 2}, 1, kLong, true, sum_on_stream, is_sum},
      {"sparse to dense over nodes", {1, 2}, 1, kLong, false, sparse, nullptr},
      {"mostly zeros over nodes", {1, 2}, 1, kLong, false, in_place, nullptr},
      {"the largest over nodes", {1, 2}, 1, kLong, false, largest, nullptr},
      {"codes over nodes", {1, 2}, 1, kLong, false, coded, nullptr},
  };
  return all;
}

Config config_of(const Case& what) {
  Config config = quiet();
  config.timeout = std::chrono::seconds(kSlowBuild ? 60 : 15);
  config.transports = "shm,tcp";
  config.device_bytes = std::size_t{what.count == kLong ? 256U : 64U} << 10;
  config.shared_context = true;
  // Then images lie in memory that heddle asks for.
  if (what.call == mixed_sum || (what.begins && what.devices == 1))
    config.pinned_bytes = what.is_on_one_node() ? 0 : kLong * sizeof(float) / 2;
  return config;
}

// What runs out: allocations of one rank, those alone that it asks for, or what a function of the driver's
// gives, to whichever rank it is.
struct Want {
  const char* function = nullptr;
  bool asked_for_alone = false;

  bool is_of_the_host() const { return function == nullptr; }
};

// One that begins on the rank which has it.
class Running {
 public:
  Running(const Want& want, bool is_mine, long number) : want_(want), is_mine_(is_mine), number_(number) {
    if (!is_mine_) return;
    if (want.is_of_the_host()) {
      of_those_asked_alone = want.asked_for_alone;
      allocations_left = number;
    } else {
      calls_ = driver->calls(want.function);
      driver->fail_after(want.function, static_cast<int>(number), CUDA_ERROR_OUT_OF_MEMORY);
    }
  }
  // Once. Whether it is known here that so much was asked for.
  bool end() const {
    if (!is_mine_) return false;
    if (want_.is_of_the_host()) return std::exchange(allocations_left, -1) < 0;
    driver->fail_no_more(want_.function);
    return driver->calls(want_.function) - calls_ > number_;
  }

 private:
  const Want want_;
  const bool is_mine_;
  const long number_;
  int calls_ = 0;
};

// Makes the call until the GPUs serve it, or to the last one before.
void warm_up(const Case& what, Seat& seat) {
  if (what.is_on_stream()) {
    if (!what.begins) {
      ASSERT_EQ(what.call(seat), HEDDLE_OK) << heddle_last_error();
    }
    seat.stream.wait();
    return;
  }
  const bool is_mixed = what.call == mixed_sum;
  const int most = !what.begins ? 20 : what.is_on_one_node() ? 8 : 7;
  for (int i = 0; i < most && !seat.by_gpus(); ++i) {
    const heddle_status status = is_mixed ? sum(seat) : what.call(seat);
    ASSERT_EQ(status, HEDDLE_OK) << heddle_last_error();
  }
  // Then all memory is there that is kept.
  if (!what.begins) {
    ASSERT_EQ(what.call(seat), HEDDLE_OK) << heddle_last_error();
  }
}

// The next call of each, by what has become of the communicator on any of them. Whether it has told of what
// had failed in the stream since, which is for all to hear.
bool go_on(const Case& what, Seat& seat, bool failed) {
  seat.fill();
  const heddle_status status = what.call(seat);
  const std::string why = heddle_last_error();
  seat.stream.wait();
  if (failed) {
    EXPECT_NE(status, HEDDLE_OK) << "rank " << seat.rank;
    EXPECT_NE(status, HEDDLE_ERR_TIMEOUT) << "rank " << seat.rank << ": " << why;
    return false;
  }
  if (what.is_on_stream() && (status == HEDDLE_ERR_SYSTEM || status == HEDDLE_ERR_PEER)) return true;
  EXPECT_EQ(status, HEDDLE_OK) << "rank " << seat.rank << " in the next call: " << why;
  EXPECT_TRUE(status != HEDDLE_OK || what.is_right == nullptr || what.is_right(seat)) << "rank " << seat.rank;
  return false;
}

// Whether so much was asked for.
bool fails_at(const Case& what, const Want& want, long number) {
  Party party(what.nodes);
  for (int rank = 0; rank < party.size(); ++rank)
    party.lend_nothing(rank);
  std::barrier together(party.size());
  std::atomic<bool> reached{false};
  std::atomic<int> failed{0};
  std::atomic<int> told{0};
  run_ranks(party.size(), [&](Rank& me) {
    me.at("a communicator");
    driver->set_current(driver->primary(me.rank % what.devices));
    Seat seat(party.bootstrap(me.rank), config_of(what), what.count, what.devices);
    me.at("first calls");
    warm_up(what, seat);
    seat.fill();
    together.arrive_and_wait();
    const Running running(want, me.rank == what.lacking(), number);
    if (!want.is_of_the_host()) together.arrive_and_wait();
    me.at("the call", static_cast<std::uint64_t>(number));
    heddle_status status = what.call(seat);
    if (want.is_of_the_host() && running.end()) reached = true;
    std::string why = heddle_last_error();
    // Sums by entries no rank makes again by itself.
    for (int tries = 0; tries < 2 && what.is_right != nullptr; ++tries) {
      if (status != HEDDLE_ERR_MEMORY || seat.failed()) break;
      status = what.call(seat);
      why = heddle_last_error();
    }
    seat.stream.wait();
    failed += seat.failed() ? 1 : 0;
    if (status != HEDDLE_OK) {
      EXPECT_NE(status, HEDDLE_ERR_TIMEOUT) << "rank " << me.rank << ": " << why;
      EXPECT_NE(status, HEDDLE_ERR_ARGUMENT) << "rank " << me.rank << ": " << why;
      EXPECT_NE(status, HEDDLE_ERR_INTERNAL) << "rank " << me.rank << ": " << why;
      EXPECT_FALSE(what.is_right != nullptr && status == HEDDLE_ERR_MEMORY && !seat.failed())
          << "rank " << me.rank << ": " << why;
    }
    me.at("after the call");
    together.arrive_and_wait();
    if (!want.is_of_the_host() && running.end()) reached = true;
    const bool right = status != HEDDLE_OK || what.is_right == nullptr || what.is_right(seat);
    together.arrive_and_wait();
    me.at("the next call");
    if (go_on(what, seat, failed.load() > 0)) ++told;
    me.at("the end");
    together.arrive_and_wait();
    EXPECT_TRUE(told.load() == 0 || told.load() == party.size()) << told.load();
    EXPECT_TRUE(right || told.load() > 0) << "rank " << me.rank;
  });
  return reached.load();
}

class GpuMemory : public ::testing::TestWithParam<std::size_t> {
 protected:
  static void runs_out(const Want& want, long stride) {
    const Case& what = cases()[GetParam()];
    // To set up takes thousands of allocations, where messages are planned.
    if (what.begins && !what.is_on_one_node() && want.is_of_the_host()) stride *= 61;
    for (long number = 0;; number += stride) {
      SCOPED_TRACE(what.name + ", " + (want.function != nullptr ? want.function : "allocation") + " " +
                   std::to_string(number));
      if (!fails_at(what, want, number) || HasFailure()) break;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Calls, GpuMemory, ::testing::Range(std::size_t{0}, cases().size()),
                         [](const ::testing::TestParamInfo<std::size_t>& one) {
                           std::string name = cases()[one.param].name;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

TEST_P(GpuMemory, OfTheHost) {
  runs_out({.asked_for_alone = true}, kSlowBuild ? 3 : 1);
  runs_out({}, kSlowBuild ? 23 : 7);
}

TEST_P(GpuMemory, OfTheDriver) {
  for (const char* function :
       {"cuMemAlloc", "cuMemHostRegister", "cuStreamCreateWithPriority", "cuEventCreate", "cuLaunchKernel"})
    runs_out({.function = function}, 1);
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  static const heddle::test::TestDriver cuda(argv[1]);
  heddle::test::driver = &cuda;
  return RUN_ALL_TESTS();
}
