// Starts over TCP at which somebody knocks who should not.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>

#include "bootstrap_ranks.hpp"
#include "setup/tcp_star_wire.hpp"

namespace heddle {
namespace {

TEST(Bootstrap, SecondProcessWithOneRankIsRefusedAndTheRestStarts) {
  const int port = free_port();
  std::atomic<int> refusals{0};
  // Both call themselves rank 1; whichever is refused is content to be rank 2.
  const auto claimant = [&]() -> Status {
    const Status first = start(place(1, 3, port), kPatient);
    if (first.ok()) return first;
    EXPECT_EQ(first.code(), Code::invalid_argument);
    EXPECT_TRUE(has(first, "two processes have the same RANK")) << first.message();
    ++refusals;
    return start(place(2, 3, port), kPatient);
  };
  const auto ranks = side_by_side({[&] { return start(place(0, 3, port), kPatient); }, claimant, claimant});
  for (const Status& status : ranks)
    EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(refusals, 1);
}

TEST(Bootstrap, OtherWorldSizeIsRefusedAndBothSidesSaySo) {
  const int port = free_port();
  const auto ranks = side_by_side({[&] { return start(place(0, 2, port), milliseconds(500)); },
                                   [&] { return start(place(1, 8, port), kPatient); }});
  EXPECT_EQ(ranks[1].code(), Code::invalid_argument);
  EXPECT_TRUE(has(ranks[1], "its WORLD_SIZE is 8, that of rank 0 is 2")) << ranks[1].message();
  EXPECT_EQ(ranks[0].code(), Code::timeout);
  EXPECT_TRUE(has(ranks[0], "rank 1 of 2 did not connect")) << ranks[0].message();
  EXPECT_TRUE(has(ranks[0], "its WORLD_SIZE is 8")) << ranks[0].message();
}

Rendezvous of_job(Rendezvous where, const char* job) {
  where.job = job;
  return where;
}

// The stranger is told at once and the rest starts, ranks among it that know no name.
TEST(Bootstrap, RanksOfAnotherJobAreRefusedAndBothSidesSaySo) {
  const int port = free_port();
  const auto stray = [&]() -> Status {
    const Status refused = start(of_job(place(1, 3, port), "SLURM_JOB_ID=8"), kPatient);
    EXPECT_EQ(refused.code(), Code::invalid_argument);
    EXPECT_TRUE(has(refused, "of another job than rank 0, whose SLURM_JOB_ID=7")) << refused.message();
    EXPECT_TRUE(has(refused, "this rank's job: SLURM_JOB_ID=8")) << refused.message();
    EXPECT_TRUE(has(refused, "HEDDLE_JOB_ID")) << refused.message();
    return start(of_job(place(1, 3, port), "SLURM_JOB_ID=7"), kPatient);
  };
  const auto ranks =
      side_by_side({[&] { return start(of_job(place(0, 3, port), "SLURM_JOB_ID=7"), kPatient); }, stray,
                    [&] { return start(place(2, 3, port), kPatient); }});
  for (const Status& status : ranks)
    EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Bootstrap, AForeignMasterAddressIsHintedAt) {
  const Status foreign = start(place(0, 2, free_port(), "192.0.2.1"), kBrief);
  EXPECT_TRUE(has(foreign, "MASTER_ADDR is no address of rank 0's host")) << foreign.message();
  const Status own = start(place(0, 2, free_port()), kBrief);
  EXPECT_FALSE(has(own, "no address of")) << own.message();
}

// As many as the process may have descriptors for: whoever says who it is has room.
TEST(Bootstrap, SilentConnectionsTakeNobodysPlace) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest = ::dup(0);
  ::close(lowest);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(lowest) + 24;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const int port = free_port();
  const Deadline deadline = std::chrono::steady_clock::now() + kPatient;
  const auto joiner = [&]() -> Status {
    std::vector<Socket> silent;
    while (silent.size() < 24 && milliseconds_until(deadline) > 0) {
      Result<Socket> one = tcp_connect("127.0.0.1", port, deadline);
      if (one.ok())
        silent.push_back(std::move(one).value());
      else if (one.status().code() == Code::out_of_memory && silent.size() > 8)
        break;
    }
    silent.resize(silent.size() - 3);
    Status status;
    do {
      status = start(place(1, 2, port), kPatient);
    } while (status.code() == Code::out_of_memory && milliseconds_until(deadline) > 0);
    return status;
  };
  const auto ranks = side_by_side({[&] { return start(place(0, 2, port), kPatient); }, joiner});
  setrlimit(RLIMIT_NOFILE, &before);
  for (const Status& status : ranks)
    EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Bootstrap, StrayConnectionsDisturbNobody) {
  const int port = free_port();
  Result<Socket> silent = Socket();
  Result<Socket> noisy = Socket();
  const auto stray = [&]() -> Status {
    const Deadline deadline = std::chrono::steady_clock::now() + kPatient;
    for (Result<Socket>* socket : {&silent, &noisy}) {
      do {
        *socket = tcp_connect("127.0.0.1", port, deadline);
      } while (!socket->ok() && milliseconds_until(deadline) > 0);
      if (!socket->ok()) return socket->status();
    }
    const std::string request = "GET / HTTP/1.0\r\n\r\n and then some more than a hello holds";
    HEDDLE_TRY(tcp_write_all(noisy.value(), request.data(), request.size(), deadline));
    char byte = 0;
    const Status closed = tcp_read_all(noisy.value(), &byte, 1, deadline);
    EXPECT_EQ(closed.code(), Code::peer_failed) << "the garbage was answered";
    return start(place(1, 2, port), kPatient);
  };
  const auto ranks = side_by_side({[&] { return start(place(0, 2, port), kPatient); }, stray});
  for (const Status& status : ranks)
    EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Bootstrap, PortInUseSaysWhatToDo) {
  Result<Socket> store = tcp_listen(0);
  ASSERT_TRUE(store.ok());
  const int port = tcp_local_port(store.value());
  const Status root = start(place(0, 2, port), kBrief);
  EXPECT_FALSE(root.ok());
  EXPECT_TRUE(has(root, "rank 0 cannot listen on port " + std::to_string(port))) << root.message();
  EXPECT_TRUE(has(root, "HEDDLE_MASTER_PORT")) << root.message();
  // The others reach a program that does not answer as rank 0 does.
  const Status leaf = start(place(1, 2, port), kBrief);
  EXPECT_EQ(leaf.code(), Code::timeout);
  EXPECT_TRUE(has(leaf, "HEDDLE_MASTER_PORT")) << leaf.message();
}

TEST(Bootstrap, AnotherProgramThatAnswersIsNoticed) {
  Result<Socket> store = tcp_listen(0);
  ASSERT_TRUE(store.ok());
  const int port = tcp_local_port(store.value());
  const auto server = [&]() -> Status {
    const Deadline deadline = std::chrono::steady_clock::now() + kPatient;
    while (milliseconds_until(deadline) > 0) {
      Result<Socket> client = tcp_accept(store.value());
      if (!client.ok() || !client->open()) continue;
      const std::string text = "HTTP/1.0 400 Bad Request, and so on and on";
      HEDDLE_TRY(tcp_write_all(client.value(), text.data(), text.size(), deadline));
      char byte = 0;
      while (tcp_read_all(client.value(), &byte, 1, deadline).ok())
        continue;
      return {};
    }
    return Status(Code::timeout, "nobody came");
  };
  const auto results = side_by_side({server, [&] { return start(place(1, 2, port), kPatient); }});
  EXPECT_TRUE(results[0].ok());
  EXPECT_EQ(results[1].code(), Code::system);
  EXPECT_TRUE(has(results[1], "another program than rank 0 answers")) << results[1].message();
}

// It says that all is to come, and dies before it has.
TEST(Bootstrap, RankZeroThatLeavesWithinItsAnswerIsNamed) {
  Result<Socket> listener = tcp_listen(0);
  ASSERT_TRUE(listener.ok());
  const int port = tcp_local_port(listener.value());
  const auto root = [&]() -> Status {
    const Deadline deadline = std::chrono::steady_clock::now() + kPatient;
    Result<Socket> leaf = Socket();
    while (leaf.ok() && !leaf->open() && milliseconds_until(deadline) > 0)
      leaf = tcp_accept(listener.value());
    HEDDLE_TRY(leaf.status());
    star::Greeting hello;
    HEDDLE_TRY(tcp_read_all(leaf.value(), &hello, sizeof hello, deadline));
    star::Frame frame;
    for (const std::uint32_t kind : {star::kWelcome, star::kGo}) {
      frame.kind = kind;
      HEDDLE_TRY(tcp_write_all(leaf.value(), &frame, sizeof frame, deadline));
    }
    std::byte contribution[sizeof frame + 1];
    HEDDLE_TRY(tcp_read_all(leaf.value(), contribution, sizeof contribution, deadline));
    frame.kind = star::kData;
    frame.sequence = 1;
    frame.bytes = 2;
    return tcp_write_all(leaf.value(), &frame, sizeof frame, deadline);
  };
  const auto leaf = [&]() -> Status {
    Result<Bootstrap> bootstrap = bootstrap_over_tcp(place(1, 2, port), {kPatient});
    HEDDLE_TRY(bootstrap.status());
    char all[2] = {};
    return bootstrap->allgather("x", all, 1);
  };
  const auto results = side_by_side({root, leaf});
  EXPECT_TRUE(results[0].ok()) << results[0].message();
  EXPECT_EQ(results[1].code(), Code::peer_failed);
  EXPECT_TRUE(has(results[1], "rank 0 at 127.0.0.1:" + std::to_string(port) + " gave no answer"))
      << results[1].message();
}

}  // namespace
}  // namespace heddle
