// Sums through codecs of vectors in GPU memory, where each rank's GPU codes and decodes its own
// (compressed_steps.hpp).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "compress/coded_run.hpp"
#include "compressed_steps.hpp"
#include "select/catalog.hpp"
#include "support/ranks.hpp"

namespace heddle::test {
namespace {

// All codecs, some with buckets that divide no chunk.
constexpr const char* kMethods[] = {"fp16",   "bf16",     "qsgd:8",    "qsgd:8:100",    "qsgd:4",
                                    "qsgd:2", "terngrad", "onebit:77", "onebit:1048576"};

// Where several ranks share a node it sums their vectors, not codes.
bool by_codes(const LocalSeat& seat) {
  const TopologyView& topology = seat.own().communicator->topology();
  return topology.nodes() == 1 || topology.nodes() == seat.ranks();
}

// Bytes that cross the bus, of all ranks: of the codes, and of values that are folded on the host.
struct Crossing {
  std::size_t to_host = 0;
  std::size_t to_gpu = 0;
};

Crossing crossing(const LocalSeat& seat, const char* method, std::size_t count, bool keeps, bool is_first) {
  const TopologyView& topology = seat.own().communicator->topology();
  const Algorithm* algorithm = find_algorithm(Collective::allreduce, "split_allgather");
  const Ports none;
  Crossing all;
  for (int rank = 0; rank < seat.ranks(); ++rank) {
    CodedRun run(std::make_shared<const Schedule>(algorithm->build(topology, rank, {0, 2, 2})), none);
    const CodedPlan plan = run.plan(count, heddle::parse_compression(method).value().codec);
    const std::size_t bytes = count * sizeof(float);
    const std::size_t held = plan.held.count * sizeof(float);
    EXPECT_TRUE(plan.leaves_codes);
    const bool codes = plan.takes_contributions;
    all.to_host += (codes ? plan.contributed_bytes + held : bytes) + 1024;
    all.to_gpu += plan.bytes + (codes && keeps ? held + (is_first ? bytes : 0) : 0) + 1024;
  }
  return all;
}

class CodeSteps : public CompressedSteps {
 public:
  using CompressedSteps::CompressedSteps;

  // By all ranks' GPUs.
  void step(const char* method, const std::vector<float>& values, bool keeps, bool in_place) {
    const Outcome got = CompressedSteps::step(method, values, keeps, in_place).got;
    const Crossing most = crossing(seat(), method, count(), keeps, !was_there_);
    if (!by_codes(seat())) return;
    EXPECT_GT(got.traffic.kernels, 0);
    EXPECT_LE(got.traffic.to_host, most.to_host) << method;
    EXPECT_LE(got.traffic.to_gpu, most.to_gpu) << method;
    was_there_ = was_there_ || keeps;
  }
  void compare_residuals() {
    CompressedSteps::compare_residuals();
    was_there_ = false;
  }

