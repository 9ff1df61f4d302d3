// Allreduces that lose precision: as little as they promise, the same bits everywhere, and what was lost comes back.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "communicator/party.hpp"
#include "compress/compression.hpp"

namespace heddle::test {
namespace {

using Nodes = std::vector<std::uint64_t>;
using Vector = std::vector<float>;

Vector gradient(int rank, std::uint64_t round, std::size_t count) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) * 1000 + round);
  std::normal_distribution<float> normal(0, 1);
  Vector v(count);
  for (float& x : v)
    x = normal(random);
  return v;
}
Vector sum_of(int ranks, std::uint64_t round, std::size_t count) {
  Vector sum(count);
  for (int r = 0; r < ranks; ++r) {
    const Vector v = gradient(r, round, count);
    for (std::size_t i = 0; i < count; ++i)
      sum[i] += v[i];
  }
  return sum;
}
float largest(const Vector& v) {
  float most = 0;
  for (const float x : v)
    most = std::max(most, std::abs(x));
  return most;
}

// Every rank must have the bits of rank 0.
void expect_same_everywhere(Communicator& comm, const Vector& mine) {
  Vector first = mine;
  ASSERT_TRUE(comm.bcast(first.data(), first.size() * sizeof(float), 0).ok());
  ASSERT_TRUE(first.empty() || std::memcmp(first.data(), mine.data(), first.size() * sizeof(float)) == 0);
}

class Compressed : public ::testing::TestWithParam<Nodes> {};
INSTANTIATE_TEST_SUITE_P(Nodes, Compressed,
                         ::testing::Values(Nodes{1}, Nodes{1, 1}, Nodes{1, 2}, Nodes{1, 2, 3, 4},
                                           Nodes{1, 1, 2, 2, 2}, Nodes{3, 1, 2, 3, 3, 1, 9}));

// As MPI's programs may have them: the bits are those of vectors at a float's address, and nothing beside them is touched.
TEST_P(Compressed, VectorsMayLieAtAnyAddress) {
  constexpr std::size_t kCount = 1000;
  constexpr std::size_t kBytes = kCount * sizeof(float);
  for (const char* name : {"fp16", "onebit", "topk:0.1"}) {
    for (const bool in_place : {false, true}) {
      Party party(GetParam());
      party.run(quiet(), [name, in_place](Rank& me, Communicator& comm) {
        me.at(name, in_place ? 1 : 0);
        const Compression how = parse_compression(name).value();
        const Vector in = gradient(me.rank, 1, kCount);
        Vector sum(kCount);
        Residual residuals[] = {Residual(kCount), Residual(kCount)};
        ASSERT_TRUE(comm.compressed_allreduce({in.data(), sum.data(), kCount, how, &residuals[0]}).ok());
        std::vector<std::byte> loose_in(kBytes + 8, std::byte{7});
        std::vector<std::byte> loose_out(kBytes + 8, std::byte{7});
        std::byte* const out = (in_place ? loose_in.data() : loose_out.data()) + 3;
        std::memcpy(loose_in.data() + 3, in.data(), kBytes);
        ASSERT_TRUE(comm.compressed_allreduce({reinterpret_cast<const float*>(loose_in.data() + 3),
                                               reinterpret_cast<float*>(out), kCount, how, &residuals[1]})
                        .ok());
        EXPECT_TRUE(std::ranges::equal(std::span(out, kBytes), std::as_bytes(std::span(sum))));
        EXPECT_TRUE(std::ranges::equal(residuals[0].values(), residuals[1].values()));
        EXPECT_EQ(out[-1], std::byte{7});
        EXPECT_EQ(out[kBytes], std::byte{7});
        if (!in_place) {
          EXPECT_TRUE(
              std::ranges::equal(std::span(loose_in).subspan(3, kBytes), std::as_bytes(std::span(in))));
        }
      });
    }
  }
}

// Each contribution that travels, and the sum: docs/compression.md. Contributions of magnitude m, p of them, are off by
// error_bound(m) each, and their sum by error_bound(of its magnitude).
TEST_P(Compressed, CodecsKeepTheirBounds) {
  for (const char* name : {"fp16", "bf16", "qsgd:8", "qsgd:4:128", "terngrad", "onebit"}) {
    Party party(GetParam());
    party.run(quiet(), [name](Rank& me, Communicator& comm) {
      for (const std::size_t count : {0, 1, 3, 1000, 5000}) {
        me.at(name, count);
        const Vector in = gradient(me.rank, 1, count);
        Vector out(count, 99);
        const Compression how = parse_compression(name).value();
        ASSERT_TRUE(comm.compressed_allreduce({in.data(), out.data(), count, how, nullptr}).ok());
        ASSERT_NO_FATAL_FAILURE(expect_same_everywhere(comm, out));
        const Vector exact = sum_of(me.size, 1, count);
        // Hierarchical: a contribution may be coded on its way to its node's leader, with others to another leader, and at last.
        double most = 0;
        for (int r = 0; r < me.size; ++r)
          most = std::max<double>(most, largest(gradient(r, 1, count)));
        const double each = error_bound(how.codec, most);
        const double of_sums = error_bound(how.codec, me.size * (most + each));
        const double bound = me.size == 1 ? 0 : me.size * each + 2 * of_sums + 1e-4;
        for (std::size_t i = 0; i < count; ++i)
          ASSERT_LE(std::abs(out[i] - exact[i]), bound) << name << " element " << i;
        Vector in_place = in;
        ASSERT_TRUE(comm.compressed_allreduce({in_place.data(), in_place.data(), count, how, nullptr}).ok());
        ASSERT_NO_FATAL_FAILURE(expect_same_everywhere(comm, in_place));
      }
    });
  }
}

