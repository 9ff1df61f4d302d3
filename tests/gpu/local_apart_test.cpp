// Sums of vectors of mostly zeros into others, where each rank's GPU does its own part of either
// (local_ranks.hpp), as the preload library makes them; and looks that fail.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "local_vectors.hpp"
#include "sparse/convert.hpp"

namespace heddle::test {
namespace {

Bytes dense(const Entries& entries) {
  const std::size_t width = width_of(entries.type);
  Bytes values(entries.size * width);
  for (std::size_t i = 0; i < entries.number; ++i) {
    std::uint32_t index = 0;
    std::memcpy(&index, entries.indices.data() + i * sizeof index, sizeof index);
    std::memcpy(values.data() + index * width, entries.values.data() + i * width, width);
  }
  return values;
}

// A rank's two vectors.
struct Vectors {
  Vectors(LocalSeat& seat, const Bytes& content, Memory in_memory, Memory out_memory, int out_device = -1)
      : values(content),
        in(*driver, in_memory, content.size(), seat.rank() % 2),
        out(*driver, out_memory, content.size(), out_device >= 0 ? out_device : seat.rank() % 2) {
    in.put(values.data(), values.size());
  }
  // What does not lie on a GPU is the host's; both have images where this rank's GPU does nothing.
  Status sum(heddle_comm& comm, std::size_t count, DType type, bool* served) const {
    LocalGpu& local = comm.communicator->local_gpu();
    const auto from = local.vector(comm.gpu, in.data(), count, type);
    const auto there = local.vector(comm.gpu, out.data(), count, type);
    const auto by_entries = [&](const MostlyZeroJob& job) -> Status {
      const Result<bool> done = comm.communicator->sum_by_entries(job);
      *served = done.ok() && done.value();
      if (!done.ok() || there == nullptr) return done.status();
      return there->outcome();
    };
    if (from == nullptr && there == nullptr)
      return heddle::edge::with_images(comm, in.data(), out.data(), values.size(),
                                       [&](const void* at, void* to) {
                                         return by_entries({at, to, count, type});
                                       });
    return by_entries({from == nullptr ? in.data() : nullptr, there == nullptr ? out.data() : nullptr, count,
                       type, from.get(), there.get()});
  }

