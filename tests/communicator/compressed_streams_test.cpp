// Sums of sparse streams that travel through a codec; and what becomes of residuals where a sum that loses
// precision fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "communicator/gradients.hpp"
#include "communicator/party.hpp"
#include "compress/compression.hpp"

namespace heddle::test {
namespace {

class CompressedStreams : public ::testing::TestWithParam<Nodes> {};
INSTANTIATE_TEST_SUITE_P(Nodes, CompressedStreams,
                         ::testing::Values(Nodes{1}, Nodes{1, 1}, Nodes{1, 2}, Nodes{1, 2, 3, 4},
                                           Nodes{1, 1, 2, 2, 2}, Nodes{3, 1, 2, 3, 3, 1, 9}));

// Every (rank + 3)-th element or so of a gradient; rank 1 has nothing.
struct Stream {
  std::size_t dimension;
  std::vector<std::uint32_t> indices;
  Vector values;
  Stream(int rank, std::uint64_t round, std::size_t count) : dimension(count) {
    const Vector all = gradient(rank, round, count);
    std::mt19937_64 random(static_cast<std::uint64_t>(rank));
    for (std::size_t i = 0; i < count && rank != 1; ++i) {
      if (random() % static_cast<std::uint64_t>(rank + 3) != 0) continue;
      indices.push_back(static_cast<std::uint32_t>(i));
      values.push_back(all[i]);
    }
  }
  SparseView view() const {
    return {dimension, indices.size(), IndexType::u32, DType::f32, indices.data(), values.data()};
  }
};
Vector sum_of_streams(int ranks, std::uint64_t round, std::size_t count) {
  Vector sum(count);
  for (int r = 0; r < ranks; ++r) {
    const Stream s(r, round, count);
    for (std::size_t i = 0; i < s.indices.size(); ++i)
      sum[s.indices[i]] += s.values[i];
  }
  return sum;
}
const char* const kCodecMethods[] = {"fp16",   "bf16",     "qsgd:8",   "qsgd:4:128",
                                     "qsgd:2", "terngrad", "onebit:64"};

// One coding of the sum, and the residuals of all hold what it lost: inputs = sum + what was added to the
// residuals.
TEST_P(CompressedStreams, SumsOfStreamsAreCodedOnce) {
  for (const char* name : kCodecMethods) {
    Party party(GetParam());
    party.run(quiet(), [name](Rank& me, Communicator& comm) {
      for (const std::size_t count : {0, 1, 3, 1000, 5000}) {
        me.at(name, count);
        const Stream in(me.rank, 1, count);
        const Compression how = parse_compression(name).value();
        Residual residual(count);
        std::ranges::fill(residual.values(), 0.5F);
        Vector out(count, 99);
        ASSERT_TRUE(comm.coded_sparse_allreduce({in.view(), out.data(), how, &residual}).ok());
        ASSERT_NO_FATAL_FAILURE(expect_same_everywhere(comm, out));
        const Vector exact = sum_of_streams(me.size, 1, count);
        const double bound = me.size == 1 ? 0 : error_bound(how.codec, 1.0001 * largest(exact)) + 1e-5;
        Vector kept(residual.values().begin(), residual.values().end());
        ASSERT_TRUE(comm.allreduce(kept.data(), kept.data(), count, DType::f32, Op::sum).ok());
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_LE(std::abs(out[i] - exact[i]), bound) << name << " element " << i;
          ASSERT_NEAR(out[i] + kept[i] - 0.5F * static_cast<float>(me.size), exact[i], 1e-5) << name;
        }
        const SparseStats& stats = comm.sparse_stats();
        const bool flat = comm.topology().nodes() == 1 || comm.topology().nodes() == me.size;
        EXPECT_STREQ(stats.algorithm, flat ? "split_allgather" : "leaders");
      }
    });
  }
}

// A sum that fails on the way was nobody's: who makes it again elsewhere counts nothing twice, and loses
// nothing.
TEST_P(CompressedStreams, WhatFailsLeavesResidualsAsTheyWere) {
  constexpr std::size_t kCount = 5000;
  if (GetParam().size() == 1) return;
  Config config = quiet();
  config.timeout = std::chrono::milliseconds(300);
  for (const char* name :
       {"fp16", "qsgd:8", "onebit", "topk:0.1", "topk-sampled:0.1", "randomk:0.1", "streams"}) {
    Party party(GetParam());
    party.run(config, [name](Rank& me, Communicator& comm) {
      me.at(name);
      // The last rank stays away.
      if (me.rank == me.size - 1) return;
      const bool streams = name == std::string("streams");
      const Vector in = gradient(me.rank, 1, kCount);
      const Stream entries(me.rank, 1, kCount);
      const Vector before = gradient(me.rank, 2, kCount);
      Residual residual(kCount);
      std::ranges::copy(before, residual.values().begin());
      Vector out(kCount);
      CompressedJob job{in.data(), out.data(), kCount, parse_compression(streams ? "qsgd:8" : name).value(),
                        &residual};
      job.agreed = true;  // so that it begins
      const Status failed =
          streams ? comm.coded_sparse_allreduce({entries.view(), out.data(), job.how, &residual})
                  : comm.compressed_allreduce(job);
      EXPECT_FALSE(failed.ok());
      EXPECT_TRUE(std::ranges::equal(residual.values(), before)) << name;
    });
  }
}

TEST_P(CompressedStreams, RanksThatDisagreeOnStreamsAreTold) {
  Party party(GetParam());
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    const Compression how = parse_compression("qsgd:8").value();
    const bool last = me.rank == me.size - 1;
    Residual residual(10);
    Residual small(9);
    Vector out(11, 99);
    const std::string who = "rank " + std::to_string(me.size - 1);
    const std::string asked = " asked for another compression or seed than rank 0 (this rank: ";
    const auto refused = [&](const CodedSparseJob& job, const std::string& what, const std::string& own) {
      me.at(what.c_str());
      const Status status = comm.coded_sparse_allreduce(job);
      EXPECT_EQ(status.code(), Code::invalid_argument);
      EXPECT_NE(status.message().find(last ? own : what), std::string::npos) << status.message();
      EXPECT_TRUE(std::ranges::all_of(residual.values(), [](float x) { return x == 0; }));
      EXPECT_EQ(out, Vector(11, 99));
    };
    const Stream in(me.rank, 1, 10);
    CodedSparseJob job{in.view(), out.data(), how, &residual};
    if (me.size > 1) {
      CodedSparseJob other = job;
      if (last) other.how.codec.seed = 17;
      refused(other, who + asked + "qsgd:8, seed 0)", who + asked + "qsgd:8, seed 17)");
      other = job;
      if (last) other.how = parse_compression("qsgd:8:512").value();
      refused(other, who + asked + "qsgd:8, seed 0)", who + asked + "qsgd:8:512, seed 0)");
      other = job;
      if (last) other.in.dimension = 11;
      if (last) other.residual = nullptr;
      refused(other, who + " passed", "passed");
    }
    CodedSparseJob broken = job;
    if (last) broken.in.value_type = DType::i32;
    refused(broken, who + " passed arguments that are refused", "of float32, not int32");
    broken = job;
    if (last) broken.residual = &small;
    refused(broken, who + " passed arguments that are refused",
            "the residual has 9 values and the dimension is 10");
    broken = job;
    if (last) broken.how = parse_compression("topk:0.5").value();
    refused(broken, who + " passed arguments that are refused", "leaves values out");
    const std::uint32_t twice[] = {3, 3};
    const float values[] = {1, 2};
    broken = job;
    if (last) broken.in = {10, 2, IndexType::u32, DType::f32, twice, values};
    refused(broken, who + " passed a stream that breaks", "index");
    EXPECT_TRUE(comm.coded_sparse_allreduce(job).ok()) << "it remains usable";
  });
}