TEST_P(Compressed, SelectionsSendTheLargest) {
  Party party(GetParam());
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    constexpr std::size_t kCount = 4000;
    const Vector in = gradient(me.rank, 2, kCount);
    for (const char* name : {"topk:0.01", "topk-sampled:0.05", "randomk:0.02", "topk:1"}) {
      me.at(name);
      Vector out(kCount, 99);
      ASSERT_TRUE(
          comm.compressed_allreduce({in.data(), out.data(), kCount, parse_compression(name).value(), nullptr})
              .ok());
      ASSERT_NO_FATAL_FAILURE(expect_same_everywhere(comm, out));
      const auto there = static_cast<std::size_t>(std::ranges::count_if(out, [](float x) { return x != 0; }));
      if (std::string(name) == "topk:1") {
        const Vector exact = sum_of(me.size, 2, kCount);
        for (std::size_t i = 0; i < kCount; ++i)
          ASSERT_NEAR(out[i], exact[i], 1e-4);
      } else if (std::string(name) == "randomk:0.02") {
        EXPECT_EQ(there, 80U);
      } else {
        EXPECT_GT(there, 39U);
        EXPECT_LE(there, kCount / 10 * static_cast<std::size_t>(me.size));
      }
    }
  });
}

// Error feedback: whatever is lost in one round comes in a later one. The sums of all rounds are those of the exact results, but for what
// the residuals hold in the end.
TEST_P(Compressed, WhatIsLostComesBack) {
  for (const char* name : {"topk:0.05", "randomk:0.1", "onebit:64", "qsgd:2:64", "terngrad", "fp16"}) {
    Party party(GetParam());
    party.run(quiet(), [name](Rank& me, Communicator& comm) {
      constexpr std::size_t kCount = 600;
      Residual residual(kCount);
      Vector total(kCount);
      Vector exact(kCount);
      for (std::uint64_t round = 0; round < 30; ++round) {
        me.at(name, round);
        const Vector in = gradient(me.rank, round, kCount);
        Vector out(kCount);
        ASSERT_TRUE(comm.compressed_allreduce(
                            {in.data(), out.data(), kCount, parse_compression(name).value(), &residual})
                        .ok());
        const Vector sums = sum_of(me.size, round, kCount);
        for (std::size_t i = 0; i < kCount; ++i) {
          total[i] += out[i];
          exact[i] += sums[i];
        }
      }
      Vector left(residual.values().begin(), residual.values().end());
      ASSERT_TRUE(comm.allreduce(left.data(), left.data(), kCount, DType::f32, Op::sum).ok());
      for (std::size_t i = 0; i < kCount; ++i)
        ASSERT_NEAR(total[i] + left[i], exact[i], 2e-3) << name << " element " << i;
    });
  }
}

TEST_P(Compressed, RanksThatAskForDifferentThingsAreTold) {
  Party party(GetParam());
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    const Vector in(10, 1);
    Vector out(10);
    const bool last = me.rank == me.size - 1 && me.size > 1;
    const Compression how = parse_compression(last ? "qsgd:4" : "qsgd:8").value();
    const Status status = comm.compressed_allreduce({in.data(), out.data(), 10, how, nullptr});
    if (me.size == 1) return;
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_NE(status.message().find("rank " + std::to_string(me.size - 1) + " asked for another"),
              std::string::npos)
        << status.message();
    EXPECT_TRUE(
        comm.compressed_allreduce({in.data(), out.data(), 10, parse_compression("fp16").value(), nullptr})
            .ok());
    EXPECT_EQ(out, Vector(10, static_cast<float>(me.size)));
  });
}

