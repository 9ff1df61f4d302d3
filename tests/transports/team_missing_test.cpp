// Who is to blame for a wait: always the member that does not move, never one that waits itself. And what
// members do that do different things.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/ranks.hpp"
#include "transports/team_fixture.hpp"

namespace heddle::test {
namespace {

// All members of one team, moved by hand. `bytes` are those that each has.
class Puppets {
 public:
  explicit Puppets(int members) : world_(members, 4096), ops_(static_cast<std::size_t>(members)) {}

  void start(int member, TeamVerb verb, std::size_t bytes, int root = 0) {
    TeamOp& op = ops_[static_cast<std::size_t>(member)];
    op = TeamOp{};
    op.verb = verb;
    buffers_.resize(ops_.size());
    const std::size_t parts = verb == TeamVerb::allgather ? ops_.size() : 1;
    buffers_[static_cast<std::size_t>(member)].assign(parts * bytes, static_cast<std::byte>(member + 1));
    op.in = op.out = buffers_[static_cast<std::size_t>(member)].data();
    if (parts > 1) op.in += static_cast<std::size_t>(member) * bytes;
    op.count = bytes;
    op.fold = &mix_fold<std::uint8_t>;
    op.root = root;
    world_.of(member).start(op);
  }
  void copy_once() {
    for (std::size_t m = 0; m < ops_.size(); ++m)
      world_.of(static_cast<int>(m)).copy_once(true);
  }
  bool poll(int member) { return world_.of(member).poll(ops_[static_cast<std::size_t>(member)]); }
  int missing(int member) { return world_.of(member).missing(ops_[static_cast<std::size_t>(member)]); }
  TeamClash clash(int member) { return world_.of(member).clash(ops_[static_cast<std::size_t>(member)]); }
  bool is_untouched(int member) const {
    const std::vector<std::byte>& buffer = buffers_[static_cast<std::size_t>(member)];
    return std::all_of(buffer.begin(), buffer.end(),
                       [member](std::byte b) { return b == static_cast<std::byte>(member + 1); });
  }
  // Polls these until nothing moves any more; none may finish.
  void settle(std::initializer_list<int> members) {
    for (int i = 0; i < 100; ++i) {
      for (const int m : members)
        ASSERT_FALSE(poll(m)) << "member " << m;
      for (const int m : members)
        ASSERT_EQ(clash(m).member, -1) << "seen by " << m << ", where all do the same";
    }
  }
  // Polls these until all are through.
  void finish(std::initializer_list<int> members) {
    std::vector<int> left(members);
    for (int i = 0; i < 1000 && !left.empty(); ++i)
      std::erase_if(left, [this](int m) { return poll(m); });
    ASSERT_TRUE(left.empty());
  }

