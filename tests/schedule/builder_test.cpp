#include "schedule/builder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

#include "sample_algorithms.hpp"
#include "schedule/cursor.hpp"

namespace heddle {
namespace {

std::uint32_t open_by_counting(const Schedule& s) {
  std::uint32_t open = 0;
  std::uint32_t most = 0;
  for (Cursor c(s); !c.done(); c.advance()) {
    if (c.step().kind == StepKind::send || c.step().kind == StepKind::recv) most = std::max(most, ++open);
    if (c.step().kind == StepKind::wait) open = std::min(open, c.step().count);
  }
  return most;
}

TEST(Builder, EndsWithAWaitForAllUnlessThereIsNothingToWaitFor) {
  const Schedule sends = test::finished(Builder(Collective::bcast, 1).send(1, {0, 1}));
  ASSERT_EQ(sends.steps.size(), 2u);
  EXPECT_EQ(sends.steps.back().kind, StepKind::wait);
  EXPECT_EQ(sends.steps.back().count, 0u);
  EXPECT_EQ(test::finished(Builder(Collective::bcast, 1).send(1, {0, 1}).wait()).steps.size(), 2u);
  EXPECT_EQ(test::finished(Builder(Collective::bcast, 1).send(1, {0, 1}).wait(1)).steps.size(), 3u);
  EXPECT_EQ(test::finished(Builder(Collective::allreduce, 1).copy_input()).steps.size(), 1u);
  EXPECT_TRUE(Builder(Collective::bcast, 1).finish().steps.empty());
}

TEST(Builder, ScratchIsWhatTheStepsAddress) {
  const Schedule s = test::finished(
      Builder(Collective::allreduce, 8).recv_scratch(1, {0, 2}, 3).recv_scratch(1, {2, 5}, 0).wait());
  EXPECT_EQ(s.scratch_units, 4u);
  EXPECT_EQ(s.unit_chunks, 5u);
  EXPECT_EQ(
      test::finished(Builder(Collective::allreduce, 8).recv_scratch(1, {0, 2}).scratch(6)).scratch_units, 6u);
  EXPECT_EQ(test::finished(Builder(Collective::allreduce, 8).recv(1, {0, 8})).scratch_units, 0u);
}

TEST(Builder, RepeatKnowsItsBodyAndVanishesWhenItNeverRuns) {
  const Schedule s =
      test::finished(Builder(Collective::allreduce, 4).copy_input().repeat(3, -1, [](Builder& body) {
        body.send(1, {3, 1}).recv(2, {0, 1}).wait();
      }));
  ASSERT_EQ(s.steps.size(), 5u);
  EXPECT_EQ(s.steps[1].kind, StepKind::repeat);
  EXPECT_EQ(s.steps[1].peer, 3);
  EXPECT_EQ(s.steps[1].count, 3u);
  EXPECT_EQ(s.steps[1].stride(), -1);
  EXPECT_EQ(s.max_open, 2u);
  const auto nothing = [](Builder& body) { body.send(1, {0, 1}); };
  EXPECT_TRUE(test::finished(Builder(Collective::allreduce, 4).repeat(0, 1, nothing)).steps.empty());
}

TEST(Builder, MaxOpenCountsWhatALoopLeavesOpen) {
  const auto body = [](Builder& b) { b.send(1, {0, 1}); };
  EXPECT_EQ(test::finished(Builder(Collective::bcast, 9).repeat(9, 1, body)).max_open, 9u);
  const auto waiting = [](Builder& b) { b.send(1, {0, 1}).wait(2); };
  EXPECT_EQ(test::finished(Builder(Collective::bcast, 9).repeat(9, 1, waiting)).max_open, 3u);
}

TEST(Builder, MaxOpenEqualsCountingOnAnySchedule) {
  for (const test::Sample& sample : test::samples()) {
    for (const Schedule& s : sample.schedules)
      EXPECT_EQ(s.max_open, open_by_counting(s)) << sample.name;
  }
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    Builder b(Collective::bcast, 50);
    const auto some = [&](Builder& to) {
      for (auto n = random() % 5; n > 0; --n) {
        if (random() % 3 == 0) {
          to.wait(static_cast<std::uint32_t>(random() % 6));
        } else {
          to.send(1, {0, 1});
        }
      }
    };
    for (auto n = random() % 4; n > 0; --n) {
      some(b);
      b.repeat(static_cast<std::uint32_t>(random() % 6), 1, some);
    }
    const Schedule s = std::move(b).finish();
    ASSERT_EQ(s.max_open, open_by_counting(s)) << "schedule " << i;
  }
}

TEST(Step, ChunksWrapAroundBothEndsAndFixedOnesStay) {
  Step s{};
  s.chunk = 1;
  EXPECT_EQ(chunk_at(s, -1, 1, 4), 0u);
  EXPECT_EQ(chunk_at(s, -1, 2, 4), 3u);
  EXPECT_EQ(chunk_at(s, 1, 3, 4), 0u);
  EXPECT_EQ(chunk_at(s, -3, 7, 4), 0u);
  s.flags = kFixed;
  EXPECT_EQ(chunk_at(s, 1, 3, 4), 1u);
  s.unit = 2;
  EXPECT_EQ(unit_at(s, 5, 3), 2u);
  s.flags = kRotate;
  EXPECT_EQ(unit_at(s, 5, 3), 1u);
}

TEST(Cursor, RunsRepeatsAndSkipsThoseThatAreEmpty) {
  Schedule s = test::finished(Builder(Collective::bcast, 4)
                                  .repeat(2, 1,
                                          [](Builder& b) {
                                            b.send(1, {0, 1}).send(2, {1, 1}).flag(kFixed);
                                          })
                                  .send(3, {3, 1}));
  std::vector<std::pair<std::int32_t, std::uint32_t>> sends;
  const auto walk = [&] {
    sends.clear();
    for (Cursor c(s); !c.done(); c.advance()) {
      if (c.step().kind == StepKind::send) sends.emplace_back(c.step().peer, c.chunk());
    }
  };
  walk();
  EXPECT_EQ(sends, (decltype(sends){{1, 0}, {2, 1}, {1, 1}, {2, 1}, {3, 3}}));
  s.steps[0].count = 0;
  walk();
  EXPECT_EQ(sends, (decltype(sends){{3, 3}}));
}

}  // namespace
}  // namespace heddle
