// Ranks that exchange bitmaps and values, beside fold_sparse() of all their streams: the same bits.
#include "sparse/bitmap_exchange.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "sparse/merge.hpp"
#include "sparse/streams.hpp"
#include "support/ranks.hpp"

namespace heddle::test {
namespace {

// The ranks are in one process: a place is an address.
class PlainMemory final : public NodeMemory {
 public:
  std::byte* allocate(std::size_t bytes) override {
    return refuses ? nullptr
                   : static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  }
  void release(std::byte* memory) override { std::free(memory); }
  bool place_of(const void* data, std::size_t, NodePlace* place) const override {
    place->words[0] = reinterpret_cast<std::uintptr_t>(data);
    return true;
  }
  const std::byte* at(int, const NodePlace& place) override {
    return reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(place.words[0]));
  }
  bool refuses = false;
};

struct Expected {
  Bytes indices;
  Bytes values;
  std::size_t count = 0;
};

Expected folded(const std::vector<TestStream>& in) {
  std::vector<SparseView> views;
  std::size_t room = 0;
  for (const TestStream& stream : in) {
    views.push_back(stream.view());
    room += stream.indices.size();
  }
  Expected expected;
  expected.indices.resize(room * index_size(in[0].index_type));
  expected.values.resize(room * dtype_size(in[0].value_type));
  expected.count = fold_sparse(views, Op::sum, expected.indices.data(), expected.values.data());
  return expected;
}

class Trial {
 public:
  explicit Trial(int ranks) : shown_(static_cast<std::size_t>(ranks)) {
    for (int r = 0; r < ranks; ++r) {
      memory_.push_back(std::make_unique<PlainMemory>());
      exchanges_.push_back(std::make_unique<BitmapExchange>(*memory_.back(), r, ranks));
    }
  }

  void set_up(const std::vector<TestStream>& in) {
    for (std::size_t r = 0; r < in.size(); ++r) {
      ASSERT_TRUE(exchanges_[r]->mark(in[r].view()));
      shown_[r] = exchanges_[r]->show();
      ASSERT_EQ(shown_[r].is_there, 1U);
    }
  }
  // Of one rank, after set_up().
  void begin(std::size_t r, const TestStream& in, Expected& out) {
    ASSERT_TRUE(exchanges_[r]->open(in.view(), shown_).ok());
    out.count = exchanges_[r]->count();
    out.indices.assign(out.count * index_size(in.index_type), std::byte{0x55});
    out.values.assign(out.count * dtype_size(in.value_type), std::byte{0x55});
    exchanges_[r]->start(out.indices.data(), out.values.data());
  }
  BitmapExchange& of(std::size_t rank) { return *exchanges_[rank]; }
  PlainMemory& memory_of(std::size_t rank) { return *memory_[rank]; }

