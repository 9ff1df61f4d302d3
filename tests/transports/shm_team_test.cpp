// The fused collectives: every verb, size and shape, and long random mixtures on one team, in which a slot
// that is reused too early or a counter that is forgotten shows.
#include "transports/shm/shm_team.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "engine/kernels/kernels.hpp"
#include "support/ranks.hpp"
#include "transports/team_fixture.hpp"

namespace heddle::test {
namespace {

constexpr TeamVerb kVerbs[] = {TeamVerb::allreduce, TeamVerb::reduce, TeamVerb::bcast, TeamVerb::allgather};

// Element counts at which something changes: none, fewer than members, the end of the inline payload, of the
// small slots, of a piece, of all slots.
std::vector<std::size_t> interesting_counts(int members, std::size_t element_bytes, std::size_t slot_bytes) {
  std::vector<std::size_t> counts{
      0, 1, 2, static_cast<std::size_t>(members - 1), static_cast<std::size_t>(members), 97};
  for (const std::size_t bytes :
       {std::size_t{56}, kSmallBytes / static_cast<std::size_t>(std::max(1, members - 1)), kSmallBytes,
        std::size_t{16} * 1024, slot_bytes, 4 * slot_bytes, 17 * slot_bytes}) {
    const std::size_t n = bytes / element_bytes;
    counts.insert(counts.end(), {n - 1, n, n + 1});
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

class ShmTeamTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Members, ShmTeamTest, ::testing::Range(1, 9));

TEST_P(ShmTeamTest, EveryVerbSizeAndElement) {
  const int members = GetParam();
  for (const std::size_t slot_bytes : {std::size_t{4096}, std::size_t{64} * 1024}) {
    const std::size_t largest = 17 * slot_bytes + 16;
    TeamWorld world(members, slot_bytes);
    run_ranks(members, [&](Rank& me) {
      TeamMember member(world.of(me.rank), largest * static_cast<std::size_t>(members));
      std::uint64_t number = 0;
      std::size_t turn = 0;
      for (std::size_t e = 0; e < elements().size(); ++e) {
        for (const std::size_t count : interesting_counts(members, elements()[e].bytes, slot_bytes)) {
          // The large slots once per element size: time. What a sanitizer looks for does not depend on the
          // element either: a fifth of the sizes will do.
          if (kSlowBuild && e != 2 && (slot_bytes > 4096 || ++turn % 5 != 0)) continue;
          if (slot_bytes > 4096 && count * elements()[e].bytes > 4 * slot_bytes && e != 2) continue;
          for (const TeamVerb verb : kVerbs) {
            TeamCase c{verb, count, e, static_cast<int>(number) % members, number % 2 == 0, number % 5};
            me.at("operation", ++number);
            world.of(me.rank).use(stores_for(number, me.rank));
            world.of(me.rank).copy_once(number % 4 < 2);
            world.of(me.rank).gather_once(number % 8 < 4);
            ASSERT_NO_FATAL_FAILURE(member.run(c, number, [] { sched_yield(); }));
          }
        }
      }
    });
  }
}

TEST_P(ShmTeamTest, SeveralMegabytes) {
  const int members = GetParam();
  constexpr std::size_t kBytes = kSlowBuild ? 600'001 : 5'000'001;
  TeamWorld world(members, 64 * 1024);
  run_ranks(members, [&](Rank& me) {
    TeamMember member(world.of(me.rank), kBytes);
    std::uint64_t number = 0;
    for (const TeamVerb verb : kVerbs) {
      me.at("operation", ++number);
      const std::size_t each =
          verb == TeamVerb::allgather ? kBytes / static_cast<std::size_t>(members) : kBytes;
      const TeamCase c{verb, each / 8, 3, members - 1, false, 1};
      ASSERT_NO_FATAL_FAILURE(member.run(c, number, [] { sched_yield(); }));
    }
  });
}

// How a mixture is made: which sizes, and how often a member dawdles.
struct Mixture {
  const char* name;
  std::size_t slot_bytes;
  double small;       // share of vectors in the small slots
  double bcast;       // share of bcasts
  int dawdle_one_in;  // polls
  std::size_t small_reads = kSmallReads;
  bool copies_once = false;
};

TeamCase random_case(const Mixture& mixture, int members, std::mt19937_64& random) {
  const auto chance = [&](double p) { return std::uniform_real_distribution<>(0, 1)(random) < p; };
  TeamCase c;
  static constexpr TeamVerb kOfAll[] = {TeamVerb::allreduce, TeamVerb::reduce, TeamVerb::allgather};
  c.verb = chance(mixture.bcast) ? TeamVerb::bcast : kOfAll[random() % 3];
  c.element = random() % elements().size();
  c.root = static_cast<int>(random() % static_cast<std::uint64_t>(members));
  // Streams: the root often stays.
  if (chance(0.6)) c.root = 0;
  c.in_place = chance(0.5);
  c.slack = random() % 9;
  const std::size_t bytes = chance(mixture.small) ? random() % (chance(0.5) ? 64 : kSmallBytes + 1)
                                                  : kSmallBytes + random() % (25 * 4096);
  c.count = bytes / elements()[c.element].bytes;
  return c;
}

void run_mixture(const Mixture& mixture, int members, ShmTeam& team, int operations, std::uint64_t seed,
                 Rank* me) {
  TeamMember member(team, (kSmallBytes + 25 * 4096) * static_cast<std::size_t>(members));
  std::mt19937_64 shared(seed);
  std::mt19937_64 own(seed * 977 + static_cast<std::uint64_t>(team.rank()));
  const auto pause = [&] {
    if (own() % static_cast<std::uint64_t>(mixture.dawdle_one_in) == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(own() % 300));
    sched_yield();
  };
  team.copy_once(mixture.copies_once);
  team.gather_once(mixture.copies_once);
  for (int i = 1; i <= operations; ++i) {
    const TeamCase c = random_case(mixture, members, shared);
    if (me != nullptr) me->at("operation", static_cast<std::uint64_t>(i));
    if (own() % static_cast<std::uint64_t>(mixture.dawdle_one_in) == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(own() % 1000));
    team.use(stores_for(static_cast<std::uint64_t>(i), team.rank()));
    member.run(c, static_cast<std::uint64_t>(i), pause);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

constexpr Mixture kMixtures[] = {
    {"everything", 4096, 0.7, 0.4, 40},
    {"small bcasts", 4096, 0.97, 0.9, 15},
    {"large", 4096, 0.2, 0.3, 200},
    {"large bcasts", 8192, 0.1, 0.8, 200},
    {"wide slots", 64 * 1024, 0.6, 0.4, 40},
    {"shared cores", 4096, 0.8, 0.3, 40, kSmallReadsOnSharedCores},
    {"copied once", 4096, 0.4, 0.7, 100, kSmallReads, true},
    {"gathered once", 4096, 0.2, 0.1, 100, kSmallReads, true},
};

TEST_P(ShmTeamTest, RandomMixtures) {
  const int members = GetParam();
  std::uint64_t seed = 1;
  for (const Mixture& mixture : kMixtures) {
    SCOPED_TRACE(mixture.name);
    TeamWorld world(members, mixture.slot_bytes, mixture.small_reads);
    ++seed;
    run_ranks(members,
              [&](Rank& me) { run_mixture(mixture, members, world.of(me.rank), rounds(400), seed, &me); });
  }
}

class BetweenProcesses : public ::testing::TestWithParam<Mixture> {};
INSTANTIATE_TEST_SUITE_P(ShmTeam, BetweenProcesses,
                         ::testing::Values(kMixtures[0], kMixtures[std::size(kMixtures) - 1]),
                         [](const auto& each) { return each.index == 0 ? "Everything" : "CopiedOnce"; });

TEST_P(BetweenProcesses, RandomMixture) {
  constexpr int kMembers = 3;
  TeamWorld world(kMembers, 4096);
  std::vector<pid_t> children;
  for (int m = 1; m < kMembers; ++m) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(100);
      world.make_again(m);
      run_mixture(GetParam(), kMembers, world.of(m), rounds(800), 99, nullptr);
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  run_ranks(1, [&](Rank& me) { run_mixture(GetParam(), kMembers, world.of(0), rounds(800), 99, &me); });
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

// The bits of a float sum do not depend on the size of the vector or of a piece, nor on the member.
TEST(ShmTeam, FloatSumsHaveOneValue) {
  constexpr int kMembers = 5;
  const FoldFn sum = fold_kernel(DType::f32, Op::sum);
  ASSERT_NE(sum, nullptr);
  const auto value = [](int m, std::size_t i) {
    return 1.0F / static_cast<float>(3 + m) + static_cast<float>(i % 1009) * 0.01F;
  };
  for (const std::size_t slot_bytes : {std::size_t{4096}, std::size_t{64} * 1024}) {
    TeamWorld world(kMembers, slot_bytes);
    run_ranks(kMembers, [&](Rank& me) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{50000}}) {
        std::vector<float> in(count);
        std::vector<float> out(count);
        for (std::size_t i = 0; i < count; ++i)
          in[i] = value(me.rank, i);
        TeamOp op;
        op.in = reinterpret_cast<const std::byte*>(in.data());
        op.out = reinterpret_cast<std::byte*>(out.data());
        op.count = count;
        op.element_bytes = sizeof(float);
        op.fold = sum;
        world.of(me.rank).start(op);
        me.until([&] { return world.of(me.rank).poll(op); });
        for (std::size_t i = 0; i < count; ++i) {
          float expected = value(0, i);
          for (int m = 1; m < kMembers; ++m)
            expected += value(m, i);
          ASSERT_EQ(out[i], expected) << "element " << i << " of " << count;
        }
      }
    });
  }
}

}  // namespace
}  // namespace heddle::test
