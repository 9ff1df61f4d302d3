// Allreduce of sparse streams on whole communicators: one node, several, blocking, non-blocking, and what
// must fail everywhere alike.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sparse_party.hpp"

namespace heddle::test {
namespace {

class Sparse : public ::testing::TestWithParam<Nodes> {};
INSTANTIATE_TEST_SUITE_P(Nodes, Sparse,
                         ::testing::Values(Nodes{1}, Nodes{1, 1}, Nodes{1, 2}, Nodes{1, 1, 1},
                                           Nodes{1, 2, 3, 4}, Nodes{1, 1, 2, 2, 2},
                                           Nodes{3, 1, 2, 3, 3, 1, 9}));

TEST_P(Sparse, FoldsWhatTheRanksHave) {
  Party party(GetParam());
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    for (std::uint64_t round = 0; round < 24; ++round) {
      me.at("round", round);
      const DType type = std::vector{DType::f32, DType::i64, DType::bf16, DType::f64}[round % 4];
      const Op op = std::vector{Op::sum, Op::min, Op::max}[round % 3];
      const std::uint64_t dimension = round % 5 == 0 ? std::uint64_t{1} << 40 : 2000;
      const std::vector<TestStream> in = streams_of(me.size, round, dimension, type);
      Taken taken;
      ASSERT_TRUE(comm.sparse_allreduce(taken.job(in[static_cast<std::size_t>(me.rank)], op)).ok());
      ASSERT_EQ(taken.times, 1);
      ASSERT_NO_FATAL_FAILURE(expect_folded(in, op, taken.stream));
      EXPECT_EQ(comm.sparse_stats().result_entries, taken.stream.indices.size());
    }
  });
}

TEST_P(Sparse, RequestsRunAtOnceAndAgain) {
  Party party(GetParam());
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    constexpr std::size_t kOpen = 5;
    std::mt19937_64 order(static_cast<std::uint64_t>(me.rank));
    for (std::uint64_t round = 0; round < 8; ++round) {
      me.at("round", round);
      std::vector<std::vector<TestStream>> in;
      std::vector<Taken> taken(kOpen);
      std::vector<std::unique_ptr<Request>> open;
      for (std::size_t k = 0; k < kOpen; ++k)
        in.push_back(streams_of(me.size, round * kOpen + k, 3000, DType::f32));
      for (std::size_t k = 0; k < kOpen; ++k) {
        auto made = comm.sparse_allreduce_request(taken[k].job(in[k][static_cast<std::size_t>(me.rank)]));
        ASSERT_TRUE(made.ok());
        open.push_back(std::move(made).value());
        ASSERT_TRUE(open[k]->start().ok());
        std::vector<std::int64_t> value = terms(me.rank, 3, round);
        ASSERT_TRUE(comm.allreduce(value.data(), value.data(), 3, DType::i64, Op::sum).ok());
        ASSERT_EQ(value, sums(me.size, 3, round));
      }
      std::vector<std::size_t> waits{0, 1, 2, 3, 4};
      std::shuffle(waits.begin(), waits.end(), order);
      for (const std::size_t k : waits) {
        ASSERT_TRUE(open[k]->wait().ok());
        ASSERT_EQ(taken[k].times, 1);
        ASSERT_NO_FATAL_FAILURE(expect_folded(in[k], Op::sum, taken[k].stream));
      }
      for (int again = 2; again < 4; ++again) {
        ASSERT_TRUE(open[0]->start().ok());
        ASSERT_TRUE(open[0]->wait().ok());
        ASSERT_EQ(taken[0].times, again);
        ASSERT_NO_FATAL_FAILURE(expect_folded(in[0], Op::sum, taken[0].stream));
      }
    }
  });
}

