// Sums of sparse vectors into dense ones in GPU memory, where each rank's GPU does its own part
// (local_ranks.hpp).
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "local_vectors.hpp"

namespace heddle::test {
namespace {

Status sum_to_dense(heddle_comm& comm, const heddle_sparse& in, void* dense, Op op) {
  SparseJob job;
  job.in = {in.dimension, in.count, static_cast<IndexType>(in.index_type), static_cast<DType>(in.value_type),
            in.indices,   in.values};
  job.op = op;
  job.dense = dense;
  return heddle::edge::sparse_to_dense_anywhere(comm, job);
}

// What all have in `dense`, by GPUs and by images; `on_gpu`: this rank's entries are there as well.
void compare_dense(LocalSeat& seat, const Entries& mine, Op op, Memory memory, bool on_gpu) {
  const std::size_t width = width_of(mine.type);
  const std::size_t bytes = mine.size * width;
  const TestMemory dense(*driver, memory, bytes, seat.rank() % 2);
  const Arrays there(mine, seat.rank(), seat.rank() % 2);
  Entries here = mine;
  const heddle_sparse in = on_gpu ? there.in(mine) : here.vector();
  const auto call = [&](heddle_comm& comm) { return sum_to_dense(comm, in, dense.data(), op); };
  const Bytes dirt(bytes, 0xA5);
  dense.put(dirt.data(), bytes);
  const Outcome wanted = seat.by_images(call, dense, bytes);
  dense.put(dirt.data(), bytes);
  const Outcome got = seat.on_own(call, dense, bytes);
  expect_same(got, wanted,
              "type " + std::to_string(mine.type) + ", " + std::to_string(mine.number) + " entries");
  const auto ranks = static_cast<std::size_t>(seat.ranks());
  EXPECT_LE(got.traffic.to_gpu, ranks * (got.stats.result_entries * (8 + width) + 1024));
  EXPECT_EQ(got.traffic.kernels > 0, got.stats.result_entries > 0);
  EXPECT_EQ(wanted.traffic.kernels, 0);
}

TEST(LocalDense, Sums) {
  for (const std::vector<std::uint64_t>& nodes : node_shapes()) {
    on_seats(nodes, plain(), [&](LocalSeat& seat) {
      const int rank = seat.rank();
      for (const heddle_dtype type : kTypes) {
        const std::size_t count = 300 * static_cast<std::size_t>(rank + 1);
        const Entries mine(count_of(type), count, type, (rank + type) % 2 == 1, rank);
        compare_dense(seat, mine, Op::sum, kind_of(rank, static_cast<int>(type)), rank % 2 == 0);
      }
    });
  }
}

TEST(LocalDense, MinimaMaximaAndNothing) {
  on_seats({0, 0, 1}, plain(), [](LocalSeat& seat) {
    const int rank = seat.rank();
    for (const Op op : {Op::min, Op::max}) {
      for (const bool wide : {false, true})
        compare_dense(seat, {count_of(HEDDLE_FLOAT32), 5'000, HEDDLE_FLOAT32, wide, rank}, op,
                      kind_of(rank, 1), true);
    }
    compare_dense(seat, {count_of(HEDDLE_INT64), 0, HEDDLE_INT64, false, rank}, Op::sum, kind_of(rank, 2),
                  true);
  });
}

// -0, NaN with a payload and the smallest numbers are put as they are; -0 is the sum of nothing else.
TEST(LocalDense, BitsOfOneEntry) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    Entries mine(count_of(HEDDLE_FLOAT32), 4, HEDDLE_FLOAT32, false, 0);
    const std::uint32_t bits[] = {0x80000000U, 0x7FA00001U, 0xFFC12345U, 1U};
    std::memcpy(mine.values.data(), bits, sizeof bits);
    for (const Op op : {Op::sum, Op::min})
      compare_dense(seat, mine, op, Memory::device, true);
  });
}

// As a schedule gives them that divides the vector.
TEST(LocalDense, ResultsInParts) {
  on_seats({0, 0, 1}, plain("split_allgather"), [](LocalSeat& seat) {
    for (const bool wide : {false, true})
      compare_dense(seat, {count_of(HEDDLE_FLOAT64), 3'000, HEDDLE_FLOAT64, wide, seat.rank()}, Op::sum,
                    Memory::device, true);
  });
}

// What the default stream still has to write to the output, also where there is nothing to put there.
TEST(LocalDense, AfterTheDefaultStream) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    for (const std::size_t count : {0, 2'000}) {
      Entries mine(count_of(HEDDLE_FLOAT32), count, HEDDLE_FLOAT32, false, seat.rank());
      const Bytes dirt(mine.size * sizeof(float), 0xA5);
      const TestMemory dense(*driver, Memory::device, dirt.size());
      const auto later = driver->find<void (*)(void*, const void*, std::size_t)>("fake_cuda_write_later");
      const auto call = [&](heddle_comm& comm) {
        later(dense.data(), dirt.data(), dirt.size());
        return sum_to_dense(comm, mine.vector(), dense.data(), Op::sum);
      };
      const Outcome wanted = seat.by_images(call, dense, dirt.size());
      expect_same(seat.on_own(call, dense, dirt.size()), wanted, std::to_string(count) + " entries");
    }
  });
}

