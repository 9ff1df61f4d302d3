// Collectives on streams, through the C API on the double of CUDA's driver (its path is the argument), by
// ranks that are threads of one process: on one device, where all share a context, and on several. In the
// double no work is done before somebody waits for it, so what a stream does not wait for it finds undone.
#include <gtest/gtest.h>

#include <barrier>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../api/ranks.hpp"
#include "cuda_memory.hpp"
#include "cuda_streams.hpp"
#include "heddle/heddle_cuda.hpp"

namespace {

using heddle::test::Memory;
using heddle::test::TestDriver;
using heddle::test::TestMemory;
using heddle::testing_ranks::Meeting;
using heddle::testing_ranks::on_ranks;
using heddle::testing_ranks::on_threads;

const TestDriver* driver = nullptr;

#define OK(call) ASSERT_EQ(call, HEDDLE_OK) << heddle_last_error()

int calls(const char* name) {
  return driver->find<int (*)(const char*)>("fake_cuda_calls")(name);
}
int host_waits() {
  return calls("cuStreamSynchronize") + calls("cuEventSynchronize");
}

struct Stream : heddle::test::TestStream {
  explicit Stream(int device) : TestStream(*driver, device) {}
};
struct Words : heddle::test::TestWords {
  Words(int device, std::size_t count, std::int32_t value, Memory kind = Memory::device)
      : TestWords(*driver, device, count, value, kind) {}
};

// A program's step: work that makes the input, a collective, work that takes the result, and work that makes
// the next input.
struct Step {
  Step(int rank, int device, std::size_t count, Memory kind)
      : stream(device),
        made(device, count, rank + 1),
        next(device, count, 1000),
        in(device, count, -7, kind),
        out(device, count, -7, kind),
        taken(device, count, -7) {}
  void allreduce(heddle_comm_t comm, bool in_place) const {
    void* const to = in_place ? in.at() : out.at();
    stream.copy(in.at(), made.at(), in.bytes());
    OK(heddle_allreduce_on_stream(in_place ? HEDDLE_IN_PLACE : in.at(), to, in.count(), HEDDLE_INT32,
                                  HEDDLE_SUM, comm, stream.get()));
    stream.copy(taken.at(), to, in.bytes());
    stream.copy(in.at(), next.at(), in.bytes());
    stream.copy(to, next.at(), in.bytes());
  }
  void bcast(heddle_comm_t comm, int root) const {
    stream.copy(in.at(), made.at(), in.bytes());
    OK(heddle_bcast_on_stream(in.at(), in.bytes(), root, comm, stream.get()));
    stream.copy(taken.at(), in.at(), in.bytes());
    stream.copy(in.at(), next.at(), in.bytes());
  }
  const Stream stream;
  const Words made;
  const Words next;
  const Words in;
  const Words out;
  const Words taken;
};

constexpr Memory kOnDevice[] = {Memory::device, Memory::managed, Memory::pool, Memory::mapped};

// One rank after the other waits for its stream, a different one first in each case: whatever that makes the
// others do must be right.
void check_steps(heddle_comm_t comm, int rank, int ranks, int devices, std::barrier<>& barrier) {
  const std::int32_t sum = ranks * (ranks + 1) / 2;
  int turn = 0;
  for (const std::size_t count : {1, 63, 1037, 10'001, 16'384, 70'001}) {
    const Step step(rank, rank % devices, count, kOnDevice[(count + static_cast<std::size_t>(rank)) % 4]);
    const auto finish = [&] {
      barrier.arrive_and_wait();
      for (int r = 0; r < ranks; ++r) {
        if ((r + turn) % ranks == rank) step.stream.wait();
        barrier.arrive_and_wait();
      }
      ++turn;
    };
    for (const bool in_place : {false, true}) {
      step.allreduce(comm, in_place);
      finish();
      ASSERT_EQ(step.taken.value(), sum) << count << (in_place ? " in place" : "");
      ASSERT_EQ(step.in.value(), 1000);
    }
    const int root = static_cast<int>(count) % ranks;
    step.bcast(comm, root);
    finish();
    ASSERT_EQ(step.taken.value(), root + 1) << count;
  }
}

void check_node(int ranks, int devices) {
  std::barrier barrier(ranks);
  const int late = driver->calls("a load at a launch");
  on_ranks(ranks, [&](heddle_comm_t comm, int rank) {
    check_steps(comm, rank, ranks, devices, barrier);
    // Set up by now: no GPU is waited for any more.
    barrier.arrive_and_wait();
    const int before = host_waits();
    barrier.arrive_and_wait();
    const Step step(rank, rank % devices, 70'001, Memory::device);
    const int copies = host_waits();
    step.allreduce(comm, false);
    step.bcast(comm, 0);
    barrier.arrive_and_wait();
    EXPECT_EQ(host_waits(), copies) << "before " << before;
    barrier.arrive_and_wait();
    step.stream.wait();
  });
  // To load a kernel the driver may wait for streams, which wait for other ranks.
  EXPECT_EQ(driver->calls("a load at a launch"), late);
}

TEST(GpuStreams, OneRank) {
  check_node(1, 1);
}

TEST(GpuStreams, InOneContext) {
  for (int ranks = 2; ranks <= 4; ++ranks)
    check_node(ranks, 1);
}

TEST(GpuStreams, OnTwoDevices) {
  check_node(2, 2);
  check_node(4, 2);
}

TEST(GpuStreams, EachOnADeviceOfItsOwn) {
  check_node(3, 3);
  check_node(4, 4);
}

// Many calls before anybody waits, each on another stream, beside blocking ones on the same memory of
// heddle's: they follow each other, or one would overwrite there what another has not read.
void check_streams(int devices, std::size_t count) {
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    std::vector<std::unique_ptr<Step>> steps;
    for (int i = 0; i < 5; ++i) {
      steps.push_back(std::make_unique<Step>(rank, rank % devices, count, Memory::device));
      steps.back()->made.set((rank + 1) * (i + 1));
    }
    const Words blocking(rank % devices, count, rank + 1);
    for (const auto& step : steps) {
      step->allreduce(comm, false);
      if (step == steps[2]) {
        OK(heddle_allreduce(HEDDLE_IN_PLACE, blocking.at(), count, HEDDLE_INT32, HEDDLE_SUM, comm));
        const std::int32_t value = step->out.value();
        EXPECT_TRUE(value == 18 || value == 1000) << value;
      }
    }
    EXPECT_EQ(blocking.value(), 6);
    steps[4]->stream.wait();
    // What comes after the collective may have been done as well, if another rank was waited for.
    for (int i = 0; i < 4; ++i) {
      const std::int32_t value = steps[static_cast<std::size_t>(i)]->out.value();
      EXPECT_TRUE(value == 6 * (i + 1) || value == 1000) << value;
    }
    for (int i = 4; i >= 0; --i) {
      const Step& step = *steps[static_cast<std::size_t>(i)];
      step.stream.wait();
      ASSERT_EQ(step.taken.value(), 6 * (i + 1));
    }
  });
}

TEST(GpuStreams, SeveralStreams) {
  for (const int devices : {1, 2, 3}) {
    check_streams(devices, 40'000);
    check_streams(devices, 1'000);
  }
}

// The default stream, by its three names, comes after the work of streams that synchronise with it.
TEST(GpuStreams, DefaultStreams) {
  const auto write_later = driver->find<void (*)(void*, const void*, std::size_t)>("fake_cuda_write_later");
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    for (CUstream stream : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
      const Words in(0, 1, -7);
      const Words out(0, 1, -7);
      const std::int32_t mine = rank + 5;
      write_later(in.at(), &mine, sizeof mine);
      OK(heddle_allreduce_on_stream(in.at(), out.at(), 1, HEDDLE_INT32, HEDDLE_SUM, comm, stream));
      EXPECT_EQ(out.value(), 11);
    }
  });
}

// The same in C++.
TEST(GpuStreams, Face) {
  namespace api = heddle::api;
  Meeting meeting(2);
  on_threads(2, [&](int rank) {
    const auto gather = [&](const void* mine, void* all, std::size_t bytes) {
      meeting.allgather(rank, mine, all, bytes);
      return 0;
    };
    const api::Comm comm = api::Comm::from_allgather(rank, 2, gather);
    const Stream stream(rank);
    const Words in(rank, 5, rank + 1);
    const Words out(rank, 5, -7);
    api::allreduce_on_stream(comm, stream.get(), std::span<const std::int32_t>(in.at(), 5),
                             std::span<std::int32_t>(out.at(), 5), api::Op::max);
    api::allreduce_in_place_on_stream(comm, stream.get(), std::span<std::int32_t>(in.at(), 4));
    api::bcast_on_stream(comm, stream.get(), std::span<std::int32_t>(in.at() + 4, 1), 1);
    stream.wait();
    EXPECT_EQ(out.value(), 2);
    EXPECT_EQ(in.value(0, 4), 3);
    EXPECT_EQ(in.value(4, 1), 2);
    EXPECT_THROW(api::allreduce_on_stream(comm, stream.get(), std::span<const std::int32_t>(in.at(), 5),
                                          std::span<std::int32_t>(out.at(), 4)),
                 api::Error);
  });
}

// What cannot be is refused on all ranks, and what can goes on.
TEST(GpuStreams, Refused) {
  std::barrier barrier(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const Stream stream(0);
    const Words good(0, 4, rank + 1);
    const auto refused = [&](const void* in, void* out, heddle_dtype type, CUstream on, const char* why) {
      EXPECT_EQ(heddle_allreduce_on_stream(in, out, 1, type, HEDDLE_SUM, comm, on), HEDDLE_ERR_UNSUPPORTED);
      const std::string text = heddle_last_error();
      EXPECT_NE(text.find(why), std::string::npos) << text;
      barrier.arrive_and_wait();
    };
    std::int32_t host = 1;
    const char* const other = "rank 1 could not do its part";
    // Before it is set up and afterwards.
    for (int i = 0; i < 2; ++i) {
      void* const mixed = rank == 1 ? &host : good.at();
      const char* const why = i == 0 ? "is host memory" : "is not in the GPU context";
      refused(HEDDLE_IN_PLACE, mixed, HEDDLE_INT32, stream.get(), rank == 1 ? why : other);
      OK(heddle_allreduce_on_stream(HEDDLE_IN_PLACE, good.at(), 4, HEDDLE_INT32, HEDDLE_SUM, comm,
                                    stream.get()));
      stream.wait();
      EXPECT_EQ(good.value(), 3 << i);
      barrier.arrive_and_wait();
    }
    const Words wide(0, 8, 0);
    refused(HEDDLE_IN_PLACE, wide.at(), HEDDLE_LONG_DOUBLE, stream.get(), "there is no kernel");
    const Stream elsewhere(1);
    refused(HEDDLE_IN_PLACE, good.at(), HEDDLE_INT32, rank == 1 ? elsewhere.get() : stream.get(),
            rank == 1 ? "is not of the context" : other);
    const Words far(1, 4, 0);
    refused(HEDDLE_IN_PLACE, rank == 1 ? far.at() : good.at(), HEDDLE_INT32, stream.get(),
            rank == 1 ? "is not in the GPU context" : other);
    OK(heddle_allreduce_on_stream(HEDDLE_IN_PLACE, good.at(), 4, HEDDLE_INT32, HEDDLE_SUM, comm,
                                  stream.get()));
    stream.wait();
    EXPECT_EQ(good.value(), 12);
  });
}

