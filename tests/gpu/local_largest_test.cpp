// Sums of the largest entries of vectors in GPU memory, where each rank's GPU takes its own
// (local_ranks.hpp).
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "compressed_steps.hpp"

namespace heddle::test {
namespace {

class LargestSteps : public CompressedSteps {
 public:
  using CompressedSteps::CompressedSteps;

  // What rank's GPUs do, by what is copied and started: all of them, or none.
  enum class By { gpus, images };
  void step(const char* method, const std::vector<float>& values, bool keeps, bool in_place, By by) {
    const Outcome got = CompressedSteps::step(method, values, keeps, in_place).got;
    const auto ranks = static_cast<std::size_t>(seat().ranks());
    const std::size_t bytes = count() * sizeof(float);
    if (by == By::images) {
      EXPECT_EQ(got.traffic.kernels, 0);
      EXPECT_GE(got.traffic.to_host, ranks * bytes);
      return;
    }
    EXPECT_GT(got.traffic.kernels, 0);
    // Entries and some words, and a residual that has not been there.
    EXPECT_LE(got.traffic.to_host, got.stats.entries * 8 + ranks * 1024);
    const std::size_t residuals = keeps && !was_there_ ? ranks * bytes : 0;
    EXPECT_LE(got.traffic.to_gpu, residuals + ranks * (got.stats.entries * 8 + 1024));
    was_there_ = was_there_ || keeps;
  }
  void compare_residuals() {
    CompressedSteps::compare_residuals();
    was_there_ = false;
  }

 private:
  bool was_there_ = false;
};

TEST(LocalLargest, EachTakesItsOwn) {
  for (const std::vector<std::uint64_t>& nodes : node_shapes()) {
    on_seats(nodes, plain(), [&](LocalSeat& seat) {
      const int rank = seat.rank();
      LargestSteps steps(seat, kind_of(rank, 0), kind_of(rank, 2), kCount, 0, rank % 2);
      steps.step("topk:0.01", gradient(kCount, rank, 0), false, false, LargestSteps::By::gpus);
      steps.step("topk:0.002", gradient(kCount, rank, 1), false, true, LargestSteps::By::gpus);
      steps.step("topk-sampled:0.01", gradient(kCount, rank, 2), true, false, LargestSteps::By::gpus);
      for (int step = 3; step < 6; ++step)
        steps.step("topk:0.01", gradient(kCount, rank, step), true, step % 2 == 0, LargestSteps::By::gpus);
      steps.compare_residuals();
    });
  }
}

// The host's sample takes others of long vectors; here these are the largest.
TEST(LocalLargest, SampledAreTheLargest) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    constexpr std::size_t kLong = std::size_t{1} << 20;
    LargestSteps steps(seat, Memory::device, Memory::device, kLong);
    const std::vector<float> mine = gradient(kLong, seat.rank(), 0);
    expect_same(steps.own("topk-sampled:0.01", mine, false, false),
                steps.by_images("topk:0.01", mine, false, false), "sampled");
  });
}

// Each rank has what it has: input and output on the host or a GPU, on all of them another pair.
TEST(LocalLargest, MixedMemory) {
  const Memory pairs[][2] = {{Memory::device, Memory::host},
                             {Memory::host, Memory::pool},
                             {Memory::managed, Memory::device},
                             {Memory::pinned, Memory::host}};
  on_seats({0, 0, 1}, plain(), [&](LocalSeat& seat) {
    for (std::size_t turn = 0; turn < 4; ++turn) {
      const auto& pair = pairs[(turn + static_cast<std::size_t>(seat.rank())) % 4];
      LargestSteps steps(seat, pair[0], pair[1]);
      for (int step = 0; step < 3; ++step) {
        const std::vector<float> mine = gradient(kCount, seat.rank(), step);
        const Outcome wanted = steps.by_images("topk:0.01", mine, step > 0, false);
        const Outcome got = steps.own("topk:0.01", mine, step > 0, false);
        expect_same(got, wanted, "pair " + std::to_string(turn));
        EXPECT_LT(got.traffic.to_host, kBytes / 2);
      }
      steps.compare_residuals();
    }
  });
}

