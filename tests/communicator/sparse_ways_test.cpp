// Allreduce of sparse streams on whole communicators, by ways that are for some of them: bitmaps, several
// threads, regions that follow the entries; and vectors of few zeros.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "sparse_party.hpp"

namespace heddle::test {
namespace {

// Streams that lie densely, on one node: by bitmaps, among other collectives. Where the caller has room the
// result is there before it is delivered.
TEST(SparseBitmaps, FoldWhatTheRanksHave) {
  for (const Nodes& nodes : {Nodes{1, 1}, Nodes{1, 1, 1}, Nodes{1, 1, 1, 1, 1}}) {
    Party party(nodes);
    party.run(forcing("bitmaps"), [](Rank& me, Communicator& comm) {
      for (std::uint64_t round = 0; round < (kSlowBuild ? 12 : 24); ++round) {
        me.at("round", round);
        const DType type =
            std::vector{DType::f32, DType::i64, DType::bf16, DType::f64, DType::f16}[round % 5];
        const Op op = round % 7 == 6 ? Op::max : Op::sum;
        const std::uint64_t dimension = round % 3 == 0 ? 40'000 : 500 + round;
        std::mt19937_64 random(round);
        std::vector<TestStream> in;
        for (int r = 0; r < me.size; ++r) {
          const auto pattern = static_cast<Pattern>((round + static_cast<std::uint64_t>(r)) % 4);
          const IndexType index = (static_cast<int>(round) + r) % 2 == 0 ? IndexType::u32 : IndexType::u64;
          in.push_back(random_stream(pattern, dimension, index, type, Values::exact, dimension / 5, random));
        }
        const TestStream& mine = in[static_cast<std::size_t>(me.rank)];
        Taken taken;
        Bytes indices(dimension * 8);
        Bytes values(dimension * 8);
        SparseJob job = taken.job(mine, op);
        bool asked = false;
        if (round % 2 == 0) {
          job.room = [&](std::size_t entries) {
            EXPECT_LE(entries, dimension);
            asked = true;
            return SparseRoom{indices.data(), values.data()};
          };
        }
        ASSERT_TRUE(comm.sparse_allreduce(job).ok());
        ASSERT_EQ(taken.times, 1);
        ASSERT_NO_FATAL_FAILURE(expect_folded(in, op, taken.stream));
        EXPECT_EQ(comm.sparse_stats().result_entries, taken.stream.indices.size());
        if (op == Op::sum) {
          EXPECT_STREQ(comm.sparse_stats().algorithm, "bitmaps");
          EXPECT_EQ(asked, round % 2 == 0);
        } else {
          EXPECT_STRNE(comm.sparse_stats().algorithm, "bitmaps");
        }
        auto request = comm.sparse_allreduce_request(taken.job(mine, op));
        ASSERT_TRUE(request.ok());
        ASSERT_TRUE(request.value()->start().ok());
        ASSERT_TRUE(comm.barrier().ok());
        ASSERT_TRUE(request.value()->wait().ok());
        ASSERT_NO_FATAL_FAILURE(expect_folded(in, op, taken.stream));
      }
    });
  }
}

// Full streams are chosen to go by bitmaps, and sparse ones are not; broken ones are told of as ever.
TEST(SparseBitmaps, AreChosenWhereStreamsAreDense) {
  Party party(Nodes{1, 1});
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    std::mt19937_64 random(static_cast<std::uint64_t>(me.rank));
    const std::uint64_t dimension = 300'000;
    TestStream full =
        random_stream(Pattern::everything, dimension, IndexType::u32, DType::f32, Values::exact, 0, random);
    const TestStream thin =
        random_stream(Pattern::uniform, dimension, IndexType::u32, DType::f32, Values::exact, 300, random);
    for (int round = 0; round < 3; ++round) {
      Taken taken;
      ASSERT_TRUE(comm.sparse_allreduce(taken.job(full)).ok());
      EXPECT_STREQ(comm.sparse_stats().algorithm, "bitmaps");
      EXPECT_EQ(taken.stream.indices.size(), dimension);
      ASSERT_TRUE(comm.sparse_allreduce(taken.job(thin)).ok());
      EXPECT_STRNE(comm.sparse_stats().algorithm, "bitmaps");
      TestStream broken = full;
      if (me.rank == 1)
        std::swap_ranges(broken.index_bytes.begin(), broken.index_bytes.begin() + 4,
                         broken.index_bytes.begin() + 4);
      Taken none;
      const Status status = comm.sparse_allreduce(none.job(broken));
      EXPECT_EQ(status.code(), Code::invalid_argument);
      EXPECT_NE(status.message().find(me.rank == 1 ? "of entry 1 is not greater" : "rank 1 passed"),
                std::string::npos)
          << status.message();
      EXPECT_EQ(none.times, 0);
    }
  });
}

