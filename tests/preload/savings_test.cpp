// What sums between nodes save: when it looks, when it keeps from looking, and what it leaves alone.
#include "interpose/savings.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "communicator/party.hpp"

namespace heddle::test {
namespace {

constexpr std::size_t kCount = 100'000;

// A call as the backend makes it.
Status sum(Savings& savings, Communicator& comm, const std::vector<float>& in, std::vector<float>& out) {
  Result<bool> served = false;
  if (savings.wants_look(in.size()))
    served = savings.by_entries({in.data(), out.data(), in.size(), DType::f32});
  if (!served.ok() || served.value()) return served.status();
  return comm.allreduce(in.data(), out.data(), in.size(), DType::f32, Op::sum);
}

// Entries of rank r: one in a thousand.
std::vector<float> mostly_zero(int rank) {
  std::vector<float> v(kCount);
  for (std::size_t i = static_cast<std::size_t>(rank); i < kCount; i += 1000)
    v[i] = 1;
  return v;
}

TEST(Savings, LookLessOftenWhereItDoesNotPay) {
  Party party({1, 2});
  // Nothing is measured, which would decide by how busy this machine is.
  for (int rank = 0; rank < party.size(); ++rank) {
    party.processes.push_back(std::make_shared<ProcessState>());
    party.processes.back()->learn({10'000, 8, 2500});
  }
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    const auto savings = Savings::make(quiet(), comm, Log());
    ASSERT_NE(savings, nullptr);
    const std::vector<float> full(kCount, 1.5F);
    const std::vector<float> sparse = mostly_zero(me.rank);
    std::vector<float> out(kCount);
    const auto looked = [&](const std::vector<float>& in) {
      EXPECT_TRUE(sum(*savings, comm, in, out).ok());
      EXPECT_EQ(out[0], in == full ? 3.0F : 1.0F);
      return comm.sparse_stats().algorithm != std::string("dense");
    };
    EXPECT_TRUE(looked(sparse));
    EXPECT_FALSE(looked(full));
    // One call without a look after the first disappointment, two after the second.
    EXPECT_FALSE(looked(sparse));
    EXPECT_TRUE(looked(sparse));
    EXPECT_FALSE(looked(full));
    EXPECT_FALSE(looked(full)) << "without a look";
    EXPECT_FALSE(looked(full));
    EXPECT_FALSE(looked(sparse)) << "without a look";
    EXPECT_FALSE(looked(sparse)) << "without a look";
    EXPECT_TRUE(looked(sparse));
  });
}

TEST(Savings, LeaveAloneWhatTheyAreNotFor) {
  Party party({1, 2});
  party.run(quiet(), [](Rank&, Communicator& comm) {
    Config config = quiet();
    const auto lossless = Savings::make(config, comm, Log());
    EXPECT_TRUE(lossless->looks(DType::f32, Op::sum, 1 << 20));
    EXPECT_TRUE(lossless->looks(DType::i64, Op::sum, 1 << 20));
    EXPECT_FALSE(lossless->looks(DType::f32, Op::max, 1 << 20));
    EXPECT_FALSE(lossless->looks(DType::f32, Op::sum, 1000));
    EXPECT_FALSE(lossless->looks(DType::u8, Op::sum, 1 << 20));
    EXPECT_FALSE(lossless->loses(DType::f32, Op::sum, 1 << 20));
    config.sparse = false;
    EXPECT_EQ(Savings::make(config, comm, Log()), nullptr);
    config.compress = "fp16";
    config.compress_from = 500;
    const auto lossy = Savings::make(config, comm, Log());
    EXPECT_TRUE(lossy->loses(DType::f32, Op::sum, 1000));
    EXPECT_FALSE(lossy->loses(DType::f32, Op::sum, 400));
    EXPECT_FALSE(lossy->loses(DType::f32, Op::max, 1000));
    EXPECT_FALSE(lossy->loses(DType::f64, Op::sum, 1000));
    EXPECT_FALSE(lossy->looks(DType::f32, Op::sum, 1 << 20));
    config.compress_f64 = true;
    EXPECT_TRUE(Savings::make(config, comm, Log())->loses(DType::f64, Op::sum, 1000));
  });
  Party together({1, 1});
  together.run(quiet(),
               [](Rank&, Communicator& comm) { EXPECT_EQ(Savings::make(quiet(), comm, Log()), nullptr); });
}

std::unique_ptr<Savings> of_any_float(const char* method, Communicator& comm) {
  Config config = quiet();
  config.compress = method;
  config.compress_from = 0;
  config.compress_f64 = true;
  return Savings::make(config, comm, Log());
}

// What is lost comes back in the next sum of the same buffer, also where it holds doubles.
TEST(Savings, KeepWhatIsLostForEachBuffer) {
  Party party({1, 2, 3});
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    const auto savings = of_any_float("topk:0.5", comm);
    const std::vector<double> first{1, 10};
    const std::vector<double> second{20, 2};
    std::vector<double> out(2);
    ASSERT_TRUE(savings->compress(first.data(), out.data(), 2, DType::f64, first.data()).ok());
    EXPECT_EQ(out, (std::vector<double>{0, 10.0 * me.size}));
    ASSERT_TRUE(savings->compress(second.data(), out.data(), 2, DType::f64, second.data()).ok());
    EXPECT_EQ(out, (std::vector<double>{20.0 * me.size, 0}));
    // Of the same buffer, which the host sees elsewhere now: what stands for it is its key.
    const std::vector<double> image{0, 0};
    ASSERT_TRUE(savings->compress(image.data(), out.data(), 2, DType::f64, first.data()).ok());
    EXPECT_EQ(out, (std::vector<double>{1.0 * me.size, 0}));
  });
}

