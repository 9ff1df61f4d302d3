// Every algorithm of the catalog proved by the verifier: all sizes to 128 and a sample to 1,024.
#include <gtest/gtest.h>

#include "cases.hpp"
#include "schedule/verifier.hpp"

namespace heddle::test {
namespace {

class Proof : public testing::TestWithParam<Algorithm> {
 protected:
  void prove(std::int32_t size, const std::vector<std::int32_t>& radices,
             const std::vector<std::uint32_t>& chunks) {
    for (const TopologyView& topology : topologies_of(GetParam(), size)) {
      for (const Shape& shape : shapes_of(GetParam(), size, radices, chunks)) {
        ASSERT_EQ(defect(GetParam(), topology, shape), "");
      }
    }
  }
};

TEST_P(Proof, SmallSizes) {
  for (std::int32_t size = 1; size <= 64 && !HasFatalFailure(); ++size)
    prove(size, {2, 3, 4, 7}, {0, 1, 2, 3, 4, 8});
}

TEST_P(Proof, MediumSizes) {
  for (std::int32_t size = 65; size <= 128 && !HasFatalFailure(); ++size)
    prove(size, {2, 3, 4, 7}, {1, 2, 3, 8});
}

TEST_P(Proof, SampleOfLargeSizes) {
  for (const std::int32_t size : {129, 255, 256, 257, 500, 512, 1000, 1023, 1024}) {
    if (!HasFatalFailure()) prove(size, {2, 4}, {1, 2, 3});
  }
}

// Many pieces: the pipelines reach and leave their steady state.
TEST_P(Proof, LongPipelines) {
  for (const std::int32_t size : {2, 3, 5, 8, 21, 32}) {
    if (!HasFatalFailure()) prove(size, {2}, {16, 33, 100});
  }
}

// What is chosen is what is proved: also the shapes that the catalog suggests itself.
TEST_P(Proof, SuggestedShapes) {
  for (const std::int32_t size : {1, 2, 3, 7, 16}) {
    for (const TopologyView& topology : topologies_of(GetParam(), size)) {
      for (const std::size_t bytes :
           {std::size_t{0}, std::size_t{4}, std::size_t{100000}, std::size_t{1} << 24}) {
        const std::vector<Shape> shapes = GetParam().shapes(topology, bytes);
        EXPECT_FALSE(shapes.empty());
        for (const Shape& shape : shapes) {
          EXPECT_EQ(shape.root, 0);
          ASSERT_EQ(defect(GetParam(), topology, shape), "");
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Catalog, Proof, testing::ValuesIn(algorithms()),
                         [](const auto& param) { return case_name(param.param); });

}  // namespace
}  // namespace heddle::test
