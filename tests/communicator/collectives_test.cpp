// A communicator's collectives, on one node, on several, on uneven ones; algorithms chosen and forced.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include "communicator/party.hpp"
#include "select/catalog.hpp"
#include "support/divided_machine.hpp"

namespace heddle::test {
namespace {

void every_collective(Rank& me, Communicator& comm, const std::vector<std::size_t>& counts) {
  std::uint64_t tag = 0;
  for (const std::size_t count : counts) {
    me.at("allreduce", ++tag);
    const std::vector<std::int64_t> in = terms(me.rank, count, tag);
    std::vector<std::int64_t> out(count, -1);
    ASSERT_TRUE(comm.allreduce(in.data(), out.data(), count, DType::i64, Op::sum).ok());
    ASSERT_EQ(out, sums(me.size, count, tag));
    out = in;
    ASSERT_TRUE(comm.allreduce(out.data(), out.data(), count, DType::i64, Op::sum).ok());
    ASSERT_EQ(out, sums(me.size, count, tag)) << "in place";
    me.at("allgather", ++tag);
    const std::vector<std::int64_t> own = terms(me.rank, count, tag);
    out.assign(count * static_cast<std::size_t>(me.size), -1);
    ASSERT_TRUE(comm.allgather(own.data(), out.data(), count * 8).ok());
    ASSERT_EQ(out, terms_of_all(me.size, count, tag));
    ASSERT_EQ(own, terms(me.rank, count, tag)) << "the input was changed";
    me.at("allgather in place", ++tag);
    out.assign(out.size(), -1);
    const std::size_t place = count * static_cast<std::size_t>(me.rank);
    std::ranges::copy(terms(me.rank, count, tag), out.begin() + static_cast<std::ptrdiff_t>(place));
    ASSERT_TRUE(comm.allgather(nullptr, out.data(), count * 8).ok());
    ASSERT_EQ(out, terms_of_all(me.size, count, tag)) << "in place";
    me.at("barrier", ++tag);
    ASSERT_TRUE(comm.barrier().ok());
    for (int root = 0; root < me.size; ++root) {
      me.at("bcast", ++tag);
      out = me.rank == root ? terms(root, count, tag) : std::vector<std::int64_t>(count);
      ASSERT_TRUE(comm.bcast(out.data(), count * 8, root).ok());
      ASSERT_EQ(out, terms(root, count, tag)) << "root " << root;
      me.at("reduce", ++tag);
      const std::vector<std::int64_t> mine = terms(me.rank, count, tag);
      const bool is_root = me.rank == root;
      const bool in_place = is_root && tag % 4 < 2;
      out = in_place ? mine : std::vector<std::int64_t>(count, -1);
      const std::int64_t* const from = in_place ? out.data() : mine.data();
      ASSERT_TRUE(comm.reduce(from, is_root ? out.data() : nullptr, count, DType::i64, Op::sum, root).ok());
      ASSERT_EQ(out, is_root ? sums(me.size, count, tag) : std::vector<std::int64_t>(count, -1))
          << "root " << root;
      ASSERT_EQ(mine, terms(me.rank, count, tag)) << "the input was changed";
    }
  }
}

class Placement : public ::testing::TestWithParam<Nodes> {};
INSTANTIATE_TEST_SUITE_P(Nodes, Placement,
                         ::testing::Values(Nodes{5}, Nodes{1, 1}, Nodes{1, 2}, Nodes{7, 7, 7, 7, 7},
                                           Nodes{1, 1, 2, 2}, Nodes{1, 2, 3, 4}, Nodes{1, 1, 1, 2},
                                           Nodes{2, 1, 2, 1, 3, 2, 1}));

TEST_P(Placement, EveryCollective) {
  Party party(GetParam());
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    EXPECT_EQ(comm.rank(), me.rank);
    EXPECT_EQ(comm.size(), me.size);
    every_collective(me, comm, {0, 1, 5, 1000, 40'000});
  });
}

TEST_P(Placement, FloatsHaveTheSameBitsEverywhere) {
  Party party(GetParam());
  std::vector<std::vector<float>> results(GetParam().size());
  party.run(quiet(), [&](Rank& me, Communicator& comm) {
    std::vector<float>& mine = results[static_cast<std::size_t>(me.rank)];
    for (const std::size_t count : {3, 700, 50'000}) {
      std::vector<float> data(count);
      for (std::size_t i = 0; i < count; ++i)
        data[i] = 1.0F / static_cast<float>(i + 3 + static_cast<std::size_t>(me.rank) * 17);
      ASSERT_TRUE(comm.allreduce(data.data(), data.data(), count, DType::f32, Op::sum).ok());
      mine.insert(mine.end(), data.begin(), data.end());
    }
  });
  for (const auto& r : results)
    EXPECT_EQ(std::memcmp(r.data(), results[0].data(), r.size() * sizeof(float)), 0);
}

TEST_P(Placement, EveryRankSendsToEveryOther) {
  Party party(GetParam());
  party.run(quiet(), [](Rank& me, Communicator& comm) {
    for (const std::size_t count : {0, 1, 30'000}) {
      for (int from = 0; from < me.size; ++from) {
        for (int to = 0; to < me.size; ++to) {
          if (from == to) continue;
          const auto tag = static_cast<std::uint64_t>(from) * 100 + static_cast<std::uint64_t>(to);
          me.at("message", tag);
          std::vector<std::int64_t> data = terms(from, count, tag);
          if (me.rank == from) {
            ASSERT_TRUE(comm.send(data.data(), count * 8, to).ok());
          }
          if (me.rank != to) continue;
          std::vector<std::int64_t> got(count);
          ASSERT_TRUE(comm.recv(got.data(), count * 8, from).ok());
          ASSERT_EQ(got, data);
        }
      }
    }
  });
}

TEST_P(Placement, ForcedAlgorithms) {
  std::uint64_t next =
      std::accumulate(GetParam().begin(), GetParam().end(), std::uint64_t{GetParam().size()});
  for (const Algorithm& a : catalog()) {
    if (a.collective == Collective::barrier) continue;
    if (++next % 3 != 0 && kSlowBuild) continue;  // each on some of the placements: time
    SCOPED_TRACE(a.name);
    Party party(GetParam());
    Config config = quiet();
    config.algorithm = std::string(collective_name(a.collective)) + ":" + a.name;
    party.run(config, [&](Rank& me, Communicator& comm) {
      const bool can_run = me.size > 1 &&
                           (!a.needs_team || a.needs_messages || comm.topology().nodes() == 1) &&
                           (!a.needs_domains || comm.topology().has_domains());
      if (can_run) {
        EXPECT_STREQ(comm.algorithm(a.collective, 1000), a.name);
      } else {
        EXPECT_STRNE(comm.algorithm(a.collective, 1000), a.name);
      }
      every_collective(me, comm, {0, 1, 1000});
    });
  }
}

// Several nodes, on which each of them has a place of its own; the team serves one node alone.
TEST(Communicator, AllgathersByEachAlgorithm) {
  const Nodes one{1, 1, 1};
  const Nodes runs{1, 1, 1, 2, 2, 2, 3, 3, 3};
  const Nodes uneven{1, 1, 2, 2, 2, 3};
  const Nodes mixed{1, 2, 1, 2, 2};
  for (const Nodes& nodes : {one, runs, uneven, mixed}) {
    for (const char* algorithm :
         {"team", "recursive_doubling", "bruck", "ring", "two_level", "two_level_ring"}) {
      SCOPED_TRACE(std::string(algorithm) + " on " + std::to_string(nodes.size()) + " ranks");
      Party party(nodes);
      Config config = quiet();
      config.algorithm = std::string("allgather:") + algorithm;
      party.run(config, [&](Rank& me, Communicator& comm) {
        const bool serves = nodes == one || algorithm != std::string("team");
        for (const std::size_t bytes : {0, 1, 100, 5000, 300'000}) {
          me.at("allgather", bytes);
          EXPECT_EQ(comm.algorithm(Collective::allgather, bytes) == std::string(algorithm), serves) << bytes;
          const std::uint64_t before = comm.calls();
          std::vector<char> in(bytes, static_cast<char>('a' + me.rank));
          std::vector<char> out(bytes * nodes.size(), '?');
          ASSERT_TRUE(comm.allgather(in.data(), out.data(), bytes).ok());
          EXPECT_EQ(comm.calls(), before + 1);
          for (std::size_t r = 0; r < nodes.size(); ++r) {
            const auto from = out.begin() + static_cast<std::ptrdiff_t>(r * bytes);
            ASSERT_EQ(std::string(from, from + static_cast<std::ptrdiff_t>(bytes)),
                      std::string(bytes, static_cast<char>('a' + static_cast<int>(r))));
          }
        }
      });
    }
  }
}

// What a reduce folds into on ranks other than its root is not kept for every root.
TEST(Communicator, ReducesToManyRootsTakeOneScratch) {
  if (kSlowBuild) GTEST_SKIP() << "sanitizers have memory of their own";
  constexpr std::size_t kCount = 1 << 20;
  constexpr std::size_t kVector = kCount * sizeof(double);
  const auto taken = [] {
    const struct mallinfo2 now = ::mallinfo2();
    return now.uordblks + now.hblkhd;
  };
  std::atomic<std::size_t> before{0};
  Party party({1, 2, 3, 4, 5, 6});
  party.run(quiet(), [&](Rank& me, Communicator& comm) {
    const std::vector<double> in(kCount, me.rank);
    std::vector<double> out(kCount);
    ASSERT_TRUE(comm.barrier().ok());
    if (me.rank == 0) before = taken();
    for (int root = 0; root < me.size; ++root) {
      me.at("root", static_cast<std::uint64_t>(root));
      ASSERT_TRUE(comm.reduce(in.data(), out.data(), kCount, DType::f64, Op::sum, root).ok());
      if (me.rank == root) {
        ASSERT_EQ(out[kCount - 1], 15);
      }
    }
    ASSERT_TRUE(comm.barrier().ok());
    if (me.rank == 0) {
      EXPECT_LE(taken() - before, 6 * 3 * kVector);
    }
    ASSERT_TRUE(comm.barrier().ok());
  });
}

TEST(Communicator, OneRankIsItsOwnWorld) {
  Party party({1});
  party.run(quiet(), [](Rank&, Communicator& comm) {
    EXPECT_STREQ(comm.algorithm(Collective::allreduce, 8), "self");
    int value = 4;
    int out = 0;
    EXPECT_TRUE(comm.allreduce(&value, &out, 1, DType::i32, Op::sum).ok());
    EXPECT_EQ(out, 4);
    EXPECT_TRUE(comm.bcast(&value, 4, 0).ok());
    EXPECT_TRUE(comm.barrier().ok());
    EXPECT_EQ(comm.send(&value, 4, 0).code(), Code::unsupported);
    out = 0;
    EXPECT_TRUE(comm.reduce(&value, &out, 1, DType::i32, Op::sum, 0).ok());
    EXPECT_EQ(out, 4);
    out = 0;
    EXPECT_TRUE(comm.allgather(&value, &out, 4).ok());
    EXPECT_EQ(out, 4);
    EXPECT_TRUE(comm.allgather(nullptr, &out, 4).ok());
    EXPECT_EQ(out, 4);
    out = 0;
    auto gather = comm.allgather_request(&value, &out, 4);
    ASSERT_TRUE(gather.ok());
    ASSERT_TRUE(gather.value()->start().ok());
    ASSERT_TRUE(gather.value()->wait().ok());
    EXPECT_EQ(out, 4);
    out = 0;
    auto request = comm.allreduce_request(&value, &out, 1, DType::i32, Op::sum);
    ASSERT_TRUE(request.ok());
    ASSERT_TRUE(request.value()->start().ok());
    ASSERT_TRUE(request.value()->wait().ok());
    EXPECT_EQ(out, 4);
    EXPECT_TRUE(comm.describe().starts_with("1 rank on 1 node")) << comm.describe();
  });
}

TEST(Communicator, DescribesItself) {
  Party party({1, 1, 2});
  party.run(quiet(), [](Rank&, Communicator& comm) {
    EXPECT_TRUE(comm.describe().starts_with("3 ranks on 2 nodes")) << comm.describe();
    EXPECT_NE(comm.describe().find("mpi"), std::string::npos);
  });
}

// ---- Domains within a node

// Which domain each rank belongs to.
class Domains : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  void SetUp() override {
    cpu_set_t before;
    ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    const bool can = DividedMachine::enter(1) && DividedMachine::enter(0);
    ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
    if (!can) GTEST_SKIP() << "needs cores 0 and 1";
  }

  template <typename Body>
  void run(const Config& config, Body body) {
    const DividedMachine machine;
    run_ranks(static_cast<int>(GetParam().size()), [&](Rank& me) {
      ASSERT_TRUE(DividedMachine::enter(GetParam()[static_cast<std::size_t>(me.rank)]));
      me.at("create");
      auto comm = Communicator::create(party_.bootstrap(me.rank), config);
      ASSERT_TRUE(comm.ok()) << comm.status().message();
      body(me, *comm.value());
    });
  }

 private:
  Party party_{std::vector<std::uint64_t>(GetParam().size(), 1)};
};
INSTANTIATE_TEST_SUITE_P(Ranks, Domains,
                         ::testing::Values(std::vector{0, 0, 1, 1}, std::vector{1, 0, 1, 0, 1, 0, 1},
                                           std::vector{0, 1, 1, 1, 1}));

TEST_P(Domains, AreFoundAndServed) {
  run(quiet(), [&](Rank& me, Communicator& comm) {
    EXPECT_EQ(comm.topology().domains(0), 2);
    EXPECT_NE(comm.describe().find("2 domains"), std::string::npos) << comm.describe();
    for (int rank = 0; rank < me.size; ++rank) {
      const bool same = GetParam()[static_cast<std::size_t>(rank)] == GetParam()[0];
      EXPECT_EQ(
          comm.topology().team_of(TeamKind::domain, rank) == comm.topology().team_of(TeamKind::domain, 0),
          same);
    }
    every_collective(me, comm, {0, 1, 5, 1000, 40'000});
  });
}

TEST_P(Domains, ServeEverySizeByLeaders) {
  Config config = quiet();
  config.algorithm = "multi_leader";
  run(config, [](Rank& me, Communicator& comm) {
    EXPECT_STREQ(comm.algorithm(Collective::allreduce, 1000), "multi_leader");
    EXPECT_STREQ(comm.algorithm(Collective::bcast, 1 << 20), "multi_leader");
    every_collective(me, comm, {0, 1, 5, 1000, 40'000, 300'000});
  });
}

// The turns that requests take on the node's team are not in the way of the domains' teams.
TEST_P(Domains, RequestsBetweenBlockingCollectives) {
  Config config = quiet();
  config.algorithm = "multi_leader";
  run(config, [](Rank& me, Communicator& comm) {
    for (const std::size_t count : {3, 5000, 100'000}) {
      std::vector<std::int64_t> data = terms(me.rank, count, 1);
      auto request = comm.allreduce_request(data.data(), data.data(), count, DType::i64, Op::sum);
      ASSERT_TRUE(request.ok()) << request.status().message();
      ASSERT_TRUE(request.value()->start().ok());
      every_collective(me, comm, {count});
      ASSERT_TRUE(request.value()->wait().ok());
      ASSERT_EQ(data, sums(me.size, count, 1));
    }
  });
}

// Alone in its domain or not, whoever is missing is named, and with care: the rank one waits for may wait
// itself.
TEST_P(Domains, AMissingRankEndsEveryWait) {
  Config config = quiet();
  config.algorithm = "multi_leader";
  config.timeout = std::chrono::milliseconds(500);
  std::atomic<int> through{0};
  run(config, [&](Rank& me, Communicator& comm) {
    if (me.rank == 1) return me.until([&] { return through.load() == me.size - 1; });
    std::int64_t value = 1;
    const Status status = comm.allreduce(&value, &value, 1, DType::i64, Op::sum);
    // By its own deadline, or by the word of one whose deadline was over before.
    const bool heard = status.code() == Code::peer_failed;
    EXPECT_TRUE(heard || status.code() == Code::timeout);
    EXPECT_NE(status.message().find(heard ? " s for rank 1 (" : "did not take part"), std::string::npos)
        << status.message();
    ++through;
  });
}

// The transports named decide: without shm every rank is a node of its own.
TEST(Communicator, WithoutSharedMemory) {
  Party party({1, 1, 1});
  Config config = quiet();
  config.transports = "mpi";
  party.run(config, [](Rank& me, Communicator& comm) {
    EXPECT_EQ(comm.topology().nodes(), 3);
    every_collective(me, comm, {1, 1000});
  });
}

TEST(Communicator, EveryBackingWorks) {
  for (const char* backing : {"auto", "memfd", "posix"}) {
    Party party({1, 1, 2, 2});
    Config config = quiet();
    config.shm_backing = backing;
    party.run(config, [](Rank& me, Communicator& comm) { every_collective(me, comm, {1, 2000}); });
  }
}

// Numbers of collectives come back after 2047.
TEST(Communicator, ManyCollectives) {
  for (const Nodes& nodes : {Nodes{1, 1, 1}, Nodes{1, 1, 2}}) {
    Party party(nodes);
    party.run(quiet(), [](Rank& me, Communicator& comm) {
      for (std::uint64_t i = 0; i < 4500; ++i) {
        me.at("collective", i);
        std::int64_t value = term(me.rank, 0, i);
        if (i % 3 == 0) {
          const int root = static_cast<int>(i / 3 % 3);
          ASSERT_TRUE(comm.bcast(&value, 8, root).ok());
          ASSERT_EQ(value, term(root, 0, i));
        } else {
          ASSERT_TRUE(comm.allreduce(&value, &value, 1, DType::i64, Op::sum).ok());
          ASSERT_EQ(value, sums(me.size, 1, i)[0]);
        }
      }
    });
  }
}

}  // namespace
}  // namespace heddle::test
