// Devices that Soft-RoCE is not, by functions in place of the library's: those that this program calls, and
// no others.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "rdma/verbs_world.hpp"
#include "transports/verbs/deadlines.hpp"

namespace {

// What the device is to be taken for.
struct Double {
  std::uint32_t missing = 0;  // bytes of each write with an immediate
  int receives = 0;           // that connections share, at most; 0: as many as the device says
  bool silent = false;        // says of nothing that it is done
};
Double taken_for;

// Of the system, as the library sees it.
ibv_fork_status forks = IBV_FORK_UNNEEDED;
bool guarded_late = false;  // after the first list of devices
bool listed = false;

int (*poll_next)(ibv_cq*, int, ibv_wc*);

int poll(ibv_cq* queue, int most, ibv_wc* works) {
  const int count = taken_for.silent ? 0 : poll_next(queue, most, works);
  for (int i = 0; i < count; ++i) {
    if (works[i].status == IBV_WC_SUCCESS && works[i].opcode == IBV_WC_RECV_RDMA_WITH_IMM)
      works[i].byte_len -= taken_for.missing;
  }
  return count;
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" ibv_context* ibv_open_device(ibv_device* device) {
  ibv_context* const opened = next<ibv_context*(ibv_device*)>("ibv_open_device")(device);
  if (opened != nullptr && opened->ops.poll_cq != poll) {
    poll_next = opened->ops.poll_cq;
    opened->ops.poll_cq = poll;
  }
  return opened;
}

extern "C" ibv_fork_status ibv_is_fork_initialized() {
  return forks;
}

extern "C" int ibv_fork_init() {
  guarded_late = listed;
  forks = IBV_FORK_ENABLED;
  return 0;
}

extern "C" ibv_device** ibv_get_device_list(int* count) {
  listed = true;
  return next<ibv_device**(int*)>("ibv_get_device_list")(count);
}

extern "C" int ibv_query_device(ibv_context* context, ibv_device_attr* limits) {
  const int err = next<int(ibv_context*, ibv_device_attr*)>("ibv_query_device")(context, limits);
  if (taken_for.receives > 0) limits->max_srq_wr = taken_for.receives;
  return err;
}

namespace heddle::test {
namespace {

using std::chrono::steady_clock;

struct VerbsDoubles : testing::Test {
  ~VerbsDoubles() override { taken_for = {}; }
  // Progress of all, whatever becomes of it, until `done`.
  template <typename Done>
  static bool drive(VerbsWorld& world, std::vector<Status>& status, Done done) {
    const auto end = steady_clock::now() + std::chrono::seconds(20);
    status.resize(world.transports.size());
    while (!done() && steady_clock::now() < end) {
      for (std::size_t rank = 0; rank < status.size(); ++rank)
        status[rank] = world.transports[rank]->progress();
    }
    return done();
  }
};

// The window is not taken for full.
TEST_F(VerbsDoubles, AWriteThatIsShorterThanItsWindowIsDamage) {
  taken_for.missing = 4096;
  VerbsWorld world(2);
  std::vector<char> data(700'000, 1);
  std::vector<char> buffer(data.size());
  Ticket sent;
  Ticket received;
  ASSERT_TRUE(world.of(0).send(1, 3, data.data(), data.size(), sent).ok());
  ASSERT_TRUE(world.of(1).recv(0, 3, buffer.data(), buffer.size(), received).ok());
  std::vector<Status> status;
  ASSERT_TRUE(drive(world, status, [&] { return !status[1].ok() || received.done; }));
  EXPECT_FALSE(received.done);
  EXPECT_NE(status[1].message().find("a write of another length than its window"), std::string::npos)
      << status[1].message();
}

// Each rank has room for two of its three peers, which most ranks of a large communicator need not know.
TEST_F(VerbsDoubles, AConnectionForWhichThereIsNoReceiveLeftIsRefused) {
  taken_for.receives = 16;
  VerbsWorld world(4);
  char out = 7;
  char in[4] = {};
  Ticket tickets[8];
  std::vector<Status> status;
  for (const int peer : {1, 2}) {
    ASSERT_TRUE(world.of(0).send(peer, 3, &out, 1, tickets[peer]).ok());
    ASSERT_TRUE(world.of(peer).recv(0, 3, &in[peer], 1, tickets[4 + peer]).ok());
    ASSERT_TRUE(drive(world, status, [&] { return tickets[peer].done && tickets[4 + peer].done; }));
    EXPECT_EQ(in[peer], 7);
  }
  ASSERT_TRUE(world.of(3).recv(0, 3, &in[3], 1, tickets[7]).ok());
  const Status refused = world.of(0).send(3, 3, &out, 1, tickets[3]);
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_NE(refused.message().find(
                "shares at most 16 receives between connections, enough for 2 peers: there is none "
                "left for a connection to rank 3"),
            std::string::npos)
      << refused.message();
  ASSERT_TRUE(drive(world, status, [&] { return !status[3].ok(); }))
      << "it waits for an answer to its hellos";
  EXPECT_NE(status[3].message().find("rank 0 is gone: it has failed"), std::string::npos)
      << status[3].message();
}

// More than the queue of datagrams takes at once, while nobody looks at what has been sent from it.
constexpr int kManyRanks = 40;

TEST_F(VerbsDoubles, AllHearOfARankThatLeavesHoweverManyTheyAre) {
  VerbsWorld world(kManyRanks);
  std::vector<char> in(kManyRanks);
  std::vector<Ticket> tickets(kManyRanks);
  for (std::size_t rank = 1; rank < kManyRanks; ++rank)
    ASSERT_TRUE(world.of(static_cast<int>(rank)).recv(0, 3, &in[rank], 1, tickets[rank]).ok());
  world.of(0).leave({});
  std::vector<Status> status;
  const auto all_know = [&] {
    return std::count_if(status.begin(), status.end(), [](const Status& s) { return !s.ok(); }) == kManyRanks;
  };
  ASSERT_TRUE(drive(world, status, all_know));
  for (std::size_t rank = 1; rank < kManyRanks; ++rank)
    EXPECT_NE(status[rank].message().find("rank 0 is gone: it has failed"), std::string::npos)
        << rank << ": " << status[rank].message();
}

// The limit of the test is the measure of that.
TEST_F(VerbsDoubles, WhoLeavesDoesNotWaitForADeviceThatSaysNothing) {
  VerbsWorld world(kManyRanks);
  taken_for.silent = true;
  world.of(0).leave({});
  EXPECT_EQ(world.of(0).progress().code(), Code::peer_failed);
}

// Some drivers lose messages where many are sent again. How long this rank was elsewhere before is not what
// counts.
TEST_F(VerbsDoubles, WhatADeviceHasLostIsNotWaitedForForEver) {
  // Short, but not what a processor may be away for: the device would give up what it has not lost.
  VerbsWorld world(2, std::chrono::milliseconds(800));
  char out = 7;
  char in = 0;
  Ticket tickets[3];
  ASSERT_TRUE(world.of(0).send(1, 3, &out, 1, tickets[0]).ok());
  ASSERT_TRUE(world.of(1).recv(0, 3, &in, 1, tickets[1]).ok());
  std::vector<Status> status;
  ASSERT_TRUE(drive(world, status, [&] { return tickets[0].done && tickets[1].done; }));
  // A message this short counts as sent before it is acknowledged, and that comes, too.
  const auto acknowledged = steady_clock::now() + std::chrono::seconds(1);
  ASSERT_TRUE(drive(world, status, [&] { return steady_clock::now() > acknowledged; }));
  std::this_thread::sleep_for(std::chrono::duration<double>(verbs::gives_up_within({})));
  taken_for.silent = true;
  ASSERT_TRUE(world.of(0).send(1, 4, &out, 1, tickets[2]).ok());
  for (int looks = 0; looks < 1000; ++looks)
    ASSERT_TRUE(world.of(0).progress().ok()) << world.of(0).progress().message();
  ASSERT_TRUE(drive(world, status, [&] { return !status[0].ok(); }));
  EXPECT_EQ(status[0].code(), Code::peer_failed);
  EXPECT_NE(status[0].message().find("rank 1 is gone: the device has neither delivered nor given up"),
            std::string::npos)
      << status[0].message();
}

// And never where it does it by itself: it costs something.
TEST_F(VerbsDoubles, MemoryIsKeptFromChildrenWhereTheSystemDoesNotCopyIt) {
  for (const ibv_fork_status before : {IBV_FORK_UNNEEDED, IBV_FORK_DISABLED}) {
    listed = guarded_late = false;
    forks = before;
    VerbsWorld world(1);
    EXPECT_TRUE(listed);
    EXPECT_FALSE(guarded_late);
    EXPECT_EQ(forks, before == IBV_FORK_DISABLED ? IBV_FORK_ENABLED : before);
  }
  forks = IBV_FORK_UNNEEDED;
}

}  // namespace
}  // namespace heddle::test
