// Allreduce in memory that all members can reach: the same results as through the slots, whatever the mixture
// of buffers, and no slot touched where every buffer is from a heap.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <random>

#include "support/ranks.hpp"
#include "transports/shm/shared_heap.hpp"
#include "transports/shm/shm_team_layout.hpp"
#include "transports/team_fixture.hpp"

namespace heddle::test {
namespace {

constexpr std::size_t kSlot = 64 * 1024;

struct HeapWorld {
  explicit HeapWorld(int members) : geometry{members, kSlot}, heaps(static_cast<std::size_t>(members)) {
    memory = SharedMemory::create(geometry.bytes(), SharedMemory::Backing::memfd).value();
    for (int m = 0; m < members; ++m)
      teams.push_back(make_shm_team(memory.data(), geometry, m, &heaps[static_cast<std::size_t>(m)]));
  }
  Team& team(int m) { return *teams[static_cast<std::size_t>(m)]; }
  SharedHeap& heap(int m) { return heaps[static_cast<std::size_t>(m)]; }
  // Whether anything was ever staged.
  bool slots_used() const {
    const team_layout::MemberLayout layout(kSlot);
    const std::byte* first = memory.data() + layout.input;
    return std::any_of(first, first + kSlot, [](std::byte b) { return b != std::byte{0}; });
  }

