// What the ranks learn of each other's patterns, beside the patterns themselves.
#include "sparse/profile.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "sparse/streams.hpp"

namespace heddle::test {
namespace {

// Every rank states its part, and the words are added up.
Agreement agreed(const std::vector<TestStream>& streams, std::size_t samples) {
  const auto ranks = static_cast<int>(streams.size());
  Agreement all(ranks, samples);
  std::vector<std::uint64_t> sum(all.words().size());
  for (int r = 0; r < ranks; ++r) {
    Agreement mine(ranks, samples);
    mine.state(r, streams[static_cast<std::size_t>(r)].view(), Op::sum, SparseForm::entries, true);
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] += mine.words()[i];
  }
  std::copy(sum.begin(), sum.end(), all.words().begin());
  return all;
}

TestStream of(const std::set<std::uint64_t>& indices, std::uint64_t dimension) {
  TestStream stream;
  stream.dimension = dimension;
  stream.index_type = IndexType::u64;
  const float one = 1;
  for (const std::uint64_t i : indices)
    stream.add(i, &one);
  return stream;
}

std::set<std::uint64_t> draw(std::size_t count, std::uint64_t from, std::uint64_t to, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::set<std::uint64_t> indices;
  while (indices.size() < count)
    indices.insert(from + random() % (to - from));
  return indices;
}

std::size_t united(const std::vector<TestStream>& streams, std::size_t first) {
  std::set<std::uint64_t> all;
  for (std::size_t r = 0; r < first; ++r)
    all.insert(streams[r].indices.begin(), streams[r].indices.end());
  return all.size();
}

constexpr std::uint64_t kDimension = std::uint64_t{1} << 40;

TEST(Agreement, NamesTheFirstRankThatDoesNotFit) {
  std::vector<TestStream> streams(3, of({1, 2, 3}, 10));
  EXPECT_TRUE(agreed(streams, 0).check().ok());
  EXPECT_EQ(agreed(streams, 4).total(), 9U);
  streams[1].dimension = 11;
  EXPECT_NE(
      agreed(streams, 0).check().message().find("rank 1 passed sum of float32, dimension 11, but rank 0"),
      std::string::npos)
      << agreed(streams, 0).check().message();
  streams[1].dimension = 10;
  streams[2].value_type = DType::i32;
  EXPECT_NE(agreed(streams, 0).check().message().find("rank 2 passed sum of int32"), std::string::npos);
  Agreement broken(2, 0);
  broken.state(1, streams[0].view(), Op::sum, SparseForm::entries, false);
  EXPECT_NE(broken.check().message().find("rank 1 passed a stream that breaks the contract"),
            std::string::npos);
  Agreement missing(2, 4);
  missing.state(1, streams[0].view(), Op::sum, SparseForm::entries, false);
  missing.withdraw(1, false);
  EXPECT_EQ(missing.check().code(), heddle::Code::peer_failed);
  EXPECT_NE(missing.check().message().find("rank 1 could not make its entries"), std::string::npos);
  EXPECT_EQ(missing.total(), 0U);
  missing.withdraw(1, true);
  EXPECT_EQ(missing.check().code(), heddle::Code::invalid_argument);
  EXPECT_NE(missing.check().message().find("rank 1 passed arguments that are refused"), std::string::npos);
}

TEST(Profile, FindsHowFarPatternsOverlap) {
  const auto own = [](std::uint64_t seed) { return draw(2000, 0, kDimension, seed); };
  // Nothing in common; all the same; half of each the same.
  const std::vector<TestStream> apart{of(own(1), kDimension), of(own(2), kDimension), of(own(3), kDimension)};
  EXPECT_EQ(Profile::of_samples(agreed(apart, 64)).distinct(), 1.0);
  const std::vector<TestStream> same(4, of(own(1), kDimension));
  EXPECT_EQ(Profile::of_samples(agreed(same, 64)).distinct(), 0.25);
  std::vector<TestStream> half;
  for (std::uint64_t r = 0; r < 4; ++r) {
    std::set<std::uint64_t> indices = draw(2000, 0, kDimension / 2, 9);
    indices.merge(draw(2000, kDimension / 2, kDimension, 10 + r));
    half.push_back(of(indices, kDimension));
  }
  EXPECT_NEAR(Profile::of_samples(agreed(half, 64)).distinct(), 10.0 / 16, 0.12);
  EXPECT_EQ(Profile::of_samples(agreed(half, 0)).distinct(), 1.0) << "without samples nothing is known";
}

TEST(Profile, SmallStreamsAreKnownExactly) {
  const std::vector<TestStream> small{of({1, 5, 9}, 100), of({5, 9, 70}, 100), of({}, 100)};
  EXPECT_DOUBLE_EQ(Profile::of_samples(agreed(small, 8)).distinct(), 4.0 / 6);
}

// From a result's size, the sizes on the way to it.
TEST(Profile, PredictsWhatMeetsOnTheWay) {
  std::vector<TestStream> streams;
  for (std::uint64_t r = 0; r < 8; ++r)
    streams.push_back(of(draw(3000, 0, 20'000, 40 + r), kDimension));
  std::set<std::uint64_t> all;
  for (const TestStream& s : streams)
    all.insert(s.indices.begin(), s.indices.end());
  const TestStream result = of(all, kDimension);
  const std::vector<SparseView> parts{result.view()};
  const Profile profile = Profile::of_result(parts, 24'000, kDimension);
  for (const std::size_t m : {1U, 2U, 4U, 8U}) {
    const auto real = static_cast<double>(united(streams, m));
    EXPECT_NEAR(expected_entries(profile.distinct(), 24'000, 8, static_cast<int>(m)), real, real * 0.03) << m;
  }
}

TEST(Profile, CutsRegionsOfEqualWeight) {
  // Nine tenths of the entries lie in a thousandth of the indices.
  std::vector<TestStream> streams;
  for (std::uint64_t r = 0; r < 4; ++r) {
    std::set<std::uint64_t> indices = draw(9000, kDimension / 2, kDimension / 2 + kDimension / 1000, 7 + r);
    indices.merge(draw(1000, 0, kDimension, 77 + r));
    streams.push_back(of(indices, kDimension));
  }
  std::set<std::uint64_t> all;
  for (const TestStream& s : streams)
    all.insert(s.indices.begin(), s.indices.end());
  const TestStream result = of(all, kDimension);
  const auto heaviest = [&](const std::vector<std::uint64_t>& cuts) {
    std::size_t most = 0;
    for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
      EXPECT_LE(cuts[c], cuts[c + 1]);
      const auto in = std::count_if(result.indices.begin(), result.indices.end(),
                                    [&](std::uint64_t i) { return i >= cuts[c] && i < cuts[c + 1]; });
      most = std::max(most, static_cast<std::size_t>(in));
    }
    return static_cast<double>(most) * static_cast<double>(cuts.size() - 1) /
           static_cast<double>(result.indices.size());
  };
  const std::vector<SparseView> parts{result.view()};
  for (const std::uint32_t chunks : {1U, 2U, 4U, 7U, 32U}) {
    const auto exact = Profile::of_result(parts, 40'000, kDimension).cuts(kDimension, chunks);
    ASSERT_EQ(exact.size(), chunks + 1);
    EXPECT_EQ(exact.front(), 0U);
    EXPECT_EQ(exact.back(), kDimension);
    EXPECT_LT(heaviest(exact), chunks > 7 ? 1.2 : 1.05) << chunks;
    if (chunks > 7) continue;
    EXPECT_LT(heaviest(Profile::of_samples(agreed(streams, 64)).cuts(kDimension, chunks)), 1.4) << chunks;
  }
  // Regions of equal width put nearly all on one owner.
  EXPECT_GT(heaviest(Profile().cuts(kDimension, 4)), 3.0);
}

// Of one vector or of several by turns.
TEST(Profile, TellsWhenEntriesAreElsewhere) {
  const auto result_of = [](const std::set<std::uint64_t>& indices) {
    const TestStream stream = of(indices, kDimension);
    const std::vector<SparseView> parts{stream.view()};
    return Profile::of_result(parts, indices.size(), kDimension);
  };
  for (const std::size_t count : {1, 5, 100, 5000}) {
    const Profile first = result_of(draw(count, 0, kDimension / 100, 1));
    const Profile alike = result_of(draw(count, 0, kDimension / 100, 2));
    const Profile last = result_of(draw(count, kDimension - kDimension / 100, kDimension, 3));
    EXPECT_FALSE(Profile(first).after(first).moves()) << count;
    EXPECT_FALSE(Profile(count >= 100 ? alike : first).after(first).moves()) << count;
    EXPECT_EQ(Profile(last).after(first).moves(), count > 1) << count;
    EXPECT_EQ(Profile(first).after(last).moves(), count > 1) << count;
    EXPECT_FALSE(Profile(first).after(Profile()).moves()) << "nothing is known of before";
    EXPECT_FALSE(Profile().after(first).moves()) << "no entries";
  }
}

TEST(Profile, NothingAtAllHasRegionsToo) {
  const std::vector<TestStream> nothing(2, of({}, 3));
  const Profile profile = Profile::of_samples(agreed(nothing, 8));
  EXPECT_EQ(profile.cuts(3, 5), (std::vector<std::uint64_t>{0, 0, 1, 1, 2, 3}));
  EXPECT_EQ(expected_entries(profile.distinct(), 0, 2, 2), 0);
  EXPECT_EQ(Profile().cuts(0, 2), (std::vector<std::uint64_t>{0, 0, 0}));
}

}  // namespace
}  // namespace heddle::test