// What a call has marked that then went by another way, or failed, is not what the next one brings.
TEST(SparseBitmaps, MarksOfACallThatDidNotUseThemAreGone) {
  Party party(Nodes{1, 1});
  party.run(forcing("bitmaps"), [](Rank& me, Communicator& comm) {
    std::mt19937_64 random(1);
    std::vector<TestStream> full;
    for (const std::uint64_t dimension : {40'000, 40'001})
      full.push_back(random_stream(Pattern::everything, dimension, IndexType::u32, DType::f32, Values::exact,
                                   0, random));
    Taken first;
    ASSERT_TRUE(comm.sparse_allreduce(first.job(full[0])).ok());  // finds out what memory there is
    Taken none;
    const auto mine = static_cast<std::size_t>(me.rank);
    EXPECT_EQ(comm.sparse_allreduce(none.job(full[mine])).code(), Code::invalid_argument);
    SparseJob garbage = none.job(full[0]);
    if (me.rank == 1) garbage.in.count = std::size_t{1} << 60;
    EXPECT_EQ(comm.sparse_allreduce(garbage).code(), Code::invalid_argument) << "before any is read";
    std::vector<TestStream> in{
        random_stream(Pattern::uniform, 40'000, IndexType::u32, DType::f32, Values::exact, 9, random),
        full[0]};
    Taken taken;
    ASSERT_TRUE(comm.sparse_allreduce(taken.job(in[mine])).ok());
    EXPECT_STREQ(comm.sparse_stats().algorithm, "bitmaps");
    ASSERT_NO_FATAL_FAILURE(expect_folded(in, Op::sum, taken.stream));
  });
}

// A bitmap is as large as the dimension, which nothing is unless the entries are: also where it is forced.
TEST(SparseBitmaps, AreNotForThinStreamsWhenForced) {
  Party party(Nodes{1, 1, 1});
  party.run(forcing("bitmaps"), [](Rank& me, Communicator& comm) {
    const std::uint64_t dimension = std::uint64_t{1} << 20;
    for (const std::size_t entries :
         {std::size_t{1}, std::size_t{dimension / 1024}, std::size_t{dimension / 16}}) {
      me.at("entries", entries);
      std::vector<TestStream> in;
      for (std::uint64_t r = 0; r < 3; ++r) {
        std::mt19937_64 random(r);
        in.push_back(random_stream(Pattern::uniform, dimension, IndexType::u32, DType::f32, Values::exact,
                                   entries, random));
      }
      Taken taken;
      ASSERT_TRUE(comm.sparse_allreduce(taken.job(in[static_cast<std::size_t>(me.rank)])).ok());
      ASSERT_NO_FATAL_FAILURE(expect_folded(in, Op::sum, taken.stream));
      const bool by_bitmaps = std::string(comm.sparse_stats().algorithm) == "bitmaps";
      EXPECT_EQ(by_bitmaps, entries == dimension / 16) << comm.sparse_stats().algorithm;
    }
  });
}

// Large enough for several threads where cores are free: ranks that are alone on their nodes have some.
TEST(SparseThreads, LargeStreams) {
  Party party(Nodes{1, 2});
  party.run(forcing("recursive_doubling"), [](Rank& me, Communicator& comm) {
    std::vector<TestStream> in(2);
    for (std::size_t r = 0; r < 2; ++r) {
      std::mt19937_64 random(r);
      in[r].dimension = std::uint64_t{1} << 30;
      std::uint64_t at = 0;
      for (std::size_t i = 0; i < 200'000; ++i) {
        const float value = 1.0F + static_cast<float>(random() % 100);
        in[r].add(at += 1 + random() % 30, &value);
      }
    }
    Taken taken;
    ASSERT_TRUE(comm.sparse_allreduce(taken.job(in[static_cast<std::size_t>(me.rank)])).ok());
    ASSERT_NO_FATAL_FAILURE(expect_folded(in, Op::sum, taken.stream));
  });
}

// The second call knows the result of the first: entries that lie together are divided evenly then.
TEST(SparseBalance, RegionsFollowTheEntries) {
  Party party(Nodes{1, 2, 3, 4});
  party.run(forcing("split_allgather"), [](Rank& me, Communicator& comm) {
    constexpr std::uint64_t kDimension = std::uint64_t{1} << 40;
    std::mt19937_64 random(static_cast<std::uint64_t>(me.rank));
    TestStream mine;
    mine.dimension = kDimension;
    mine.index_type = IndexType::u64;
    const float one = 1;
    std::set<std::uint64_t> indices;
    while (indices.size() < 4000)
      indices.insert(random() % 100'000);
    for (const std::uint64_t i : indices)
      mine.add(i, &one);
    std::vector<std::uint64_t> sent;
    for (int call = 0; call < 2; ++call) {
      Taken taken;
      ASSERT_TRUE(comm.sparse_allreduce(taken.job(mine)).ok());
      sent.push_back(comm.sparse_stats().bytes_sent);
      // A quarter of the result goes to three others, and three quarters of the own entries: about 4 x 4000
      // entries of 5 to 6 bytes.
      const std::uint64_t even = (3 * taken.stream.indices.size() / 4 + 3000) * 6;
      EXPECT_LT(sent.back(), even * 13 / 10) << "call " << call;
      EXPECT_GT(sent.back(), even * 6 / 10) << "call " << call;
    }
  });
}

// A dense algorithm of many messages may be dearer than streams of few, with every element there.
TEST(SparseCommunicator, WhatIsNotMostlyZeroStaysDense) {
  constexpr std::size_t kCount = 1 << 18;
  Party party({0, 1, 2, 3});
  for (int r = 0; r < 4; ++r) {
    party.processes.push_back(std::make_shared<ProcessState>());
    party.processes.back()->learn({2e6, 5, 5e5});
  }
  Config config = quiet();
  config.algorithm = "ring";
  party.run(config, [](Rank& me, Communicator& comm) {
    std::vector<std::int32_t> data(kCount, me.rank);
    ASSERT_TRUE(comm.mostly_zero_allreduce({data.data(), data.data(), kCount, DType::i32}).ok());
    EXPECT_STREQ(comm.sparse_stats().algorithm, "dense");
    std::vector<std::int32_t> zeros(kCount, 0);
    zeros[7] = me.rank;
    ASSERT_TRUE(comm.mostly_zero_allreduce({zeros.data(), zeros.data(), kCount, DType::i32}).ok());
    EXPECT_STRNE(comm.sparse_stats().algorithm, "dense");
  });
}

// Entries in memory that the others reach are not copied for them. Who comes late to fold them does not take
// what lies there when the wait of their owner, who has all it wants, is over. The clocks hold the ranks
// where they wait, and go on for that one wait alone: other ones may take as long as a busy machine lets
// them.
TEST(SparseHandedOver, EntriesAreTheirRanksAfterwards) {
  Party party({1, 1});
  Config config = forcing("recursive_doubling");
  config.timeout = std::chrono::milliseconds(400);
  config.spin = 10;
  enum Stage { begun, first_came, second_has_handed_over, first_failed, through };
  std::atomic<int> stage{begun};
  run_ranks(2, [&](Rank& me) {
    const auto hold_until = [&](int next) { me.until([&] { return stage.load() >= next; }); };
    bool holds = false;
    const auto begin = std::chrono::steady_clock::now();
    Bootstrap bootstrap = party.bootstrap(me.rank);
    bootstrap.clock = [&] {
      if (holds && stage == me.rank) {
        ++stage;
        hold_until(me.rank + 2);
      }
      return holds && me.rank == 0 ? std::chrono::steady_clock::now() : begin;
    };
    auto made = Communicator::create(bootstrap, config);
    ASSERT_TRUE(made.ok()) << made.status().message();
    Communicator& comm = *made.value();
    SparseJob job;
    job.in = {1000, 1, IndexType::u64, DType::i64, nullptr, nullptr};
    auto* const entry = static_cast<std::uint64_t*>(comm.allocate(2 * sizeof(std::uint64_t)).value());
    job.in.indices = &entry[0];
    job.in.values = &entry[1];
    entry[0] = 5;
    entry[1] = 1;
    int delivered = 0;
    job.deliver = [&](std::span<const SparseView>) {
      ++delivered;
      return Status();
    };
    ASSERT_TRUE(comm.sparse_allreduce(job).ok());
    holds = true;
    if (me.rank == 1) hold_until(first_came);
    const Status status = comm.sparse_allreduce(job);
    if (me.rank == 0) {
      EXPECT_EQ(status.code(), Code::timeout) << status.message();
      entry[1] = 42;
      stage = first_failed;
      hold_until(through);
    } else {
      EXPECT_EQ(status.code(), Code::peer_failed);
      EXPECT_NE(status.message().find("rank 0 "), std::string::npos) << status.message();
      stage = through;
    }
    EXPECT_EQ(delivered, 1);
  });
}

}  // namespace
}  // namespace heddle::test