// Calls that are not the same on all ranks, short ones and those by way of the scratch, are refused on all.
void check_differences(int devices, std::size_t count) {
  std::barrier barrier(2);
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const bool other = rank == 1;
    const int device = rank % devices;
    const Stream stream(device);
    const Words words(device, count, 1);
    const auto sum = [&](std::size_t length, heddle_dtype type, heddle_op op) {
      return heddle_allreduce_on_stream(HEDDLE_IN_PLACE, words.at(), length, type, op, comm, stream.get());
    };
    const auto bcast = [&](std::size_t bytes, int root) {
      return heddle_bcast_on_stream(words.at(), bytes, root, comm, stream.get());
    };
    const auto refused = [&](heddle_status status) {
      EXPECT_EQ(status, HEDDLE_ERR_ARGUMENT);
      EXPECT_NE(std::string(heddle_last_error()).find("the ranks differ in"), std::string::npos)
          << heddle_last_error();
      barrier.arrive_and_wait();
    };
    OK(sum(count, HEDDLE_INT32, HEDDLE_BOR));
    refused(sum(other ? count - 1 : count, HEDDLE_INT32, HEDDLE_SUM));
    refused(sum(count, other ? HEDDLE_FLOAT32 : HEDDLE_INT32, HEDDLE_SUM));
    refused(sum(count, HEDDLE_INT32, other ? HEDDLE_MAX : HEDDLE_SUM));
    refused(bcast(other ? 4 : 4 * count, 0));
    refused(bcast(4 * count, rank));
    refused(other ? bcast(4 * count, 0) : sum(count, HEDDLE_INT32, HEDDLE_SUM));
    OK(sum(count, HEDDLE_INT32, HEDDLE_SUM));
    stream.wait();
    EXPECT_EQ(words.value(), 2);
  });
}