 private:
  bool was_there_ = false;
};

// On one node before its ranks have agreed on anything.
TEST(LocalCodes, EachCodesItsOwn) {
  int shape_and_method = 0;
  for (const std::vector<std::uint64_t>& nodes : std::vector<std::vector<std::uint64_t>>{
           {0, 1}, {0, 0, 1, 1}, {0, 1, 0}, {0, 0}, {0, 1, 2}, {0, 1, 2, 3, 4}}) {
    for (const char* method : kMethods) {
      if (kSlowBuild && ++shape_and_method % 4 != 0) continue;
      on_seats(nodes, plain(), [&](LocalSeat& seat) {
        const int rank = seat.rank();
        CodeSteps steps(seat, kind_of(rank, 0), kind_of(rank, 2), kCount, 0, rank % 2);
        steps.step(method, gradient(kCount, rank, 0), false, false);
        for (int step = 1; step < 4; ++step)
          steps.step(method, gradient(kCount, rank, step), true, step % 2 == 0);
        steps.compare_residuals();
        steps.step(method, gradient(kCount, rank, 4), false, true);
      });
    }
  }
}

// Beyond 32 ranks each folds half of the vector, and sends sums of a part of the ranks.
TEST(LocalCodes, ManyRanks) {
  std::vector<std::uint64_t> nodes(35);
  std::iota(nodes.begin(), nodes.end(), std::uint64_t{0});
  on_seats(nodes, plain(), [&](LocalSeat& seat) {
    CodeSteps steps(seat, Memory::device, Memory::device);
    for (int step = 0; step < 2; ++step)
      steps.step("qsgd:4", gradient(kCount, seat.rank(), step), true, false);
    steps.compare_residuals();
  });
}

// Codes are a few bytes: of two ranks, half of the vector is folded on each.
TEST(LocalCodes, LessThanTheVectorCrosses) {
  on_seats({0, 1, 2, 3}, plain(), [](LocalSeat& seat) {
    const Crossing most = crossing(seat, "qsgd:8", kCount, false, false);
    EXPECT_LT(most.to_host, 4 * kBytes / 2);
    EXPECT_LT(most.to_gpu, 4 * kBytes / 3);
  });
}

// Each rank has what it has: input and output on the host or a GPU, on all of them another pair.
TEST(LocalCodes, MixedMemory) {
  const Memory pairs[][2] = {{Memory::device, Memory::host},
                             {Memory::host, Memory::pool},
                             {Memory::managed, Memory::device},
                             {Memory::pinned, Memory::host}};
  for (const std::vector<std::uint64_t>& nodes :
       std::vector<std::vector<std::uint64_t>>{{0, 1, 2}, {0, 1, 2, 3}}) {
    on_seats(nodes, plain(), [&](LocalSeat& seat) {
      for (std::size_t turn = 0; turn < 4; ++turn) {
        const auto& pair = pairs[(turn + static_cast<std::size_t>(seat.rank())) % 4];
        CodeSteps steps(seat, pair[0], pair[1]);
        for (int step = 0; step < 3; ++step) {
          const std::vector<float> mine = gradient(kCount, seat.rank(), step);
          const Compared both =
              steps.CompressedSteps::step(step == 1 ? "onebit" : "qsgd:4", mine, step > 0, false);
          EXPECT_GT(both.got.traffic.kernels, 0);
          EXPECT_LT(both.got.traffic.to_gpu, both.wanted.traffic.to_gpu + (step == 1 ? 2 * kBytes : 0));
        }
        steps.compare_residuals();
      }
    });
  }
}

// A vector and its result on two GPUs.
TEST(LocalCodes, OnTwoDevices) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    const TestMemory in(*driver, Memory::device, kBytes, 0);
    const TestMemory out(*driver, Memory::device, kBytes, 1);
    PlacedResidual mine{Residual(kCount)};
    PlacedResidual wanted{Residual(kCount)};
    for (int step = 0; step < 2; ++step) {
      const std::vector<float> values = gradient(kCount, seat.rank(), step);
      in.put(values.data(), kBytes);
      const auto call = [&](PlacedResidual& residual) {
        return [&](heddle_comm& comm) {
          return compress(comm, "qsgd:8", in.as<float>(), out.as<float>(), kCount, &residual);
        };
      };
      const Outcome by_images = seat.by_images(call(wanted), out, kBytes);
      const Outcome got = seat.on_own(call(mine), out, kBytes);
      expect_same(got, by_images, "from GPU to GPU");
      EXPECT_LE(got.traffic.to_host, crossing(seat, "qsgd:8", kCount, true, step == 0).to_host);
    }
  });
}

