// The C API on buffers in memory of any kind, on each rank another, on the double of CUDA's driver (its path
// is the argument). What is right is what the same calls give for host memory.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "api_arrays.hpp"
#include "heddle/heddle_compress.h"

namespace heddle::test {
namespace {

using testing_ranks::on_ranks;

TEST(GpuApi, Allreduce) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    on_ranks(ranks, [&](heddle_comm_t comm, int rank) {
      for (const std::size_t count : {1, 1000, 300'000}) {
        for (int shift = 0; shift < 6; ++shift) {
          const Array<float> in(kind_of(rank, shift), values_of(rank, count), rank % 2);
          const Array<float> out(kind_of(2 * rank, shift + 1), count, shift % 2);
          OK(heddle_allreduce(in.data(), out.data(), count, HEDDLE_FLOAT32, HEDDLE_SUM, comm));
          ASSERT_EQ(out.get(), sum_of(ranks, count)) << memory_name(kind_of(rank, shift));
          ASSERT_EQ(in.get(), values_of(rank, count));
          OK(heddle_allreduce(HEDDLE_IN_PLACE, in.data(), count, HEDDLE_FLOAT32, HEDDLE_SUM, comm));
          ASSERT_EQ(in.get(), sum_of(ranks, count)) << memory_name(kind_of(rank, shift));
        }
      }
    });
  }
}

TEST(GpuApi, BcastSendAndRecv) {
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    for (int shift = 0; shift < 6; ++shift) {
      const int root = shift % 3;
      const Array<float> buffer(kind_of(rank, shift), values_of(rank, 5000));
      OK(heddle_bcast(buffer.data(), 20'000, root, comm));
      ASSERT_EQ(buffer.get(), values_of(root, 5000));
      if (rank == 0) {
        OK(heddle_send(buffer.data(), 4000, 2, comm));
      }
      const Array<float> received(kind_of(1, shift), 1000);
      if (rank == 2) {
        OK(heddle_recv(received.data(), 4000, 0, comm));
        ASSERT_EQ(received.get(), values_of(root, 1000));
      }
    }
  });
}

TEST(GpuApi, Requests) {
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    for (int shift = 0; shift < 6; ++shift) {
      constexpr std::size_t kCount = 2000;
      const Array<float> in(kind_of(rank, shift), values_of(rank, kCount));
      const Array<float> out(kind_of(rank, shift + 3), kCount);
      const Array<float> sent(kind_of(rank, shift + 2), values_of(rank, kCount));
      heddle_request_t sum = nullptr;
      heddle_request_t bcast = nullptr;
      OK(heddle_iallreduce(in.data(), out.data(), kCount, HEDDLE_FLOAT32, HEDDLE_SUM, comm, &sum));
      OK(heddle_ibcast(sent.data(), kCount * 4, 1, comm, &bcast));
      OK(heddle_wait(&sum));
      for (int done = 0; done == 0;)
        OK(heddle_test(&bcast, &done));
      ASSERT_EQ(out.get(), sum_of(3, kCount));
      ASSERT_EQ(sent.get(), values_of(1, kCount));

      const Array<float> reduced(kind_of(rank, shift + 1), kCount);
      const bool is_root = rank == shift % 3;
      heddle_request_t reduce = nullptr;
      OK(heddle_ireduce(in.data(), is_root ? reduced.data() : nullptr, kCount, HEDDLE_FLOAT32, HEDDLE_SUM,
                        shift % 3, comm, &reduce));
      OK(heddle_wait(&reduce));
      if (is_root) {
        ASSERT_EQ(reduced.get(), sum_of(3, kCount));
      }
      in.set(values_of(rank + 1, kCount));
      OK(heddle_reduce(in.data(), reduced.data(), kCount, HEDDLE_FLOAT32, HEDDLE_MAX, shift % 3, comm));
      if (is_root) {
        ASSERT_EQ(reduced.get(), values_of(1, kCount));
      }
      in.set(values_of(rank, kCount));
      OK(heddle_reduce(is_root ? HEDDLE_IN_PLACE : in.data(), is_root ? in.data() : nullptr, kCount,
                       HEDDLE_FLOAT32, HEDDLE_SUM, shift % 3, comm));
      ASSERT_EQ(in.get(), is_root ? sum_of(3, kCount) : values_of(rank, kCount));

      heddle_request_t again = nullptr;
      OK(heddle_allreduce_init(HEDDLE_IN_PLACE, in.data(), kCount, HEDDLE_FLOAT32, HEDDLE_SUM, comm, &again));
      for (int i = 0; i < 3; ++i) {
        in.set(values_of(rank + i, kCount));
        OK(heddle_start(again));
        OK(heddle_wait(&again));
        std::vector<float> expected = sum_of(3 + i, kCount);
        const std::vector<float> less = sum_of(i, kCount);
        for (std::size_t k = 0; k < kCount; ++k)
          expected[k] -= less[k];
        ASSERT_EQ(in.get(), expected);
        OK(heddle_wait(&again));  // inactive: nothing is written back
      }
      OK(heddle_request_free(&again));
    }
  });
}

