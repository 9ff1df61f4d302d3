// The lent point-to-point functions, with a double of the host MPI.
#include "transports/mpi/mpi_transport.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/ranks.hpp"
#include "support/worlds.hpp"

namespace heddle::test {
namespace {

TEST(MpiTransport, EveryRequestIsClosed) {
  LoopbackOptions options;
  options.eager_bytes = 16;
  MpiWorld world(2, options);
  run_ranks(2, [&](Rank& me) {
    Transport& t = world.of(me.rank);
    for (std::uint32_t round = 0; round < 500; ++round) {
      std::vector<int> out(round % 9, me.rank);
      std::vector<int> in(round % 9);
      Ticket tickets[2];
      ASSERT_TRUE(t.send(1 - me.rank, round, out.data(), out.size() * 4, tickets[0]).ok());
      ASSERT_TRUE(t.recv(1 - me.rank, round, in.data(), in.size() * 4, tickets[1]).ok());
      me.until([&] {
        EXPECT_TRUE(t.progress().ok());
        return tickets[0].done && tickets[1].done;
      });
      ASSERT_EQ(in, std::vector<int>(round % 9, 1 - me.rank));
    }
  });
  for (const auto& lender : world.lenders) {
    EXPECT_EQ(lender->opened, 1000);
    EXPECT_EQ(lender->closed, 1000);
    EXPECT_EQ(lender->releases, 0);
  }
}

TEST(MpiTransport, TagsStayBelowWhatMpiGuarantees) {
  LoopbackOptions options;
  MpiWorld world(2, options);
  int value = 5;
  int in = 0;
  Ticket send;
  Ticket recv;
  ASSERT_TRUE(world.of(0).send(1, 1U << 20 | 3U, &value, 4, send).ok());
  ASSERT_TRUE(world.of(1).recv(0, 1U << 20 | 3U, &in, 4, recv).ok());
  EXPECT_LT(world.lenders[0]->largest_tag, 32768);
  EXPECT_LT(world.lenders[1]->largest_tag, 32768);
  while (!recv.done || !send.done) {
    ASSERT_TRUE(world.of(1).progress().ok());
    ASSERT_TRUE(world.of(0).progress().ok());
  }
  EXPECT_EQ(in, 5);
}

TEST(MpiTransport, TheHostsErrorsArePeerFailures) {
  LoopbackOptions options;
  options.eager_bytes = 0;
  MpiWorld world(2, options);
  int value = 5;
  Ticket send;
  ASSERT_TRUE(world.of(0).send(1, 3, &value, 4, send).ok());
  world.lenders[0]->fail_tests = true;
  EXPECT_EQ(world.of(0).progress().code(), Code::peer_failed);
  world.of(0).cancel(send);
  world.lenders[0]->fail_sends = true;
  Ticket second;
  const Status status = world.of(0).send(1, 3, &value, 4, second);
  EXPECT_EQ(status.code(), Code::peer_failed);
  EXPECT_NE(status.message().find("rank 1"), std::string::npos);
  EXPECT_EQ(world.lenders[0]->opened, world.lenders[0]->closed);
}

// What a message that was given up may still do is said of the first alone, whose rank is in trouble.
TEST(MpiTransport, WhatTheHostDoesNotLetGoOfIsToldOfItsRank) {
  LoopbackOptions options;
  options.eager_bytes = 0;
  const std::string says = "the host MPI has not let go of a message ";
  for (const bool sends : {true, false}) {
    MpiWorld world(3, options);
    Transport& zero = world.of(0);
    int value = 5;
    const auto give_up = [&](int peer) {
      Ticket ticket;
      ASSERT_TRUE(
          (sends ? zero.send(peer, 3, &value, 4, ticket) : zero.recv(peer, 3, &value, 4, ticket)).ok());
      zero.cancel(ticket);
    };
    give_up(1);
    EXPECT_EQ(zero.trouble(1), "");
    world.lenders[0]->holds_cancelled = true;
    give_up(2);
    give_up(1);
    EXPECT_EQ(zero.trouble(1), "");
    EXPECT_EQ(zero.trouble(2),
              says + (sends ? "to rank 2 that was given up: it may still read its buffer"
                            : "from rank 2 that was given up: it may still write to its buffer"));
  }
}

TEST(MpiTransport, CancelClosesTheRequestOnce) {
  LoopbackOptions options;
  MpiWorld world(2, options);
  int in = 0;
  Ticket recv;
  ASSERT_TRUE(world.of(1).recv(0, 3, &in, 4, recv).ok());
  world.of(1).cancel(recv);
  world.of(1).cancel(recv);
  EXPECT_EQ(world.lenders[1]->closed, 1);
  EXPECT_TRUE(world.of(1).progress().ok());
}

}  // namespace
}  // namespace heddle::test