// A vector and its result on two GPUs.
TEST(LocalLargest, OnTwoDevices) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    const TestMemory in(*driver, Memory::device, kBytes, 0);
    const TestMemory out(*driver, Memory::device, kBytes, 1);
    for (int step = 0; step < 2; ++step) {
      const std::vector<float> mine = gradient(kCount, seat.rank(), step);
      in.put(mine.data(), kBytes);
      const auto call = [&](heddle_comm& comm) {
        return compress(comm, "topk:0.01", in.as<float>(), out.as<float>(), kCount, nullptr);
      };
      const Outcome wanted = seat.by_images(call, out, kBytes);
      const Outcome got = seat.on_own(call, out, kBytes);
      expect_same(got, wanted, "from GPU to GPU");
      EXPECT_LT(got.traffic.to_host + got.traffic.to_gpu, kBytes / 2);
    }
  });
}

// Where the prices are for it, the vectors travel.
TEST(LocalLargest, DenseSums) {
  on_seats({0, 0, 1}, plain("dense"), [](LocalSeat& seat) {
    LargestSteps steps(seat, kind_of(seat.rank(), 0), kind_of(seat.rank(), 1));
    for (int step = 0; step < 3; ++step) {
      const std::vector<float> mine = gradient(kCount, seat.rank(), step);
      const Outcome wanted = steps.by_images("topk:0.01", mine, step > 0, step == 2);
      const Outcome got = steps.own("topk:0.01", mine, step > 0, step == 2);
      expect_same(got, wanted, "dense");
      EXPECT_STREQ(got.stats.algorithm, "dense");
      EXPECT_LT(got.traffic.to_host, kBytes / 2);
    }
    steps.compare_residuals();
  });
}

TEST(LocalLargest, NotFinite) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    LargestSteps steps(seat, Memory::device, Memory::device);
    for (int step = 0; step < 2; ++step) {
      std::vector<float> mine = gradient(kCount, seat.rank(), step);
      for (std::size_t i = static_cast<std::size_t>(seat.rank()); i < kCount; i += 500)
        mine[i] =
            i % 3 == 0 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
      steps.step("topk:0.001", mine, true, false, LargestSteps::By::gpus);
    }
    steps.compare_residuals();
    // Of nothing but zeros nothing is taken; of -0 neither.
    steps.step("topk:0.01", std::vector<float>(kCount, -0.0F), false, false, LargestSteps::By::gpus);
  });
}

// What goes by images, with the same bits: short vectors, many entries, elements that are not aligned; and by
// another method, which has the residual on the host.
TEST(LocalLargest, ImagesBetween) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    const int rank = seat.rank();
    constexpr std::size_t kShort = heddle::LocalGpu::kFrom / sizeof(float) - 1;
    LargestSteps few(seat, Memory::device, Memory::device, kShort);
    few.step("topk:0.01", gradient(kShort, rank, 0), true, false, LargestSteps::By::images);
    LargestSteps apart(seat, Memory::device, Memory::device, kCount, 2);
    apart.step("topk:0.01", gradient(kCount, rank, 0), true, false, LargestSteps::By::images);
    LargestSteps steps(seat, Memory::device, Memory::device);
    for (int step = 0; step < 2; ++step) {
      steps.step("topk:0.01", gradient(kCount, rank, 3 * step), true, false, LargestSteps::By::gpus);
      const std::vector<float> coded = gradient(kCount, rank, 3 * step + 1);
      expect_same(steps.own("fp16", coded, true, false), steps.by_images("fp16", coded, true, false), "fp16");
      steps.compare_residuals();
      const std::vector<float> drawn = gradient(kCount, rank, 3 * step + 2);
      expect_same(steps.own("randomk:0.01", drawn, true, false),
                  steps.by_images("randomk:0.01", drawn, true, false), "randomk");
    }
    const Outcome many = steps.own("topk:0.9", gradient(kCount, rank, 7), true, false);
    expect_same(many, steps.by_images("topk:0.9", gradient(kCount, rank, 7), true, false), "many");
    EXPECT_EQ(many.traffic.kernels, 0);
    steps.compare_residuals();
  });
}

// Whoever looks at a residual's values finds them after every call.
TEST(LocalLargest, ShownResiduals) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    LargestSteps steps(seat, Memory::device, Memory::device);
    const heddle::Result<Residual*> shown = steps.residual().show();
    ASSERT_TRUE(shown.ok());
    for (int step = 0; step < 2; ++step) {
      const std::vector<float> mine = gradient(kCount, seat.rank(), step);
      const Outcome wanted = steps.by_images("topk:0.01", mine, true, false);
      const Outcome got = steps.own("topk:0.01", mine, true, false);
      expect_same(got, wanted, "shown");
      EXPECT_GT(got.traffic.kernels, 0);
      steps.compare_shown(*shown.value());
    }
  });
}

