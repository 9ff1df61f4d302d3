// Ranks are threads that meet over TCP on the loopback interface.
#include "comm/bootstrap.hpp"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <latch>
#include <thread>

#include "transports/tcp/socket.hpp"

namespace heddle {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kPatient{60'000};
constexpr milliseconds kBrief{300};

int free_port() {
  Result<Socket> socket = tcp_listen(0);
  return socket.ok() ? tcp_local_port(socket.value()) : 0;
}

Rendezvous place(int rank, int size, int port, const char* address = "127.0.0.1") {
  return Rendezvous{rank, size, address, port, ""};
}

// The status of each body, run side by side.
std::vector<Status> side_by_side(const std::vector<std::function<Status()>>& bodies) {
  std::vector<Status> statuses(bodies.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    threads.emplace_back([&, i] { statuses[i] = bodies[i](); });
  }
  for (std::thread& thread : threads)
    thread.join();
  return statuses;
}

Status start(const Rendezvous& where, milliseconds timeout) {
  return bootstrap_over_tcp(where, {timeout}).status();
}

// Gathers blocks of several lengths and checks every byte.
Status gather_and_check(const Rendezvous& where, milliseconds timeout) {
  Result<Bootstrap> bootstrap = bootstrap_over_tcp(where, {timeout});
  if (!bootstrap.ok()) return bootstrap.status();
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{0}, std::size_t{1}, std::size_t{300'001}}) {
    const std::vector<char> mine(bytes, static_cast<char>('a' + where.rank));
    std::vector<char> all(bytes * static_cast<std::size_t>(where.size), '?');
    HEDDLE_TRY(bootstrap->allgather(mine.data(), all.data(), bytes));
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i] != static_cast<char>('a' + i / bytes))
        return Status(Code::internal, "wrong byte " + std::to_string(i));
    }
  }
  return {};
}

int open_descriptors() {
  int count = 0;
  DIR* dir = ::opendir("/proc/self/fd");
  while (::readdir(dir) != nullptr)
    ++count;
  ::closedir(dir);
  return count;
}

