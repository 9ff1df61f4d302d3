// Sparse allreduces with a sparse result in tests of ranks that are threads (node_merge_test.cpp): what is
// right, by heddle's own result for host memory.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "heddle/heddle_sparse.h"
#include "node_entries.hpp"
#include "node_ranks_of_threads.hpp"

namespace heddle::test {

// What is right, by the host.
struct Wanted {
  Wanted(Entries mine, heddle_comm_t comm, heddle_op op = HEDDLE_SUM)
      : indices(mine.size * index_bytes(mine.is_wide)), values(mine.size * width_of(mine.type)) {
    const heddle_sparse in = mine.vector();
    heddle_sparse out = {};
    out.indices = indices.data();
    out.values = values.data();
    out.capacity = mine.size;
    Bytes dense(values.size());
    EXPECT_EQ(heddle_sparse_allreduce_dense(&in, dense.data(), op, comm), HEDDLE_OK);
    EXPECT_EQ(heddle_sparse_allreduce(&in, &out, op, comm), HEDDLE_OK) << heddle_last_error();
    count = out.count;
    EXPECT_EQ(heddle_sparse_get_stats(comm, &stats), HEDDLE_OK);
    const std::size_t width = width_of(mine.type);
    indices.resize(count * index_bytes(mine.is_wide));
    values.resize(count * width);
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t index = 0;
      std::memcpy(&index, &indices[i * index_bytes(mine.is_wide)], index_bytes(mine.is_wide));
      std::memcpy(&values[i * width], &dense[index * width], width);
    }
  }
  Bytes indices;
  Bytes values;
  std::size_t count = 0;
  heddle_sparse_stats stats = {};
};

// Whether the arrays, which lie on that device, have it.
inline void expect_same(const Wanted& wanted, const heddle_sparse& got, const Entries& like, int device = 0) {
  ASSERT_EQ(got.count, wanted.count);
  EXPECT_EQ(got.dimension, like.size);
  EXPECT_EQ(got.value_type, like.type);
  EXPECT_EQ(got.index_type, like.is_wide ? HEDDLE_INDEX64 : HEDDLE_INDEX32);
  ASSERT_EQ(fetch(got.indices, wanted.indices.size(), device), wanted.indices)
      << "type " << like.type << ", " << like.number << " entries";
  ASSERT_EQ(fetch(got.values, wanted.values.size(), device), wanted.values)
      << "type " << like.type << ", " << like.number << " entries";
}

// `more`: room for so many entries more than there are. Ranks that share a context merge once for all.
inline void compare(Node& node, heddle_comm_t comm, int rank, int device, const Entries& mine,
                    std::size_t more = 0, heddle_op op = HEDDLE_SUM) {
  const Wanted wanted(mine, comm, op);
  const Arrays from(mine, rank, device);
  const Arrays to(mine, wanted.count + more, rank + 2, device);
  const heddle_sparse in = from.in(mine);
  heddle_sparse out = to.out();
  const int kernels =
      node.counted("cuLaunchKernel", [&] { OK(heddle_sparse_allreduce(&in, &out, op, comm)); });
  EXPECT_GE(kernels, node.ranks() - 1) << "by images";
  heddle_sparse_stats stats = {};
  OK(heddle_sparse_get_stats(comm, &stats));
  EXPECT_EQ(std::string(stats.algorithm), "gpu");
  EXPECT_EQ(stats.entries, wanted.stats.entries);
  EXPECT_EQ(stats.result_entries, wanted.count);
  EXPECT_EQ(stats.bytes_sent, mine.indices.size() + mine.values.size());
  expect_same(wanted, out, mine, device);
}

}  // namespace heddle::test
