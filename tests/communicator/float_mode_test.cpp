// Sums of floats have the same bits on all ranks, whoever folds them, and in whatever mode the callers
// compute.
#include "base/float_mode.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cfenv>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "communicator/party.hpp"

namespace heddle::test {
namespace {

constexpr std::size_t kCount = 60'000;

struct Mode {
  const char* name;
  void (*enter)();
  float terms[2];  // of either rank
  // Of their sum; nobody else rounds to it.
  std::uint32_t bits;
};

const Mode kModes[] = {
    {"upward", [] { std::fesetround(FE_UPWARD); }, {1.0F, 1e-9F}, 0x3f80'0001},
#if defined(__x86_64__)
    {"without subnormal numbers",
     [] { __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040); },
     {1e-39F, 1e-39F},
     0},
#endif
};

// The elements of the result that are not those bits.
std::size_t others(const std::vector<float>& result, std::uint32_t bits) {
  std::size_t found = 0;
  for (const float each : result)
    found += std::bit_cast<std::uint32_t>(each) == bits ? 0 : 1;
  return found;
}

struct Sum {
  std::vector<float> in;
  std::vector<float> out = std::vector<float>(kCount);
  std::unique_ptr<Request> request;

  Sum(Communicator& comm, float term) : in(kCount, term) {
    auto made = comm.allreduce_request(in.data(), out.data(), kCount, DType::f32, Op::sum);
    EXPECT_TRUE(made.ok());
    request = std::move(made).value();
  }
};

// By the team, and by messages.
constexpr const char* kWays[] = {"", "allreduce:ring"};

Config config_of(const char* algorithm, bool thread) {
  Config config = quiet();
  config.algorithm = algorithm;
  if (thread) config.progress_thread = ProgressThreadSetting::always;
  return config;
}

// The thread is made by the first request, before the mode is another one. Rank 0 folds in its wait, and the
// thread of rank 1 mostly.
TEST(Requests, FoldInTheCallersFloatingPointEnvironment) {
  Party party({1, 1});
  for (const char* algorithm : kWays) {
    party.run(config_of(algorithm, true), [](Rank& me, Communicator& comm) {
      Sum first(comm, 1);
      ASSERT_TRUE(first.request->start().ok());
      ASSERT_TRUE(first.request->wait().ok());
      const FloatMode own = FloatMode::current();
      for (const Mode& mode : kModes) {
        me.at(mode.name);
        Sum sum(comm, mode.terms[me.rank]);
        std::vector<float> blocking(kCount);
        mode.enter();
        ASSERT_TRUE(comm.allreduce(sum.in.data(), blocking.data(), kCount, DType::f32, Op::sum).ok());
        ASSERT_TRUE(sum.request->start().ok());
        if (me.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        ASSERT_TRUE(sum.request->wait().ok());
        own.enter();
        EXPECT_EQ(others(blocking, mode.bits), 0U) << mode.name;
        EXPECT_EQ(others(sum.out, mode.bits), 0U) << mode.name << ", rank " << me.rank;
      }
    });
  }
}

// Both may be waited for in another one: rank 0's has moved nowhere by then, as rank 1 starts only
// afterwards.
TEST(Requests, FoldInTheModeInWhichTheyWereStarted) {
  Party party({1, 1});
  for (const char* algorithm : kWays) {
    std::atomic<std::size_t> left{0};
    party.run(config_of(algorithm, false), [&left](Rank& me, Communicator& comm) {
      const FloatMode own = FloatMode::current();
      for (const Mode& mode : kModes) {
        me.at(mode.name);
        Sum sum(comm, mode.terms[me.rank]);
        const auto turn = static_cast<std::size_t>(&mode - kModes) + 1;
        if (me.rank == 1) me.until([&] { return left.load() == turn; });
        mode.enter();
        ASSERT_TRUE(sum.request->start().ok());
        own.enter();
        if (me.rank == 0) left = turn;
        ASSERT_TRUE(sum.request->wait().ok());
        EXPECT_EQ(FloatMode::current(), own);
        EXPECT_EQ(others(sum.out, mode.bits), 0U) << mode.name << ", rank " << me.rank;
        ASSERT_TRUE(comm.barrier().ok());
      }
    });
  }
}

}  // namespace
}  // namespace heddle::test