  ShmTeamGeometry geometry;
  SharedMemory memory;
  std::vector<SharedHeap> heaps;
  std::vector<std::unique_ptr<Team>> teams;
};

void allreduce(Team& team, const Element& e, const std::byte* in, std::byte* out, std::size_t count) {
  TeamOp op;
  op.in = in;
  op.out = out;
  op.count = count;
  op.element_bytes = e.bytes;
  op.fold = e.fold;
  team.start(op);
  while (!team.poll(op))
    sched_yield();
}

std::byte* take(SharedHeap& heap, std::size_t bytes) {
  return static_cast<std::byte*>(heap.allocate(bytes).value());
}

class DirectReduceTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Members, DirectReduceTest, ::testing::Values(2, 3, 4, 7));

TEST_P(DirectReduceTest, UsesNoSlots) {
  const int members = GetParam();
  HeapWorld world(members);
  const Element& e = elements()[3];
  run_ranks(members, [&](Rank& me) {
    const std::size_t count = 300'001;
    std::byte* in = take(world.heap(me.rank), count * e.bytes);
    std::byte* out = take(world.heap(me.rank), count * e.bytes);
    for (std::uint64_t number = 1; number <= 3; ++number) {
      e.contribute(in, number, me.rank, count);
      allreduce(world.team(me.rank), e, in, out, count);
      ASSERT_EQ(e.first_wrong(out, number, members, -1, count), count);
      ASSERT_EQ(e.first_wrong(in, number, 1, me.rank, count), count) << "input changed";
    }
  });
  EXPECT_FALSE(world.slots_used());
}

TEST_P(DirectReduceTest, OneOrdinaryBufferAmongThemIsEnoughForTheSlots) {
  const int members = GetParam();
  HeapWorld world(members);
  const Element& e = elements()[2];
  run_ranks(members, [&](Rank& me) {
    const std::size_t count = 100'000;
    std::vector<std::byte> ordinary(count * e.bytes);
    std::byte* in = take(world.heap(me.rank), count * e.bytes);
    std::byte* out = me.rank == members - 1 ? ordinary.data() : take(world.heap(me.rank), count * e.bytes);
    e.contribute(in, 1, me.rank, count);
    allreduce(world.team(me.rank), e, in, out, count);
    ASSERT_EQ(e.first_wrong(out, 1, members, -1, count), count);
  });
  EXPECT_TRUE(world.slots_used());
}

TEST_P(DirectReduceTest, ABlockThatOthersCannotOpenGoesThroughTheSlots) {
  const int members = GetParam();
  HeapWorld world(members);
  const Element& e = elements()[2];
  run_ranks(members, [&](Rank& me) {
    const std::size_t count = 100'000;
    std::byte* data = take(world.heap(me.rank), count * e.bytes);
    if (me.rank == 0) {
      // The descriptor that the others will look for is something else by now.
      const int other = open("/dev/null", O_RDWR | O_CLOEXEC);
      ASSERT_GE(dup2(other, world.heap(0).find(data, 1)->handle.fd), 0);
      close(other);
    }
    for (std::uint64_t number = 1; number <= 2; ++number) {
      e.contribute(data, number, me.rank, count);
      allreduce(world.team(me.rank), e, data, data, count);
      ASSERT_EQ(e.first_wrong(data, number, members, -1, count), count);
    }
  });
  EXPECT_TRUE(world.slots_used());
}

// The longer vector would be read where the shorter one's owner has something else.
TEST(DirectReduceTest, VectorsOfDifferentLengthsAreLeftAlone) {
  HeapWorld world(2);
  const Element& e = elements()[2];
  TeamOp ops[2];
  for (int m = 0; m < 2; ++m) {
    const std::size_t count = m == 0 ? 100'000 : 150'000;
    std::byte* data = take(world.heap(m), count * e.bytes);
    std::memset(data, m + 1, count * e.bytes);
    ops[m].in = ops[m].out = data;
    ops[m].count = count;
    ops[m].element_bytes = e.bytes;
    ops[m].fold = e.fold;
    world.team(m).start(ops[m]);
  }
  for (int i = 0; i < 200; ++i)
    ASSERT_FALSE(world.team(i % 2).poll(ops[i % 2]));
  for (int m = 0; m < 2; ++m) {
    for (std::size_t i = 0; i < ops[m].count * e.bytes; ++i)
      ASSERT_EQ(ops[m].out[i], static_cast<std::byte>(m + 1)) << "of member " << m;
    EXPECT_EQ(world.team(m).clash(ops[m]).member, 1 - m);
  }
}

// One who comes to its last part when another has all its results, and has waited long enough.
TEST_P(DirectReduceTest, WhatIsTheOwnersAgainIsNotTaken) {
  const int members = GetParam();
  const int late = members - 1;
  HeapWorld world(members);
  const Element& e = elements()[2];
  const std::size_t count = 100'000;
  std::vector<TeamOp> ops(static_cast<std::size_t>(members));
  const auto op = [&](int m) -> TeamOp& { return ops[static_cast<std::size_t>(m)]; };
  for (int m = 0; m < members; ++m) {
    std::byte* const data = take(world.heap(m), count * e.bytes);
    e.contribute(data, 1, m, count);
    op(m).in = op(m).out = data;
    op(m).count = count;
    op(m).element_bytes = e.bytes;
    op(m).fold = e.fold;
    world.team(m).start(op(m));
  }
  // The last one finds that all agree, and folds its parts.
  for (int m = 0; m < members; ++m)
    ASSERT_FALSE(world.team(m).poll(op(m)));
  for (int i = 0; i < 3; ++i) {
    for (int m = 0; m < late; ++m)
      ASSERT_FALSE(world.team(m).poll(op(m)));
  }
  ASSERT_EQ(e.first_wrong(op(0).out, 1, members, -1, count), count);
  world.team(0).withdraw();
  std::memset(op(0).out, 42, count * e.bytes);
  for (int i = 0; i < 10; ++i) {
    for (int m = 1; m < members; ++m)
      ASSERT_FALSE(world.team(m).poll(op(m)));
  }
  EXPECT_FALSE(world.slots_used());
}

// Every operation draws its verb, size, element, and for every member where its buffers are and whether it
// works in place; blocks come and go.
TEST_P(DirectReduceTest, RandomMixtures) {
  const int members = GetParam();
  constexpr std::size_t kMost = kSlowBuild ? 200'000 : 600'000;
  constexpr std::uint64_t kOperations = kSlowBuild ? 60 : 250;
  HeapWorld world(members);
  run_ranks(members, [&](Rank& me) {
    std::vector<std::byte> ordinary_in(kMost + 16);
    std::vector<std::byte> ordinary_out(kMost + 16);
    std::byte* shared_in = take(world.heap(me.rank), 2 * (kMost + 64));
    std::byte* shared_out = shared_in + kMost + 64;
    std::mt19937 common(7);  // draws alike on all members
    std::mt19937 own(static_cast<unsigned>(100 + me.rank));
    for (std::uint64_t number = 1; number <= kOperations; ++number) {
      me.at("operation", number);
      const Element& e = elements()[common() % elements().size()];
      const std::size_t count = common() % (kMost / e.bytes);
      const unsigned kind = common() % 8;
      const bool all_shared = common() % 3 != 0;
      const bool shared = all_shared || own() % 2 == 0;
      const bool in_place = own() % 2 == 0;
      const std::size_t shift = own() % 2 * e.bytes;
      std::byte* in = (shared ? shared_in : ordinary_in.data()) + shift;
      std::byte* out = in_place ? in : (shared ? shared_out : ordinary_out.data()) + shift;
      TeamOp op;
      op.verb = kind == 0 ? TeamVerb::bcast : kind == 1 ? TeamVerb::reduce : TeamVerb::allreduce;
      op.root = static_cast<int>(number) % members;
      const bool bcast = op.verb == TeamVerb::bcast;
      const bool root = op.root == me.rank;
      if (!bcast || root) e.contribute(in, number, me.rank, count);
      op.in = in;
      op.out = bcast ? in : out;
      op.count = count;
      op.element_bytes = e.bytes;
      op.fold = bcast ? nullptr : e.fold;
      world.team(me.rank).start(op);
      while (!world.team(me.rank).poll(op))
        sched_yield();
      if (op.verb != TeamVerb::reduce || root) {
        ASSERT_EQ(e.first_wrong(op.out, number, members, bcast ? op.root : -1, count), count)
            << "operation " << number;
      }
      if (number % 50 == 0) {
        // Nobody reads it any more once an operation that all took part in is over.
        allreduce(world.team(me.rank), elements()[0], ordinary_in.data(), ordinary_out.data(), 64);
        ASSERT_TRUE(world.heap(me.rank).release(shared_in).ok());
        shared_in = take(world.heap(me.rank), 2 * (kMost + 64));
        shared_out = shared_in + kMost + 64;
      }
    }
  });
}

TEST(SharedHeapTest, FindsWhatIsInsideOneBlock) {
  SharedHeap heap;
  std::byte* a = take(heap, 10'000);
  std::byte* b = take(heap, 10'000);
  EXPECT_EQ(heap.find(a, 12'288)->offset, 0U);  // whole pages
  EXPECT_EQ(heap.find(a + 100, 10)->offset, 100U);
  EXPECT_NE(heap.find(a, 1)->block, heap.find(b, 1)->block);
  EXPECT_FALSE(heap.find(a, 12'289));
  EXPECT_FALSE(heap.find(&heap, 1));
  EXPECT_FALSE(SharedHeap().find(a, 1));
  ASSERT_TRUE(heap.release(a).ok());
  EXPECT_FALSE(heap.find(a, 1));
  EXPECT_EQ(heap.release(a).code(), Code::invalid_argument);
  EXPECT_EQ(heap.release(b + 1).code(), Code::invalid_argument);
}

TEST(SharedHeapTest, GivesOutAgainWhatWasPutBy) {
  SharedHeap heap;
  const auto again = [&](std::size_t bytes) {
    return static_cast<std::byte*>(heap.allocate_again(bytes, 3).value());
  };
  std::byte* const first = again(100'000);
  first[99'999] = std::byte{1};
  const HeapPlace place = *heap.find(first, 100'000);
  HeapViews views(1);
  std::byte* const seen = views.at(0, place, heap.releases());
  EXPECT_TRUE(heap.put_by(first));
  EXPECT_FALSE(heap.put_by(first)) << "freed twice";
  EXPECT_FALSE(heap.find(first, 1)) << "nobody's now";
  EXPECT_EQ(again(99'000), first);
  EXPECT_EQ(heap.find(first, 99'000)->block, place.block) << "another number, so that others map it again";
  EXPECT_EQ(views.at(0, *heap.find(first, 1), heap.releases()), seen);
  EXPECT_NE(again(100'000), first) << "in use";
  std::byte* const third = again(10);
  EXPECT_FALSE(heap.allocate_again(10, 3).ok());
  EXPECT_TRUE(heap.put_by(third));
  // In the place of what is kept, where there may be no more.
  EXPECT_NE(again(200'000), third);
  EXPECT_EQ(heap.kept(), 0U);
  EXPECT_EQ(heap.blocks(), 3U);
}

TEST(SharedHeapTest, KeepsSoMuch) {
  SharedHeap heap;
  constexpr std::size_t kPiece = SharedHeap::kMostKept / 4;
  std::vector<void*> pieces;
  for (int i = 0; i < 6; ++i)
    pieces.push_back(heap.allocate_again(kPiece, 100).value());
  const std::uint64_t before = heap.releases();
  for (void* piece : pieces)
    EXPECT_TRUE(heap.put_by(piece));
  EXPECT_EQ(heap.kept(), 4U);
  EXPECT_EQ(heap.releases(), before + 2) << "the others have to let go of those";
  void* const large = heap.allocate_again(SharedHeap::kMostKept + 1, 100).value();
  EXPECT_TRUE(heap.put_by(large));
  EXPECT_FALSE(heap.find(large, 1));
  EXPECT_EQ(heap.kept(), 4U);
}

// Others may have it mapped for as long as the communicator lives.
TEST(SharedHeapTest, WhatIsFreedTakesNoMemoryWhoeverHasItMapped) {
  SharedHeap heap;
  HeapViews views(1);
  const auto map = [&](std::byte* memory, std::size_t bytes) {
    std::fill_n(memory, bytes, std::byte{1});
    return views.at(0, *heap.find(memory, bytes), heap.releases());
  };
  constexpr std::size_t kBytes = 100'000;
  std::byte* const freed = take(heap, kBytes);
  std::byte* const read = take(heap, kBytes);
  constexpr std::size_t kLarge = SharedHeap::kMostKept + 1;
  auto* const large = static_cast<std::byte*>(heap.allocate_again(kLarge, 9).value());
  const std::byte* const freed_seen = map(freed, kBytes);
  const std::byte* const read_seen = map(read, kBytes);
  const std::byte* const large_seen = map(large, kLarge);
  ASSERT_TRUE(heap.release(freed).ok());
  ASSERT_TRUE(heap.release(read, SharedHeap::Readers::some).ok());
  ASSERT_TRUE(heap.put_by(large));
  // No pages are zeros.
  EXPECT_EQ(freed_seen[kBytes - 1], std::byte{0});
  EXPECT_EQ(large_seen[kLarge - 1], std::byte{0});
  EXPECT_EQ(read_seen[kBytes - 1], std::byte{1});
}

// A child's view of what it has not written to is the same pages.
TEST(SharedHeapTest, WhatIsFreedStaysWhereAChildMayLook) {
  SharedHeap heap;
  HeapViews views(1);
  std::byte* const memory = take(heap, 100'000);
  memory[0] = std::byte{1};
  const std::byte* const seen = views.at(0, *heap.find(memory, 1), heap.releases());
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  ASSERT_TRUE(heap.release(memory).ok());
  EXPECT_EQ(seen[0], std::byte{1});
}

// What parent and child share nobody may fill with something else.
TEST(SharedHeapTest, GivesOutNothingThatAForkShares) {
  SharedHeap heap;
  auto* const kept = static_cast<std::byte*>(heap.allocate_again(100'000, 9).value());
  auto* const used = static_cast<std::byte*>(heap.allocate_again(100'000, 9).value());
  EXPECT_TRUE(heap.put_by(kept));
  used[0] = std::byte{1};
  const pid_t child = fork();
  if (child == 0) {
    auto* const own = static_cast<std::byte*>(heap.allocate_again(100'000, 9).value());
    own[0] = std::byte{2};
    const bool put = heap.put_by(used);
    auto* const more = static_cast<std::byte*>(heap.allocate_again(100'000, 9).value());
    more[0] = std::byte{3};
    _exit(put ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(used[0], std::byte{1});
  EXPECT_TRUE(heap.put_by(used));
  auto* const next = static_cast<std::byte*>(heap.allocate_again(100'000, 9).value());
  EXPECT_EQ(next[0], std::byte{0}) << "the child's";
  EXPECT_EQ(heap.kept(), 0U);
}

// As of any other memory; what a child writes a child of that one sees, and nobody else.
TEST(SharedHeapTest, WhatAChildWritesStaysTheChilds) {
  constexpr std::size_t kBytes = 100'000;
  SharedHeap heap;
  auto* const released = static_cast<char*>(heap.allocate(kBytes).value());
  auto* const memory = static_cast<char*>(heap.allocate_again(kBytes, 8).value());
  ASSERT_TRUE(heap.release(released).ok());
  auto* const last = static_cast<char*>(heap.allocate(kBytes).value());
  for (char* const block : {memory, last})
    std::fill_n(block, kBytes, 'p');
  const pid_t child = fork();
  if (child == 0) {
    bool right = memory[0] == 'p' && last[kBytes - 1] == 'p';
    for (char* const block : {memory, last})
      std::fill_n(block, kBytes, 'c');
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(memory[1] == 'c' && last[1] == 'c' ? 0 : 1);
    int status = 1;
    right = right && waitpid(grandchild, &status, 0) == grandchild && status == 0;
    _exit(right ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const char* const block : {memory, last}) {
    EXPECT_EQ(std::count(block, block + kBytes, 'p'), static_cast<std::ptrdiff_t>(kBytes));
  }
}

TEST(HeapViewsTest, LetGoOfWhatTheOwnerReleased) {
  constexpr std::size_t kLarge = std::size_t{1} << 20;
  SharedHeap heap;
  HeapViews views(2);
  std::byte* first = take(heap, kLarge);
  std::byte* seen = views.at(1, *heap.find(first, kLarge), heap.releases());
  ASSERT_NE(seen, nullptr);
  first[kLarge / 2] = std::byte{7};
  EXPECT_EQ(seen[kLarge / 2], std::byte{7});
  EXPECT_EQ(views.at(1, *heap.find(first + 5, 1), heap.releases()), seen + 5) << "mapped twice";
  ASSERT_TRUE(heap.release(first).ok());
  std::byte* second = take(heap, 10);
  EXPECT_NE(views.at(1, *heap.find(second, 10), heap.releases()), nullptr);
  // The page in the middle is nobody's now.
  EXPECT_EQ(msync(seen + kLarge / 2, 4096, MS_ASYNC), -1);
  EXPECT_EQ(errno, ENOMEM);
}

}  // namespace
}  // namespace heddle::test
