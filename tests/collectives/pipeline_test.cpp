#include "collectives/pipeline.hpp"

#include <gtest/gtest.h>

#include "collectives/trees.hpp"
#include "schedule/cursor.hpp"

namespace heddle {
namespace {

using Iteration = Pipeline::Iteration;

// What a schedule does, step by step, with its repeats unrolled: kind, chunk, and what a wait leaves open.
std::vector<std::vector<std::int64_t>> trace(const Schedule& schedule) {
  std::vector<std::vector<std::int64_t>> result;
  for (Cursor cursor(schedule); !cursor.done(); cursor.advance()) {
    const Step& step = cursor.step();
    const bool scratch =
        step.kind == StepKind::reduce || (step.kind == StepKind::recv && step.dst == Slot::scratch);
    result.push_back({static_cast<std::int64_t>(step.kind),
                      step.kind == StepKind::wait ? step.count : cursor.chunk(),
                      scratch ? cursor.unit() : 0});
  }
  return result;
}

// Receive into one of three units two ahead, fold, pass on.
Schedule piped(std::uint32_t pieces) {
  const auto chunk = [](Iteration i) { return Chunks{static_cast<std::uint32_t>(i), 1}; };
  const auto unit = [](Iteration i) { return static_cast<std::uint32_t>(i % 3); };
  Builder b(Collective::allreduce, pieces);
  b.scratch(3).copy_input();
  Pipeline p(1);
  const int recv = p.open(
      {-2, Iteration{pieces} - 2},
      [&](Builder& to, Iteration i) { to.recv_scratch(1, chunk(i + 2), unit(i + 2)); }, true);
  p.wait_for({{recv, 2}});
  p.act(
      {0, pieces}, [&](Builder& to, Iteration i) { to.reduce(chunk(i), unit(i)); }, true);
  p.open({0, pieces}, [&](Builder& to, Iteration i) { to.send(2, chunk(i)); });
  p.emit(b);
  return std::move(b).finish();
}

// The same, one iteration after the other, counting what is open.
Schedule straight(std::uint32_t pieces) {
  Builder b(Collective::allreduce, pieces);
  b.scratch(3).copy_input();
  std::vector<std::int64_t> opened;  // piece of each receive, -1 for sends
  for (Iteration i = -2; i < Iteration{pieces}; ++i) {
    if (i + 2 < Iteration{pieces}) {
      b.recv_scratch(1, {static_cast<std::uint32_t>(i + 2), 1}, static_cast<std::uint32_t>((i + 2) % 3));
      opened.push_back(i + 2);
    }
    if (i < 0) continue;
    std::uint32_t after = 0;
    for (std::size_t k = opened.size(); opened[k - 1] != i; --k)
      ++after;
    b.wait(after).reduce({static_cast<std::uint32_t>(i), 1}, static_cast<std::uint32_t>(i % 3));
    b.send(2, {static_cast<std::uint32_t>(i), 1});
    opened.push_back(-1);
  }
  return std::move(b).finish();
}

TEST(Pipeline, RollsWhatALoopWouldWrite) {
  for (std::uint32_t pieces = 1; pieces <= 40; ++pieces) {
    EXPECT_EQ(trace(piped(pieces)), trace(straight(pieces))) << pieces << " pieces";
    EXPECT_LE(piped(pieces).steps.size(), 30U);
  }
}

TEST(Pipeline, OfNothingWritesNothing) {
  Pipeline p(1);
  p.open({3, 3}, [](Builder& to, Iteration) { to.send(1, {0, 1}); });
  p.wait_for({{0, 1}});
  Builder b(Collective::bcast, 1);
  p.emit(b);
  EXPECT_TRUE(std::move(b).finish().steps.empty());
}

TEST(Trees, InOrderTreeLinksAgreeAndKeepRuns) {
  for (std::int32_t size = 1; size <= 200; ++size) {
    for (std::int32_t node = 1; node <= size; ++node) {
      const InOrderPlace at = in_order_place(size, node);
      EXPECT_EQ(at.parent < 0, node == in_order_root(size));
      EXPECT_LE(at.depth, in_order_height(size));
      EXPECT_TRUE(node % 2 == 0 || (at.left < 0 && at.right < 0));
      for (const std::int32_t child : {at.left, at.right}) {
        if (child < 0) continue;
        EXPECT_EQ(in_order_place(size, child).parent, node);
        EXPECT_EQ(in_order_place(size, child).depth, at.depth + 1);
      }
      EXPECT_LT(at.left, node);
      EXPECT_TRUE(at.right < 0 || at.right > node);
    }
  }
}

TEST(Trees, KnomialSubtreesAreRunsThatCoverAll) {
  for (const std::int32_t radix : {2, 3, 4, 7}) {
    for (std::int32_t size = 1; size <= 100; ++size) {
      for (std::int32_t v = 0; v < size; ++v) {
        const KnomialPlace place = knomial_place(size, v, radix);
        std::int32_t next = v + 1;
        for (const auto& level : place.children) {
          for (const std::int32_t child : level) {
            EXPECT_EQ(child, next);
            EXPECT_EQ(knomial_place(size, child, radix).parent, v);
            next += knomial_place(size, child, radix).subtree;
          }
        }
        EXPECT_EQ(next, v + place.subtree);
      }
      EXPECT_EQ(knomial_place(size, 0, radix).subtree, size);
    }
  }
}

// Everybody hands on once in each unit of time: the last one has it when it can first have reached so many.
TEST(Trees, PostalTreesReachAllAsEarlyAsPossible) {
  for (const std::int32_t delay : {1, 2, 3, 7}) {
    std::vector<std::int32_t> reached(static_cast<std::size_t>(delay), 1);
    for (std::int32_t size = 1; size <= 200; ++size) {
      if (reached.back() < size)
        reached.push_back(reached.back() + reached[reached.size() - static_cast<std::size_t>(delay)]);
      std::vector<std::int32_t> at(static_cast<std::size_t>(size), -1);
      at[0] = 0;
      std::int32_t last = 0;
      for (std::int32_t v = 0; v < size; ++v) {
        const PostalPlace place = postal_place(size, v, delay);
        std::int32_t now = at[static_cast<std::size_t>(v)];
        ASSERT_GE(now, 0) << "a parent has a lower number";
        for (const std::int32_t child : place.children) {
          EXPECT_EQ(postal_place(size, child, delay).parent, v);
          at[static_cast<std::size_t>(child)] = now++ + delay;
          last = std::max(last, at[static_cast<std::size_t>(child)]);
        }
      }
      EXPECT_EQ(last, size == 1 ? 0 : static_cast<std::int32_t>(reached.size()) - 1) << size << ", " << delay;
    }
  }
}

}  // namespace
}  // namespace heddle