// The same seed and calls give the same bits again; another call rounds anew.
TEST(CompressedSeeds, AreReproducible) {
  std::vector<Vector> runs;
  for (int run = 0; run < 2; ++run) {
    Party party(Nodes{1, 2, 3});
    party.run(quiet(), [&](Rank& me, Communicator& comm) {
      const Vector in = gradient(me.rank, 5, 3000);
      for (int call = 0; call < 2; ++call) {
        Vector out(in.size());
        ASSERT_TRUE(comm.compressed_allreduce(
                            {in.data(), out.data(), in.size(), parse_compression("qsgd:2").value(), nullptr})
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

// ---- Sparse streams whose sums are coded

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

// One coding of the sum, and the residuals of all hold what it lost: inputs = sum + what was added to the residuals.
TEST_P(Compressed, SumsOfStreamsAreCodedOnce) {
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

// A sum that fails on the way was nobody's: who makes it again elsewhere counts nothing twice, and loses nothing.
TEST_P(Compressed, WhatFailsLeavesResidualsAsTheyWere) {
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

// What ranks share a node add up is exact: only what nodes send each other is coded, and by each rank its share.
TEST(CompressedOnNodes, VectorsAreCodedBetweenNodesAlone) {
  constexpr std::size_t kCount = 3000;
  Party party({1, 1, 1, 2, 2, 2});
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    // Each rank's values are far from what one byte can hold, and those of a node are one of 255 levels.
    Vector in(kCount);
    for (std::size_t i = 0; i < kCount; ++i)
      in[i] = me.rank % 3 == 0   ? static_cast<float>(static_cast<int>(i % 255) - 127) - 1e5F
              : me.rank % 3 == 1 ? 1e5F
                                 : 0;
    Vector out(kCount);
    const Compression how = parse_compression("qsgd:8:255").value();
    Residual residual(kCount);
    ASSERT_TRUE(comm.compressed_allreduce({in.data(), out.data(), kCount, how, &residual}).ok());
    for (std::size_t i = 0; i < kCount; ++i)
      ASSERT_NEAR(out[i], 2.0F * static_cast<float>(static_cast<int>(i % 255) - 127), 2.1F) << i;
    const SparseStats& stats = comm.sparse_stats();
    EXPECT_STREQ(stats.algorithm, "two_level_split");
    // Half of the third that it leads as a contribution, and half as the sum.
    EXPECT_NEAR(static_cast<double>(stats.bytes_sent), kCount / 3.0, kCount / 30.0);
  });
}

TEST_P(Compressed, RanksThatDisagreeOnStreamsAreTold) {
  Party party(GetParam());
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    const Compression how = parse_compression("qsgd:8").value();
    const bool last = me.rank == me.size - 1;
    Residual residual(10);
    Residual small(9);
    Vector out(11, 99);
    const std::string who = "rank " + std::to_string(me.size - 1);
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
      if (last) other.how.codec.seed = 1;
      refused(other, who + " asked for another compression", "asked for another compression");
      other = job;
      if (last) other.how = parse_compression("qsgd:8:512").value();
      refused(other, who + " asked for another compression", "asked for another compression");
      other = job;
      if (last) other.in.dimension = 11;
      if (last) other.residual = nullptr;
      refused(other, who + " passed", "passed");
    }
    CodedSparseJob broken = job;
    if (last) broken.in.value_type = DType::i32;
    refused(broken, who + " passed arguments that are refused", "of f32, not int32");
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
TEST_P(Compressed, TroubleOfOneRankIsToldToAll) {
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

TEST(CompressedSeeds, AreReproducibleForStreams) {
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

TEST(CompressionNames, PartsAreRoundedUpButForNoise) {
  const auto wanted = [](const char* name, std::size_t count) {
    CompressedJob job;
    job.how = parse_compression(name).value();
    job.count = count;
    return entries_wanted(job);
  };
  for (std::size_t hundredths = 1; hundredths <= 100; ++hundredths) {
    const std::string part = std::to_string(static_cast<double>(hundredths) / 100);
    for (const std::size_t hundreds : {1, 7, 1'000, 1'000'003})
      ASSERT_EQ(wanted(("topk:" + part).c_str(), hundreds * 100), hundreds * hundredths) << part;
    ASSERT_EQ(wanted(("topk:" + part).c_str(), 101), hundredths + 1) << part;
  }
  EXPECT_EQ(wanted("randomk:0.333", 10), 4U);
  EXPECT_EQ(wanted("topk:1e-9", 10), 1U);
  EXPECT_EQ(wanted("topk:1", 0), 0U);
  EXPECT_EQ(wanted("topk:0.0000000010000001", 1'000'000'000), 2U);
}

TEST(CompressionNames, AreReadAndRefused) {
  for (const char* text : {"fp16", "bf16", "qsgd:8", "qsgd:4:512", "qsgd:2", "terngrad", "onebit",
                           "onebit:64", "topk:0.01", "topk-sampled:0.5", "randomk:1"}) {
    const auto parsed = parse_compression(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(compression_name(parsed.value()), text);
  }
  for (const char* text : {"", "fp", "fp16:3", "qsgd", "qsgd:3", "qsgd:8:0", "qsgd:8:x", "topk", "topk:0",
                           "topk:1.5", "topk:nan", "topk:0.1x", "randomk:-1", "onebit:99999999", "FP16"}) {
    const auto parsed = parse_compression(text);
    EXPECT_FALSE(parsed.ok()) << text;
    EXPECT_NE(parsed.status().message().find("there are fp16"), std::string::npos);
  }
}

}  // namespace
}  // namespace heddle::test