bool has(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

class BootstrapSize : public testing::TestWithParam<int> {};

TEST_P(BootstrapSize, GathersInRankOrderAndLeavesNoDescriptor) {
  const int size = GetParam();
  const int port = free_port();
  const int before = open_descriptors();
  std::vector<std::function<Status()>> ranks;
  for (int r = 0; r < size; ++r)
    ranks.push_back([=] { return gather_and_check(place(r, size, port), kPatient); });
  for (const Status& status : side_by_side(ranks))
    EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(open_descriptors(), before);
}

INSTANTIATE_TEST_SUITE_P(Sizes, BootstrapSize, testing::Range(1, 9));

TEST(Bootstrap, WorksByNameAndOverIPv6) {
  for (const char* address : {"localhost", "::1"}) {
    const int port = free_port();
    if (std::string(address) == "::1" && !tcp_connect("::1", port, std::chrono::steady_clock::now()).ok()) {
      Result<Socket> listener = tcp_listen(port);
      ASSERT_TRUE(listener.ok());
      if (!tcp_connect("::1", port, std::chrono::steady_clock::now() + kBrief).ok())
        continue;  // no IPv6 here
    }
    const int again = free_port();
    const auto ranks =
        side_by_side({[&] { return gather_and_check(place(0, 2, again, address), kPatient); },
                      [&] { return gather_and_check(place(1, 2, again, address), kPatient); }});
    for (const Status& status : ranks)
      EXPECT_TRUE(status.ok()) << address << ": " << status.message();
  }
}

TEST(Bootstrap, OnePortServesOneStartAfterAnother) {
  const int port = free_port();
  const auto rank = [&](int r) {
    return [&, r] {
      for (int i = 0; i < 5; ++i)
        HEDDLE_TRY(gather_and_check(place(r, 3, port), kPatient));
      return Status();
    };
  };
  for (const Status& status : side_by_side({rank(0), rank(1), rank(2)}))
    EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Bootstrap, MissingRanksAreNamedOnEveryRank) {
  const int port = free_port();
  const auto ranks = side_by_side(
      {[&] { return start(place(0, 4, port), kBrief); }, [&] { return start(place(1, 4, port), kBrief); }});
  for (const Status& status : ranks) {
    EXPECT_EQ(status.code(), Code::timeout);
    EXPECT_TRUE(has(
        status, "ranks 2, 3 of 4 did not connect to 127.0.0.1:" + std::to_string(port) + " within 300 ms"))
        << status.message();
    EXPECT_TRUE(has(status, "check MASTER_ADDR and MASTER_PORT")) << status.message();
  }
}

TEST(Bootstrap, AbsentRankZeroIsNamed) {
  const Status status = start(place(1, 2, free_port()), kBrief);
  EXPECT_EQ(status.code(), Code::timeout);
  EXPECT_TRUE(has(status, "rank 1 could not reach rank 0 at 127.0.0.1:")) << status.message();
  EXPECT_TRUE(has(status, "Connection refused")) << status.message();
}

TEST(Bootstrap, UnknownHostIsNamed) {
  const Status status = start(place(1, 2, 29500, "no-such-host.invalid"), kBrief);
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(has(status, "no-such-host.invalid")) << status.message();
}

TEST(Bootstrap, RankThatStopsGatheringIsNamed) {
  const int port = free_port();
  std::vector<Status> gathered(3);
  std::latch others_done(2);
  const auto rank = [&](int r, bool joins) {
    return [&, r, joins]() -> Status {
      Result<Bootstrap> bootstrap = bootstrap_over_tcp(place(r, 3, port), {milliseconds(1000)});
      if (!bootstrap.ok()) return bootstrap.status();
      if (!joins) {
        others_done.wait();
        return {};
      }
      std::vector<char> all(3);
      gathered[static_cast<std::size_t>(r)] = bootstrap->allgather("x", all.data(), 1);
      others_done.count_down();
      return {};
    };
  };
  for (const Status& status : side_by_side({rank(0, true), rank(1, true), rank(2, false)})) {
    EXPECT_TRUE(status.ok()) << status.message();
  }
  for (const int r : {0, 1}) {
    const Status& status = gathered[static_cast<std::size_t>(r)];
    EXPECT_EQ(status.code(), Code::timeout);
    EXPECT_TRUE(has(status, "rank 2 of 3 did not join a step of the start within 1 s")) << status.message();
  }
}

TEST(Bootstrap, RankThatLeavesIsNamed) {
  const int port = free_port();
  const auto rank = [&](int r, bool joins) {
    return [&, r, joins]() -> Status {
      Result<Bootstrap> bootstrap = bootstrap_over_tcp(place(r, 3, port), {kPatient});
      if (!bootstrap.ok()) return Status(Code::internal, bootstrap.status().message());
      if (!joins) return {};
      std::vector<char> all(3);
      return bootstrap->allgather("x", all.data(), 1);
    };
  };
  const auto ranks = side_by_side({rank(0, true), rank(1, true), rank(2, false)});
  for (const int r : {0, 1}) {
    const Status& status = ranks[static_cast<std::size_t>(r)];
    EXPECT_EQ(status.code(), Code::peer_failed) << status.message();
    EXPECT_TRUE(has(status, "rank 2 at 127.0.0.1 left during the start")) << status.message();
  }
}

TEST(Bootstrap, DifferentLengthsAreNoticed) {
  const int port = free_port();
  const auto rank = [&](int r, std::size_t bytes) {
    return [&, r, bytes]() -> Status {
      Result<Bootstrap> bootstrap = bootstrap_over_tcp(place(r, 2, port), {kPatient});
      if (!bootstrap.ok()) return Status(Code::internal, bootstrap.status().message());
      std::vector<char> mine(bytes);
      std::vector<char> all(2 * bytes);
      return bootstrap->allgather(mine.data(), all.data(), bytes);
    };
  };
  for (const Status& status : side_by_side({rank(0, 8), rank(1, 16)})) {
    EXPECT_EQ(status.code(), Code::peer_failed);
    EXPECT_TRUE(has(status, "rank 1 at 127.0.0.1 has 16 bytes to gather, rank 0 has 8")) << status.message();
  }
}

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

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

TEST(Bootstrap, ALongStartSaysWhoIsMissingAndWhoWasRefused) {
  const int port = free_port();
  testing::internal::CaptureStderr();
  const StartWait wait{milliseconds(3000), milliseconds(2000)};
  const auto ranks = side_by_side({[&] { return bootstrap_over_tcp(place(0, 3, port), wait).status(); },
                                   [&] { return start(place(1, 8, port), kPatient); }});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(ranks[0].code(), Code::timeout);
  EXPECT_EQ(count_of(said, "waiting for ranks 1, 2 of 3 to connect to 127.0.0.1:" + std::to_string(port) +
                               " for 2 s"),
            1)
      << said;
  EXPECT_EQ(count_of(said, "its WORLD_SIZE is 8, that of rank 0 is 3"), 1) << said;
  EXPECT_EQ(count_of(said, "\n"), 1) << said;
}

TEST(Bootstrap, ALongSearchForRankZeroIsSaid) {
  Result<Socket> silent = tcp_listen(0);
  ASSERT_TRUE(silent.ok());
  for (const bool listens : {false, true}) {
    const int port = listens ? tcp_local_port(silent.value()) : free_port();
    testing::internal::CaptureStderr();
    const Status status =
        bootstrap_over_tcp(place(1, 2, port), {milliseconds(900), milliseconds(300)}).status();
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(status.code(), Code::timeout);
    const std::string where = "127.0.0.1:" + std::to_string(port);
    const std::string expected =
        listens ? "whoever listens at " + where + " has not answered as rank 0 does for 300 ms"
                : "rank 1 has tried to reach rank 0 at " + where + " for 300 ms: 127.0.0.1: connect: ";
    EXPECT_EQ(count_of(said, expected), 1) << said;
    EXPECT_EQ(count_of(said, "\n"), 1) << said;
  }
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

TEST(Rendezvous, ReadsTorchrunsNames) {
  const auto where = rendezvous_from({"RANK=3", "WORLD_SIZE=4", "MASTER_ADDR=n0", "MASTER_PORT=29500"}, 0);
  ASSERT_TRUE(where.ok()) << where.status().message();
  EXPECT_EQ(where.value().rank, 3);
  EXPECT_EQ(where.value().size, 4);
  EXPECT_EQ(where.value().address, "n0");
  EXPECT_EQ(where.value().port, 29500);
  EXPECT_EQ(rendezvous_from({"RANK=0", "WORLD_SIZE=4", "MASTER_ADDR=n0"}, 7).value().port, 7);
  EXPECT_TRUE(rendezvous_from({"RANK=0", "WORLD_SIZE=1"}, 0).ok());
}

TEST(Rendezvous, TheLaunchersNameOfTheJob) {
  const auto job = [](std::vector<std::string> environment) {
    environment.insert(environment.end(), {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=1"});
    return rendezvous_from(environment, 0).value().job;
  };
  EXPECT_EQ(job({}), "");
  EXPECT_EQ(job({"SLURM_JOB_ID=7", "TORCHELASTIC_RUN_ID=mine"}), "TORCHELASTIC_RUN_ID=mine");
  EXPECT_EQ(job({"SLURM_JOB_ID=7", "TORCHELASTIC_RUN_ID=none"}), "SLURM_JOB_ID=7");
  EXPECT_EQ(job({"PBS_JOBID=8.host", "SLURM_JOB_ID="}), "PBS_JOBID=8.host");
}

TEST(Rendezvous, OddValuesAreNamed) {
  const auto says = [](const std::vector<std::string>& environment, const char* text) {
    const Status status = rendezvous_from(environment, 0).status();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_TRUE(has(status, text)) << status.message();
  };
  says({"RANK=0"}, "WORLD_SIZE is not set");
  says({"RANK=0", "WORLD_SIZE=2x"}, "WORLD_SIZE=\"2x\" is not a number of ranks");
  says({"RANK=0", "WORLD_SIZE=0"}, "WORLD_SIZE=\"0\"");
  says({"RANK=0", "WORLD_SIZE=99999999999"}, "WORLD_SIZE=");
  says({"WORLD_SIZE=2"}, "RANK is not set");
  says({"RANK=2", "WORLD_SIZE=2"}, "RANK=\"2\" is not a rank of this job (0 to 1)");
  says({"RANK=-1", "WORLD_SIZE=2"}, "RANK=\"-1\"");
  says({"RANK= 1", "WORLD_SIZE=2"}, "RANK=\" 1\"");
  says({"RANK=1", "WORLD_SIZE=2", "MASTER_PORT=1"}, "MASTER_ADDR is not set");
  says({"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=h"}, "MASTER_PORT is not set");
  says({"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=h", "MASTER_PORT=http"}, "MASTER_PORT=\"http\" is not a port");
}

// In a job in which one rank is late in each step, all others would say nothing else.
TEST(ProcessState, AWarningKeepsOthersBackForAWhile) {
  ProcessState process;
  const TimePoint first = now({});
  EXPECT_TRUE(process.may_warn(first));
  process.has_warned(first);
  EXPECT_FALSE(process.may_warn(first + milliseconds(1)));
  EXPECT_FALSE(process.may_warn(first + ProcessState::kQuietAfterWarning - milliseconds(1)));
  EXPECT_TRUE(process.may_warn(first + ProcessState::kQuietAfterWarning));
}

}  // namespace
}  // namespace heddle