TEST_P(Sparse, ABrokenContractIsToldToAllAndHarmsNothing) {
  Party party(GetParam());
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    TestStream good;
    good.dimension = 10;
    const float one = 1;
    good.add(3, &one);
    good.add(7, &one);
    TestStream bad = good;
    std::swap_ranges(bad.index_bytes.begin(), bad.index_bytes.begin() + 4, bad.index_bytes.begin() + 4);
    TestStream other = good;
    other.dimension = 11;
    const bool last = me.rank == me.size - 1;
    for (int kind = 0; kind < 4; ++kind) {
      const TestStream& mine = !last ? good : kind % 2 == 0 ? bad : other;
      Taken taken;
      Status status;
      if (kind < 2) {
        status = comm.sparse_allreduce(taken.job(mine));
      } else {
        auto request = comm.sparse_allreduce_request(taken.job(mine));
        ASSERT_TRUE(request.ok());
        ASSERT_TRUE(request.value()->start().ok());
        status = request.value()->wait();
        EXPECT_TRUE(request.value()->wait().ok()) << "the status is told once";
      }
      if (kind % 2 == 1 && me.size == 1) {
        EXPECT_TRUE(status.ok());
        continue;
      }
      EXPECT_EQ(status.code(), Code::invalid_argument);
      const std::string who = "rank " + std::to_string(me.size - 1) + " passed";
      const std::string text = kind % 2 == 0 && last ? "index 3 of entry 1 is not greater" : who;
      EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
      EXPECT_EQ(taken.times, 0);
      Taken again;
      ASSERT_TRUE(comm.sparse_allreduce(again.job(good)).ok());
      EXPECT_EQ(again.stream.indices, (std::vector<std::uint64_t>{3, 7}));
    }
  });
}

// What a rank's own delivery fails with is its own.
TEST_P(Sparse, AFailedDeliveryIsOfOneRank) {
  Party party(GetParam());
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    const std::vector<TestStream> in = streams_of(me.size, 4, 100, DType::f32);
    Taken taken;
    SparseJob job = taken.job(in[static_cast<std::size_t>(me.rank)]);
    if (me.rank == 0) {
      job.deliver = [](std::span<const SparseView>) { return Status(Code::capacity, "too small"); };
    }
    EXPECT_EQ(comm.sparse_allreduce(job).code(), me.rank == 0 ? Code::capacity : Code::ok);
    EXPECT_TRUE(comm.barrier().ok());
  });
}

TEST_P(Sparse, NothingAndNextToNothing) {
  for (const char* name : {"", "sparse:recursive_doubling", "sparse:split_allgather", "sparse:ring"}) {
    Config config = quiet();
    config.algorithm = name;
    Party party(GetParam());
    party.run(config, [name](Rank& me, Communicator& comm) {
      me.at(name);
      for (const std::size_t entries : {0, 1, 2}) {
        // The last rank alone has any.
        std::vector<TestStream> in(static_cast<std::size_t>(me.size));
        for (TestStream& s : in)
          s.dimension = 1000;
        const float one = 1;
        for (std::size_t i = 0; i < entries; ++i)
          in.back().add(500 * i, &one);
        Taken taken;
        ASSERT_TRUE(comm.sparse_allreduce(taken.job(in[static_cast<std::size_t>(me.rank)])).ok());
        ASSERT_NO_FATAL_FAILURE(expect_folded(in, Op::sum, taken.stream));
        auto request = comm.sparse_allreduce_request(taken.job(in[static_cast<std::size_t>(me.rank)]));
        ASSERT_TRUE(request.ok());
        ASSERT_TRUE(request.value()->start().ok());
        ASSERT_TRUE(request.value()->wait().ok());
        ASSERT_NO_FATAL_FAILURE(expect_folded(in, Op::sum, taken.stream));
        std::vector<float> zeros(5000);
        ASSERT_TRUE(comm.mostly_zero_allreduce({zeros.data(), zeros.data(), zeros.size(), DType::f32}).ok());
        ASSERT_EQ(zeros, std::vector<float>(5000));
      }
    });
  }
}

TEST_P(Sparse, TypesOfIndicesMayDiffer) {
  Party party(GetParam());
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    for (std::uint64_t round = 0; round < 6; ++round) {
      const std::vector<TestStream> in = streams_of(me.size, round, 3000, DType::f32);
      TestStream mine = in[static_cast<std::size_t>(me.rank)];
      if (me.rank % 2 == 0) {
        const std::vector<std::uint64_t> indices = std::exchange(mine.indices, {});
        const Bytes values = std::exchange(mine.values, {});
        mine.index_bytes.clear();
        mine.index_type = IndexType::u32;
        for (std::size_t i = 0; i < indices.size(); ++i)
          mine.add(indices[i], values.data() + 4 * i);
      }
      Taken taken;
      ASSERT_TRUE(comm.sparse_allreduce(taken.job(mine)).ok());
      ASSERT_NO_FATAL_FAILURE(expect_folded(in, Op::sum, taken.stream));
    }
  });
}