// One rank's output is in the host's memory, another one's not aligned.
TEST(LocalDense, MixedMemory) {
  on_seats({0, 0, 1}, plain(), [](LocalSeat& seat) {
    const Entries mine(count_of(HEDDLE_FLOAT32), 2'000, HEDDLE_FLOAT32, false, seat.rank());
    const std::size_t bytes = mine.size * sizeof(float);
    const std::size_t shift = seat.rank() == 1 ? 2 : 0;
    const TestMemory dense(*driver, seat.rank() == 0 ? Memory::host : Memory::device, bytes + shift);
    Entries here = mine;
    const auto call = [&](heddle_comm& comm) {
      return sum_to_dense(comm, here.vector(), dense.as<char>() + shift, Op::sum);
    };
    const Outcome wanted = seat.by_images(call, dense, bytes + shift);
    const Outcome got = seat.on_own(call, dense, bytes + shift);
    expect_same(got, wanted, "mixed");
    EXPECT_GE(got.traffic.to_gpu, bytes);
    EXPECT_LT(got.traffic.to_gpu, 2 * bytes);
  });
}

// Vectors travel where the prices are for it, and the whole result is copied where its entries are more.
TEST(LocalDense, WholeVectors) {
  for (const char* algorithm : {"dense", "recursive_doubling"}) {
    on_seats({0, 1}, plain(algorithm), [&](LocalSeat& seat) {
      const std::size_t size = count_of(HEDDLE_FLOAT32);
      const Entries mine(size, size * 2 / 3, HEDDLE_FLOAT32, false, seat.rank());
      const TestMemory dense(*driver, Memory::device, size * sizeof(float));
      Entries here = mine;
      const auto call = [&](heddle_comm& comm) {
        return sum_to_dense(comm, here.vector(), dense.data(), Op::sum);
      };
      const Outcome wanted = seat.by_images(call, dense, size * sizeof(float));
      const Outcome got = seat.on_own(call, dense, size * sizeof(float));
      expect_same(got, wanted, algorithm);
      EXPECT_EQ(got.traffic.kernels, 0);
    });
  }
}

// Whatever fails once, the result is right on all ranks, by an image if need be.
TEST(LocalDense, EachStepFails) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    const Entries mine(count_of(HEDDLE_FLOAT32), 2'000, HEDDLE_FLOAT32, false, seat.rank());
    const std::size_t bytes = mine.size * sizeof(float);
    const TestMemory dense(*driver, Memory::device, bytes);
    Entries here = mine;
    const auto call = [&](heddle_comm& comm) {
      return sum_to_dense(comm, here.vector(), dense.data(), Op::sum);
    };
    const Outcome wanted = seat.by_images(call, dense, bytes);
    for (const char* name : {"cuLaunchKernel", "cuMemsetD8Async", "cuMemcpyHtoDAsync", "cuStreamSynchronize",
                             "cuEventRecord", "cuStreamWaitEvent", "cuMemAlloc"}) {
      for (int after = 0;; ++after) {
        const Bytes dirt(bytes, 0xA5);
        dense.put(dirt.data(), bytes);
        seat.fail_after(name, after);
        Outcome got;
        const int calls = seat.all().counted(name, [&] { got = seat.on_own(call, dense, bytes); });
        seat.fail_no_more(name);
        expect_same(got, wanted, name);
        if (calls <= after) break;
      }
    }
  });
}

// Two failures, of GPU and image, are this rank's alone: the others have their result, and the communicator
// goes on.
TEST(LocalDense, OneRankHasNoResult) {
  std::atomic<int> failed = 0;
  on_seats({0, 1}, plain(), [&](LocalSeat& seat) {
    const Entries mine(count_of(HEDDLE_FLOAT32), 2'000, HEDDLE_FLOAT32, false, seat.rank());
    const std::size_t bytes = mine.size * sizeof(float);
    const TestMemory dense(*driver, Memory::device, bytes);
    Entries here = mine;
    const auto call = [&](heddle_comm& comm) {
      return sum_to_dense(comm, here.vector(), dense.data(), Op::sum);
    };
    const Outcome wanted = seat.by_images(call, dense, bytes);
    // Rank 0's vector goes with its context while the hosts exchange.
    CUcontext context = nullptr;
    driver->call<PFN_cuCtxCreate_v3020>("cuCtxCreate_v2", &context, 0U, CUdevice{0});
    driver->set_current(nullptr);
    TestMemory lost(*driver, Memory::device, bytes, 0, context);
    const auto losing = [&](heddle_comm& comm) {
      if (seat.rank() == 1) return sum_to_dense(comm, here.vector(), dense.data(), Op::sum);
      const auto there = comm.communicator->local_gpu().vector(comm.gpu, lost.data(), mine.size, DType::f32);
      EXPECT_NE(there, nullptr);
      SparseJob job;
      const heddle_sparse in = here.vector();
      job.in = {in.dimension, in.count, IndexType::u32, DType::f32, in.indices, in.values};
      job.there = there.get();
      driver->call<PFN_cuCtxDestroy_v4000>("cuCtxDestroy_v2", context);
      lost.forget();
      const Status summed = comm.communicator->sparse_allreduce(job);
      EXPECT_TRUE(summed.ok()) << summed.message();
      return there->outcome();
    };
    const Outcome got = seat.on_own(losing, dense, bytes);
    failed += got.status.ok() ? 0 : 1;
    EXPECT_EQ(got.status.ok(), seat.rank() == 1) << got.status.message();
    if (seat.rank() == 1) expect_same(got, wanted, "the other rank");
    expect_same(seat.on_own(call, dense, bytes), wanted, "the next one");
  });
  EXPECT_EQ(failed, 1);
}

}  // namespace
}  // namespace heddle::test
