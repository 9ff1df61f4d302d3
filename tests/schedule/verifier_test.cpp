#include "schedule/verifier.hpp"

#include <gtest/gtest.h>

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

// A team folds all its members' elements at once, and rounds floats of 8 and 16 bits once: that is not what
// steps by steps give.
TEST(Verifier, TellsAFoldOfSeveralFromOneByOne) {
  const auto verdict_of = [](std::int32_t size) {
    const auto build = [size](std::int32_t rank) {
      Builder b(Collective::allreduce, 1);
      if (rank != 0) b.send(0, {0, 1}, Slot::input).wait();
      for (std::int32_t other = 1; rank == 0 && other < size; ++other)
        b.recv_scratch(other, {0, 1}, static_cast<std::uint32_t>(other - 1)).wait();
      // Member 1 has the team's result, for all but rank 0, which makes its own of the same inputs in the
      // same order.
      b.team(StepKind::team_reduce, Slot::input, 1, {0, 1});
      for (std::int32_t other = 2; rank == 1 && other < size; ++other)
        b.send(other, {0, 1}).wait();
      if (rank > 1) b.recv(1, {0, 1}).wait();
      if (rank == 0) b.copy_input();
      for (std::int32_t other = 1; rank == 0 && other < size; ++other)
        b.reduce({0, 1}, static_cast<std::uint32_t>(other - 1));
      return std::move(b).finish();
    };
    return verify(TopologyView::one_node(size), build).message();
  };
  EXPECT_EQ(verdict_of(2), "") << "two are one by one";
  expect_complaint(verdict_of(3), "its result is a different expression from rank 0's");
}

// A pairwise exchange with a place to go wrong.
Schedule exchange(std::int32_t rank, const std::function<void(Builder&, std::int32_t other)>& body) {
  Builder b(Collective::allreduce, 1);
  body(b, 1 - rank);
  return std::move(b).finish();
}

TEST(Verifier, AcceptsCorrectSchedulesOfManySizes) {
  for (std::int32_t p = 1; p <= 128; ++p) {
    EXPECT_EQ(verdict(p, [p](auto r) { return test::ring(p, r); }), "") << p;
    EXPECT_EQ(verdict(p, [p](auto r) { return test::binomial_bcast(p, r, p / 2); }), "") << p;
    EXPECT_EQ(verdict(p, [p](auto r) { return test::chain_bcast(p, r, 5); }), "") << p;
    if (p > 1) {
      EXPECT_EQ(verify(TopologyView::one_node(p), [](auto) { return test::team_only_allreduce(); }).message(),
                "")
          << p;
    }
    if ((p & (p - 1)) == 0) {
      EXPECT_EQ(verdict(p, [p](auto r) { return test::recursive_doubling(p, r); }), "") << p;
    }
    if (p <= 16) {
      EXPECT_EQ(verdict(p, [p](auto r) { return test::all_to_all_allreduce(p, r); }), "") << p;
    }
  }
}

TEST(Verifier, AcceptsAThousandRanks) {
  const std::int32_t p = 1024;
  EXPECT_EQ(verdict(p, [p](auto r) { return test::ring(p, r); }), "");
  EXPECT_EQ(verdict(p, [p](auto r) { return test::recursive_doubling(p, r); }), "");
  EXPECT_EQ(verdict(p, [p](auto r) { return test::binomial_bcast(p, r, 1000); }), "");
}

TEST(Verifier, SendsWaitForTheirReceive) {
  const auto both_send_first = [](std::int32_t rank) {
    return exchange(rank, [](Builder& b, std::int32_t other) {
      b.copy_input()
          .send(other, {0, 1})
          .wait()
          .recv_scratch(other, {0, 1})
          .wait()
          .reduce({0, 1}, 0, other == 0);
    });
  };
  const std::string got = verdict(2, both_send_first);
  expect_complaint(
      got, "rank 0 step 2: deadlock: waits for its send to rank 1 (chunk 0, lane 0, opened at step 1");
  expect_complaint(got, "1 more ranks are stuck");
}