// Whoever could not take part: what kept it is its own, and that it was its arguments the others hear.
TEST_P(CompressedStreams, TroubleOfOneRankIsToldToAll) {
  Party party(GetParam());
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    const Vector in(10, 1);
    Vector out(10);
    const bool last = me.rank == me.size - 1;
    const Compression how = parse_compression("fp16").value();
    for (const Code code : {Code::invalid_argument, Code::system}) {
      CompressedJob job{in.data(), out.data(), 10, how, nullptr};
      const Stream stream(me.rank, 1, 10);
      CodedSparseJob coded{stream.view(), out.data(), how, nullptr};
      if (last) job.trouble = coded.trouble = Status(code, "mine");
      for (const Status& status : {comm.compressed_allreduce(job), comm.coded_sparse_allreduce(coded)}) {
        EXPECT_EQ(status.code(), last || code == Code::invalid_argument ? code : Code::peer_failed);
        const std::string theirs = "rank " + std::to_string(me.size - 1) + " ";
        EXPECT_EQ(status.message().find(last ? "mine" : theirs), 0U) << status.message();
      }
      ASSERT_TRUE(comm.compressed_allreduce({in.data(), out.data(), 10, how, nullptr}).ok());
      EXPECT_EQ(out, Vector(10, static_cast<float>(me.size)));
    }
  });
}

TEST(CompressedStreamSeeds, AreReproducible) {
  std::vector<Vector> runs;
  for (int run = 0; run < 2; ++run) {
    Party party(Nodes{1, 2, 3});
    party.run(quiet(), [&](Rank& me, Communicator& comm) {
      const Stream in(me.rank, 5, 3000);
      for (int call = 0; call < 2; ++call) {
        Vector out(3000);
        ASSERT_TRUE(
            comm.coded_sparse_allreduce({in.view(), out.data(), parse_compression("qsgd:2").value(), nullptr})
                .ok());
        if (me.rank == 0) runs.push_back(out);
      }
    });
  }
  ASSERT_EQ(runs.size(), 4U);
  EXPECT_EQ(runs[0], runs[2]);
  EXPECT_EQ(runs[1], runs[3]);
  EXPECT_NE(runs[0], runs[1]);
}

}  // namespace
}  // namespace heddle::test