std::vector<float> gathered_of(int ranks, std::size_t count, int round) {
  std::vector<float> all;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> values = values_of(rank + round, count);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST(GpuApi, Allgather) {
  for (int ranks = 1; ranks <= 3; ++ranks) {
    on_ranks(ranks, [&](heddle_comm_t comm, int rank) {
      for (const std::size_t count : {1, 1000, 100'000}) {
        const std::size_t place = count * static_cast<std::size_t>(rank);
        const std::size_t all = count * static_cast<std::size_t>(ranks);
        // What rank `rank` has in its place of what all have.
        const auto in_place_of_all = [&](int round) {
          std::vector<float> values(all, -1);
          std::ranges::copy(values_of(rank + round, count),
                            values.begin() + static_cast<std::ptrdiff_t>(place));
          return values;
        };
        for (int shift = 0; shift < 6; ++shift) {
          SCOPED_TRACE(std::string(memory_name(kind_of(rank, shift))) + ", " + std::to_string(count));
          const Array<float> in(kind_of(rank, shift), values_of(rank, count), rank % 2);
          const Array<float> out(kind_of(2 * rank, shift + 1), all, shift % 2);
          OK(heddle_allgather(in.data(), out.data(), count * sizeof(float), comm));
          ASSERT_EQ(out.get(), gathered_of(ranks, count, 0));
          ASSERT_EQ(in.get(), values_of(rank, count));
          out.set(in_place_of_all(1));
          OK(heddle_allgather(HEDDLE_IN_PLACE, out.data(), count * sizeof(float), comm));
          ASSERT_EQ(out.get(), gathered_of(ranks, count, 1));

          const Array<float> both(kind_of(rank, shift + 2), all);
          heddle_request_t once = nullptr;
          heddle_request_t again = nullptr;
          OK(heddle_allgather_init(HEDDLE_IN_PLACE, both.data(), count * sizeof(float), comm, &again));
          for (int round = 2; round < 5; ++round) {
            in.set(values_of(rank + round + 1, count));
            both.set(in_place_of_all(round));
            OK(heddle_iallgather(in.data(), out.data(), count * sizeof(float), comm, &once));
            OK(heddle_start(again));
            OK(heddle_wait(&once));
            OK(heddle_wait(&again));
            ASSERT_EQ(out.get(), gathered_of(ranks, count, round + 1));
            ASSERT_EQ(both.get(), gathered_of(ranks, count, round));
          }
          OK(heddle_request_free(&again));
        }
      }
    });
  }
}

// A communicator may go before its requests, and a request be given up.
TEST(GpuApi, RequestsThatOutliveTheirCommunicator) {
  heddle_request_t left = nullptr;
  const Array<float> buffer(Memory::device, 100);
  on_ranks(1, [&](heddle_comm_t comm, int) {
    OK(heddle_allreduce_init(HEDDLE_IN_PLACE, buffer.data(), 100, HEDDLE_FLOAT32, HEDDLE_SUM, comm, &left));
  });
  OK(heddle_request_free(&left));
}

Entries sum_on_host(Entries mine, heddle_comm_t comm) {
  Entries sum{std::vector<std::uint32_t>(1000), std::vector<float>(1000)};
  heddle_sparse in = sparse(mine.indices.size(), mine.indices.data(), mine.values.data(), 0);
  heddle_sparse out = sparse(0, sum.indices.data(), sum.values.data(), 1000);
  EXPECT_EQ(heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm), HEDDLE_OK) << heddle_last_error();
  sum.indices.resize(out.count);
  sum.values.resize(out.count);
  return sum;
}

TEST(GpuApi, SparseAllreduce) {
  for (int ranks = 1; ranks <= 3; ++ranks) {
    on_ranks(ranks, [&](heddle_comm_t comm, int rank) {
      const Entries mine = entries_of(rank);
      const Entries wanted = sum_on_host(mine, comm);
      for (int shift = 0; shift < 6; ++shift) {
        const Array<std::uint32_t> in_indices(kind_of(rank, shift), mine.indices);
        const Array<float> in_values(kind_of(rank, shift + 1), mine.values);
        const Array<std::uint32_t> out_indices(kind_of(rank, shift + 2), wanted.indices.size());
        const Array<float> out_values(kind_of(rank, shift + 3), wanted.indices.size());
        heddle_sparse in = sparse(300, in_indices.data(), in_values.data(), 0);
        heddle_sparse out = sparse(0, out_indices.data(), out_values.data(), wanted.indices.size());
        OK(heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm));
        ASSERT_EQ(out.count, wanted.indices.size());
        ASSERT_EQ(out_indices.get(), wanted.indices);
        ASSERT_EQ(out_values.get(), wanted.values);
        // Too little room at first.
        const Array<std::uint32_t> late_indices(kind_of(rank, shift), wanted.indices.size());
        const Array<float> late_values(kind_of(rank, shift), wanted.indices.size());
        out = sparse(0, late_indices.data(), late_values.data(), 3);
        ASSERT_EQ(heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm), HEDDLE_ERR_CAPACITY);
        out.capacity = out.count;
        OK(heddle_sparse_fetch(&out, comm));
        ASSERT_EQ(late_indices.get(), wanted.indices);
        ASSERT_EQ(late_values.get(), wanted.values);
      }
    });
  }
}

