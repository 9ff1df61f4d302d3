// When ranks cannot use heddle together every one of them says so, in the same words.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "communicator/party.hpp"
#include "setup/setup.hpp"

namespace heddle::test {
namespace {

void expect_all(const std::vector<Status>& outcomes, Code code, const std::string& part) {
  for (const Status& s : outcomes) {
    EXPECT_EQ(s.code(), code) << s.message();
    EXPECT_EQ(s.message(), outcomes[0].message());
    EXPECT_NE(s.message().find(part), std::string::npos) << s.message();
  }
}

// Between nodes by the lender's messages or not at all.
Config lent_messages() {
  Config c = quiet();
  c.transports = "shm,mpi";
  return c;
}

TEST(Refusals, DisabledOnOneRank) {
  Party party({1, 1, 1, 1});
  expect_all(party.outcomes([](int rank) {
    Config c = quiet();
    c.enable = rank != 2;
    return c;
  }),
             Code::unsupported, "rank 2 has HEDDLE_ENABLE=0: unset it there");
}

TEST(Refusals, SettingsThatDiffer) {
  struct Difference {
    const char* variable;
    void (*change)(Config&);
  };
  const Difference differences[] = {
      {"HEDDLE_ALGORITHM", [](Config& c) { c.algorithm = "ring"; }},
      {"HEDDLE_TUNING_FILE", [](Config& c) { c.tuning_file = "/proc/self/cmdline"; }},
      {"HEDDLE_TRANSPORTS", [](Config& c) { c.transports = "shm"; }},
      {"HEDDLE_SLOT_BYTES", [](Config& c) { c.slot_bytes = 12345; }},
      {"HEDDLE_MEASURE", [](Config& c) { c.measure = true; }},
      {"HEDDLE_SHM", [](Config& c) { c.shm_backing = "posix"; }},
      {"HEDDLE_SPARSE", [](Config& c) { c.sparse = false; }},
      {"HEDDLE_COMPRESS", [](Config& c) { c.compress = "fp16"; }},
      {"HEDDLE_COMPRESS_FROM", [](Config& c) { c.compress_from = 1; }},
      {"HEDDLE_COMPRESS_TYPES", [](Config& c) { c.compress_f64 = true; }},
  };
  for (const Difference& d : differences) {
    Party party({1, 1, 1});
    const auto outcomes = party.outcomes([&](int rank) {
      Config c = quiet();
      if (rank == 1) d.change(c);
      return c;
    });
    expect_all(outcomes, Code::unsupported, d.variable);
    expect_all(outcomes, Code::unsupported, "rank 1");
  }
}

// What a rank may well have for itself.
TEST(Refusals, SettingsThatMayDiffer) {
  Party party({1, 1, 1});
  for (const Status& s : party.outcomes([](int rank) {
         Config c = quiet();
         c.spin = rank * 100;
         c.timeout = std::chrono::milliseconds(rank * 10'000);
         c.warn_after = std::chrono::milliseconds(rank);
         return c;
       })) {
    EXPECT_TRUE(s.ok()) << s.message();
  }
}

TEST(Refusals, NodesThatNothingConnects) {
  Party party({1, 1, 2});
  for (int r = 0; r < 3; ++r)
    party.lend_nothing(r);
  expect_all(party.outcomes([](int) { return lent_messages(); }), Code::unsupported,
             "2 nodes and no transport");
}

TEST(Refusals, OneRankWithoutMessagesToLend) {
  Party party({1, 1, 2});
  party.lend_nothing(1);
  expect_all(party.outcomes([](int) { return lent_messages(); }), Code::unsupported,
             "put tcp, ucx or verbs into HEDDLE_TRANSPORTS");
  for (int r = 0; r < 3; ++r)
    EXPECT_EQ(party.lender(r).releases, 0);
}

TEST(Refusals, TransportsThatLeaveNothing) {
  Party party({1, 2});
  expect_all(party.outcomes([](int) {
    Config c = quiet();
    c.transports = "shm";
    return c;
  }),
             Code::unsupported, "HEDDLE_TRANSPORTS=\"shm\"");
}

TEST(Refusals, ALenderThatFailsOnOneRank) {
  Party party({1, 2, 2});
  party.refusing = 1;
  expect_all(party.outcomes([](int) { return lent_messages(); }), Code::out_of_memory,
             "rank 1: no more of them");
  EXPECT_EQ(party.lender(0).releases, 1);
  EXPECT_EQ(party.lender(1).releases, 0);
  EXPECT_EQ(party.lender(2).releases, 1);
}

TEST(Refusals, SlotsThatDoNotFitInMemory) {
  for (const char* backing : {"memfd", "auto"}) {
    Party party({1, 1, 2});
    const auto outcomes = party.outcomes([&](int) {
      Config c = quiet();
      c.slot_bytes = std::size_t{1} << 55;
      c.shm_backing = backing;
      return c;
    });
    for (const Status& s : outcomes) {
      ASSERT_FALSE(s.ok());
      EXPECT_EQ(s.message(), outcomes[0].message());
      EXPECT_NE(s.message().find("rank 0"), std::string::npos) << s.message();
    }
  }
}

TEST(Refusals, AnAllgatherThatFails) {
  Party party({1, 1});
  run_ranks(2, [&](Rank& me) {
    Bootstrap b = party.bootstrap(me.rank);
    b.allgather = [](const void*, void*, std::size_t) { return Status(Code::peer_failed, "cut off"); };
    const auto comm = Communicator::create(b, quiet());
    EXPECT_EQ(comm.status().code(), Code::peer_failed);
    EXPECT_EQ(comm.status().message(), "cut off");
  });
}

// Whatever was being tried then: no other memory and no other network would help.
TEST(Refusals, AnAllgatherThatFailsAtAnyStep) {
  for (const std::vector<std::uint64_t>& nodes : {std::vector<std::uint64_t>{1, 1}, {1, 2, 2}}) {
    bool failed = true;
    for (int step = 0; failed; ++step) {
      Party party(nodes);
      run_ranks(party.size(), [&](Rank& me) {
        Bootstrap b = party.bootstrap(me.rank);
        int calls = 0;
        b.allgather = [&, gather = b.allgather](const void* mine, void* all, std::size_t bytes) {
          return calls++ < step ? gather(mine, all, bytes) : Status(Code::peer_failed, "cut off");
        };
        Config c = quiet();
        c.transports = "shm,tcp,mpi";
        const auto comm = Communicator::create(b, c);
        EXPECT_EQ(comm.status().message(), comm.ok() ? "" : "cut off") << "step " << step;
        if (me.rank == 0) failed = !comm.ok();
      });
    }
  }
}

// How a build of another protocol begins its hello, and how long that is, is all that is known of it.
TEST(Refusals, AnotherBuild) {
  Party party({1, 1, 2});
  std::vector<Status> all(3);
  run_ranks(3, [&](Rank& me) {
    Bootstrap b = party.bootstrap(me.rank);
    if (me.rank == 1) {
      b.allgather = [gather = b.allgather](const void* mine, void* rest, std::size_t bytes) {
        EXPECT_EQ(bytes, 512U);
        std::vector<std::uint32_t> words(bytes / sizeof(std::uint32_t), 0xffffffff);
        std::memcpy(words.data(), mine, sizeof words[0]);
        words[1] = 12345;
        return gather(words.data(), rest, bytes);
      };
    }
    all[static_cast<std::size_t>(me.rank)] = Communicator::create(b, quiet()).status();
  });
  expect_all(all, Code::unsupported, "rank 1 runs another version of heddle (protocol 12345, here ");
}

// What all ranks agree on where each has `mine`, by rank.
Status agreed_on(const std::vector<Status>& mine) {
  Party party(std::vector<std::uint64_t>(mine.size(), 1));
  std::vector<Status> all(mine.size());
  run_ranks(party.size(), [&](Rank& me) {
    const auto rank = static_cast<std::size_t>(me.rank);
    all[rank] = agree(party.bootstrap(me.rank), mine[rank]);
  });
  for (const Status& s : all) {
    EXPECT_EQ(s.code(), all[0].code());
    EXPECT_EQ(s.message(), all[0].message());
  }
  return all[0];
}

// Many addresses make a long reason, and what to do about it comes last.
TEST(Refusals, ReasonsAreToldToTheEnd) {
  const std::string reason = "no way: " + std::string(1500, 'x') + "; set HEDDLE_TCP_INTERFACES";
  EXPECT_EQ(agreed_on({{}, Status(Code::system, reason), {}}).message(), "rank 1: " + reason);
  EXPECT_EQ(agreed_on({{}, Status(Code::system, "")}).message(), "rank 1: ");
  const std::string endless = "no way: " + std::string(100'000, 'x') + "; set HEDDLE_TCP_INTERFACES";
  const std::string told =
      agreed_on({Status(Code::system, endless), Status(Code::timeout, reason)}).message();
  EXPECT_LT(told.size(), 5000U);
  EXPECT_TRUE(told.starts_with("rank 0: no way: xxx")) << told;
  EXPECT_TRUE(told.ends_with("xxx; set HEDDLE_TCP_INTERFACES")) << told;
}

// Those who waited for it say so in vain, however low their ranks.
TEST(Refusals, TheCauseIsReportedNotWhoWaitedForIt) {
  const auto reported = agreed_on;
  const Status gone(Code::peer_failed, "rank 3 is gone");
  const Status late(Code::timeout, "rank 3 does not come");
  const Status cause(Code::out_of_memory, "no more descriptors");
  EXPECT_TRUE(reported({{}, {}}).ok());
  EXPECT_EQ(reported({{}, gone, late, cause}).message(), "rank 3: no more descriptors");
  EXPECT_EQ(reported({{}, cause, Status(Code::system, "no more of others")}).message(),
            "rank 1: no more descriptors");
  EXPECT_EQ(reported({{}, late, gone}).message(), "rank 1: rank 3 does not come");
  EXPECT_EQ(reported({{}, late, gone}).code(), Code::timeout);
  // Who has heard of it from somebody else knows least.
  const Status heard = Status(Code::peer_failed, "rank 2 is gone, as rank 1 says").at_second_hand();
  EXPECT_EQ(reported({heard, {}, gone, heard}).message(), "rank 2: rank 3 is gone");
  EXPECT_EQ(reported({heard, late}).message(), "rank 1: rank 3 does not come");
  EXPECT_EQ(reported({{}, heard}).message(), "rank 1: rank 2 is gone, as rank 1 says");
  EXPECT_EQ(reported({{}, heard}).code(), Code::peer_failed);
}

TEST(Refusals, LentMessagesComeBackOnce) {
  Party party({1, 2});
  party.run(quiet(), [](Rank&, Communicator& comm) { EXPECT_TRUE(comm.barrier().ok()); });
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(party.lender(r).releases, 1);
    EXPECT_EQ(party.lender(r).opened, party.lender(r).closed);
  }
}

// Scarce as they are, they are not asked for where shared memory reaches everybody.
TEST(Refusals, OneNodeBorrowsNothing) {
  Party party({1, 1});
  party.refusing = 0;
  for (const Status& s : party.outcomes([](int) { return quiet(); }))
    EXPECT_TRUE(s.ok()) << s.message();
  EXPECT_EQ(party.lender(1).releases, 0);
}

}  // namespace
}  // namespace heddle::test
