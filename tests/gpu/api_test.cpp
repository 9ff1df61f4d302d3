// The C API on buffers in memory of any kind, on each rank another, on the double of CUDA's driver (its path
// is the argument). What is right is what the same calls give for host memory.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "../api/ranks.hpp"
#include "cuda_memory.hpp"
#include "heddle/heddle_compress.h"
#include "heddle/heddle_sparse.h"

namespace {

using heddle::test::kMemories;
using heddle::test::Memory;
using heddle::test::memory_name;
using heddle::test::TestDriver;
using heddle::test::TestMemory;
using heddle::testing_ranks::on_ranks;

const TestDriver* driver = nullptr;

Memory kind_of(int rank, int shift) {
  return kMemories[static_cast<std::size_t>(rank + shift) % 6];
}

// An array in memory of some kind.
template <typename T>
class Array {
 public:
  Array(Memory kind, std::size_t count, int device = 0)
      : memory_(std::make_unique<TestMemory>(*driver, kind, count * sizeof(T), device)), count_(count) {}
  Array(Memory kind, const std::vector<T>& values, int device = 0) : Array(kind, values.size(), device) {
    set(values);
  }
  T* data() const { return memory_->template as<T>(); }
  void set(const std::vector<T>& values) const { memory_->put(values.data(), values.size() * sizeof(T)); }
  std::vector<T> get() const {
    std::vector<T> values(count_);
    memory_->get(values.data(), count_ * sizeof(T));
    return values;
  }