// `out` may be `in`; with one rank it needs no room.
TEST(GpuApi, SparseAllreduceInPlace) {
  on_ranks(1, [&](heddle_comm_t comm, int rank) {
    const Entries mine = entries_of(rank);
    const Array<std::uint32_t> indices(Memory::device, mine.indices);
    const Array<float> values(Memory::device, mine.values);
    heddle_sparse both = sparse(300, indices.data(), values.data(), 0);
    OK(heddle_sparse_allreduce(&both, &both, HEDDLE_SUM, comm));
    EXPECT_EQ(both.count, 300U);
    EXPECT_EQ(values.get(), mine.values);
  });
}

// The input is read at the start, and read anew at each of a persistent request's.
TEST(GpuApi, SparseRequests) {
  for (int ranks = 1; ranks <= 3; ++ranks) {
    on_ranks(ranks, [&](heddle_comm_t comm, int rank) {
      const Entries mine = entries_of(rank);
      const Entries wanted = sum_on_host(mine, comm);
      for (int shift = 0; shift < 6; ++shift) {
        const Array<std::uint32_t> in_indices(kind_of(rank, shift), mine.indices);
        const Array<float> in_values(kind_of(rank, shift + 1), mine.values);
        const Array<std::uint32_t> out_indices(kind_of(rank, shift + 2), wanted.indices.size());
        const Array<float> out_values(kind_of(rank, shift + 3), wanted.indices.size());
        heddle_sparse in = sparse(300, in_indices.data(), in_values.data(), 0);
        heddle_sparse out = sparse(0, out_indices.data(), out_values.data(), wanted.indices.size());
        heddle_request_t request = nullptr;
        OK(heddle_isparse_allreduce(&in, &out, HEDDLE_SUM, comm, &request));
        OK(heddle_wait(&request));
        ASSERT_EQ(out_indices.get(), wanted.indices);
        ASSERT_EQ(out_values.get(), wanted.values);
        OK(heddle_sparse_allreduce_init(&in, &out, HEDDLE_SUM, comm, &request));
        for (const float factor : {1.0F, 3.0F, -2.0F}) {
          std::vector<float> values = mine.values;
          std::vector<float> sums = wanted.values;
          for (std::vector<float>* each : {&values, &sums})
            std::for_each(each->begin(), each->end(), [factor](float& value) { value *= factor; });
          in_values.set(values);
          OK(heddle_start(request));
          OK(heddle_wait(&request));
          ASSERT_EQ(out_indices.get(), wanted.indices);
          ASSERT_EQ(out_values.get(), sums);
        }
        OK(heddle_request_free(&request));
        // In place, with too little room at first.
        in_values.set(mine.values);
        in.capacity = 0;
        OK(heddle_isparse_allreduce(&in, &in, HEDDLE_SUM, comm, &request));
        ASSERT_EQ(heddle_wait(&request), ranks == 1 ? HEDDLE_OK : HEDDLE_ERR_CAPACITY);
        if (ranks == 1) continue;
        out.count = 0;
        OK(heddle_sparse_fetch(&out, comm));
        ASSERT_EQ(out_values.get(), wanted.values);
      }
    });
  }
}