TEST(Verifier, AMessageWithoutReceiverIsADeadlock) {
  expect_complaint(verdict(2,
                           [](std::int32_t rank) {
                             Builder b(Collective::bcast, 1);
                             if (rank == 0) b.send(1, {0, 1}).send(1, {0, 1});
                             if (rank == 1) b.recv(0, {0, 1});
                             return std::move(b).finish();
                           }),
                   "which that rank never answers");
}

TEST(Verifier, ATeamVerbNeedsTheWholeNode) {
  const auto only_rank_1 = [](std::int32_t rank) {
    Builder b(Collective::allreduce, 1);
    if (rank == 1) b.team(StepKind::team_allreduce, Slot::input, 0, {0, 1});
    return std::move(b).finish();
  };
  expect_complaint(verify(TopologyView::one_node(2), only_rank_1).message(),
                   "rank 1 step 0 chunk 0: deadlock");
  const auto differ = [](std::int32_t rank) {
    return test::finished(
        Builder(Collective::allreduce, 2)
            .team(StepKind::team_allreduce, Slot::input, 0, {static_cast<std::uint32_t>(rank), 1}));
  };
  expect_complaint(verify(TopologyView::one_node(2), differ).message(), "differs from the one that rank");
}

// The engine has none for it, and none of domains where a node is one.
TEST(Verifier, ATeamOfOneHasNoVerbs) {
  const auto with = [](StepKind verb, TeamKind team) {
    return [verb, team](std::int32_t) {
      Builder b(verb == StepKind::team_bcast ? Collective::bcast : Collective::allreduce, 1);
      b.team(verb, verb == StepKind::team_bcast ? Slot::data : Slot::input, 0, {0, 1}, team);
      return std::move(b).finish();
    };
  };
  const TopologyView two = TopologyView::one_node(2);
  for (const StepKind verb :
       {StepKind::team_reduce, StepKind::team_bcast, StepKind::team_allreduce, StepKind::team_allgather}) {
    expect_complaint(verify(TopologyView::flat(2), with(verb, TeamKind::node)).message(),
                     "step 0: a verb of a team of one");
    for (const TeamKind team : {TeamKind::domain, TeamKind::peers}) {
      expect_complaint(verify(two, with(verb, team)).message(),
                       "step 0: a verb of a team of domains on a node of one domain");
    }
    expect_complaint(verify(TopologyView::of_domains({0, 1}), with(verb, TeamKind::domain)).message(),
                     "step 0: a verb of a team of one");
  }
  const auto allreduce = with(StepKind::team_allreduce, TeamKind::node);
  EXPECT_EQ(verify(two, allreduce).message(), "");
  EXPECT_EQ(
      verify(TopologyView::of_domains({0, 1}), with(StepKind::team_allreduce, TeamKind::peers)).message(),
      "");
}

TEST(Verifier, MessagesMustHoldTheSameChunks) {
  expect_complaint(verdict(2,
                           [](std::int32_t rank) {
                             Builder b(Collective::bcast, 4);
                             if (rank == 0) b.send(1, {0, 4});
                             if (rank == 1) b.recv(0, {0, 2}).recv(0, {2, 2});
                             return std::move(b).finish();
                           }),
                   "a message of chunks 0 to 3");
}

TEST(Verifier, FindsRacesWithOpenMessages) {
  const auto with = [](const std::function<void(Builder&, std::int32_t)>& body) {
    return verdict(2, [&](std::int32_t rank) { return exchange(rank, body); });
  };
  expect_complaint(with([](Builder& b, std::int32_t other) {
                     b.copy_input().send(other, {0, 1}).recv(other, {0, 1}).wait();
                   }),
                   "writes data chunk 0 while the send of step 1 iteration 0 reads it");
  expect_complaint(with([](Builder& b, std::int32_t other) {
                     b.recv_scratch(other, {0, 1}).send(other, {0, 1}, Slot::input).copy_input().wait();
                   }),
                   "writes data chunk 0 while the send");
  expect_complaint(with([](Builder& b, std::int32_t other) {
                     b.copy_input().recv_scratch(other, {0, 1}).send(other, {0, 1}).reduce({0, 1}).wait();
                   }),
                   "reads scratch chunk 0 while the receive of step 1 iteration 0 writes it");
  expect_complaint(with([](Builder& b, std::int32_t other) {
                     b.recv(other, {0, 1}).send(other, {0, 1}, Slot::input).wait();
                   }),
                   "reads input chunk 0 while the receive");
}