// NaN, infinities, and -0, also in the residual, of which nothing is left.
TEST(LocalCodes, SpecialValues) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    CodeSteps steps(seat, Memory::device, Memory::device);
    for (int turn = 0; const char* method : kMethods) {
      std::vector<float> mine = gradient(kCount, seat.rank(), turn);
      for (std::size_t i = static_cast<std::size_t>(seat.rank()); i < kCount; i += 5000)
        mine[i] =
            i % 3 == 0 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
      for (std::size_t i = 3; i < kCount; i += 7)
        mine[i] = i % 2 == 0 ? -0.0F : 1e-42F;
      steps.fill_residuals(-0.0F);
      steps.step(method, mine, true, ++turn % 2 == 0);
      steps.step(method, std::vector<float>(kCount, -0.0F), true, false);
      steps.compare_residuals();
    }
  });
}

// What goes by images, with the same bits: short vectors, elements that are not aligned, codes that take more
// than the values, one rank alone; and a residual that another method wants on the host or on the GPU.
TEST(LocalCodes, ImagesBetween) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    const int rank = seat.rank();
    const auto by_images = [&](CompressedSteps& steps, std::size_t count, const char* method) {
      EXPECT_EQ(steps.step(method, gradient(count, rank, 0), true, false).got.traffic.kernels, 0);
      steps.compare_residuals();
    };
    constexpr std::size_t kShort = heddle::LocalGpu::kFrom / sizeof(float) - 1;
    CompressedSteps few(seat, Memory::device, Memory::device, kShort);
    by_images(few, kShort, "qsgd:8");
    CompressedSteps apart(seat, Memory::device, Memory::device, kCount, 2);
    by_images(apart, kCount, "qsgd:8");
    CompressedSteps many(seat, Memory::device, Memory::device);
    by_images(many, kCount, "qsgd:8:1");
    CodeSteps steps(seat, Memory::device, Memory::device);
    for (int turn = 0; turn < 2; ++turn) {
      steps.step("qsgd:4", gradient(kCount, rank, 3 * turn), true, false);
      steps.CompressedSteps::step("randomk:0.01", gradient(kCount, rank, 3 * turn + 1), true, false);
      steps.CompressedSteps::step("topk:0.01", gradient(kCount, rank, 3 * turn + 2), true, false);
    }
    steps.compare_residuals();
  });
  on_seats({0}, plain(), [](LocalSeat& seat) {
    CompressedSteps alone(seat, Memory::device, Memory::device);
    EXPECT_EQ(alone.step("qsgd:8", gradient(kCount, 0, 0), true, false).got.traffic.kernels, 0);
  });
}

// Whoever looks at a residual's values finds them after every call.
TEST(LocalCodes, ShownResiduals) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    CompressedSteps steps(seat, Memory::device, Memory::device);
    const heddle::Result<Residual*> shown = steps.residual().show();
    ASSERT_TRUE(shown.ok());
    for (int step = 0; step < 2; ++step) {
      EXPECT_GT(steps.step("onebit", gradient(kCount, seat.rank(), step), true, false).got.traffic.kernels,
                0);
      steps.compare_shown(*shown.value());
    }
  });
}

// The caller's work on the default stream before the call: what makes the input, and what still writes to the
// output.
TEST(LocalCodes, AfterTheDefaultStream) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    CompressedSteps steps(seat, Memory::device, Memory::device);
    const std::vector<float> mine = gradient(kCount, seat.rank(), 0);
    std::vector<float> larger = mine;
    // One value that the rank folds itself, and one that it codes.
    larger[77] += seat.rank() == 0 ? 10.0F : 100.0F;
    larger[kCount - 77] += seat.rank() == 0 ? 1000.0F : 1e4F;
    const Outcome wanted = steps.by_images("fp16", larger, false, false);
    steps.own("fp16", mine, false, false);
    const auto later = driver->find<void (*)(void*, const void*, std::size_t)>("fake_cuda_write_later");
    const std::vector<float> dirt(kCount, 3.0F);
    const auto call = [&](heddle_comm& comm) {
      later(steps.in().data(), larger.data(), kBytes);
      later(steps.out().data(), dirt.data(), kBytes);
      return compress(comm, "fp16", steps.in().as<float>(), steps.out().as<float>(), kCount, nullptr);
    };
    const Outcome got = seat.on_own(call, steps.out(), kBytes);
    EXPECT_GT(got.traffic.kernels, 0);
    expect_same(got, wanted, "after the default stream");
  });
}

