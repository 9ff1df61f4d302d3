// Bcasts that are copied once: who may read whom, memory that nobody may read, and when it is measured to
// pay.
#include "transports/shm/single_copy.hpp"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <thread>
#include <vector>

#include "base/cpu.hpp"
#include "support/ranks.hpp"
#include "transports/team_fixture.hpp"

namespace heddle::test {
namespace {

using std::chrono::microseconds;
using team_layout::Board;

constexpr std::size_t kSlotBytes = 4096;

Board& board_of(TeamWorld& world, int member) {
  const std::size_t stride = team_layout::MemberLayout(kSlotBytes).total;
  return *reinterpret_cast<Board*>(world.memory.data() + static_cast<std::size_t>(member) * stride);
}

TEST(SingleCopy, ReadsThoseWhoAreWhoTheySay) {
  TeamWorld world(3, kSlotBytes);
  EXPECT_TRUE(world.of(0).reads_all());
  // As where a container has process numbers of its own, and another process has this one.
  board_of(world, 2).identity.number ^= 1;
  EXPECT_FALSE(world.of(0).reads_all());
  EXPECT_FALSE(world.of(1).reads_all());
  EXPECT_TRUE(world.of(2).reads_all()) << "its own memory is no matter";
  board_of(world, 2).identity.number ^= 1;
  board_of(world, 1).identity.place = 8;
  EXPECT_FALSE(world.of(0).reads_all()) << "nothing is there";
}

TEST(SingleCopy, DoesNotReadAProcessThatHasGone) {
  TeamWorld world(2, kSlotBytes);
  const pid_t child = fork();
  if (child == 0) {
    world.make_again(1);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(board_of(world, 1).identity.pid, child);
  EXPECT_FALSE(world.of(0).reads_all());
}

// Memory that the kernel keeps from all but its owner, as it does with a device's.
class SecretMemory {
 public:
  explicit SecretMemory(std::size_t bytes) : bytes_(bytes) {
    const auto fd = static_cast<int>(syscall(SYS_memfd_secret, 0));
    if (fd < 0) return;
    void* const at = ftruncate(fd, static_cast<off_t>(bytes)) == 0
                         ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                         : MAP_FAILED;
    close(fd);
    if (at != MAP_FAILED) data_ = static_cast<std::byte*>(at);
  }
  SecretMemory(const SecretMemory&) = delete;
  SecretMemory& operator=(const SecretMemory&) = delete;
  ~SecretMemory() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  std::byte* data() const { return data_; }  // null where there is no such memory

 private:
  std::size_t bytes_;
  std::byte* data_ = nullptr;
};

void run(Rank& me, Team& team, TeamOp& op) {
  team.start(op);
  me.until([&] { return team.poll(op); });
}

TeamOp bcast(std::byte* data, std::size_t bytes, int root) {
  TeamOp op;
  op.verb = TeamVerb::bcast;
  op.in = op.out = data;
  op.count = bytes;
  op.root = root;
  return op;
}

// The root tries again only after some bcasts, in which it does not wait for the others: they are up to a
// slot behind.
TEST(SingleCopy, WhatNobodyMayReadGoesThroughSlots) {
  constexpr std::size_t kBytes = kOnceFrom + 12;
  constexpr int kBcasts = 60;
  SecretMemory secret(2 * kBytes);
  if (secret.data() == nullptr) GTEST_SKIP() << "this kernel has no memfd_secret";
  for (const int members : {2, 3}) {
    TeamWorld world(members, kSlotBytes);
    run_ranks(members, [&](Rank& me) {
      ShmTeam& team = world.of(me.rank);
      team.copy_once(true);
      std::vector<std::byte> own(kBytes);
      for (int i = 0; i < kBcasts; ++i) {
        me.at("bcast", static_cast<std::uint64_t>(i));
        const bool hidden = i == 3 || i == 25;
        std::byte* const data = me.rank == 0 && hidden ? secret.data() : own.data();
        std::memset(data, me.rank == 0 ? i + 1 : 0, kBytes);
        if (me.rank != 0 && i % 7 == me.rank) std::this_thread::sleep_for(microseconds(700));
        TeamOp op = bcast(data, kBytes, 0);
        ASSERT_NO_FATAL_FAILURE(run(me, team, op));
        for (std::size_t k = 0; k < kBytes; ++k)
          ASSERT_EQ(data[k], static_cast<std::byte>(i + 1)) << "byte " << k << " of bcast " << i;
      }
    });
    // After the first refusal and 16 bcasts more it is offered again, and after the second 32.
    EXPECT_EQ(board_of(world, 1).taken.value % 2, 1U) << "the last one was read";
    EXPECT_EQ(board_of(world, 0).lent.offer % 2, 1U);
  }
}

// A root that has failed may put something else there, before a member comes or while it reads.
TEST(SingleCopy, WhatIsTheCallersAgainIsNotTaken) {
  const std::vector<std::byte> sent(kOnceUpTo, std::byte{1});
  for (int round = 0; round < rounds(400); ++round) {
    TeamWorld world(2, kSlotBytes);
    std::atomic<bool> here{false};
    std::atomic<bool> over{false};
    std::atomic<bool> through{false};
    run_ranks(2, [&](Rank& me) {
      ShmTeam& team = world.of(me.rank);
      team.copy_once(true);
      std::vector<std::byte> data(kOnceUpTo, me.rank == 0 ? std::byte{1} : std::byte{0});
      TeamOp op = bcast(data.data(), data.size(), 0);
      if (me.rank == 0) {
        team.start(op);
        if (round > 0) me.until([&] { return here.load(); });
        for (int delay = 0; delay < round; ++delay)
          cpu_relax();
        team.withdraw();
        std::memset(data.data(), 2, data.size());
        over = true;
        me.until([&] { return through.load(); });
        return;
      }
      if (round == 0) me.until([&] { return over.load(); });
      team.start(op);
      here = true;
      bool done = false;
      // At least once after the root has stored something else.
      for (bool last = false; !done && !last;) {
        last = over.load();
        done = team.poll(op);
      }
      EXPECT_TRUE(!done || data == sent) << "round " << round;
      through = true;
    });
  }
}

// What a container's rules may do.
bool forbid_reading() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(rules), rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

bool receives_all(ShmTeam& team, int bcasts) {
  std::vector<std::byte> data(kOnceUpTo);
  for (int i = 0; i < bcasts; ++i) {
    TeamOp op = bcast(data.data(), data.size(), 0);
    team.start(op);
    while (!team.poll(op))
      sched_yield();
    for (const std::byte each : data) {
      if (each != static_cast<std::byte>(i + 1)) return false;
    }
  }
  return true;
}

// The root serves it through slots, and the other one is through by then.
TEST(SingleCopy, OneWhoMayNotReadIsServedAlone) {
  constexpr int kBcasts = 5;
  TeamWorld world(3, kSlotBytes);
  std::vector<pid_t> children;
  for (int m = 1; m < 3; ++m) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(100);
      world.make_again(m);
      world.of(m).copy_once(true);
      _exit((m == 1 || (forbid_reading() && !world.of(m).reads_all())) && receives_all(world.of(m), kBcasts)
                ? 0
                : 1);
    }
    children.push_back(child);
  }
  run_ranks(1, [&](Rank& me) {
    world.of(0).copy_once(true);
    std::vector<std::byte> data(kOnceUpTo);
    for (int i = 0; i < kBcasts; ++i) {
      std::memset(data.data(), i + 1, data.size());
      TeamOp op = bcast(data.data(), data.size(), 0);
      run(me, world.of(0), op);
      // Only the first is offered.
      EXPECT_EQ(board_of(world, 1).taken.value, 3U);
      EXPECT_EQ(board_of(world, 2).taken.value, 2U);
    }
  });
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

// A child of the root's has other memory at that place.
TEST(SingleCopy, AChildOfTheRootsDoesNotLend) {
  constexpr std::size_t kBytes = kOnceFrom;
  TeamWorld world(2, kSlotBytes);
  std::vector<std::byte> data(kBytes, std::byte{1});
  const pid_t child = fork();
  if (child == 0) {
    alarm(100);
    world.of(1).copy_once(true);
    std::memset(data.data(), 2, kBytes);
    TeamOp op = bcast(data.data(), kBytes, 1);
    world.of(1).start(op);
    while (!world.of(1).poll(op))
      sched_yield();
    _exit(0);
  }
  run_ranks(1, [&](Rank& me) {
    world.of(0).copy_once(true);
    TeamOp op = bcast(data.data(), kBytes, 1);
    run(me, world.of(0), op);
  });
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(data, std::vector<std::byte>(kBytes, std::byte{2}));
}

// ---- Measuring

struct MadeUpTeam {
  microseconds once{50};
  microseconds through_slots{50};
  bool copies_once = false;
  int operations = 0;
  int fails_at = -1;
  double added = 0;  // to all times, as by another member