  Bytes values;
  TestMemory in;
  TestMemory out;
};

Compared compare(LocalSeat& seat, const Vectors& vectors, std::size_t count, DType type,
                 const std::string& what) {
  const std::size_t bytes = vectors.values.size();
  bool served = false;
  const auto call = [&](heddle_comm& comm) { return vectors.sum(comm, count, type, &served); };
  const Bytes dirt(bytes, 0xA5);
  Compared both;
  vectors.out.put(dirt.data(), bytes);
  both.wanted = seat.by_images(call, vectors.out, bytes);
  EXPECT_TRUE(served) << what;
  vectors.out.put(dirt.data(), bytes);
  both.got = seat.on_own(call, vectors.out, bytes);
  EXPECT_TRUE(served) << what;
  expect_same(both.got, both.wanted, what);
  Bytes after(bytes);
  vectors.in.get(after.data(), bytes);
  EXPECT_EQ(after, vectors.values) << what << ": the input has changed";
  EXPECT_EQ(both.wanted.traffic.kernels, 0);
  return both;
}

TEST(LocalApart, Sums) {
  for (const std::vector<std::uint64_t>& nodes : node_shapes()) {
    if (nodes.size() == 1) continue;
    on_seats(nodes, plain(), [&](LocalSeat& seat) {
      const int rank = seat.rank();
      for (const heddle_dtype type : kTypes) {
        const auto shift = static_cast<int>(type);
        const Entries mine(count_of(type), 700 * static_cast<std::size_t>(rank + 1), type, false, rank);
        const Vectors vectors(seat, dense(mine), kind_of(rank, shift), kind_of(2 * rank, shift + 1),
                              (rank + shift) % 2);
        const Compared both =
            compare(seat, vectors, mine.size, static_cast<DType>(type), "type " + std::to_string(type));
        expect_entries_alone(both, seat.ranks(), width_of(type));
      }
    });
  }
}

// One of the two is the host's: the other one alone is for the GPU.
TEST(LocalApart, OneInTheHostsMemory) {
  on_seats({0, 0, 1}, plain(), [](LocalSeat& seat) {
    const Entries mine(count_of(HEDDLE_FLOAT32), 2'000, HEDDLE_FLOAT32, false, seat.rank());
    const Memory in = seat.rank() == 0 ? Memory::host : Memory::device;
    const Memory out = seat.rank() == 1 ? Memory::pinned : Memory::managed;
    const Compared both = compare(seat, {seat, dense(mine), in, out}, mine.size, DType::f32, "mixed");
    EXPECT_GT(both.got.traffic.kernels, 0);
    EXPECT_LT(both.got.traffic.to_host + both.got.traffic.to_gpu, mine.size * sizeof(float));
  });
}

// Full between the places that are looked at: the same sum all the same.
TEST(LocalApart, LooksSparseAndIsNot) {
  Config config = plain();
  config.algorithm = "allreduce:recursive_doubling";
  on_seats({0, 1}, config, [&](LocalSeat& seat) {
    const std::size_t size = count_of(HEDDLE_FLOAT32);
    Bytes values = dense({size, size, HEDDLE_FLOAT32, false, seat.rank()});
    for (std::size_t s = 0; s < 256; ++s) {
      const heddle::SampledPiece piece = heddle::sampled_piece(size, DType::f32, 256, s);
      std::memset(values.data() + piece.first * sizeof(float), 0, piece.count * sizeof(float));
    }
    const Compared both =
        compare(seat, {seat, values, Memory::device, Memory::pool}, size, DType::f32, "but for samples");
    // Whole or by streams, as prices say: where links were busy when they were measured, streams of few
    // messages are the cheaper.
    EXPECT_GT(both.got.stats.entries, size);
  });
}

// What does not look like zeros is left for others to sum: nothing was written, and of the vector no more
// than samples was copied.
TEST(LocalApart, LeavesWhatDoesNotPay) {
  on_seats({0, 1}, plain("dense"), [](LocalSeat& seat) {
    const std::size_t size = count_of(HEDDLE_FLOAT32);
    const Vectors vectors(seat, dense({size, size, HEDDLE_FLOAT32, false, seat.rank()}), Memory::device,
                          Memory::mapped);
    bool served = true;
    const auto call = [&](heddle_comm& comm) { return vectors.sum(comm, size, DType::f32, &served); };
    const Bytes dirt(vectors.values.size(), 0xA5);
    vectors.out.put(dirt.data(), dirt.size());
    const Outcome got = seat.on_own(call, vectors.out, dirt.size());
    EXPECT_TRUE(got.status.ok()) << got.status.message();
    EXPECT_FALSE(served);
    EXPECT_STREQ(got.stats.algorithm, "dense");
    EXPECT_EQ(std::memcmp(got.result.data(), dirt.data(), dirt.size()), 0);
    EXPECT_LE(got.traffic.to_host, 2 * std::size_t{17} << 10);
    EXPECT_EQ(got.traffic.to_gpu, 0U);
    EXPECT_EQ(got.traffic.kernels, 0);
  });
}

// A rank that cannot look says so to all, in place as well, and the communicator goes on.
TEST(LocalApart, ALookFails) {
  for (const bool in_place : {false, true}) {
    std::atomic<int> failed = 0;
    std::atomic<int> told = 0;
    on_seats({0, 0, 1}, plain(), [&](LocalSeat& seat) {
      const Entries mine(count_of(HEDDLE_FLOAT32), 2'000, HEDDLE_FLOAT32, false, seat.rank());
      const Vectors vectors(seat, dense(mine), Memory::device, Memory::device);
      bool served = false;
      const auto call = [&](heddle_comm& comm) {
        void* const vector = vectors.in.data();
        return in_place ? heddle::edge::mostly_zero_anywhere(comm,
                                                             {vector, vector, mine.size, DType::f32, Op::sum})
                        : vectors.sum(comm, mine.size, DType::f32, &served);
      };
      seat.fail_after("cuMemcpy2DAsync", 0);
      seat.fail_after("cuMemcpyDtoHAsync", 0);
      const Outcome got = seat.on_own(call, vectors.out, vectors.values.size());
      EXPECT_FALSE(served);
      failed += got.status.code() == heddle::Code::system ? 1 : 0;
      told += got.status.code() == heddle::Code::peer_failed ? 1 : 0;
      seat.fail_no_more("cuMemcpy2DAsync");
      seat.fail_no_more("cuMemcpyDtoHAsync");
      compare(seat, vectors, mine.size, DType::f32, "the next one");
    });
    EXPECT_EQ(failed, 1);
    EXPECT_EQ(told, 2);
  }
}

}  // namespace
}  // namespace heddle::test