TEST(GpuApi, SparseToDenseCodedAndMostlyZero) {
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    Entries mine = entries_of(rank);
    heddle_sparse host = sparse(300, mine.indices.data(), mine.values.data(), 0);
    std::vector<float> dense(5000);
    std::vector<float> coded(5000);
    OK(heddle_sparse_allreduce_dense(&host, dense.data(), HEDDLE_SUM, comm));
    OK(heddle_sparse_allreduce_coded(&host, coded.data(), "fp16", 1, nullptr, comm));
    for (int shift = 0; shift < 6; ++shift) {
      const Array<std::uint32_t> indices(kind_of(rank, shift), mine.indices);
      const Array<float> values(kind_of(rank, shift + 1), mine.values);
      heddle_sparse in = sparse(300, indices.data(), values.data(), 0);
      const Array<float> out(kind_of(rank, shift + 2), 5000);
      OK(heddle_sparse_allreduce_dense(&in, out.data(), HEDDLE_SUM, comm));
      ASSERT_EQ(out.get(), dense);
      OK(heddle_sparse_allreduce_coded(&in, out.data(), "fp16", 1, nullptr, comm));
      ASSERT_EQ(out.get(), coded);
      std::vector<float> scattered(5000);
      for (std::size_t i = 0; i < 300; ++i)
        scattered[mine.indices[i]] = mine.values[i];
      const Array<float> buffer(kind_of(rank, shift), scattered);
      OK(heddle_sparse_allreduce_in_place(buffer.data(), 5000, HEDDLE_FLOAT32, comm));
      ASSERT_EQ(buffer.get(), dense);
    }
  });
}

TEST(GpuApi, CompressedAllreduce) {
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const std::vector<float> mine = values_of(rank, 3000);
    std::vector<float> wanted(3000);
    OK(heddle_compressed_allreduce(mine.data(), wanted.data(), 3000, "bf16", 7, nullptr, comm));
    for (int shift = 0; shift < 6; ++shift) {
      const Array<float> in(kind_of(rank, shift), mine);
      const Array<float> out(kind_of(rank, shift + 2), 3000);
      OK(heddle_compressed_allreduce(in.data(), out.data(), 3000, "bf16", 7, nullptr, comm));
      ASSERT_EQ(out.get(), wanted);
    }
  });
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