// Ranks that want different things are told so, and residuals are what they were.
TEST(LocalCodes, Disagreement) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    CodeSteps steps(seat, Memory::device, Memory::device);
    steps.step("onebit", gradient(kCount, seat.rank(), 0), true, false);
    const Outcome refused =
        steps.own(seat.rank() == 0 ? "onebit" : "onebit:7", gradient(kCount, seat.rank(), 1), true, false);
    EXPECT_EQ(refused.status.code(), Code::invalid_argument);
    EXPECT_GT(refused.traffic.kernels, 0);
    steps.step("onebit", gradient(kCount, seat.rank(), 2), true, false);
    steps.compare_residuals();
  });
}

// Every call of every function fails once on one rank. Nobody waits: the sum is right, or all ranks are told
// before anything is exchanged, and residuals are what they were; or that rank alone has not got its own. The
// next one is right.
TEST(LocalCodes, EachStepFails) {
  std::atomic<int> told = 0;
  std::atomic<int> alone = 0;
  std::atomic<int> right = 0;
  on_seats({0, 1}, plain(), [&](LocalSeat& seat) {
    const std::vector<float> mine = gradient(kCount, seat.rank(), 0);
    for (const char* name : {"cuLaunchKernel", "cuMemsetD8Async", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync",
                             "cuStreamSynchronize", "cuEventRecord", "cuStreamWaitEvent", "cuMemAlloc",
                             "cuStreamCreate", "cuMemHostRegister"}) {
      for (int after = 0;; ++after) {
        // Without random numbers, which depend on the calls so far.
        CompressedSteps steps(seat, Memory::device, Memory::device);
        const Outcome wanted = steps.by_images("onebit", mine, true, false);
        const int told_before = told;
        seat.fail_after(name, after);
        Outcome got;
        const int calls = seat.all().counted(name, [&] {
          got = steps.own("onebit", mine, true, false);
          if (got.status.code() == Code::peer_failed) ++told;
        });
        seat.fail_no_more(name);
        if (got.status.ok()) {
          expect_same(got, wanted, name);
          ++right;
        } else {
          const bool other = got.status.code() == Code::peer_failed;
          const char* const says = other ? "could not make its part of the sum ready" : "so says the double";
          EXPECT_NE(got.status.message().find(says), std::string::npos) << got.status.message();
          if (!other && told == told_before) ++alone;
        }
        if (told != told_before) {
          // One that failed on all was none: then the residual is as before the next.
          EXPECT_FALSE(got.status.ok());
          expect_same(steps.own("onebit", mine, true, true), wanted, std::string("once more after ") + name);
        }
        if (told != told_before || got.status.ok()) {
          SCOPED_TRACE(std::string(name) + " number " + std::to_string(after));
          steps.compare_residuals();
        }
        expect_same(steps.own("onebit", mine, false, true), wanted, std::string("after ") + name);
        if (calls <= after) break;
      }
    }
  });
  EXPECT_GT(told, 0);
  EXPECT_GT(alone, 0);
  EXPECT_GT(right, 0);
}

