// Non-blocking and persistent collectives, alone, in numbers, and while blocking ones run.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "comm/progress_thread.hpp"
#include "communicator/party.hpp"
#include "setup/core_claim.hpp"

namespace heddle::test {
namespace {

using Vector = std::vector<std::int64_t>;

struct Among {
  Nodes nodes;
  bool thread = false;  // each communicator has a progress thread
};

class Requests : public ::testing::TestWithParam<Among> {
 protected:
  static Config config() {
    Config config = quiet();
    if (GetParam().thread) config.progress_thread = ProgressThreadSetting::always;
    return config;
  }
};
INSTANTIATE_TEST_SUITE_P(Nodes, Requests,
                         ::testing::Values(Among{{1, 1}}, Among{{1, 2}}, Among{{1, 1, 1, 1}},
                                           Among{{1, 1, 2, 3, 2}}, Among{{1, 1}, true},
                                           Among{{1, 1, 1}, true}));

std::unique_ptr<Request> allreduce(Communicator& comm, const Vector& in, Vector& out) {
  auto request = comm.allreduce_request(in.data(), out.data(), in.size(), DType::i64, Op::sum);
  EXPECT_TRUE(request.ok());
  return std::move(request).value();
}

TEST_P(Requests, TestedUntilDone) {
  Party party(GetParam().nodes);
  party.run(config(), [](Rank& me, Communicator& comm) {
    for (const std::size_t count : {0, 1, 1000, 60'000}) {
      const Vector in = terms(me.rank, count, 5);
      Vector out(count);
      const auto request = allreduce(comm, in, out);
      bool done = false;
      ASSERT_TRUE(request->test(&done).ok());
      EXPECT_TRUE(done) << "one that was never started is done";
      ASSERT_TRUE(request->start().ok());
      me.until([&] {
        EXPECT_TRUE(request->test(&done).ok());
        return done;
      });
      EXPECT_FALSE(request->active());
      ASSERT_EQ(out, sums(me.size, count, 5));
    }
  });
}

TEST_P(Requests, StartedAgainAndAgain) {
  Party party(GetParam().nodes);
  party.run(config(), [](Rank& me, Communicator& comm) {
    Vector in(500);
    Vector out(500);
    const auto request = allreduce(comm, in, out);
    auto barrier = comm.barrier_request();
    ASSERT_TRUE(barrier.ok());
    Vector reduced(500);
    const int root = me.size - 1;
    const bool is_root = me.rank == root;
    auto reduce =
        comm.reduce_request(in.data(), is_root ? reduced.data() : nullptr, 500, DType::i64, Op::sum, root);
    ASSERT_TRUE(reduce.ok());
    Vector gathered(500 * static_cast<std::size_t>(me.size));
    auto gather = comm.allgather_request(in.data(), gathered.data(), 500 * sizeof in[0]);
    ASSERT_TRUE(gather.ok());
    for (std::uint64_t round = 0; round < 50; ++round) {
      me.at("round", round);
      std::ranges::copy(terms(me.rank, 500, round), in.begin());
      ASSERT_TRUE(gather.value()->start().ok());
      ASSERT_TRUE(gather.value()->wait().ok());
      ASSERT_EQ(gathered, terms_of_all(me.size, 500, round));
      ASSERT_TRUE(reduce.value()->start().ok());
      ASSERT_TRUE(reduce.value()->wait().ok());
      if (is_root) {
        ASSERT_EQ(reduced, sums(me.size, 500, round));
      }
      ASSERT_TRUE(request->start().ok());
      ASSERT_TRUE(request->wait().ok());
      ASSERT_EQ(out, sums(me.size, 500, round));
      ASSERT_TRUE(barrier.value()->start().ok());
      ASSERT_TRUE(barrier.value()->wait().ok());
    }
  });
}

TEST_P(Requests, AStartedOneIsNotStartedTwice) {
  Party party(GetParam().nodes);
  std::atomic<bool> tried{false};
  party.run(config(), [&](Rank& me, Communicator& comm) {
    const Vector in(4, 1);
    Vector out(4);
    const auto request = allreduce(comm, in, out);
    // The others come once rank 0 has tried: until then its request must be active.
    if (me.rank != 0) me.until([&] { return tried.load(); });
    ASSERT_TRUE(request->start().ok());
    if (me.rank == 0) {
      EXPECT_EQ(request->start().code(), Code::invalid_argument);
      tried = true;
    }
    ASSERT_TRUE(request->wait().ok());
    EXPECT_EQ(out, Vector(4, me.size));
  });
}

TEST_P(Requests, ManyAtOnceWhileBlockingOnesRun) {
  Party party(GetParam().nodes);
  party.run(config(), [](Rank& me, Communicator& comm) {
    std::mt19937_64 order(static_cast<std::uint64_t>(me.rank));
    std::mt19937_64 shared(7);
    for (std::uint64_t round = 0; round < static_cast<std::uint64_t>(rounds(30)); ++round) {
      me.at("round", round);
      constexpr std::size_t kOpen = 6;
      std::vector<Vector> in(kOpen);
      std::vector<Vector> out(kOpen);
      std::vector<std::unique_ptr<Request>> open(kOpen);
      for (std::size_t k = 0; k < kOpen; ++k) {
        const std::size_t count = shared() % 3 == 0 ? shared() % 9000 : shared() % 20;
        const std::uint64_t tag = round * 10 + k;
        in[k] = terms(me.rank, count, tag);
        out[k].resize(count);
        if (k % 2 == 0) {
          open[k] = allreduce(comm, in[k], out[k]);
        } else {
          out[k] = me.rank == 0 ? terms(0, count, tag) : Vector(count);
          open[k] = std::move(comm.bcast_request(out[k].data(), count * 8, 0)).value();
        }
        ASSERT_TRUE(open[k]->start().ok());
        Vector value = terms(me.rank, 3, tag + 5000);
        ASSERT_TRUE(comm.allreduce(value.data(), value.data(), 3, DType::i64, Op::sum).ok());
        ASSERT_EQ(value, sums(me.size, 3, tag + 5000));
        if (order() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(order() % 500));
      }
      std::vector<std::size_t> waits{0, 1, 2, 3, 4, 5};
      std::shuffle(waits.begin(), waits.end(), order);
      for (const std::size_t k : waits) {
        ASSERT_TRUE(open[k]->wait().ok());
        const std::uint64_t tag = round * 10 + k;
        ASSERT_EQ(out[k], k % 2 == 0 ? sums(me.size, in[k].size(), tag) : terms(0, in[k].size(), tag));
      }
    }
  });
}

// The node's team takes one operation at a time: waiting for the last moves those before it.
TEST_P(Requests, WaitedForFromTheLastToTheFirst) {
  Party party(GetParam().nodes);
  party.run(config(), [](Rank& me, Communicator& comm) {
    const std::vector<std::size_t> counts{200'000, 3, 0, 50'000, 1};
    std::vector<Vector> in;
    std::vector<Vector> out;
    std::vector<std::unique_ptr<Request>> open;
    for (std::size_t k = 0; k < counts.size(); ++k) {
      in.push_back(terms(me.rank, counts[k], k));
      out.emplace_back(counts[k]);
    }
    for (std::size_t k = 0; k < counts.size(); ++k)
      open.push_back(allreduce(comm, in[k], out[k]));
    for (int round = 0; round < 3; ++round) {
      for (Vector& result : out)
        std::ranges::fill(result, -1);
      for (const auto& request : open)
        ASSERT_TRUE(request->start().ok());
      for (std::size_t k = counts.size(); k-- > 0;) {
        ASSERT_TRUE(open[k]->wait().ok());
        EXPECT_FALSE(open[k]->active());
        ASSERT_EQ(out[k], sums(me.size, counts[k], k)) << k;
      }
    }
  });
}

// A request that is left alone keeps its tags while thousands of collectives pass.
TEST_P(Requests, OneLeftOpenForThousandsOfCollectives) {
  Party party(GetParam().nodes);
  party.run(config(), [](Rank& me, Communicator& comm) {
    const Vector in = terms(me.rank, 9000, 3);
    Vector out(9000);
    const auto request = allreduce(comm, in, out);
    auto barrier = comm.barrier_request();
    ASSERT_TRUE(barrier.ok());
    ASSERT_TRUE(request->start().ok());
    for (std::uint64_t i = 0; i < 2200; ++i) {
      me.at("collective", i);
      ASSERT_TRUE(barrier.value()->start().ok());
      ASSERT_TRUE(barrier.value()->wait().ok());
    }
    ASSERT_TRUE(request->wait().ok());
    ASSERT_EQ(out, sums(me.size, 9000, 3));
  });
}

TEST_P(Requests, AnAbandonedOneTouchesNothing) {
  Party party(GetParam().nodes);
  party.run(config(), [](Rank& me, Communicator& comm) {
    if (me.rank == 0) {
      auto in = std::make_unique<Vector>(100, 1);
      auto out = std::make_unique<Vector>(100);
      auto request = allreduce(comm, *in, *out);
      ASSERT_TRUE(request->start().ok());
      request.reset();
      in.reset();
      out.reset();
      // A team has failed with it.
      const Status status = comm.progress();
      EXPECT_TRUE(status.ok() || status.message().find("given up") != std::string::npos) << status.message();
    }
  });
}

// Algorithms of two levels are a verb of the team's where there is one node, and requests of what they do not
// serve are, too.
TEST(TeamRequests, BlockingSchedulesOfTheTeamComeAfterThem) {
  Party party({1, 1, 1});
  Config config = quiet();
  config.algorithm = "allreduce:two_level_ring";
  config.timeout = std::chrono::seconds(20);
  party.run(config, [](Rank& me, Communicator& comm) {
    constexpr std::size_t kOpen = 4;
    for (std::uint64_t round = 0; round < 12; ++round) {
      me.at("round", round);
      std::vector<Vector> copies;
      std::vector<std::unique_ptr<Request>> open;
      for (std::size_t k = 0; k < kOpen; ++k) {
        const std::size_t count = k % 2 == 0 ? 100'000 : 30;
        copies.push_back(me.rank == 1 ? terms(1, count, round + k) : Vector(count));
      }
      // One comes late, so that the others have begun some of them at most.
      if (round % 3 == static_cast<std::uint64_t>(me.rank))
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      for (Vector& copy : copies) {
        auto request = comm.bcast_request(copy.data(), copy.size() * 8, 1);
        ASSERT_TRUE(request.ok());
        open.push_back(std::move(request).value());
        ASSERT_TRUE(open.back()->start().ok());
      }
      Vector value = terms(me.rank, 70, round + 100);
      ASSERT_TRUE(comm.allreduce(value.data(), value.data(), value.size(), DType::i64, Op::sum).ok());
      ASSERT_EQ(value, sums(me.size, value.size(), round + 100));
      for (std::size_t k = 0; k < kOpen; ++k) {
        ASSERT_TRUE(open[k]->wait().ok());
        ASSERT_EQ(copies[k], terms(1, copies[k].size(), round + k));
      }
    }
  });
}

// On one node the others cannot go on without this rank's part: whatever it calls next says so.
TEST(TeamRequests, AfterAnAbandonedOneTheCommunicatorFails) {
  Party party(Nodes{1, 1});
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    if (me.rank != 0) return;
    const Vector in(100, 1);
    Vector out(100);
    auto request = allreduce(comm, in, out);
    auto second = allreduce(comm, in, out);
    ASSERT_TRUE(request->start().ok());
    ASSERT_TRUE(second->start().ok());
    request.reset();
    for (const Status& status :
         {second->wait(), comm.barrier(), comm.allreduce(in.data(), out.data(), 100, DType::i64, Op::sum)}) {
      EXPECT_EQ(status.code(), Code::invalid_argument);
      EXPECT_NE(status.message().find("given up"), std::string::npos) << status.message();
    }
  });
}

// ---- The progress thread

Config with_thread() {
  Config config = quiet();
  config.progress_thread = ProgressThreadSetting::always;
  config.timeout = std::chrono::seconds(60);
  return config;
}

TEST(ProgressThread, WhereThereAreNoRequestsThereIsNone) {
  Party party(Nodes{1, 1});
  run_ranks(2, [&](Rank& me) {
    Bootstrap bootstrap = party.bootstrap(me.rank);
    bootstrap.has_requests = false;
    const auto comm = Communicator::create(bootstrap, with_thread());
    ASSERT_TRUE(comm.ok()) << comm.status().message();
    EXPECT_EQ(comm.value()->describe().find("a thread that moves requests"), std::string::npos);
  });
}

// More than the slots hold: it needs both ranks again and again.
TEST(ProgressThread, MovesWhatItsCallerLeavesAlone) {
  Party party(Nodes{1, 1});
  std::atomic<bool> through{false};
  party.run(with_thread(), [&](Rank& me, Communicator& comm) {
    EXPECT_NE(comm.describe().find("a thread that moves requests"), std::string::npos) << comm.describe();
    const Vector in = terms(me.rank, 1'000'000, 1);
    Vector out(in.size());
    const auto request = allreduce(comm, in, out);
    ASSERT_TRUE(request->start().ok());
    // Rank 1 calls nothing more until rank 0 has the result.
    if (me.rank == 1) me.until([&] { return through.load(); });
    ASSERT_TRUE(request->wait().ok());
    ASSERT_EQ(out, sums(me.size, in.size(), 1));
    if (me.rank == 0) through = true;
  });
}

TEST(ProgressThread, IsNotMadeWhereMessagesAreLentNorWithoutACoreToSpare) {
  Party party(Nodes{1, 2});
  party.run(with_thread(), [](Rank&, Communicator& comm) {
    EXPECT_EQ(comm.describe().find("a thread that"), std::string::npos);
  });
  Config spare = quiet();
  spare.progress_thread = ProgressThreadSetting::spare;
  Party crowd(Nodes(static_cast<std::size_t>(cores_of({core_claim()})), 1));
  crowd.run(spare, [](Rank&, Communicator& comm) {
    EXPECT_EQ(comm.describe().find("a thread that"), std::string::npos);
  });
}

TEST(ProgressThread, TakesNoSignals) {
  std::atomic<int> blocked{-1};
  ProgressThread::Work work;
  work.step = [&] {
    sigset_t mine;
    pthread_sigmask(SIG_BLOCK, nullptr, &mine);
    blocked = sigismember(&mine, SIGUSR1);
    return false;
  };
  const ProgressThread thread(work, -1);
  while (blocked < 0)
    std::this_thread::yield();
  EXPECT_EQ(blocked, 1);
  sigset_t mine;
  pthread_sigmask(SIG_BLOCK, nullptr, &mine);
  EXPECT_EQ(sigismember(&mine, SIGUSR1), 0) << "of the caller";
}

TEST(ProgressThread, SleepsUntilThereIsSomethingToDo) {
  const int descriptor = eventfd(0, EFD_NONBLOCK);
  std::atomic<int> steps{0};
  ProgressThread::Work work;
  work.step = [&] {
    eventfd_t value = 0;
    (void)eventfd_read(descriptor, &value);
    ++steps;
    return true;
  };
  work.arm = [&] { return descriptor; };
  work.longest_sleep = std::chrono::seconds(2);
  {
    const ProgressThread thread(work, -1);
    for (int wanted = 1; wanted <= 3; ++wanted) {
      while (steps < wanted)
        std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      EXPECT_EQ(steps, wanted) << "it polls";
      ASSERT_EQ(eventfd_write(descriptor, 1), 0);
    }
  }
  close(descriptor);
}

TEST(ProgressThread, LooksNowAndThenForAWhile) {
  std::atomic<int> steps{0};
  ProgressThread::Work work;
  work.step = [&] {
    ++steps;
    return false;
  };
  ProgressThread thread(work, -1);
  ProgressThread* asked = &thread;
  const auto settles = [&] {  // until it has not looked for a tenth of a second
    int before = -1;
    while (std::exchange(before, steps.load()) != steps)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return before;
  };
  EXPECT_EQ(settles(), 1) << "nobody asked it to look again";
  {
    const Turn turn(asked);
    thread.look_soon();
    thread.look_soon();
  }
  const int looked = settles();
  EXPECT_GE(looked, 10);
  EXPECT_LE(looked, 40);
  {
    const Turn turn(asked);
    thread.look_soon();
  }
  EXPECT_GE(settles(), looked + 10) << "again after it slept";
}

TEST(SpareCore, IsOneThatIsLeftWhenEveryRankHasItsOwn) {
  CoreClaim four;
  four.mask[0] = 0b1101'0100;
  EXPECT_EQ(spare_core({four, four}, 0), 7);
  EXPECT_EQ(spare_core({four, four}, 1), 6);
  EXPECT_EQ(spare_core({four, four, four}, 0), 7);
  EXPECT_EQ(spare_core({four, four, four}, 1), -1);
  EXPECT_EQ(spare_core({four, four, four, four}, 0), -1);
  four.launched = 3;
  EXPECT_EQ(spare_core({four, four}, 0), 7);
  EXPECT_EQ(spare_core({four, four}, 1), -1) << "another rank of the job wants one";
  four.launched = 0;
  four.quota = 2;
  EXPECT_EQ(spare_core({four, four}, 0), -1) << "the cgroup grants no more";
}

TEST(SpareCore, AllOfThemAreDealtOutInTurn) {
  CoreClaim six;
  six.mask[0] = 0b1111'1100;
  using Cores = std::vector<int>;
  EXPECT_EQ(spare_cores({six}, 0, false, 9), (Cores{7, 6, 5, 4, 3}));
  EXPECT_EQ(spare_cores({six}, 0, false, 2), (Cores{7, 6}));
  EXPECT_EQ(spare_cores({six}, 0, true, 2), (Cores{6, 5}));
  EXPECT_EQ(spare_cores({six, six}, 0, false, 9), (Cores{7, 5}));
  EXPECT_EQ(spare_cores({six, six}, 1, false, 9), (Cores{6, 4}));
  EXPECT_EQ(spare_cores({six, six}, 1, true, 9), (Cores{4}));
  six.quota = 3;
  EXPECT_EQ(spare_cores({six, six}, 0, false, 9), (Cores{7})) << "the cgroup grants three";
  EXPECT_EQ(spare_cores({six, six}, 1, false, 9), Cores{});
}

}  // namespace
}  // namespace heddle::test
