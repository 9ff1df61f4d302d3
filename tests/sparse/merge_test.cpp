// Merged streams against dense vectors: the same bits wherever both have an entry, and one side's bits elsewhere.
#include "sparse/merge.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/kernels/kernels.hpp"

namespace heddle {
namespace {

using Bytes = std::vector<std::byte>;

template <typename Index>
struct Stream {
  std::vector<Index> indices;
  Bytes values;
  SparseView view(std::uint64_t dimension, DType type) const {
    return {dimension, indices.size(), sizeof(Index) == 4 ? IndexType::u32 : IndexType::u64,
            type,      indices.data(), values.data()};
  }
};

// Runs of entries and of none, any bits as values: NaN, infinities and negative zeros among them.
template <typename Index>
Stream<Index> random_stream(std::uint64_t dimension, DType type, double density, std::mt19937_64& random) {
  Stream<Index> stream;
  std::bernoulli_distribution switches(0.1);
  std::bernoulli_distribution has(density);
  bool run = false;
  for (std::uint64_t i = 0; i < dimension; ++i) {
    if (switches(random)) run = has(random);
    if (!run && !has(random)) continue;
    stream.indices.push_back(static_cast<Index>(i));
    for (std::size_t k = 0; k < dtype_size(type); ++k)
      stream.values.push_back(static_cast<std::byte>(random() % 5 == 0 ? 0xff : random()));
  }
  return stream;
}

template <typename T>
bool both_nan(const std::byte* a, const std::byte* b) {
  T x;
  T y;
  std::memcpy(&x, a, sizeof x);
  std::memcpy(&y, b, sizeof y);
  return std::isnan(x) && std::isnan(y);
}

bool same_bits_or_nan(const std::byte* a, const std::byte* b, DType type) {
  if (std::memcmp(a, b, dtype_size(type)) == 0) return true;
  return type == DType::f32 ? both_nan<float>(a, b) : type == DType::f64 && both_nan<double>(a, b);
}

template <typename Index>
void merges_like_dense_vectors(DType type, Op op, double density, std::uint64_t seed) {
  constexpr std::uint64_t kDimension = 700;
  const std::size_t width = dtype_size(type);
  const FoldFn fold = fold_kernel(type, op);
  std::mt19937_64 random(seed);
  const Stream<Index> a = random_stream<Index>(kDimension, type, density, random);
  const Stream<Index> b = random_stream<Index>(kDimension, type, density * 0.7, random);
  // One byte beyond shows what must stay.
  std::vector<Index> indices(a.indices.size() + b.indices.size() + 1, 77);
  Bytes values((indices.size()) * width, std::byte{0x55});
  const std::size_t count =
      merge_sparse(a.view(kDimension, type), b.view(kDimension, type), op, indices.data(), values.data());
  std::size_t i = 0;
  std::size_t j = 0;
  std::size_t at = 0;
  for (std::uint64_t index = 0; index < kDimension; ++index) {
    const bool in_a = i < a.indices.size() && a.indices[i] == index;
    const bool in_b = j < b.indices.size() && b.indices[j] == index;
    if (!in_a && !in_b) continue;
    Bytes expected(width);
    if (in_a && in_b) {
      const void* inputs[] = {a.values.data() + i * width, b.values.data() + j * width};
      fold(expected.data(), nullptr, inputs, 2, 1);
    } else {
      std::memcpy(expected.data(), in_a ? a.values.data() + i * width : b.values.data() + j * width, width);
    }
    ASSERT_LT(at, count);
    ASSERT_EQ(indices[at], index);
    ASSERT_TRUE(same_bits_or_nan(values.data() + at * width, expected.data(), type)) << "index " << index;
    i += in_a ? 1 : 0;
    j += in_b ? 1 : 0;
    ++at;
  }
  ASSERT_EQ(at, count);
  ASSERT_EQ(indices.back(), 77U);
  ASSERT_EQ(values.back(), std::byte{0x55});
}

TEST(MergeSparse, GivesTheBitsOfTheDenseFold) {
  std::uint64_t seed = 0;
  for (const DType type : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i32, DType::i64}) {
    for (const Op op : {Op::sum, Op::min, Op::max}) {
      for (const double density : {0.0, 0.01, 0.3, 0.9}) {
        SCOPED_TRACE(std::string(dtype_name(type)) + " " + op_name(op) + " " + std::to_string(density));
        ASSERT_NO_FATAL_FAILURE(merges_like_dense_vectors<std::uint32_t>(type, op, density, ++seed));
        ASSERT_NO_FATAL_FAILURE(merges_like_dense_vectors<std::uint64_t>(type, op, density, ++seed));
      }
    }
  }
}

TEST(MergeSparse, NothingAndNothing) {
  const SparseView nothing{10, 0, IndexType::u32, DType::f32, nullptr, nullptr};
  EXPECT_EQ(merge_sparse(nothing, nothing, Op::sum, nullptr, nullptr), 0U);
}

}  // namespace
}  // namespace heddle