  SingleCopyTrial trial(microseconds budget = std::chrono::seconds(60)) {
    return {[this](bool on) { copies_once = on; },
            [this](TeamOp& op) -> Status {
              EXPECT_EQ(op.verb, TeamVerb::bcast);
              if (operations++ == fails_at) return Status(Code::peer_failed, "rank 1 is gone");
              std::this_thread::sleep_for(copies_once ? once : through_slots);
              return {};
            },
            [this](double& seconds) -> Status {
              seconds += added;
              return {};
            },
            budget};
  }
};

TEST(SingleCopy, PaysWhereItTakesLess) {
  MadeUpTeam pays{microseconds(20), microseconds(300)};
  MadeUpTeam costs{microseconds(300), microseconds(20)};
  EXPECT_TRUE(measure_single_copy(pays.trial(), 2).value());
  EXPECT_FALSE(measure_single_copy(costs.trial(), 2).value());
  EXPECT_EQ(pays.operations, costs.operations) << "members that measure different times do the same";
}

TEST(SingleCopy, IsLeftWhereItTakesAsLong) {
  // Another member's times count: half a second for both ways.
  MadeUpTeam team{microseconds(20), microseconds(60)};
  team.added = 0.5;
  EXPECT_FALSE(measure_single_copy(team.trial(), 2).value());
}

TEST(SingleCopy, IsLeftBeyondTheBudget) {
  MadeUpTeam pays{microseconds(20), microseconds(300)};
  EXPECT_FALSE(measure_single_copy(pays.trial(microseconds(1)), 3).value());
  EXPECT_LT(pays.operations, 20) << "it goes on for no answer";
}

TEST(SingleCopy, AFailureEndsMeasuring) {
  for (const int at : {0, 40, 200}) {
    MadeUpTeam team;
    team.fails_at = at;
    const Result<bool> found = measure_single_copy(team.trial(), 2);
    ASSERT_FALSE(found.ok()) << at;
    EXPECT_EQ(found.status().code(), Code::peer_failed);
    EXPECT_EQ(team.operations, at + 1);
  }
}

}  // namespace
}  // namespace heddle::test
