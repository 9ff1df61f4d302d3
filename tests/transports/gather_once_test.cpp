// Large allgathers that are copied once: both ways by turns, then the faster one; memory that nobody may
// read; a child of a member's; who is waited for.
#include "transports/shm/gather_once.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "transports/team_fixture.hpp"

namespace heddle::test {
namespace {

using team_layout::Board;

constexpr std::size_t kSlotBytes = 4096;
constexpr std::size_t kEach = GatherOnce::kFrom + 123;
constexpr auto kFirst = static_cast<int>(GatherOnce::kFirst);

// All members in one thread, moved by turns.
class Members {
 public:
  explicit Members(int size) : world_(size, kSlotBytes), ops_(static_cast<std::size_t>(size)) {
    for (int m = 0; m < size; ++m) {
      world_.of(m).gather_once(true);
      in_.emplace_back(kEach);
      out_.emplace_back(kEach * static_cast<std::size_t>(size));
      given_.push_back(in_.back().data());
    }
  }

  void give(int member, std::byte* from) { given_[static_cast<std::size_t>(member)] = from; }
  void start(int member, std::size_t bytes = kEach) {
    const auto m = static_cast<std::size_t>(member);
    std::fill_n(given_[m], bytes, value(member));
    TeamOp& op = ops_[m];
    op = TeamOp{};
    op.verb = TeamVerb::allgather;
    op.in = given_[m];
    op.out = out_[m].data();
    op.count = bytes;
    world_.of(member).start(op);
  }
  bool poll(int member) { return world_.of(member).poll(ops_[static_cast<std::size_t>(member)]); }
  int missing(int member) { return world_.of(member).missing(ops_[static_cast<std::size_t>(member)]); }

  // One of all of them; whether members have lent their buffers in it.
  bool gather(std::size_t bytes = kEach) {
    ++turn_;
    const int size = static_cast<int>(ops_.size());
    for (int m = 0; m < size; ++m)
      start(m, bytes);
    std::vector<bool> done(ops_.size());
    for (int round = 0; round < 1000 && std::find(done.begin(), done.end(), false) != done.end(); ++round) {
      for (int m = 0; m < size; ++m)
        done[static_cast<std::size_t>(m)] = done[static_cast<std::size_t>(m)] || poll(m);
    }
    for (int m = 0; m < size; ++m) {
      EXPECT_TRUE(done[static_cast<std::size_t>(m)]) << "member " << m << " in " << turn_;
      for (int from = 0; from < size; ++from) {
        const auto* const part =
            out_[static_cast<std::size_t>(m)].data() + static_cast<std::size_t>(from) * bytes;
        EXPECT_TRUE(std::all_of(part, part + bytes, [&](std::byte b) { return b == value(from); }))
            << "of " << from << " at " << m << " in " << turn_;
      }
    }
    return board(0).lent.offer.load() / 2 == ops_[0].operation;
  }
  Board& board(int member) {
    const std::size_t stride = team_layout::MemberLayout(kSlotBytes).total;
    return *reinterpret_cast<Board*>(world_.memory.data() + static_cast<std::size_t>(member) * stride);
  }

 private:
  std::byte value(int member) const { return static_cast<std::byte>(16 * member + turn_ % 16 + 1); }

  TeamWorld world_;
  std::vector<TeamOp> ops_;
  std::vector<std::vector<std::byte>> in_;
  std::vector<std::vector<std::byte>> out_;
  std::vector<std::byte*> given_;
  int turn_ = 0;
};

TEST(GatherOnce, TriesBothWaysAndTakesTheFaster) {
  for (const bool once : {true, false}) {
    Members members(3);
    for (std::uint64_t i = 0; i < GatherOnce::kFirst + GatherOnce::kOther; ++i)
      EXPECT_EQ(members.gather(), i >= GatherOnce::kFirst) << i;
    // The slowest member counts.
    members.board(2).gathered.ns[0][once ? 0 : 1] = 1'000'000'000;
    for (std::uint64_t i = 0; i < GatherOnce::kPeriod; ++i)
      EXPECT_EQ(members.gather() == once, i < GatherOnce::kPeriod - GatherOnce::kOther) << i;
    // And again, by what it has taken then.
    members.board(1).gathered.ns[0][once ? 1 : 0] = 1'000'000'000;
    EXPECT_EQ(members.gather(), !once);
  }
}

TEST(GatherOnce, ShortOnesAndWhatIsNotAllowedGoThroughSlots) {
  Members members(2);
  for (int i = 0; i < 2 * kFirst; ++i)
    EXPECT_FALSE(members.gather(GatherOnce::kFrom - 1));
}

TEST(GatherOnce, WhatNobodyMayReadGoesThroughSlotsFromThenOn) {
  const auto fd = static_cast<int>(syscall(SYS_memfd_secret, 0));
  if (fd < 0) GTEST_SKIP() << "this kernel has no memfd_secret";
  ASSERT_EQ(ftruncate(fd, kEach), 0);
  void* const secret = mmap(nullptr, kEach, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (secret == MAP_FAILED) GTEST_SKIP() << "this process may not lock memory";
  {
    Members members(3);
    members.give(1, static_cast<std::byte*>(secret));
    for (int i = 0; i < kFirst; ++i)
      EXPECT_FALSE(members.gather()) << i;
    EXPECT_TRUE(members.gather()) << "is tried, and comes all the same";
    for (int i = 0; i < 2 * kFirst; ++i)
      EXPECT_FALSE(members.gather()) << i;
  }
  munmap(secret, kEach);
}

// The others would look for its buffer in another process.
TEST(GatherOnce, AChildOfAMemberDoesNotLend) {
  Members members(2);
  members.board(1).identity.pid = getpid() + 1;
  for (int i = 0; i < kFirst; ++i)
    EXPECT_FALSE(members.gather()) << i;
  EXPECT_TRUE(members.gather());
  EXPECT_EQ(members.board(1).lent.offer.load() % 2, 0U);
  for (int i = 0; i < 2 * kFirst; ++i)
    EXPECT_FALSE(members.gather()) << i;
}

TEST(GatherOnce, WaitsForTheMemberThatDoesNotCome) {
  Members members(3);
  for (int i = 0; i < kFirst; ++i)
    members.gather();
  for (const int m : {0, 2})
    members.start(m);
  for (int round = 0; round < 20; ++round) {
    for (const int m : {0, 2})
      ASSERT_FALSE(members.poll(m));
  }
  EXPECT_EQ(members.missing(0), 1);
  EXPECT_EQ(members.missing(2), 1);
  // It has come, and goes no further.
  members.start(1);
  for (int round = 0; round < 20; ++round) {
    for (const int m : {0, 2})
      ASSERT_FALSE(members.poll(m));
  }
  EXPECT_EQ(members.missing(0), 1);
  EXPECT_EQ(members.missing(2), 1);
}

}  // namespace
}  // namespace heddle::test