TEST(GpuStreams, CallsThatDiffer) {
  for (const int devices : {1, 2}) {
    check_differences(devices, 50'000);
    check_differences(devices, 1'000);
  }
}

// Whatever fails on one rank, at whatever step, all are told, nobody waits, and it can go on.
void check_failures(int devices, std::size_t count) {
  std::barrier barrier(3);
  const auto fail = driver->find<void (*)(const char*, int, int)>("fake_cuda_fail");
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    const Stream stream(rank % devices);
    const Words good(rank % devices, count, 1);
    const auto sum = [&](void* buffer) {
      return heddle_allreduce_on_stream(HEDDLE_IN_PLACE, buffer, count, HEDDLE_INT32, HEDDLE_SUM, comm,
                                        stream.get());
    };
    OK(sum(good.at()));
    bool launched = false;
    TestMemory freed(*driver, Memory::device, 200'000, rank % devices);
    void* const nowhere = freed.lose();
    EXPECT_EQ(sum(rank == 1 ? nowhere : good.at()), rank == 1 ? HEDDLE_ERR_ARGUMENT : HEDDLE_ERR_PEER);
    const std::string wanted = rank == 1 ? "freed" : "rank 1 could not do its part";
    EXPECT_NE(std::string(heddle_last_error()).find(wanted), std::string::npos) << heddle_last_error();
    barrier.arrive_and_wait();
    const int before = calls("heddle_exchange");
    barrier.arrive_and_wait();
    OK(sum(good.at()));
    barrier.arrive_and_wait();
    const bool exchanges = calls("heddle_exchange") > before;
    // Of two kernels of each rank's then the later one as well.
    for (const char* name : {"cuStreamGetCtx", "cuStreamIsCapturing", "cuStreamWaitEvent", "cuLaunchKernel",
                             exchanges ? "cuLaunchKernel" : "cuEventRecord"}) {
      const bool is_later =
          exchanges && name == std::string("cuLaunchKernel") && std::exchange(launched, true);
      barrier.arrive_and_wait();
      if (rank == 0 && is_later) driver->fail_after(name, 5, CUDA_ERROR_ILLEGAL_ADDRESS);
      if (rank == 0 && !is_later) fail(name, CUDA_ERROR_ILLEGAL_ADDRESS, 1);
      barrier.arrive_and_wait();
      EXPECT_NE(sum(good.at()), HEDDLE_OK) << name;
      barrier.arrive_and_wait();
      OK(sum(good.at()));
    }
    // Setting up, too.
    for (const char* name : {"cuEventCreate", "cuStreamCreate"}) {
      EXPECT_NE(sum(rank == 1 ? nowhere : good.at()), HEDDLE_OK);
      barrier.arrive_and_wait();
      if (rank == 0) fail(name, CUDA_ERROR_OUT_OF_MEMORY, 1);
      barrier.arrive_and_wait();
      EXPECT_EQ(sum(good.at()), HEDDLE_ERR_UNSUPPORTED) << heddle_last_error();
      barrier.arrive_and_wait();
      OK(sum(good.at()));
    }
    stream.wait();
    good.set(rank);
    OK(sum(good.at()));
    stream.wait();
    EXPECT_EQ(good.value(), 3);
  });
}

TEST(GpuStreams, OneFails) {
  for (const int devices : {1, 2, 3}) {
    check_failures(devices, 50'000);
    check_failures(devices, 1'000);
  }
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  setenv("FAKE_CUDA_DEVICES", "4", 1);
  // Little scratch, so that vectors are longer.
  setenv("HEDDLE_DEVICE_BYTES", "64K", 0);
  setenv("HEDDLE_MEASURE", "0", 1);
  static const TestDriver cuda(argv[1]);
  driver = &cuda;
  return RUN_ALL_TESTS();
}
