// Sums of vectors of mostly zeros in GPU memory, where each rank's GPU does its own part (local_ranks.hpp).
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "local_vectors.hpp"
#include "sparse/convert.hpp"

namespace heddle::test {
namespace {

Status sum_in_place(heddle_comm& comm, void* vector, std::size_t count, DType type) {
  return heddle::edge::mostly_zero_anywhere(comm, {vector, vector, count, type, Op::sum});
}

// A vector with these entries, in memory of its own.
struct Vector {
  Vector(const Entries& entries, Memory memory, std::size_t shifted = 0)
      : bytes(entries.size * width_of(entries.type)),
        shift(shifted),
        values(bytes),
        at(*driver, memory, bytes + shift) {
    const std::size_t width = width_of(entries.type);
    for (std::size_t i = 0; i < entries.number; ++i) {
      std::uint32_t index = 0;
      std::memcpy(&index, entries.indices.data() + i * sizeof index, sizeof index);
      std::memcpy(values.data() + index * width, entries.values.data() + i * width, width);
    }
  }
  void put() const { at.put(values.data(), bytes, shift); }
  void* data() const { return at.as<char>() + shift; }

  std::size_t bytes;
  std::size_t shift;
  Bytes values;
  TestMemory at;
};

Compared compare_in_place(LocalSeat& seat, const Vector& vector, std::size_t count, DType type,
                          const std::string& what) {
  const auto call = [&](heddle_comm& comm) { return sum_in_place(comm, vector.data(), count, type); };
  Compared outcomes;
  vector.put();
  outcomes.wanted = seat.by_images(call, vector.at, vector.bytes + vector.shift);
  vector.put();
  outcomes.got = seat.on_own(call, vector.at, vector.bytes + vector.shift);
  expect_same(outcomes.got, outcomes.wanted, what);
  EXPECT_EQ(outcomes.wanted.traffic.kernels, 0);
  return outcomes;
}

TEST(LocalInPlace, Sums) {
  for (const std::vector<std::uint64_t>& nodes : node_shapes()) {
    if (nodes.size() == 1) continue;
    on_seats(nodes, plain(), [&](LocalSeat& seat) {
      const int rank = seat.rank();
      for (const heddle_dtype type : kTypes) {
        const std::size_t entries = 700 * static_cast<std::size_t>(rank + 1);
        const Entries mine(count_of(type), entries, type, false, rank);
        const Vector vector(mine, kind_of(rank, static_cast<int>(type)));
        const Compared both = compare_in_place(seat, vector, mine.size, static_cast<DType>(type),
                                               "type " + std::to_string(type));
        expect_entries_alone(both, seat.ranks(), width_of(type));
      }
    });
  }
}

// -0, NaN and the smallest numbers are entries; what is +0 on all ranks stays.
TEST(LocalInPlace, Bits) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    Entries mine(count_of(HEDDLE_FLOAT32), 6, HEDDLE_FLOAT32, false, 0);
    const std::uint32_t bits[2][6] = {{0x80000000U, 0x80000000U, 0x7FA00001U, 1U, 0x3F800000U, 0x80000000U},
                                      {0x80000000U, 0U, 0U, 0x80000001U, 0xBF800000U, 0x3F800000U}};
    std::memcpy(mine.values.data(), bits[seat.rank()], sizeof bits[0]);
    compare_in_place(seat, {mine, Memory::device}, mine.size, DType::f32, "bits");
  });
}