TEST(Verifier, InputIsGoneOnceDataIsWritten) {
  expect_complaint(
      verdict(2,
              [](std::int32_t rank) {
                return exchange(rank, [](Builder& b, std::int32_t other) {
                  b.copy_input().recv_scratch(other, {0, 1}).send(other, {0, 1}, Slot::input).wait();
                });
              }),
      "in place they are the same memory");
}

TEST(Verifier, NothingIsReadThatWasNeverWritten) {
  expect_complaint(verdict(2,
                           [](std::int32_t rank) {
                             return exchange(rank, [](Builder& b, std::int32_t other) {
                               b.recv_scratch(other, {0, 1}).send(other, {0, 1}).wait();
                             });
                           }),
                   "reads data chunk 0, which was never written");
  // Chunk 1 alone lies at the unit's start, where chunks 0 to 1 hold chunk 0.
  expect_complaint(verdict(2,
                           [](std::int32_t rank) {
                             Builder b(Collective::allreduce, 2);
                             b.copy_input().recv_scratch(1 - rank, {0, 2}).send(1 - rank, {0, 2}).wait();
                             b.reduce({0, 1}).reduce({1, 1});
                             return std::move(b).finish();
                           }),
                   "reads scratch chunk 1 from unit 0, which was never written there");
}

// A unit that got chunk 2 no longer holds what lay there under another first chunk: it lay at other bytes.
TEST(Verifier, ScratchForgetsWhatWasLaidOutDifferently) {
  const auto swap = [](std::int32_t rank) {
    const std::int32_t other = 1 - rank;
    Builder b(Collective::allreduce, 4);
    b.copy_input().recv_scratch(other, {0, 2}).send(other, {0, 2}).wait();
    b.recv_scratch(other, {2, 1}).send(other, {2, 1}).wait().reduce({2, 2});
    return std::move(b).finish();
  };
  expect_complaint(verdict(2, swap), "reads scratch chunk 3 from unit 0, which was never written there");
}

TEST(Verifier, EveryContributionCountsOnce) {
  const auto fold = [](int times) {
    return verdict(2, [times](std::int32_t rank) {
      return exchange(rank, [times](Builder& b, std::int32_t other) {
        b.copy_input().recv_scratch(other, {0, 1}).send(other, {0, 1}).wait();
        for (int i = 0; i < times; ++i)
          b.reduce({0, 1}, 0, other == 0);
      });
    });
  };
  EXPECT_EQ(fold(1), "");
  expect_complaint(fold(0), "rank 1 chunk 0: its result is a different expression from rank 0's");
  const auto twice = [](std::int32_t) {
    return test::finished(Builder(Collective::allreduce, 1)
                              .team(StepKind::team_allreduce, Slot::input, 0, {0, 1})
                              .team(StepKind::team_allreduce, Slot::data, 0, {0, 1}));
  };
  expect_complaint(verify(TopologyView::one_node(2), twice).message(), "4 contributions of 2 ranks");
  const auto one_missing = [](std::int32_t rank) {
    Builder b(Collective::allreduce, 1);
    b.copy_input();
    if (rank == 0) b.send(1, {0, 1});
    if (rank == 1) b.recv(0, {0, 1});
    return std::move(b).finish();
  };
  expect_complaint(verdict(2, one_missing), "the contribution of rank 1 occurs 0 times");
}

TEST(Verifier, AllRanksFoldAlikeAndInOrderWherePromised) {
  const auto fold = [](bool alike, bool promise, bool reversed) {
    return verdict(2, [=](std::int32_t rank) {
      return exchange(rank, [=](Builder& b, std::int32_t other) {
        b.copy_input().recv_scratch(other, {0, 1}).send(other, {0, 1}).wait();
        b.reduce({0, 1}, 0, alike && (other == 0) != reversed);
        if (promise) b.in_order();
      });
    });
  };
  EXPECT_EQ(fold(true, true, false), "");
  expect_complaint(fold(false, false, false), "different expression");
  EXPECT_EQ(fold(true, false, true), "");
  expect_complaint(fold(true, true, true), "promises rank order");
}

