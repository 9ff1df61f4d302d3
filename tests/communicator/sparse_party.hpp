// What tests of sparse allreduces on whole communicators share: streams that all ranks know, and what is
// delivered.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "communicator/party.hpp"
#include "engine/kernels/kernels.hpp"
#include "sparse/streams.hpp"

namespace heddle::test {

// Keeps a copy of what is delivered.
struct Taken {
  TestStream stream;
  int times = 0;

  SparseJob job(const TestStream& in, Op op = Op::sum) {
    SparseJob job;
    job.in = in.view();
    job.op = op;
    job.deliver = [this, &in](std::span<const SparseView> parts) {
      stream = {in.dimension, in.index_type, in.value_type, {}, {}, {}};
      for (const SparseView& part : parts) {
        for (std::size_t i = 0; i < part.count; ++i)
          stream.add(part.index(i),
                     static_cast<const std::byte*>(part.values) + i * dtype_size(part.value_type));
      }
      ++times;
      return Status();
    };
    return job;
  }
};

// The streams of all ranks of one round; any rank can tell them all.
inline std::vector<TestStream> streams_of(int ranks, std::uint64_t round, std::uint64_t dimension,
                                          DType type) {
  std::mt19937_64 random(round);
  std::vector<TestStream> streams;
  for (int r = 0; r < ranks; ++r) {
    const auto pattern = static_cast<Pattern>((round + static_cast<std::uint64_t>(r)) % 3);
    streams.push_back(random_stream(pattern, dimension, IndexType::u64, type, Values::exact, 100, random));
  }
  return streams;
}

inline void expect_folded(const std::vector<TestStream>& in, Op op, const TestStream& result) {
  const DType type = in[0].value_type;
  const FoldFn fold = fold_kernel(type, op);
  std::map<std::uint64_t, Bytes> expected;
  for (const TestStream& s : in) {
    for (std::size_t i = 0; i < s.indices.size(); ++i) {
      const Bytes value(s.value(i), s.value(i) + dtype_size(type));
      const auto [at, added] = expected.try_emplace(s.indices[i], value);
      const void* inputs[] = {at->second.data(), value.data()};
      if (!added) fold(at->second.data(), nullptr, inputs, 2, 1);
    }
  }
  ASSERT_EQ(result.indices.size(), expected.size());
  std::size_t i = 0;
  for (const auto& [index, value] : expected) {
    ASSERT_EQ(result.indices[i], index);
    ASSERT_TRUE(same_value(type, result.value(i++), value.data())) << "index " << index;
  }
}

inline Config forcing(const std::string& name) {
  Config config = quiet();
  config.algorithm = "sparse:" + name;
  return config;
}

}  // namespace heddle::test