// Of what the host would look at.
TEST(LocalInPlace, SamplesAsTheHost) {
  on_seats({0}, plain(), [](LocalSeat& seat) {
    std::mt19937 random(1);
    for (const heddle_dtype type : {HEDDLE_FLOAT16, HEDDLE_FLOAT32, HEDDLE_INT64}) {
      for (const std::size_t more : {0, 1, 77, 5'000, 300'001}) {
        const std::size_t count = heddle::LocalGpu::kFrom / width_of(type) + more;
        Bytes values(count * width_of(type));
        // More and more of them.
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] = random() % values.size() < i ? 1 : 0;
        const TestMemory there(*driver, kind_of(static_cast<int>(more), 0), values.size());
        there.put(values.data(), values.size());
        heddle::LocalGpu& local = seat.own().communicator->local_gpu();
        const auto vector = local.vector(seat.own().gpu, there.data(), count, static_cast<DType>(type));
        ASSERT_NE(vector, nullptr);
        const int copies = heddle::test::calls("cuMemcpyDtoHAsync");
        const int pieces = heddle::test::calls("cuMemcpy2DAsync");
        EXPECT_EQ(vector->sampled_density(256).value(),
                  heddle::sampled_density(values.data(), count, static_cast<DType>(type), 256));
        EXPECT_EQ(heddle::test::calls("cuMemcpyDtoHAsync"), copies);
        EXPECT_EQ(heddle::test::calls("cuMemcpy2DAsync"), pieces + 1);
        // By an image.
        driver->fail("cuMemcpy2DAsync", CUDA_ERROR_LAUNCH_FAILED);
        EXPECT_EQ(vector->sampled_density(256).value(),
                  heddle::sampled_density(values.data(), count, static_cast<DType>(type), 256));
      }
    }
  });
}

// More entries than the samples say, so that there is not room for all at first.
TEST(LocalInPlace, EntriesInOnePlace) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    const Entries none(count_of(HEDDLE_FLOAT32), 0, HEDDLE_FLOAT32, false, 0);
    Vector vector(none, Memory::device);
    const float one = 1.5F;
    for (std::size_t i = 100; i < 500; ++i)
      std::memcpy(vector.values.data() + i * sizeof one, &one, sizeof one);
    // Between two of the places that are looked at.
    for (std::size_t i = 16; i < 4'000; ++i)
      if (i % 1'024 > 600) std::memcpy(vector.values.data() + i * sizeof one, &one, sizeof one);
    const Compared both = compare_in_place(seat, vector, none.size, DType::f32, "in one place");
    EXPECT_GT(both.got.stats.result_entries, 1'024U);
    EXPECT_LT(both.got.traffic.to_host, vector.bytes / 2);
  });
}

// Nothing is cleared that stays: of a vector in place nothing is.
TEST(LocalInPlace, ClearsNothing) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    const Entries mine(count_of(HEDDLE_FLOAT32), 2'000, HEDDLE_FLOAT32, false, seat.rank());
    const Vector vector(mine, Memory::device);
    compare_in_place(seat, vector, mine.size, DType::f32, "the first one, which prepares the link");
    EXPECT_EQ(
        seat.all().counted("cuMemsetD8Async",
                           [&] { compare_in_place(seat, vector, mine.size, DType::f32, "the second one"); }),
        0);
  });
}

// Vectors that look like zeros and are full, or two thirds full, between the places that are looked at: in
// the end they are summed whole.
TEST(LocalInPlace, LooksSparseAndIsNot) {
  Config config = plain();
  config.algorithm = "allreduce:recursive_doubling";
  for (const heddle_dtype type : {HEDDLE_FLOAT32, HEDDLE_FLOAT64}) {
    on_seats({0, 1}, config, [&](LocalSeat& seat) {
      // Such that the entries of both ranks are more than half of both vectors, as prices round them, and
      // take less than the vector.
      const std::size_t size = type == HEDDLE_FLOAT32 ? count_of(type) : 190'000;
      const std::size_t entries = type == HEDDLE_FLOAT32 ? size : size * 13 / 20;
      Vector vector({size, entries, type, false, seat.rank()}, Memory::device);
      for (std::size_t s = 0; s < 256; ++s) {
        const heddle::SampledPiece piece = heddle::sampled_piece(size, static_cast<DType>(type), 256, s);
        std::memset(vector.values.data() + piece.first * width_of(type), 0, piece.count * width_of(type));
      }
      const Compared both = compare_in_place(seat, vector, size, static_cast<DType>(type), "but for samples");
      EXPECT_STREQ(both.got.stats.algorithm, "dense");
      EXPECT_GT(both.got.stats.entries, size);
    });
  }
}

