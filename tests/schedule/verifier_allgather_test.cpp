// What the verifier proves of allgathers, and what it says of those that are none.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "sample_algorithms.hpp"
#include "schedule/builder.hpp"
#include "verdicts.hpp"

namespace heddle {
namespace {

using test::expect_complaint;
using test::verdict;

// By the team of one node, then damaged.
std::string gathered(std::int32_t size, const std::function<void(Schedule&, std::int32_t rank)>& damage) {
  const auto chunks = static_cast<std::uint32_t>(size);
  return verify(TopologyView::one_node(size),
                [&](std::int32_t rank) {
                  Schedule s =
                      test::finished(Builder(Collective::allgather, chunks)
                                         .team(StepKind::team_allgather, Slot::data, 0, {0, chunks}));
                  damage(s, rank);
                  return s;
                })
      .message();
}

TEST(VerifierOfAllgathers, AnAllgatherHasAChunkForEachRank) {
  EXPECT_EQ(gathered(3, [](Schedule&, std::int32_t) {}), "");
  expect_complaint(gathered(3, [](Schedule& s, std::int32_t) { s.chunks = 4; }),
                   "rank 0: an allgather among 3 ranks of 4 chunks");
  const auto sum = [](std::int32_t) {
    return test::finished(
        Builder(Collective::allreduce, 2).copy_input().team(StepKind::team_allgather, Slot::data, 0, {0, 2}));
  };
  expect_complaint(verify(TopologyView::one_node(2), sum).message(),
                   "step 1: a team_allgather in another collective, whose chunks may differ in length");
}

TEST(VerifierOfAllgathers, ATeamGathersAChunkOfEachMember) {
  const auto with = [](const std::function<void(Step&, std::int32_t rank)>& damage) {
    return gathered(3, [&](Schedule& s, std::int32_t rank) { damage(s.steps[0], rank); });
  };
  expect_complaint(with([](Step& step, std::int32_t) { step.src = Slot::input; }),
                   "rank 0 step 0: a team_allgather that is not of data");
  expect_complaint(gathered(3,
                            [](Schedule& s, std::int32_t) {
                              s.scratch_units = 1;
                              s.unit_chunks = 3;
                              s.steps[0].dst = Slot::scratch;
                            }),
                   "rank 0 step 0: a team_allgather that is not of data");
  expect_complaint(with([](Step& step, std::int32_t) { step.count = 2; }),
                   "rank 0 step 0: a team_allgather of 2 chunks in a team of 3");
  expect_complaint(with([](Step& step, std::int32_t) { step.chunk = 1; }), "are out of range: there are 3");
  expect_complaint(with([](Step& step, std::int32_t rank) { step.peer = rank == 1 ? 1 : 0; }),
                   "rank 1 step 0 chunks 0 to 2: its team verb differs from the one that rank 2");
}

// Of two nodes' verbs: what rank r names first is `firsts[r]`.
std::string gathered_by_halves(const std::array<std::uint32_t, 4>& firsts) {
  return verify(TopologyView({{0, 0, 1, 1}}),
                [&](std::int32_t rank) {
                  return test::finished(Builder(Collective::allgather, 4)
                                            .team(StepKind::team_allgather, Slot::data, 0,
                                                  {firsts[static_cast<std::size_t>(rank)], 2}));
                })
      .message();
}

TEST(VerifierOfAllgathers, AMemberGivesWhatItHasWhereAllLookForIt) {
  expect_complaint(gathered_by_halves({0, 0, 2, 2}), "rank 2 chunk 0: has no result");
  expect_complaint(gathered_by_halves({1, 0, 2, 2}),
                   "rank 0 step 0 chunks 1 to 2: its team verb differs from the one that rank 1");
  expect_complaint(gathered_by_halves({2, 2, 0, 0}),
                   "rank 3 step 0 chunks 0 to 1: reads data chunk 1, which was never written there");
}

TEST(VerifierOfAllgathers, AVerbTouchesNothingThatAMessageHas) {
  const TopologyView halves({{0, 0, 1, 1}});
  // Of rank 0: `open` before its verb.
  const auto with = [&](const std::function<void(Builder&)>& open) {
    return verify(halves,
                  [&](std::int32_t rank) {
                    Builder b(Collective::allgather, 4);
                    if (rank == 0) open(b);
                    b.team(StepKind::team_allgather, Slot::data, 0, {rank < 2 ? 0U : 2U, 2});
                    return std::move(b).finish();
                  })
        .message();
  };
  expect_complaint(with([](Builder& b) {
                     b.recv(2, {1, 1});
                   }),
                   "rank 0 step 1 chunks 0 to 1: writes data chunk 1 while the receive of step 0 iteration 0 "
                   "writes it");
  expect_complaint(with([](Builder& b) {
                     b.recv(2, {0, 1});
                   }),
                   "reads data chunk 0 while the receive of step 0 iteration 0 writes it");
  // Another node's part may be on its way, and what this rank gives be sent.
  expect_complaint(with([](Builder& b) {
                     b.send(2, {0, 1}).recv(2, {2, 1});
                   }),
                   "which that rank never answers");
}

TEST(VerifierOfAllgathers, AnAllgatherStartsFromDataAlone) {
  const auto with = [](const std::function<void(Builder&, std::int32_t)>& body) {
    return verdict(2, [&](std::int32_t rank) {
      Builder b(Collective::allgather, 2);
      body(b, rank);
      return std::move(b).finish();
    });
  };
  const auto swap = [](Builder& b, std::int32_t rank, Slot from) {
    const auto own = static_cast<std::uint32_t>(rank);
    b.recv(1 - rank, {1 - own, 1}).send(1 - rank, {own, 1}, from).wait();
  };
  EXPECT_EQ(with([&](Builder& b, std::int32_t rank) { swap(b, rank, Slot::data); }), "");
  expect_complaint(with([&](Builder& b, std::int32_t rank) { swap(b, rank, Slot::input); }),
                   "reads input, which allgather does not have: what it starts from is in data");
  expect_complaint(with([&](Builder& b, std::int32_t rank) {
                     swap(b, rank, Slot::data);
                     b.recv_scratch(1 - rank, {0, 1}).send(1 - rank, {0, 1}).wait().reduce({0, 1});
                   }),
                   "step 6: a reduction in an allgather");
  expect_complaint(with([](Builder&, std::int32_t) {}), "rank 1 chunk 0: has no result");
}

}  // namespace
}  // namespace heddle
