// Sums by a plan beside fold_sparse itself, over results of many blocks.
#include "sparse/fold_plan.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sparse/merge.hpp"
#include "sparse/streams.hpp"

namespace heddle::test {
namespace {

TEST(FoldPlan, GivesTheBitsOfAFold) {
  std::mt19937_64 random(5);
  for (const DType type : {DType::f32, DType::f64, DType::i32, DType::i64, DType::f16, DType::bf16}) {
    for (const std::size_t ranks : {1U, 2U, 5U}) {
      SCOPED_TRACE(std::string(dtype_name(type)) + ", " + std::to_string(ranks));
      std::vector<TestStream> streams;
      std::vector<SparseView> views;
      std::size_t entries = 0;
      for (std::size_t r = 0; r < ranks; ++r) {
        const auto pattern = r % 3 == 2 ? Pattern::clustered : Pattern::uniform;
        streams.push_back(
            random_stream(pattern, 20'000, IndexType::u32, type, Values::any_bits, 3000 + 500 * r, random));
        entries += streams.back().indices.size();
      }
      for (const TestStream& s : streams)
        views.push_back(s.view());
      const std::size_t width = dtype_size(type);
      Bytes indices(entries * 4);
      Bytes expected(entries * width);
      SparseView result = views[0];
      result.count = fold_sparse(views, Op::sum, indices.data(), expected.data());
      result.indices = indices.data();
      const FoldPlan plan(views, result);
      for (int again = 0; again < 2; ++again) {
        std::vector<const void*> values;
        for (TestStream& s : streams) {
          for (std::size_t i = 0; i < s.indices.size(); ++i)
            random_value(type, Values::any_bits, random, s.values.data() + i * width);
          values.push_back(s.values.data());
        }
        ASSERT_EQ(fold_sparse(views, Op::sum, indices.data(), expected.data()), result.count);
        Bytes sums(result.count * width);
        plan.sum(values, sums.data());
        for (std::size_t i = 0; i < result.count; ++i)
          ASSERT_TRUE(same_value(type, sums.data() + i * width, expected.data() + i * width))
              << "entry " << i;
      }
    }
  }
}

}  // namespace
}  // namespace heddle::test