TEST(Verifier, BcastEndsWithTheRootsValueEverywhere) {
  const auto forgets_last = [](std::int32_t rank) {
    Schedule s = test::binomial_bcast(4, rank, 0);
    if (rank == 2) s.steps.pop_back();
    return s;
  };
  expect_complaint(verdict(4, forgets_last), "ends while 1 operations are open");
  expect_complaint(verdict(3,
                           [](std::int32_t rank) {
                             Builder b(Collective::bcast, 1);
                             if (rank == 0) b.send(1, {0, 1});
                             if (rank == 1) b.recv(0, {0, 1});
                             return std::move(b).finish();
                           }),
                   "rank 2 chunk 0: has no result");
  expect_complaint(
      verdict(1, [](std::int32_t) { return test::finished(Builder(Collective::bcast, 1).copy_input()); }),
      "input, which bcast does not have");
}

TEST(Verifier, StructureIsSound) {
  const auto with = [](const std::function<void(Schedule&)>& damage) {
    return verdict(3, [&](std::int32_t rank) {
      Schedule s = test::ring(3, rank);
      if (rank == 1) damage(s);
      return s;
    });
  };
  EXPECT_EQ(with([](Schedule&) {}), "");
  expect_complaint(with([](Schedule& s) { s.steps[1].peer = 90; }),
                   "rank 1 step 1: a repeat of 90 steps, but 8 follow");
  expect_complaint(with([](Schedule& s) { s.steps[1].peer = 7; }), "a repeat inside a repeat");
  expect_complaint(with([](Schedule& s) { s.steps[2].peer = 3; }), "there is no rank 3");
  expect_complaint(with([](Schedule& s) { s.steps[2].peer = 1; }), "a message to itself");
  expect_complaint(with([](Schedule& s) { s.steps[2].count = 0; }), "an empty chunk range");
  expect_complaint(with([](Schedule& s) { s.steps[2].count = 3; }),
                   "rank 1 step 2 iteration 0 chunks 0 to 2");
  expect_complaint(with([](Schedule& s) { s.steps[2].unit = 1; }),
                   "scratch unit 1 is out of range: there are 1");
  expect_complaint(with([](Schedule& s) { s.steps[2].dst = Slot::input; }), "writes input");
  expect_complaint(with([](Schedule& s) { s.steps[5].dst = Slot::scratch; }), "the same memory");
  expect_complaint(with([](Schedule& s) { s.steps[5].flags = 8; }), "unknown flags 8");
  expect_complaint(with([](Schedule& s) { s.max_open = 1; }), "max_open says 1, but 2 operations were open");
  expect_complaint(with([](Schedule& s) { s.max_open = 3; }), "max_open says 3, but 2 operations were open");
  expect_complaint(with([](Schedule& s) { s.chunks = 4; }), "disagree on the number of chunks");
  expect_complaint(with([](Schedule& s) { s.in_order = true; }), "disagree on whether");
  expect_complaint(with([](Schedule& s) { s.collective = Collective::bcast; }), "disagree on the collective");
  expect_complaint(with([](Schedule& s) { s.root = 1; }), "disagree on the root");
}

TEST(Verifier, ChunkRangesNeverWrap) {
  const auto copies = [](std::int32_t) {
    Builder b(Collective::allreduce, 3);
    return test::finished(b.repeat(2, 2, [](Builder& body) { body.copy_input({0, 2}); }));
  };
  expect_complaint(verdict(1, copies),
                   "rank 0 step 1 iteration 1 chunks 2 to 3: chunks 2 to 3 are out of range: there are 3");
}

TEST(Verifier, ABarrierIsAnAllreduceOfNothing) {
  const auto barrier = [](std::int32_t rank) {
    Schedule s = test::recursive_doubling(8, rank);
    s.collective = Collective::barrier;
    return s;
  };
  EXPECT_EQ(verdict(8, barrier), "");
  const auto misses_some = [&](std::int32_t rank) {
    Schedule s = test::recursive_doubling(4, rank & 3);
    s.collective = Collective::barrier;
    for (Step& step : s.steps)
      step.peer += rank & 4;
    return s;
  };
  EXPECT_NE(verdict(8, misses_some), "");
}

}  // namespace
}  // namespace heddle
