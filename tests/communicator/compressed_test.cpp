// Allreduces that lose precision: as little as they promise, the same bits everywhere, and what was lost
// comes back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "communicator/gradients.hpp"
#include "communicator/party.hpp"
#include "compress/compression.hpp"

namespace heddle::test {
namespace {

class Compressed : public ::testing::TestWithParam<Nodes> {};
INSTANTIATE_TEST_SUITE_P(Nodes, Compressed,
                         ::testing::Values(Nodes{1}, Nodes{1, 1}, Nodes{1, 2}, Nodes{1, 2, 3, 4},
                                           Nodes{1, 1, 2, 2, 2}, Nodes{3, 1, 2, 3, 3, 1, 9}));

// As MPI's programs may have them: the bits are those of vectors at a float's address, and nothing beside
// them is touched.
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

// Each contribution that travels, and the sum: docs/compression.md. Contributions of magnitude m, p of them,
// are off by error_bound(m) each, and their sum by error_bound(of its magnitude).
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
        // Hierarchical: a contribution may be coded on its way to its node's leader, with others to another
        // leader, and at last.
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

// Error feedback: whatever is lost in one round comes in a later one. The sums of all rounds are those of the
// exact results, but for what the residuals hold in the end.
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
    const std::string own = std::string("this rank: ") + (last ? "qsgd:4" : "qsgd:8") + ", seed 0, count 10";
    EXPECT_NE(status.message().find(own), std::string::npos) << status.message();
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

// What ranks share a node add up is exact: only what nodes send each other is coded, and by each rank its
// share.
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
