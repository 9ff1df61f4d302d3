// Folds by several threads beside the fold by one: the same bits, whatever the streams.
#include "sparse/threaded_fold.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>

#include "../kernels/guarded_buffer.hpp"
#include "engine/kernels/kernels.hpp"
#include "sparse/merge.hpp"
#include "sparse/streams.hpp"
#include "support/ranks.hpp"

namespace heddle::test {
namespace {

// Where the streams' entries lie; each stream has about `entries` of them, but for those that have none.
enum class Spread : std::uint8_t { random, dense, skewed, equal, apart, one_long, nothing };
constexpr Spread kSpreads[] = {Spread::random, Spread::dense,    Spread::skewed, Spread::equal,
                               Spread::apart,  Spread::one_long, Spread::nothing};

std::vector<std::uint64_t> indices_of(Spread spread, std::size_t stream, std::size_t entries,
                                      std::mt19937_64& random) {
  std::vector<std::uint64_t> indices;
  if (spread == Spread::nothing && stream != 1) return indices;
  if (spread == Spread::one_long && stream != 0) entries /= 1000;
  std::uint64_t at = spread == Spread::apart ? stream * entries * 20 : 0;
  std::mt19937_64 alike(7);
  std::mt19937_64& source = spread == Spread::equal ? alike : random;
  for (std::size_t i = 0; i < entries; ++i) {
    std::uint64_t gap = 1 + source() % 17;
    if (spread == Spread::dense) gap = 1 + source() % 2;
    // Nine tenths of the entries in a small part of the indices, in another part for each stream.
    if (spread == Spread::skewed) gap = i * 10 / entries == stream % 10 ? 1 + source() % 400 : 1;
    at += gap;
    indices.push_back(at);
  }
  return indices;
}

std::vector<TestStream> make_streams(Spread spread, std::size_t count, std::size_t entries, IndexType index,
                                     DType type, std::mt19937_64& random) {
  std::vector<TestStream> streams(count);
  for (std::size_t s = 0; s < count; ++s) {
    streams[s].dimension = std::uint64_t{1} << 31;
    streams[s].index_type = index;
    streams[s].value_type = type;
    for (const std::uint64_t i : indices_of(spread, s, entries, random)) {
      std::byte value[8];
      random_value(type, Values::any_bits, random, value);
      streams[s].add(i, value);
    }
  }
  return streams;
}

std::vector<SparseView> views_of(const std::vector<TestStream>& streams) {
  std::vector<SparseView> views;
  for (const TestStream& stream : streams)
    views.push_back(stream.view());
  return views;
}

// Into room for no more than there may be.
void folds_alike(const std::vector<TestStream>& streams, Op op, const std::vector<ThreadedFold*>& folds) {
  const std::vector<SparseView> views = views_of(streams);
  const std::size_t index_bytes = index_size(views[0].index_type);
  const std::size_t value_bytes = dtype_size(views[0].value_type);
  std::size_t room = 0;
  for (const SparseView& view : views)
    room += view.count;
  Bytes indices(room * index_bytes);
  Bytes values(room * value_bytes);
  const std::size_t expected = fold_sparse(views, op, indices.data(), values.data());
  for (ThreadedFold* fold : folds) {
    GuardedBuffer index_room(room * index_bytes);
    GuardedBuffer value_room(room * value_bytes);
    std::uint8_t* got_indices = index_room.place(room * index_bytes, 0);
    std::uint8_t* got_values = value_room.place(room * value_bytes, 0);
    ASSERT_EQ(fold->fold(views, op, got_indices, got_values), expected) << fold->threads() << " threads";
    ASSERT_TRUE(index_room.surroundings_intact());
    ASSERT_TRUE(value_room.surroundings_intact());
    ASSERT_EQ(std::memcmp(got_indices, indices.data(), expected * index_bytes), 0)
        << fold->threads() << " threads";
    ASSERT_EQ(std::memcmp(got_values, values.data(), expected * value_bytes), 0)
        << fold->threads() << " threads";
  }
}

TEST(ThreadedFold, GivesTheSameBitsWithAnyNumberOfThreads) {
  std::mt19937_64 random(1);
  ThreadedFold one(std::vector<int>{});
  ThreadedFold two(std::vector<int>(1, -1));
  ThreadedFold three(std::vector<int>(2, -1));
  ThreadedFold four(std::vector<int>(3, -1));
  for (const Spread spread : kSpreads) {
    for (const DType type : kSummedTypes) {
      if (kSlowBuild && random() % 4 != 0) continue;
      const std::size_t streams = random() % 2 == 0 ? 2 : 5;
      const IndexType index = random() % 2 == 0 ? IndexType::u32 : IndexType::u64;
      const bool alone = spread == Spread::one_long || spread == Spread::nothing;
      const std::size_t entries = kThreadsFrom / (alone ? 1 : streams) + 50'000 + random() % 1000;
      const std::vector<TestStream> in = make_streams(spread, streams, entries, index, type, random);
      for (const Op op : {Op::sum, Op::min, Op::max}) {
        if (kSlowBuild && random() % 2 != 0) continue;
        SCOPED_TRACE(std::string(dtype_name(type)) + " " + op_name(op) + " spread " +
                     std::to_string(static_cast<int>(spread)) + " streams " + std::to_string(streams));
        ASSERT_NO_FATAL_FAILURE(folds_alike(in, op, {&one, &two, &three, &four}));
      }
    }
  }
}

// Against what one would write down first.
TEST(ThreadedFold, AddsUpWhatAMapAddsUp) {
  std::mt19937_64 random(2);
  ThreadedFold fold(std::vector<int>(2, -1));
  const std::vector<TestStream> in =
      make_streams(Spread::random, 3, kThreadsFrom / 2, IndexType::u64, DType::i64, random);
  std::map<std::uint64_t, std::uint64_t> expected;
  std::size_t room = 0;
  for (const TestStream& stream : in) {
    for (std::size_t i = 0; i < stream.indices.size(); ++i) {
      std::uint64_t value = 0;
      std::memcpy(&value, stream.value(i), sizeof value);
      expected[stream.indices[i]] += value;
    }
    room += stream.indices.size();
  }
  std::vector<std::uint64_t> indices(room);
  std::vector<std::uint64_t> values(room);
  const std::size_t count = fold.fold(views_of(in), Op::sum, indices.data(), values.data());
  ASSERT_EQ(count, expected.size());
  std::size_t i = 0;
  for (const auto& [index, value] : expected) {
    ASSERT_EQ(indices[i], index);
    ASSERT_EQ(values[i++], value);
  }
}

// Up to the last index, of a dimension that no number holds.
TEST(ThreadedFold, TheLastIndices) {
  std::mt19937_64 random(3);
  ThreadedFold fold(std::vector<int>(3, -1));
  std::vector<TestStream> in(2);
  for (TestStream& stream : in) {
    stream.dimension = UINT64_MAX;
    stream.index_type = IndexType::u64;
    for (std::uint64_t i = kThreadsFrom; i-- > 0;) {
      const auto value = static_cast<float>(random() % 100);
      if (i % 3 != 0) stream.add(UINT64_MAX - 1 - i, &value);
    }
  }
  ASSERT_NO_FATAL_FAILURE(folds_alike(in, Op::sum, {&fold}));
}

}  // namespace
}  // namespace heddle::test