 private:
  std::vector<std::unique_ptr<PlainMemory>> memory_;
  std::vector<std::unique_ptr<BitmapExchange>> exchanges_;
  std::vector<BitmapExchange::Shown> shown_;
};

void expect_same(const Expected& expected, const Expected& got, const TestStream& like) {
  ASSERT_EQ(got.count, expected.count);
  const std::size_t width = dtype_size(like.value_type);
  for (std::size_t i = 0; i < got.count; ++i) {
    const std::size_t index_bytes = index_size(like.index_type);
    ASSERT_EQ(std::memcmp(&got.indices[i * index_bytes], &expected.indices[i * index_bytes], index_bytes), 0)
        << i;
    ASSERT_EQ(std::memcmp(&got.values[i * width], &expected.values[i * width], width), 0) << "entry " << i;
  }
}

std::vector<TestStream> streams(int ranks, std::uint64_t dimension, DType type, std::mt19937_64& random) {
  const IndexType index = random() % 2 == 0 ? IndexType::u32 : IndexType::u64;
  std::vector<TestStream> in;
  for (int r = 0; r < ranks; ++r)
    in.push_back(random_stream(static_cast<Pattern>(random() % 4), dimension, index, type, Values::any_bits,
                               dimension / (1 + random() % 8), random));
  return in;
}

// In one thread, whoever's turn it is: several runs on the same memory, of several rounds and of fewer than
// there are slots.
TEST(BitmapExchange, GivesTheBitsOfTheFoldWhoeverIsFirst) {
  std::mt19937_64 random(1);
  for (const int ranks : {2, 3, 5, 8}) {
    Trial trial(ranks);
    for (const std::uint64_t dimension : {1U, 100U, 8'000U, 70'000U, 200'000U}) {
      for (const DType type : kSummedTypes) {
        if (dimension > 100'000 && (dtype_size(type) < 8 || kSlowBuild)) continue;
        SCOPED_TRACE(std::string(dtype_name(type)) + " dimension " + std::to_string(dimension) + " ranks " +
                     std::to_string(ranks));
        const std::vector<TestStream> in = streams(ranks, dimension, type, random);
        const Expected expected = folded(in);
        std::vector<Expected> out(in.size());
        ASSERT_NO_FATAL_FAILURE(trial.set_up(in));
        for (std::size_t r = 0; r < in.size(); ++r)
          ASSERT_NO_FATAL_FAILURE(trial.begin(r, in[r], out[r]));
        std::vector<bool> done(in.size());
        for (std::size_t left = in.size(); left > 0;) {
          const std::size_t r = random() % in.size();
          bool now = false;
          if (done[r]) continue;
          ASSERT_TRUE(trial.of(r).poll(&now).ok());
          if (!now) {
            const Waiting waiting = trial.of(r).waiting_for();
            ASSERT_EQ(waiting.on, Waiting::On::rank);
            ASSERT_NE(waiting.who, static_cast<int>(r)) << "a rank waits for itself";
            ASSERT_GE(waiting.who, 0);
          }
          done[r] = now;
          // Whoever is through may go on.
          if (now) {
            ASSERT_TRUE(trial.of(r).mark(in[(r + 1) % in.size()].view()));
          }
          left -= now ? 1 : 0;
        }
        for (std::size_t r = 0; r < in.size(); ++r)
          ASSERT_NO_FATAL_FAILURE(expect_same(expected, out[r], in[r])) << "rank " << r;
      }
    }
  }
}

// In threads, for what orders the ranks' memory.
TEST(BitmapExchange, RanksInThreads) {
  constexpr int kRanks = 3;
  Trial trial(kRanks);
  std::mt19937_64 random(2);
  for (int round = 0; round < rounds(4); ++round) {
    const std::vector<TestStream> in = streams(kRanks, 200'000, DType::f32, random);
    const Expected expected = folded(in);
    ASSERT_NO_FATAL_FAILURE(trial.set_up(in));
    run_ranks(kRanks, [&](Rank& me) {
      const auto r = static_cast<std::size_t>(me.rank);
      Expected out;
      trial.begin(r, in[r], out);
      me.until([&] {
        bool done = false;
        EXPECT_TRUE(trial.of(r).poll(&done).ok());
        return done;
      });
      expect_same(expected, out, in[r]);
    });
  }
}

TEST(BitmapExchange, SaysWhenThereIsNoMemoryOrNoContract) {
  std::mt19937_64 random(3);
  Trial trial(2);
  TestStream in =
      random_stream(Pattern::uniform, 1000, IndexType::u32, DType::f32, Values::exact, 300, random);
  trial.memory_of(0).refuses = true;
  EXPECT_TRUE(trial.of(0).mark(in.view())) << "nothing is wrong with the stream";
  EXPECT_FALSE(trial.of(0).is_marked());
  EXPECT_EQ(trial.of(0).show().is_there, 0U);
  trial.memory_of(0).refuses = false;
  EXPECT_TRUE(trial.of(0).mark(in.view()));
  EXPECT_EQ(trial.of(0).show().is_there, 1U);
  std::swap_ranges(in.index_bytes.begin(), in.index_bytes.begin() + 4, in.index_bytes.begin() + 4);
  EXPECT_FALSE(trial.of(0).mark(in.view()));
  EXPECT_EQ(trial.of(0).show().is_there, 0U);
}

}  // namespace
}  // namespace heddle::test