std::size_t status_kib(const char* field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field, 0) == 0) return std::stoul(line.substr(std::strlen(field)));
  }
  return 0;
}

// Whatever the dimension, the ranks of this process together take about the memory of their entries, never
// that of a vector.
TEST_P(Sparse, MemoryFollowsTheEntries) {
  for (const std::uint64_t dimension :
       {std::uint64_t{1} << 28, std::uint64_t{1} << 40, std::uint64_t{1} << 62}) {
    Party party(GetParam());
    std::atomic<std::size_t> before{0};
    party.run(quiet(), [&](Rank& me, Communicator& comm) {
      TestStream mine;
      mine.dimension = dimension;
      mine.index_type = IndexType::u64;
      const float one = 1;
      for (std::uint64_t i = 0; i < 20'000; ++i)
        mine.add(i * (dimension / 20'000) + static_cast<std::uint64_t>(me.rank), &one);
      Taken taken;
      ASSERT_TRUE(comm.barrier().ok());
      // The most that was ever resident starts anew.
      if (me.rank == 0) {
        std::ofstream("/proc/self/clear_refs") << 5;
        before = status_kib("VmHWM:");
      }
      ASSERT_TRUE(comm.barrier().ok());
      ASSERT_TRUE(comm.sparse_allreduce(taken.job(mine)).ok());
      ASSERT_TRUE(comm.barrier().ok());
      EXPECT_EQ(taken.stream.indices.size(), 20'000U * static_cast<std::size_t>(me.size));
      // 12 bytes an entry, in as many streams as a rank may hold at once, and in the test's own copies.
      const std::size_t entries =
          20'000U * static_cast<std::size_t>(me.size) * static_cast<std::size_t>(me.size);
      // What a sanitizer had kept of freed memory may go meanwhile.
      const std::size_t kib = std::max(status_kib("VmHWM:"), before.load()) - before;
      const std::size_t slow = kSlowBuild ? 8 : 1;  // a sanitizer's own memory
      EXPECT_LT(kib, (entries * 12 * 12 / 1024 + 16'384) * slow) << "dimension " << dimension;
    });
  }
}

// The same indices with other values: the bits of a new exchange, for fewer bytes.
TEST_P(Sparse, RequestsThatKeepTheirPatternExchangeValuesAlone) {
  Party party(GetParam());
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    for (const DType type : {DType::f32, DType::f64, DType::i64, DType::f16, DType::bf16}) {
      std::vector<TestStream> in = streams_of(me.size, 3, 3000, type);
      TestStream& mine = in[static_cast<std::size_t>(me.rank)];
      Taken kept;
      SparseJob job = kept.job(mine);
      job.keeps_pattern = true;
      auto persistent = comm.sparse_allreduce_request(job);
      ASSERT_TRUE(persistent.ok());
      std::uint64_t first_bytes = 0;
      for (std::uint64_t round = 0; round < 5; ++round) {
        me.at(dtype_name(type), round);
        std::mt19937_64 random(round * 100 + static_cast<std::uint64_t>(me.rank));
        for (std::size_t i = 0; i < mine.indices.size(); ++i)
          random_value(type, Values::any_bits, random, mine.values.data() + i * dtype_size(type));
        ASSERT_TRUE(persistent.value()->start().ok());
        // Another one between, on the same communicator.
        Taken anew;
        auto once = comm.sparse_allreduce_request(anew.job(mine));
        ASSERT_TRUE(once.ok());
        ASSERT_TRUE(once.value()->start().ok());
        ASSERT_TRUE(persistent.value()->wait().ok());
        const std::uint64_t bytes = comm.sparse_stats().bytes_sent;
        ASSERT_TRUE(once.value()->wait().ok());
        ASSERT_EQ(kept.stream.indices, anew.stream.indices);
        for (std::size_t i = 0; i < kept.stream.indices.size(); ++i)
          ASSERT_TRUE(same_value(type, kept.stream.value(i), anew.stream.value(i))) << "entry " << i;
        if (round == 0) first_bytes = bytes;
        if (round > 0 && me.size > 1) {
          ASSERT_LT(bytes, first_bytes);
        }
      }
    }
  });
}

// In place on vectors, whichever way the ranks choose: the bits of a dense sum where there is one order only
// (two ranks), and the same on all ranks anyhow.
TEST_P(Sparse, InPlaceOnAVectorIsADenseSum) {
  for (const char* name : {"dense", "split_allgather", "recursive_doubling", ""}) {
    Party party(GetParam());
    party.run(name[0] == 0 ? quiet() : forcing(name), [name](Rank& me, Communicator& comm) {
      constexpr std::size_t kCount = 5000;
      for (std::uint64_t round = 0; round < 6; ++round) {
        me.at(name, round);
        const DType type = round % 2 == 0 ? DType::f32 : DType::i32;
        std::mt19937_64 random(round);
        std::vector<Bytes> all;
        for (int r = 0; r < me.size; ++r) {
          const auto pattern = static_cast<Pattern>((round + static_cast<std::uint64_t>(r)) % 4);
          const TestStream s = random_stream(pattern, kCount, IndexType::u32, type,
                                             me.size <= 2 ? Values::any_bits : Values::exact, 200, random);
          all.emplace_back(kCount * 4);
          for (std::size_t i = 0; i < s.indices.size(); ++i)
            std::memcpy(all.back().data() + s.indices[i] * 4, s.value(i), 4);
        }
        Bytes data = all[static_cast<std::size_t>(me.rank)];
        ASSERT_TRUE(comm.mostly_zero_allreduce({data.data(), data.data(), kCount, type}).ok());
        Bytes expected = all[0];
        for (int r = 1; r < me.size; ++r) {
          const void* inputs[] = {expected.data(), all[static_cast<std::size_t>(r)].data()};
          fold_kernel(type, Op::sum)(expected.data(), nullptr, inputs, 2, kCount);
        }
        for (std::size_t i = 0; i < kCount; ++i)
          ASSERT_TRUE(same_value(type, data.data() + i * 4, expected.data() + i * 4))
              << name << " element " << i;
        if (me.size > 1 && name[0] != 0) {
          EXPECT_STREQ(comm.sparse_stats().algorithm, name);
        }
      }
    });
  }
}

// Where the sum goes is each rank's own affair.
TEST_P(Sparse, SomeSumInPlaceAndOthersDoNot) {
  for (const char* name : {"dense", "split_allgather", "recursive_doubling", ""}) {
    Party party(GetParam());
    party.run(name[0] == 0 ? quiet() : forcing(name), [name](Rank& me, Communicator& comm) {
      constexpr std::size_t kCount = 30'000;
      for (int apart = 0; apart < me.size; ++apart) {
        me.at(name, static_cast<std::uint64_t>(apart));
        std::vector<std::int32_t> in(kCount);
        in[7] = me.rank;
        in[static_cast<std::size_t>(100 + me.rank)] = 1;
        const std::vector<std::int32_t> given = in;
        std::vector<std::int32_t> out(kCount, 77);
        std::vector<std::int32_t>& sum = me.rank == apart ? out : in;
        const Status status = comm.mostly_zero_allreduce({in.data(), sum.data(), kCount, DType::i32});
        ASSERT_TRUE(status.ok()) << status.message();
        std::vector<std::int32_t> expected(kCount);
        for (int r = 0; r < me.size; ++r) {
          expected[7] += r;
          expected[static_cast<std::size_t>(100 + r)] = 1;
        }
        ASSERT_EQ(sum, expected);
        if (me.rank == apart) {
          ASSERT_EQ(in, given);
        }
      }
    });
  }
}

TEST_P(Sparse, EveryAlgorithmCanBeForced) {
  for (const char* name : {"recursive_doubling", "split_allgather", "rabenseifner", "ring", "leaders"}) {
    Party party(GetParam());
    const bool flat =
        std::set<std::uint64_t>(GetParam().begin(), GetParam().end()).size() == GetParam().size() ||
        std::set<std::uint64_t>(GetParam().begin(), GetParam().end()).size() == 1;
    party.run(forcing(name), [&](Rank& me, Communicator& comm) {
      me.at(name);
      const std::vector<TestStream> in = streams_of(me.size, 5, 4000, DType::f32);
      Taken taken;
      ASSERT_TRUE(comm.sparse_allreduce(taken.job(in[static_cast<std::size_t>(me.rank)])).ok());
      ASSERT_NO_FATAL_FAILURE(expect_folded(in, Op::sum, taken.stream));
      if (std::string(name) != "leaders" || !flat) {
        EXPECT_STREQ(comm.sparse_stats().algorithm, name);
      }
    });
  }
}

}  // namespace
}  // namespace heddle::test