// Full ones are summed as they are, by images, or by entries of which the host has an image; types that no
// stream has, and vectors that are not aligned or in the host's memory, go by images as well.
TEST(LocalInPlace, ByImages) {
  for (const char* algorithm : {"dense", "recursive_doubling"}) {
    on_seats({0, 1}, plain(algorithm), [&](LocalSeat& seat) {
      const std::size_t size = count_of(HEDDLE_FLOAT32);
      const Entries full(size, size, HEDDLE_FLOAT32, false, seat.rank());
      const Compared both = compare_in_place(seat, {full, Memory::device}, size, DType::f32, algorithm);
      EXPECT_EQ(both.got.traffic.kernels, 0);
      compare_in_place(seat, {full, Memory::device}, size, DType::u32, "integers without a sign");
      const Entries few(size, 500, HEDDLE_FLOAT32, false, seat.rank());
      compare_in_place(seat, {few, Memory::device, 2}, size, DType::f32, "not aligned");
      compare_in_place(seat, {few, seat.rank() == 0 ? Memory::host : Memory::device}, size, DType::f32,
                       "mixed");
    });
  }
}

// Whatever fails once, the result is right on all ranks.
TEST(LocalInPlace, EachStepFails) {
  on_seats({0, 1}, plain(), [](LocalSeat& seat) {
    const Entries mine(count_of(HEDDLE_FLOAT32), 2'000, HEDDLE_FLOAT32, false, seat.rank());
    const Vector vector(mine, Memory::device);
    const auto call = [&](heddle_comm& comm) {
      return sum_in_place(comm, vector.data(), mine.size, DType::f32);
    };
    vector.put();
    const Outcome wanted = seat.by_images(call, vector.at, vector.bytes);
    for (const char* name :
         {"cuLaunchKernel", "cuMemsetD8Async", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuMemcpy2DAsync",
          "cuStreamSynchronize", "cuEventRecord", "cuStreamWaitEvent", "cuMemAlloc"}) {
      for (int after = 0;; after += 1 + after / 4) {
        vector.put();
        seat.fail_after(name, after);
        Outcome got;
        const int calls = seat.all().counted(name, [&] { got = seat.on_own(call, vector.at, vector.bytes); });
        seat.fail_no_more(name);
        expect_same(got, wanted, name);
        if (calls <= after) break;
      }
    }
  });
}

// Who cannot have its vector in the host's memory does not leave the others waiting.
TEST(LocalInPlace, TheOthersHearOfAnImageThatFails) {
  Config config = plain();
  config.timeout = std::chrono::seconds(20);
  for (const std::vector<std::uint64_t>& nodes : {std::vector<std::uint64_t>{0, 1}, {0, 0, 1}}) {
    std::atomic<int> failures{0};  // of the driver, on whichever rank
    on_seats(nodes, config, [&](LocalSeat& seat) {
      const Entries mine(1'000, 20, HEDDLE_FLOAT32, false, seat.rank());
      const Vector vector(mine, Memory::device);
      const auto call = [&](heddle_comm& comm) {
        return sum_in_place(comm, vector.data(), mine.size, DType::f32);
      };
      vector.put();
      seat.fail_after("cuMemcpyDtoHAsync", 0);
      const Outcome failed = seat.by_images(call, vector.at, vector.bytes);
      seat.fail_no_more("cuMemcpyDtoHAsync");
      if (failed.status.code() == Code::system) {
        ++failures;
      } else {
        EXPECT_EQ(failed.status.code(), Code::peer_failed) << failed.status.message();
      }
      const Outcome next = seat.by_images(call, vector.at, vector.bytes);
      vector.put();
      expect_same(next, seat.on_own(call, vector.at, vector.bytes), "the next one");
    });
    EXPECT_EQ(failures, 1);
  }
}

}  // namespace
}  // namespace heddle::test