 private:
  std::unique_ptr<TestMemory> memory_;
  std::size_t count_;
};

std::vector<float> values_of(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(static_cast<int>(i % 17) - rank) / 8;
  return values;
}

std::vector<float> sum_of(int ranks, std::size_t count) {
  std::vector<float> sum(count);
  for (int r = 0; r < ranks; ++r) {
    const std::vector<float> one = values_of(r, count);
    for (std::size_t i = 0; i < count; ++i)
      sum[i] += one[i];
  }
  return sum;
}

#define OK(call) ASSERT_EQ(call, HEDDLE_OK) << heddle_last_error()

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

// A communicator may go before its requests, and a request be given up.
TEST(GpuApi, RequestsThatOutliveTheirCommunicator) {
  heddle_request_t left = nullptr;
  const Array<float> buffer(Memory::device, 100);
  on_ranks(1, [&](heddle_comm_t comm, int) {
    OK(heddle_allreduce_init(HEDDLE_IN_PLACE, buffer.data(), 100, HEDDLE_FLOAT32, HEDDLE_SUM, comm, &left));
  });
  OK(heddle_request_free(&left));
}

struct Entries {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
};

Entries entries_of(int rank) {
  Entries all;
  for (std::uint32_t i = 0; i < 300; ++i) {
    all.indices.push_back(i * 7 + static_cast<std::uint32_t>(rank));
    all.values.push_back(static_cast<float>(i % 5) - 2);
  }
  return all;
}

heddle_sparse sparse(std::size_t count, void* indices, void* values, std::size_t capacity) {
  heddle_sparse vector = {};
  vector.dimension = 5000;
  vector.count = count;
  vector.index_type = HEDDLE_INDEX32;
  vector.value_type = HEDDLE_FLOAT32;
  vector.indices = indices;
  vector.values = values;
  vector.capacity = capacity;
  return vector;
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

// Where device memory of so many bytes was, once all ranks have made theirs: CUDA's own driver gives an
// address to whoever comes next.
void* lost_address(heddle_comm_t comm, std::size_t bytes) {
  TestMemory freed(*driver, Memory::device, bytes);
  EXPECT_EQ(heddle_barrier(comm), HEDDLE_OK);
  void* const address = freed.lose();
  EXPECT_EQ(heddle_barrier(comm), HEDDLE_OK);
  return address;
}

// In each of these sums the others hear of it.
TEST(GpuApi, ASparseSumThatOneRankCannotReadEndsForAll) {
  on_ranks(3, [&](heddle_comm_t comm, int rank) {
    const Entries mine = entries_of(rank);
    const Array<std::uint32_t> indices(Memory::device, mine.indices);
    const Array<float> values(Memory::device, mine.values);
    const Array<float> dense(Memory::device, 5000);
    void* const address = lost_address(comm, 20'000);
    heddle_sparse good = sparse(300, indices.data(), values.data(), 0);
    heddle_sparse in = rank == 1 ? sparse(300, indices.data(), static_cast<float*>(address), 0) : good;
    std::vector<std::uint32_t> sum_indices(1000);
    std::vector<float> sum_values(1000);
    heddle_sparse out = sparse(0, sum_indices.data(), sum_values.data(), 1000);
    auto* const target = rank == 1 ? static_cast<float*>(address) : dense.data();
    EXPECT_EQ(heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_sparse_allreduce_dense(&in, dense.data(), HEDDLE_SUM, comm), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_sparse_allreduce_dense(&good, target, HEDDLE_SUM, comm), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_sparse_allreduce_coded(&in, dense.data(), "fp16", 1, nullptr, comm),
              HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_sparse_allreduce_coded(&good, target, "fp16", 1, nullptr, comm), HEDDLE_ERR_ARGUMENT);
    const bool says_why = std::string(heddle_last_error()).find("freed") != std::string::npos;
    EXPECT_EQ(says_why, rank == 1) << heddle_last_error();
    OK(heddle_sparse_allreduce(&good, &out, HEDDLE_SUM, comm));
  });
}

TEST(GpuApi, BadBuffersAreArguments) {
  on_ranks(2, [&](heddle_comm_t comm, int rank) {
    const Array<float> good(Memory::device, values_of(rank, 100));
    auto* const address = static_cast<float*>(lost_address(comm, 100));
    ASSERT_EQ(heddle_allreduce(address, good.data(), 100, HEDDLE_FLOAT32, HEDDLE_SUM, comm),
              HEDDLE_ERR_ARGUMENT);
    EXPECT_NE(std::string(heddle_last_error()).find("freed"), std::string::npos) << heddle_last_error();
    ASSERT_EQ(heddle_bcast(address, 400, 0, comm), HEDDLE_ERR_ARGUMENT);
    heddle_request_t request = nullptr;
    ASSERT_EQ(heddle_iallreduce(good.data(), address, 100, HEDDLE_FLOAT32, HEDDLE_SUM, comm, &request),
              HEDDLE_ERR_ARGUMENT);
    ASSERT_EQ(request, nullptr);
    ASSERT_EQ(heddle_bcast(good.data(), 4000, rank, comm), HEDDLE_ERR_ARGUMENT) << "longer than its memory";
    heddle_sparse lost = sparse(1, address, good.data(), 0);
    ASSERT_EQ(heddle_sparse_allreduce(&lost, &lost, HEDDLE_SUM, comm), HEDDLE_ERR_ARGUMENT);
    ASSERT_EQ(heddle_isparse_allreduce(&lost, &lost, HEDDLE_SUM, comm, &request), HEDDLE_ERR_ARGUMENT);
    ASSERT_EQ(request, nullptr);
    OK(heddle_allreduce(HEDDLE_IN_PLACE, good.data(), 100, HEDDLE_FLOAT32, HEDDLE_SUM, comm));
    ASSERT_EQ(good.get(), sum_of(2, 100));
  });
}

// The others, whose buffers are the host's, are in the call.
TEST(GpuApi, ACopyThatFailsIsHeardOfByAll) {
  for (const bool sums : {true, false}) {
    on_ranks(3, [&](heddle_comm_t comm, int rank) {
      const Array<float> mine(rank == 1 ? Memory::device : Memory::host, values_of(rank, 100));
      if (rank == 1) driver->fail("cuMemcpyDtoHAsync", CUDA_ERROR_ILLEGAL_ADDRESS);
      const heddle_status wanted = rank == 1 ? HEDDLE_ERR_SYSTEM : HEDDLE_ERR_PEER;
      ASSERT_EQ(sums ? heddle_allreduce(HEDDLE_IN_PLACE, mine.data(), 100, HEDDLE_FLOAT32, HEDDLE_SUM, comm)
                     : heddle_bcast(mine.data(), 400, 1, comm),
                wanted)
          << heddle_last_error();
      int failed = 0;
      OK(heddle_comm_failed(comm, &failed));
      EXPECT_EQ(failed, 1);
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  static const TestDriver cuda(argv[1]);
  driver = &cuda;
  return RUN_ALL_TESTS();
}
