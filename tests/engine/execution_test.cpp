// The executor itself: restart, interleaving, giving up, errors.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/payload.hpp"
#include "schedule/builder.hpp"
#include "select/catalog.hpp"
#include "support/ranks.hpp"
#include "support/schedule_world.hpp"

namespace heddle::test {
namespace {

using Bytes = std::vector<std::byte>;

std::shared_ptr<const Schedule> schedule_of(const char* name, const TopologyView& topology, int rank,
                                            Shape shape = {}) {
  return std::make_shared<const Schedule>(
      find_algorithm(Collective::allreduce, name)->build(topology, rank, shape));
}

Binding in_place(Bytes& data, std::uint32_t sequence) {
  Binding b;
  b.data = data.data();
  b.input = data.data();
  b.element_bytes = 8;
  b.count = data.size() / 8;
  b.fold = payload_fold(Payload::integers);
  b.sequence = sequence;
  return b;
}

ScheduleWorld flat_world(int ranks, LoopbackOptions options = {}) {
  return ScheduleWorld(TopologyView::flat(ranks), std::make_unique<LoopbackWorld>(ranks, options));
}

TEST(Execution, IsRestartedWithOtherSizes) {
  ScheduleWorld world = flat_world(5);
  std::vector<std::unique_ptr<Execution>> ranks;
  std::vector<Execution*> all;
  for (int r = 0; r < 5; ++r) {
    ranks.push_back(std::make_unique<Execution>(schedule_of("ring", world.topology(), r), world.of(r)));
    all.push_back(ranks.back().get());
  }
  std::uint32_t sequence = 0;
  for (const std::size_t count : {100, 3, 0, 5000, 100}) {
    std::vector<Bytes> data;
    for (int r = 0; r < 5; ++r)
      data.push_back(contribution_of(Payload::integers, ++sequence, r, count));
    std::uint32_t s = sequence - 5;
    for (int r = 0; r < 5; ++r) {
      data[static_cast<std::size_t>(r)] = contribution_of(Payload::integers, s, r, count);
      ASSERT_TRUE(
          ranks[static_cast<std::size_t>(r)]->start(in_place(data[static_cast<std::size_t>(r)], s)).ok());
    }
    const Status status = drive(all, sequence);
    ASSERT_TRUE(status.ok()) << status.message();
    for (const Bytes& d : data)
      ASSERT_EQ(d, folded(Payload::integers, s, 5, count));
    for (const auto& e : ranks)
      EXPECT_FALSE(e->active());
  }
}

TEST(Execution, TwoAtOnceKeepTheirMessagesApart) {
  for (const std::size_t eager : {std::size_t{0}, SIZE_MAX}) {
    LoopbackOptions options;
    options.eager_bytes = eager;
    options.max_delay = 3;
    ScheduleWorld world = flat_world(4, options);
    const char* names[] = {"ring", "recursive_doubling", "rabenseifner", "ring"};
    std::vector<std::unique_ptr<Execution>> owned;
    std::vector<Execution*> all;
    std::vector<Bytes> data(16);
    for (std::uint32_t k = 0; k < 4; ++k) {
      for (int r = 0; r < 4; ++r) {
        Bytes& d = data[k * 4 + static_cast<std::size_t>(r)];
        d = contribution_of(Payload::integers, k, r, 50);
        owned.push_back(std::make_unique<Execution>(schedule_of(names[k], world.topology(), r), world.of(r)));
        ASSERT_TRUE(owned.back()->start(in_place(d, k)).ok());
        all.push_back(owned.back().get());
      }
    }
    const Status status = drive(all, 5);
    ASSERT_TRUE(status.ok()) << status.message();
    for (std::uint32_t k = 0; k < 4; ++k) {
      for (std::size_t r = 0; r < 4; ++r)
        ASSERT_EQ(data[k * 4 + r], folded(Payload::integers, k, 4, 50));
    }
  }
}

TEST(Execution, AbandonedItTouchesNothingAnyMore) {
  for (const std::size_t eager : {std::size_t{0}, SIZE_MAX}) {
    LoopbackOptions options;
    options.eager_bytes = eager;
    ScheduleWorld world = flat_world(2, options);
    auto data = std::make_unique<Bytes>(contribution_of(Payload::integers, 1, 0, 100));
    Execution mine(schedule_of("recursive_doubling", world.topology(), 0), world.of(0));
    ASSERT_TRUE(mine.start(in_place(*data, 1)).ok());
    bool done = false;
    ASSERT_TRUE(mine.poll(&done).ok());
    ASSERT_FALSE(done);
    EXPECT_EQ(mine.waiting_for().on, Waiting::On::rank);
    EXPECT_EQ(mine.waiting_for().who, 1);
    mine.abandon();
    EXPECT_FALSE(mine.active());
    data.reset();
    Bytes other = contribution_of(Payload::integers, 1, 1, 100);
    Execution theirs(schedule_of("recursive_doubling", world.topology(), 1), world.of(1));
    ASSERT_TRUE(theirs.start(in_place(other, 1)).ok());
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(theirs.poll(&done).ok());
      ASSERT_TRUE(world.world().of(0).progress().ok());
      if (done) break;
    }
    EXPECT_EQ(mine.waiting_for().on, Waiting::On::nobody);
  }
}

TEST(Execution, DestroyedWhileActiveItCancels) {
  LoopbackOptions options;
  options.eager_bytes = 0;
  ScheduleWorld world = flat_world(3, options);
  {
    Bytes data = contribution_of(Payload::integers, 1, 0, 100);
    Execution mine(schedule_of("ring", world.topology(), 0), world.of(0));
    ASSERT_TRUE(mine.start(in_place(data, 1)).ok());
    bool done = false;
    ASSERT_TRUE(mine.poll(&done).ok());
  }
  for (int r = 0; r < 3; ++r)
    EXPECT_TRUE(world.world().of(r).progress().ok());
}

TEST(Execution, StartsAgainAfterMemoryWasMissing) {
  ScheduleWorld world = flat_world(2);
  std::vector<std::unique_ptr<Execution>> ranks;
  for (int r = 0; r < 2; ++r)
    ranks.push_back(
        std::make_unique<Execution>(schedule_of("recursive_doubling", world.topology(), r), world.of(r)));
  for (std::uint32_t round = 0; round < 3; ++round) {
    Bytes data[2];
    std::vector<Execution*> all;
    for (int r = 0; r < 2; ++r) {
      Bytes& own = data[r];
      own = contribution_of(Payload::integers, round, r, 100);
      Binding much = in_place(own, round);
      much.count = std::size_t{1} << 58;
      if (round == 1) {
        EXPECT_EQ(ranks[static_cast<std::size_t>(r)]->start(much).code(), Code::out_of_memory);
        EXPECT_FALSE(ranks[static_cast<std::size_t>(r)]->active());
      }
      ASSERT_TRUE(ranks[static_cast<std::size_t>(r)]->start(in_place(own, round)).ok());
      all.push_back(ranks[static_cast<std::size_t>(r)].get());
    }
    ASSERT_TRUE(drive(all, round).ok());
    for (const Bytes& own : data)
      EXPECT_EQ(own, folded(Payload::integers, round, 2, 100));
  }
}

TEST(Execution, StartedTwiceSaysSo) {
  ScheduleWorld world = flat_world(2);
  Bytes data(8);
  Execution mine(schedule_of("ring", world.topology(), 0), world.of(0));
  ASSERT_TRUE(mine.start(in_place(data, 1)).ok());
  EXPECT_EQ(mine.start(in_place(data, 2)).code(), Code::internal);
}

TEST(Execution, ACorruptLengthEndsIt) {
  LoopbackOptions options;
  options.corrupt_rank = 1;
  ScheduleWorld world = flat_world(2, options);
  std::vector<Bytes> data(2, Bytes(80));
  std::vector<std::unique_ptr<Execution>> owned;
  std::vector<Execution*> all;
  for (int r = 0; r < 2; ++r) {
    owned.push_back(std::make_unique<Execution>(schedule_of("ring", world.topology(), r), world.of(r)));
    ASSERT_TRUE(owned.back()->start(in_place(data[static_cast<std::size_t>(r)], 1)).ok());
    all.push_back(owned.back().get());
  }
  const Status status = drive(all, 1);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
}

TEST(Execution, APeerWithoutTransportIsNamed) {
  ScheduleWorld world = flat_world(3);
  world.of(0).transport_of[1] = nullptr;
  world.of(0).transport_of[2] = nullptr;
  Bytes data(80);
  Execution mine(schedule_of("ring", world.topology(), 0), world.of(0));
  ASSERT_TRUE(mine.start(in_place(data, 1)).ok());
  bool done = false;
  const Status status = mine.poll(&done);
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_NE(status.message().find("reaches rank"), std::string::npos);
}

TEST(Execution, AScheduleThatOpensTooMuchIsADefect) {
  ScheduleWorld world = flat_world(2);
  Builder b(Collective::allreduce, 2);
  b.send(1, {0, 1}).send(1, {1, 1});
  Schedule s = std::move(b).finish();
  ASSERT_EQ(s.max_open, 2U);
  s.max_open = 1;
  Bytes data(80);
  Execution mine(std::make_shared<const Schedule>(std::move(s)), world.of(0));
  ASSERT_TRUE(mine.start(in_place(data, 1)).ok());
  bool done = false;
  EXPECT_EQ(mine.poll(&done).code(), Code::internal);
}

TEST(Execution, AVerbOfATeamOfOneIsADefect) {
  ScheduleWorld world = flat_world(2);
  Builder b(Collective::allreduce, 1);
  b.team(StepKind::team_allreduce, Slot::data, 0, {0, 1});
  Bytes data(80);
  Execution mine(std::make_shared<const Schedule>(std::move(b).finish()), world.of(0));
  ASSERT_TRUE(mine.start(in_place(data, 1)).ok());
  bool done = false;
  EXPECT_EQ(mine.poll(&done).code(), Code::internal);
}

// Messages that are open while a team verb waits must move, or the others never come to the verb.
TEST(Execution, OpenMessagesMoveWhileATeamVerbWaits) {
  LoopbackOptions options;
  options.eager_bytes = 0;
  ScheduleWorld world(TopologyView::one_node(2), std::make_unique<LoopbackWorld>(2, options));
  std::vector<Bytes> data(2, Bytes(80));
  std::vector<std::unique_ptr<Execution>> owned;
  std::vector<Execution*> all;
  for (int r = 0; r < 2; ++r) {
    Builder b(Collective::allreduce, 1);
    // Rank 1 receives into scratch and waits for it before the verb; rank 0 has the receive open during the
    // verb.
    if (r == 0) b.recv_scratch(1, {0, 1}).team(StepKind::team_allreduce, Slot::data, 0, {0, 1});
    if (r == 1) b.send(0, {0, 1}).wait(0).team(StepKind::team_allreduce, Slot::data, 0, {0, 1});
    owned.push_back(
        std::make_unique<Execution>(std::make_shared<const Schedule>(std::move(b).finish()), world.of(r)));
    ASSERT_TRUE(owned.back()->start(in_place(data[static_cast<std::size_t>(r)], 1)).ok());
    all.push_back(owned.back().get());
  }
  // Rank 0 must be in its verb before rank 1's message comes.
  bool done = false;
  ASSERT_TRUE(owned[0]->poll(&done).ok());
  EXPECT_EQ(owned[0]->waiting_for().on, Waiting::On::member);
  EXPECT_EQ(owned[0]->waiting_for().who, 1);
  const Status status = drive(all, 3);
  EXPECT_TRUE(status.ok()) << status.message();
}

// Ranks that are threads, for the sanitizers.
TEST(Execution, RanksAsThreads) {
  constexpr int kRanks = 4;
  for (const WorldKind& kind : all_worlds()) {
    SCOPED_TRACE(kind.name);
    ScheduleWorld world(TopologyView::uniform(2, 2), kind.make(kRanks));
    run_ranks(kRanks, [&](Rank& me) {
      std::uint32_t sequence = 0;
      for (const Algorithm& a : catalog()) {
        if (a.collective != Collective::allreduce || (a.needs_team && !a.needs_messages)) continue;
        Execution mine(schedule_of(a.name, world.topology(), me.rank), world.of(me.rank));
        for (const std::size_t count : {1, 100, 20000}) {
          me.at(a.name, ++sequence);
          Bytes data = contribution_of(Payload::integers, sequence, me.rank, count);
          ASSERT_TRUE(mine.start(in_place(data, sequence)).ok());
          me.until([&] {
            bool done = false;
            const Status status = mine.poll(&done);
            EXPECT_TRUE(status.ok()) << status.message();
            return done || !status.ok();
          });
          ASSERT_EQ(data == folded(Payload::integers, sequence, kRanks, count), true);
        }
      }
    });
  }
}

}  // namespace
}  // namespace heddle::test