// A vector that cannot be fetched, coded or as an image: all are told, and the next sum is right.
TEST(LocalCodes, NoInputOnOneRank) {
  constexpr std::size_t kShort = 1000;
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    // All calls of the driver's are of one rank.
    const Memory where = seat.rank() == 0 ? Memory::device : Memory::host;
    for (const std::size_t count : {kShort, kCount}) {
      for (const char* method : {"qsgd:8", "randomk:0.01"}) {
        for (const bool in_place : {true, false}) {
          CompressedSteps steps(seat, where, where, count);
          const std::vector<float> mine = gradient(count, seat.rank(), 0);
          seat.fail_after("cuMemcpyDtoHAsync", 0);
          const Status status = steps.own(method, mine, true, in_place).status;
          seat.fail_no_more("cuMemcpyDtoHAsync");
          const bool other = seat.rank() != 0;
          EXPECT_EQ(status.code(), other ? Code::peer_failed : Code::system);
          const char* const says =
              other ? "rank 0 could not make its part of the sum ready" : "so says the double";
          EXPECT_NE(status.message().find(says), std::string::npos) << status.message();
          expect_same(steps.own(method, mine, true, in_place), steps.by_images(method, mine, true, in_place),
                      method);
          steps.compare_residuals();
        }
      }
    }
  });
}

// No memory on one rank's GPU, for one thing or the next: that one has images for it.
TEST(LocalCodes, NoMemoryOnOneRank) {
  for (int after = 0; after < 6; ++after) {
    on_seats({0, 1}, plain(), [&](LocalSeat& seat) {
      CompressedSteps steps(seat, Memory::device, Memory::device);
      seat.all().counted("cuMemAlloc", [&] {
        if (seat.rank() == 0) driver->fail_after("cuMemAlloc", after, CUDA_ERROR_OUT_OF_MEMORY);
      });
      for (int step = 0; step < 2; ++step) {
        const Outcome got = steps.step("qsgd:4", gradient(kCount, seat.rank(), step), true, false).got;
        EXPECT_GT(got.traffic.kernels, 0);
      }
      steps.compare_residuals();
    });
  }
}

// Pinned memory is no condition.
TEST(LocalCodes, NoPinnedMemory) {
  Config config = plain();
  config.pinned_bytes = 4096;
  on_seats({0, 1}, config, [](LocalSeat& seat) {
    CodeSteps steps(seat, Memory::device, Memory::device);
    for (int step = 0; step < 2; ++step)
      steps.step("qsgd:8", gradient(kCount, seat.rank(), step), true, false);
    steps.compare_residuals();
  });
}

// A context that is destroyed, and a residual with it; and the communicator after that.
TEST(LocalCodes, ContextsThatGo) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    const std::vector<float> mine = gradient(kCount, seat.rank(), 0);
    PlacedResidual lost{Residual(kCount)};
    ASSERT_NO_FATAL_FAILURE(sum_in_a_context_that_goes(seat, "onebit", mine, &lost));
    CodeSteps steps(seat, Memory::device, Memory::device);
    steps.step("onebit", mine, true, false);
    steps.compare_residuals();
    EXPECT_EQ(lost.on_host().status().code(), Code::system);
  });
}

// Codes that no encoder writes: the host says what is wrong with them, and the next result is right.
TEST(LocalCodes, DamagedResults) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    const heddle::CodecSettings how{heddle::Codec::qsgd8};
    Communicator& communicator = *seat.own().communicator;
    const TestMemory out(*driver, Memory::device, kBytes);
    const auto there =
        communicator.local_gpu().vector(seat.own().gpu, out.data(), kCount, heddle::DType::f32);
    ASSERT_NE(there, nullptr);
    ASSERT_TRUE(there->reserve_codes(communicator.coded_plan(kCount, how), how).ok());
    std::memset(there->codes(), 0xFF, heddle::coded_bytes(how, kCount) / 2);
    there->put_codes();
    EXPECT_EQ(there->outcome().code(), Code::internal);
    EXPECT_NE(there->outcome().message().find("bucket 0 has the scale"), std::string::npos)
        << there->outcome().message();
    CodeSteps steps(seat, Memory::device, Memory::device);
    steps.step("qsgd:8", gradient(kCount, seat.rank(), 0), false, false);
  });
}

}  // namespace
}  // namespace heddle::test
