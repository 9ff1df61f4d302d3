#include "schedule/dump.hpp"

#include <gtest/gtest.h>

#include <utility>

#include "sample_algorithms.hpp"
#include "schedule/builder.hpp"

namespace heddle {
namespace {

TEST(Dump, ShowsARolledRing) {
  EXPECT_EQ(dump(test::ring(4, 1)),
            "allreduce, chunks 4, scratch 1 x 1 chunks, at most 2 open\n"
            "   0  copy             0..3       data = input\n"
            "   1  repeat 3 times, stride -1\n"
            "   2    recv           0-i        scratch[0] <- rank 0\n"
            "   3    send           1-i        data -> rank 2\n"
            "   4    wait for all\n"
            "   5    reduce         0-i        data = scratch[0] op data\n"
            "   6  repeat 3 times, stride -1\n"
            "   7    recv           1-i        data <- rank 0\n"
            "   8    send           2-i        data -> rank 2\n"
            "   9    wait for all\n");
}

TEST(Dump, NamesEveryKindSlotAndFlag) {
  Builder b(Collective::allreduce, 2);
  b.in_order();
  b.team(StepKind::team_reduce, Slot::input, 1, {0, 2}).team(StepKind::team_bcast, Slot::data, 1, {0, 2});
  b.team(StepKind::team_allreduce, Slot::data, 0, {1, 1});
  b.send(3, {0, 1}, Slot::input, 5).recv_scratch(2, {0, 1}, 1, 15).wait(1).reduce({0, 1}, 1);
  b.repeat(2, 1, [](Builder& body) {
    body.recv_scratch(2, {0, 1}, 1).flag(kRotate).recv(2, {1, 1}).flag(kFixed).wait();
  });
  EXPECT_EQ(dump(std::move(b).finish()),
            "allreduce, chunks 2, scratch 2 x 1 chunks, at most 3 open, in rank order\n"
            "   0  team_reduce      0..1       data of member 1 = fold of input\n"
            "   1  team_bcast       0..1       data = data of member 1\n"
            "   2  team_allreduce   1          data = fold of data\n"
            "   3  send             0          input -> rank 3 lane 5\n"
            "   4  recv             0          scratch[1] <- rank 2 lane 15\n"
            "   5  wait until 1 open\n"
            "   6  reduce           0          data = data op scratch[1]\n"
            "   7  repeat 2 times, stride 1\n"
            "   8    recv           0+i        scratch[1+i] <- rank 2\n"
            "   9    recv           1          data <- rank 2\n"
            "  10    wait for all\n");
}

TEST(Dump, NamesTheTeam) {
  Builder b(Collective::allreduce, 1);
  b.team(StepKind::team_reduce, Slot::input, 1, {0, 1}, TeamKind::domain);
  b.team(StepKind::team_allreduce, Slot::data, 0, {0, 1}, TeamKind::peers);
  EXPECT_EQ(dump(std::move(b).finish()),
            "allreduce, chunks 1, scratch 0 x 0 chunks, at most 0 open\n"
            "   0  team_reduce      0          data of member 1 = fold of input in the domain\n"
            "   1  team_allreduce   0          data = fold of data among peers\n");
}

TEST(Dump, SaysThatATeamGathers) {
  Builder b(Collective::allgather, 4);
  b.team(StepKind::team_allgather, Slot::data, 0, {2, 2}).repeat(2, -1, [](Builder& body) {
    body.team(StepKind::team_allgather, Slot::data, 0, {2, 2}, TeamKind::domain);
  });
  EXPECT_EQ(dump(std::move(b).finish()),
            "allgather, chunks 4, scratch 0 x 0 chunks, at most 0 open\n"
            "   0  team_allgather   2..3       data = a chunk of each member's\n"
            "   1  repeat 2 times, stride -1\n"
            "   2    team_allgather 2..3-i     data = a chunk of each member's in the domain\n");
}

TEST(Dump, NamesTheRoot) {
  EXPECT_EQ(dump(test::finished(Builder(Collective::reduce, 1).root(2))),
            "reduce to rank 2, chunks 1, scratch 0 x 0 chunks, at most 0 open\n");
  EXPECT_EQ(dump(test::finished(Builder(Collective::bcast, 1).root(3))),
            "bcast from rank 3, chunks 1, scratch 0 x 0 chunks, at most 0 open\n");
}

}  // namespace
}  // namespace heddle