 private:
  TeamWorld world_;
  std::vector<TeamOp> ops_;
  std::vector<std::vector<std::byte>> buffers_;
};

constexpr std::size_t kSmall = 100;
constexpr std::size_t kLarge = 400'000;

class Missing : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Missing, ::testing::Values(kSmall, kLarge));

TEST_P(Missing, AMemberThatDoesNotCome) {
  for (const TeamVerb verb : {TeamVerb::allreduce, TeamVerb::reduce, TeamVerb::allgather}) {
    for (int absent = 0; absent < 4; ++absent) {
      Puppets p(4);
      const int root = absent == 0 ? 1 : 0;
      for (int m = 0; m < 4; ++m) {
        if (m != absent) p.start(m, verb, GetParam(), root);
      }
      for (int round = 0; round < 50; ++round) {
        for (int m = 0; m < 4; ++m) {
          // Only the root waits in a small reduce.
          const bool waits = verb != TeamVerb::reduce || GetParam() == kLarge || m == root;
          if (m == absent || !waits) {
            if (m != absent && round == 0) p.poll(m);
            continue;
          }
          ASSERT_FALSE(p.poll(m));
        }
      }
      EXPECT_EQ(p.missing(root), absent);
    }
  }
}

TEST_P(Missing, ABcastsRoot) {
  Puppets p(4);
  for (const int m : {0, 1, 3})
    p.start(m, TeamVerb::bcast, GetParam(), 2);
  p.settle({0, 1, 3});
  for (const int m : {0, 1, 3})
    EXPECT_EQ(p.missing(m), 2);
}

TEST(Missing, OfTwoTheOtherAtAnyMoment) {
  for (const TeamVerb verb : {TeamVerb::allreduce, TeamVerb::allgather}) {
    for (int head_start = 0; head_start < 3; ++head_start) {
      Puppets p(2);
      p.start(0, verb, kLarge);
      p.start(1, verb, kLarge);
      for (int i = 0; i < head_start; ++i) {
        ASSERT_FALSE(p.poll(0));
        ASSERT_FALSE(p.poll(1));
      }
      p.settle({0});
      EXPECT_EQ(p.missing(0), 1);
    }
  }
}

// Members that wait for the one that stopped are themselves behind; the blame must pass them by.
TEST(Missing, AMemberThatStopsInTheMiddle) {
  for (const TeamVerb verb : {TeamVerb::allreduce, TeamVerb::reduce, TeamVerb::allgather}) {
    for (int stopped = 0; stopped < 4; ++stopped) {
      Puppets p(4);
      for (int m = 0; m < 4; ++m)
        p.start(m, verb, kLarge);
      for (int m = 0; m < 4; ++m)
        ASSERT_FALSE(p.poll(m));
      for (int round = 0; round < 100; ++round) {
        for (int m = 0; m < 4; ++m) {
          if (m == stopped) continue;
          ASSERT_FALSE(p.poll(m));
        }
      }
      for (int m = 0; m < 4; ++m) {
        if (m == stopped) continue;
        EXPECT_EQ(p.missing(m), stopped) << "seen by " << m;
      }
    }
  }
}

TEST(Missing, AReaderThatHoldsUpALargeBcast) {
  Puppets p(3);
  for (int m = 0; m < 3; ++m)
    p.start(m, TeamVerb::bcast, kLarge);
  p.settle({0, 1});
  EXPECT_EQ(p.missing(0), 2);
  EXPECT_EQ(p.missing(1), 2);
}

TEST(Missing, ABcastsRootThatStopsInTheMiddle) {
  Puppets p(3);
  for (int m = 0; m < 3; ++m)
    p.start(m, TeamVerb::bcast, kLarge);
  ASSERT_FALSE(p.poll(0));
  p.settle({1, 2});
  EXPECT_EQ(p.missing(1), 0);
  EXPECT_EQ(p.missing(2), 0);
}

TEST(Missing, InABcastThatIsCopiedOnce) {
  constexpr std::size_t kOnce = 20'000;
  Puppets p(3);
  p.copy_once();
  p.start(1, TeamVerb::bcast, kOnce);
  ASSERT_FALSE(p.poll(1));
  EXPECT_EQ(p.missing(1), 0) << "the root has not come";
  p.start(0, TeamVerb::bcast, kOnce);
  ASSERT_FALSE(p.poll(0));
  ASSERT_TRUE(p.poll(1));
  ASSERT_FALSE(p.poll(0));
  EXPECT_EQ(p.missing(0), 2) << "it has not read yet";
  p.start(2, TeamVerb::bcast, kOnce);
  p.finish({2, 0});
  EXPECT_EQ(p.missing(0), -1);
}

TEST(Missing, AReaderThatHoldsUpAStreamOfSmallBcasts) {
  Puppets p(3);
  int started = 0;
  while (started < 100) {
    p.start(0, TeamVerb::bcast, kSmall);
    ++started;
    if (!p.poll(0)) break;
    p.start(1, TeamVerb::bcast, kSmall);
    ASSERT_TRUE(p.poll(1));
  }
  ASSERT_LT(started, 100) << "a root runs ahead without limit";
  EXPECT_EQ(p.missing(0), 2);
  // The other reader waits for the root, which is at this operation.
  p.start(1, TeamVerb::bcast, kSmall);
  ASSERT_FALSE(p.poll(1));
  EXPECT_EQ(p.missing(1), 0);
}

TEST(Missing, NobodyAfterwards) {
  Puppets p(3);
  for (const TeamVerb verb : {TeamVerb::allreduce, TeamVerb::allgather}) {
    for (const std::size_t bytes : {kSmall, kLarge}) {
      for (int m = 0; m < 3; ++m)
        p.start(m, verb, bytes);
      p.finish({0, 1, 2});
      for (int m = 0; m < 3; ++m)
        EXPECT_EQ(p.missing(m), -1);
    }
  }
}

// A member stuck in an earlier operation is not the culprit when a third one keeps it there.
TEST(Missing, BehindAnEarlierOperation) {
  Puppets p(3);
  // Member 1 waits, as root of a reduce, for member 2; member 0 has given its part and went on.
  p.start(0, TeamVerb::reduce, kSmall, 1);
  ASSERT_TRUE(p.poll(0));
  p.start(1, TeamVerb::reduce, kSmall, 1);
  ASSERT_FALSE(p.poll(1));
  EXPECT_EQ(p.missing(1), 2);
  p.start(0, TeamVerb::allreduce, kSmall);
  ASSERT_FALSE(p.poll(0));
  EXPECT_NE(p.missing(0), 0);
}

// ---- Different things

bool same(const TeamCall& a, const TeamCall& b) {
  return a.verb == b.verb && a.root == b.root && a.bytes == b.bytes;
}

// After operations of each kind, as they would have been. `stays`: members that may not get their results.
void expect_clash(const TeamCall (&calls)[2], bool copies_once) {
  SCOPED_TRACE(::testing::Message() << "verbs " << static_cast<int>(calls[0].verb) << ' '
                                    << static_cast<int>(calls[1].verb) << ", bytes " << calls[0].bytes << ' '
                                    << calls[1].bytes << ", roots " << calls[0].root << ' ' << calls[1].root);
  Puppets p(2);
  if (copies_once) p.copy_once();
  for (const std::size_t bytes : {kSmall, kLarge, kSmall}) {
    for (int m = 0; m < 2; ++m)
      p.start(m, TeamVerb::allreduce, bytes);
    p.finish({0, 1});
  }
  bool done[2] = {};
  for (int m = 0; m < 2; ++m)
    p.start(m, calls[m].verb, calls[m].bytes, calls[m].root);
  for (int i = 0; i < 100; ++i) {
    for (int m = 0; m < 2; ++m)
      done[m] = done[m] || p.poll(m);
  }
  int seen = 0;
  for (int m = 0; m < 2; ++m) {
    EXPECT_TRUE(p.is_untouched(m)) << "member " << m << " has a result";
    // Whoever only gives may be through with it.
    const bool gives = (calls[m].verb == TeamVerb::bcast && calls[m].root == m) ||
                       (calls[m].verb == TeamVerb::reduce && calls[m].root != m);
    EXPECT_TRUE(gives || !done[m]) << "member " << m;
    const TeamClash clash = p.clash(m);
    if (clash.member < 0) continue;
    ++seen;
    EXPECT_EQ(clash.member, 1 - m);
    EXPECT_TRUE(same(clash.ours, calls[m]));
    EXPECT_TRUE(same(clash.theirs, calls[1 - m]));
  }
  EXPECT_GT(seen, 0) << "nobody knows why they wait";
}

TEST(Clash, NobodyTakesTheDataOfAnotherOperation) {
  std::vector<TeamCall> calls;
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{16}, std::size_t{9'000}, std::size_t{20'000},
                                  std::size_t{40'000}, kLarge}) {
    for (const TeamVerb verb : {TeamVerb::allreduce, TeamVerb::reduce, TeamVerb::bcast, TeamVerb::allgather})
      calls.push_back({verb, 0, bytes});
  }
  for (const bool once : {false, true}) {
    for (const TeamCall& a : calls) {
      for (const TeamCall& b : calls) {
        // One thread moves both members, so a sanitizer sees the same in each of these pairs.
        if (kSlowBuild && (&a - &b) % 4 != 1) continue;
        if (!same(a, b)) expect_clash({a, b}, once);
      }
    }
  }
}

// Outside of the team's operations: what members say they wait in, under the numbers of their calls.
TEST(Clash, OfMembersThatWaitElsewhere) {
  TeamWorld world(3, 4096);
  const TeamCall sum{TeamVerb::allreduce, 0, 8, fold_kind(DType::i64, Op::sum)};
  const TeamCall most{TeamVerb::allreduce, 0, 8, fold_kind(DType::i64, Op::max)};
  const TeamCall bcast{TeamVerb::bcast, 2, std::size_t{5} << 30, 0};
  EXPECT_EQ(world.of(0).compare_waiting(1, sum).member, -1) << "nobody else has said anything";
  EXPECT_EQ(world.of(1).compare_waiting(1, sum).member, -1) << "the same";
  EXPECT_EQ(world.of(2).compare_waiting(1, bcast).member, 0);
  EXPECT_EQ(world.of(2).compare_waiting(2, bcast).member, -1) << "where the others have not come yet";
  EXPECT_EQ(world.of(0).compare_waiting(2, bcast).member, -1) << "the same";
  for (int i = 0; i < 2; ++i) {
    const TeamClash clash = world.of(1).compare_waiting(2, most);
    EXPECT_EQ(clash.member, 0);
    EXPECT_TRUE(same(clash.ours, most));
    EXPECT_EQ(clash.ours.kind, most.kind);
    EXPECT_TRUE(same(clash.theirs, bcast));
  }
  EXPECT_EQ(world.of(0).compare_waiting(2, bcast).member, 1) << "and is found again";
}

TEST(Clash, RootsThatDiffer) {
  for (const std::size_t bytes : {kSmall, kLarge}) {
    // Each waits for the other as the root.
    Puppets p(2);
    p.start(0, TeamVerb::bcast, bytes, 1);
    p.start(1, TeamVerb::reduce, bytes, 1);
    for (int i = 0; i < 10; ++i) {
      EXPECT_FALSE(p.poll(0));
      EXPECT_FALSE(p.poll(1));
    }
    EXPECT_EQ(p.clash(0).member, 1);
    Puppets q(3);
    q.start(0, TeamVerb::bcast, bytes, 0);
    q.start(1, TeamVerb::bcast, bytes, 1);
    q.start(2, TeamVerb::bcast, bytes, 1);
    q.poll(0);
    q.poll(1);
    EXPECT_EQ(q.clash(2).member, 0);
    EXPECT_EQ(q.clash(2).theirs.root, 0);
    EXPECT_EQ(q.clash(2).ours.root, 1);
  }
}

// A root that is as far ahead of a reader as it can be, by bcasts of either kind.
TEST(Clash, ARootThatIsAheadIsNoClash) {
  Puppets p(2);
  std::vector<std::size_t> sizes;
  for (int i = 0; i < 8; ++i)
    sizes.push_back(kSmall);
  for (int i = 0; i < 15; ++i)
    sizes.push_back(20'000);
  p.start(1, TeamVerb::bcast, sizes[0], 0);
  std::size_t ahead = 0;
  for (const std::size_t bytes : sizes) {
    p.start(0, TeamVerb::bcast, bytes, 0);
    if (!p.poll(0)) break;
    ++ahead;
  }
  EXPECT_GE(ahead, 8u);
  for (std::size_t i = 0; i < ahead; ++i) {
    if (i > 0) p.start(1, TeamVerb::bcast, sizes[i], 0);
    EXPECT_EQ(p.clash(1).member, -1) << "operation " << i;
    EXPECT_TRUE(p.poll(1)) << "operation " << i;
  }
}

}  // namespace
}  // namespace heddle::test