// The caller's work on the default stream before the call: what makes the input, and what still writes to the
// output.
TEST(LocalLargest, AfterTheDefaultStream) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    LargestSteps steps(seat, Memory::device, Memory::device);
    const std::vector<float> mine = gradient(kCount, seat.rank(), 0);
    std::vector<float> larger = mine;
    larger[77] = 1e6F;
    const Outcome wanted = steps.by_images("topk:0.01", larger, false, false);
    steps.own("topk:0.01", mine, false, false);
    const auto later = driver->find<void (*)(void*, const void*, std::size_t)>("fake_cuda_write_later");
    const std::vector<float> dirt(kCount, 3.0F);
    const auto call = [&](heddle_comm& comm) {
      later(steps.in().data(), larger.data(), kBytes);
      later(steps.out().data(), dirt.data(), kBytes);
      return compress(comm, "topk:0.01", steps.in().as<float>(), steps.out().as<float>(), kCount, nullptr);
    };
    expect_same(seat.on_own(call, steps.out(), kBytes), wanted, "after the default stream");
  });
}

// Ranks that want different things are told so, and residuals are what they were.
TEST(LocalLargest, Disagreement) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    LargestSteps steps(seat, Memory::device, Memory::device);
    steps.step("topk:0.01", gradient(kCount, seat.rank(), 0), true, false, LargestSteps::By::gpus);
    const Outcome refused = steps.own(seat.rank() == 0 ? "topk:0.01" : "topk:0.02",
                                      gradient(kCount, seat.rank(), 1), true, false);
    EXPECT_EQ(refused.status.code(), Code::invalid_argument);
    steps.step("topk:0.01", gradient(kCount, seat.rank(), 2), true, false, LargestSteps::By::gpus);
    steps.compare_residuals();
  });
}

// Every call of every function fails once. Nobody waits: the sum is right, or all ranks are told; and the
// next one is right.
TEST(LocalLargest, EachStepFails) {
  std::atomic<int> told = 0;
  std::atomic<int> right = 0;
  on_seats({0, 1}, plain(), [&](LocalSeat& seat) {
    const std::vector<float> mine = gradient(kCount, seat.rank(), 0);
    LargestSteps reference(seat, Memory::device, Memory::device);
    const Outcome wanted = reference.by_images("topk:0.01", mine, false, false);
    for (const char* name : {"cuLaunchKernel", "cuMemsetD8Async", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync",
                             "cuStreamSynchronize", "cuEventRecord", "cuStreamWaitEvent", "cuMemAlloc",
                             "cuStreamCreate", "cuMemHostRegister"}) {
      for (int after = 0;; ++after) {
        LargestSteps steps(seat, Memory::device, Memory::device);
        seat.fail_after(name, after);
        Outcome got;
        const int calls = seat.all().counted(name, [&] { got = steps.own("topk:0.01", mine, true, false); });
        seat.fail_no_more(name);
        if (got.status.ok()) {
          expect_same(got, wanted, name);
          ++right;
        } else {
          const bool other = got.status.code() == Code::peer_failed;
          const char* const says = other ? "could not make its entries" : "so says the double";
          EXPECT_NE(got.status.message().find(says), std::string::npos) << got.status.message();
          ++told;
          // Nobody else has this rank's vector, so that all of it is still there.
          if (other) steps.expect_residual(mine);
        }
        // By another stream, where that may be what has failed.
        const int streams = seat.all().counted("cuStreamCreate", [&] {
          expect_same(steps.own("topk:0.01", mine, false, true), wanted, std::string("after ") + name);
        });
        if (!got.status.ok()) {
          EXPECT_EQ(streams, 1) << name;
        }
        if (calls <= after) break;
      }
    }
  });
  // One failure is one call's, on all of its ranks.
  EXPECT_EQ(told % 2, 0);
  EXPECT_GT(told, 0);
  EXPECT_GT(right, 0);
}

// No memory on one rank's GPU: that one goes by images.
TEST(LocalLargest, NoMemoryOnOneRank) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    LargestSteps steps(seat, Memory::device, Memory::device);
    const std::vector<float> mine = gradient(kCount, seat.rank(), 0);
    const Outcome wanted = steps.by_images("topk:0.01", mine, true, false);
    seat.all().counted("cuMemAlloc", [&] {
      if (seat.rank() == 0) driver->fail("cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY);
    });
    const Outcome got = steps.own("topk:0.01", mine, true, false);
    expect_same(got, wanted, "without memory");
    EXPECT_GE(got.traffic.to_host, kBytes);
    EXPECT_LT(got.traffic.to_host, 2 * kBytes);
    steps.compare_residuals();
  });
}