// A vector keeps its residual while there is room for all, and then most do: of ten by turns where nine fit,
// the least recently used would be the one that is wanted next.
TEST(Residuals, TakeNoMoreMemoryThanTheyMay) {
  constexpr std::size_t kLength = 1000;
  const std::vector<char> vectors(10);
  Residuals residuals(9 * kLength * sizeof(float), Log(LogLevel::none));
  const auto is_new = [&](const void* key) {
    float& value = residuals.of(key, kLength)->on_host().value()->values()[0];
    return std::exchange(value, 1.0F) == 0.0F;
  };
  for (int turn = 0; turn < 3; ++turn) {
    for (int i = 0; i < 9; ++i)
      EXPECT_EQ(is_new(&vectors[i]), turn == 0);
  }
  int kept = 0;
  for (int turn = 0; turn < 100; ++turn) {
    for (const char& vector : vectors)
      kept += is_new(&vector) ? 0 : 1;
  }
  EXPECT_GT(kept, 500);
  EXPECT_LT(kept, 1000);
  EXPECT_EQ(residuals.size(), 9U);
  EXPECT_EQ(residuals.of(&vectors[0], 10 * kLength), nullptr) << "it alone takes more";
  EXPECT_EQ(residuals.size(), 9U);
  // Another length at the same place is another vector; a large one takes the place of several.
  EXPECT_NE(residuals.of(&vectors[0], 7 * kLength), nullptr);
  EXPECT_LE(residuals.size(), 3U);
}

// What comes back must not make the next loss larger: sums of values up to 1 stay sums of such values,
// whatever the number of calls.
TEST(Savings, DoNotGrowWhateverTheMethod) {
  for (const char* method : {"fp16", "bf16", "qsgd:8", "qsgd:4", "qsgd:2", "qsgd:2:64", "terngrad", "onebit",
                             "topk:0.1", "topk-sampled:0.1", "randomk:0.2"}) {
    Party party({1, 2, 2});
    party.run(quiet(), [&](Rank& me, Communicator& comm) {
      const auto savings = of_any_float(method, comm);
      std::mt19937 random(static_cast<unsigned>(me.rank));
      std::uniform_real_distribution<float> values(-1, 1);
      std::vector<float> in(4096);
      std::vector<float> out(in.size());
      float largest = 0;
      for (int call = 0; call < 60; ++call) {
        std::generate(in.begin(), in.end(), [&] { return values(random); });
        ASSERT_TRUE(savings->compress(in.data(), out.data(), in.size(), DType::f32, in.data()).ok());
        for (const float sum : out)
          largest = std::max(largest, std::abs(sum));
      }
      EXPECT_LT(largest, 30) << method;
    });
  }
}

template <typename T>
void expect_sum_at_any_address(Savings& savings, DType type, int ranks) {
  const T values[] = {1, -2, 0.5};
  std::byte in[sizeof values + 1];
  std::byte out[sizeof values + 1];
  std::memcpy(in + 1, values, sizeof values);
  ASSERT_TRUE(savings.compress(in + 1, out + 1, std::size(values), type, in).ok());
  T sum[std::size(values)];
  std::memcpy(sum, out + 1, sizeof sum);
  for (std::size_t i = 0; i < std::size(values); ++i)
    EXPECT_EQ(sum[i], static_cast<T>(ranks) * values[i]);
}

TEST(Savings, TakeVectorsAtAnyAddress) {
  Party party({1, 2, 3});
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    const auto savings = of_any_float("fp16", comm);
    expect_sum_at_any_address<float>(*savings, DType::f32, me.size);
    expect_sum_at_any_address<double>(*savings, DType::f64, me.size);
  });
}

}  // namespace
}  // namespace heddle::test
