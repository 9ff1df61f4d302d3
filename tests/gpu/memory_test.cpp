// Calls on buffers in GPU memory where memory runs out on one rank, the host's or what the driver asks for,
// at every allocation that a call makes in turn. As heddle.h says the rank has sent nothing, and makes the
// call again; or all have heard of it in the same call, and the next one is right; or the communicator has
// failed, and the others hear of that. Nobody waits, and nobody meets another step than its own. Ranks are
// threads of one process, which nodes are made up for, on the double of CUDA's driver (its path is the
// argument).
#include <gtest/gtest.h>

#include <algorithm>
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
#include "memory_calls.hpp"
#include "support/failing_allocations.hpp"

namespace heddle::test {

const TestDriver* driver = nullptr;

namespace {

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
      ASSERT_EQ(what.uncaptured()(seat), HEDDLE_OK) << heddle_last_error();
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
  heddle_status status = what.uncaptured()(seat);
  seat.stream.wait();
  if (status == HEDDLE_OK && what.uncaptured() != what.call) {
    seat.fill();
    status = what.call(seat);
  }
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