// A link that cannot be made, or not be prepared, now or ever: images on that rank.
TEST(LocalLargest, NoLinkOnOneRank) {
  struct Fault {
    const char* name;
    int after;
    CUresult error;
    bool for_good;
  };
  for (const Fault& fault : {Fault{"cuLibraryLoadData", 0, CUDA_ERROR_NO_BINARY_FOR_GPU, true},
                             Fault{"cuStreamCreate", 0, CUDA_ERROR_OUT_OF_MEMORY, false},
                             Fault{"cuMemsetD8Async", 0, CUDA_ERROR_LAUNCH_FAILED, false},
                             Fault{"cuMemsetD8Async", 1, CUDA_ERROR_LAUNCH_FAILED, false},
                             Fault{"cuMemsetD8Async", 2, CUDA_ERROR_LAUNCH_FAILED, false},
                             Fault{"cuMemsetD8Async", 3, CUDA_ERROR_LAUNCH_FAILED, false}}) {
    on_seats({0, 1}, plain(), [&](LocalSeat& seat) {
      LargestSteps steps(seat, Memory::device, Memory::device);
      const std::vector<float> mine = gradient(kCount, seat.rank(), 0);
      for (int step = 0; step < 2; ++step) {
        const Outcome wanted = steps.by_images("topk:0.01", mine, true, false);
        seat.all().counted(fault.name, [&] {
          if (seat.rank() == 0 && step == 0) driver->fail_after(fault.name, fault.after, fault.error);
        });
        const Outcome got = steps.own("topk:0.01", mine, true, false);
        expect_same(got, wanted, fault.name);
        EXPECT_EQ(got.traffic.to_host >= kBytes, step == 0 || fault.for_good)
            << fault.name << ", step " << step;
      }
      steps.compare_residuals();
    });
  }
}

// Pinned memory is no condition.
TEST(LocalLargest, NoPinnedMemory) {
  Config config = plain();
  config.pinned_bytes = 4096;
  on_seats({0, 1}, config, [](LocalSeat& seat) {
    LargestSteps steps(seat, Memory::device, Memory::device);
    for (int step = 0; step < 2; ++step)
      steps.step("topk:0.05", gradient(kCount, seat.rank(), step), true, false, LargestSteps::By::gpus);
    steps.compare_residuals();
  });
}

// A context that is destroyed, and a residual with it; and the communicator after that.
TEST(LocalLargest, ContextsThatGo) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    const std::vector<float> mine = gradient(kCount, seat.rank(), 0);
    PlacedResidual lost{Residual(kCount)};
    ASSERT_NO_FATAL_FAILURE(sum_in_a_context_that_goes(seat, "topk:0.01", mine, &lost));
    LargestSteps steps(seat, Memory::device, Memory::device);
    steps.step("topk:0.01", mine, true, false, LargestSteps::By::gpus);
    steps.compare_residuals();
    EXPECT_EQ(lost.on_host().status().code(), Code::system);
  });
}

// Before the hosts have met a rank finds what it would by images: that memory was freed.
TEST(LocalLargest, FreedMemory) {
  on_seats({0}, plain(), [](LocalSeat& seat) {
    const TestMemory good(*driver, Memory::device, kBytes);
    const Status longer =
        compress(seat.own(), "topk:0.01", good.as<float>(), good.as<float>(), kCount + 1, nullptr);
    EXPECT_NE(longer.message().find("ends " + std::to_string(kBytes) + " bytes further on"),
              std::string::npos)
        << longer.message();
    TestMemory freed(*driver, Memory::device, kBytes);
    auto* const nowhere = static_cast<float*>(freed.lose());
    for (const bool in_lost : {true, false}) {
      const Status status = compress(seat.own(), "topk:0.01", in_lost ? nowhere : good.as<float>(),
                                     in_lost ? good.as<float>() : nowhere, kCount, nullptr);
      EXPECT_EQ(status.code(), Code::invalid_argument);
      EXPECT_NE(status.message().find("freed"), std::string::npos) << status.message();
    }
  });
}

}  // namespace
}  // namespace heddle::test
