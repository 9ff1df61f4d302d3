// Ranks are threads that meet over TCP on the loopback interface.
#include <dirent.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <latch>

#include "bootstrap_ranks.hpp"

namespace heddle {
namespace {

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

// It gave up, or died, before all were there.
TEST(Bootstrap, ARankThatIsStartedAgainHasItsPlace) {
  const int port = free_port();
  std::latch gave_up(1);
  const auto twice = [&]() -> Status {
    EXPECT_EQ(start(place(1, 3, port), kBrief).code(), Code::timeout);
    gave_up.count_down();
    return start(place(1, 3, port), kPatient);
  };
  const auto late = [&]() -> Status {
    gave_up.wait();
    std::this_thread::sleep_for(kBrief);
    return start(place(2, 3, port), kPatient);
  };
  for (const Status& status : side_by_side({[&] { return start(place(0, 3, port), kPatient); }, twice, late}))
    EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Bootstrap, ARankThatLeftBeforeAllWereThereIsNamed) {
  const int port = free_port();
  const auto ranks = side_by_side({[&] { return start(place(0, 3, port), milliseconds(4000)); },
                                   [&] { return start(place(1, 3, port), kBrief); }});
  EXPECT_EQ(ranks[0].code(), Code::timeout);
  EXPECT_TRUE(has(ranks[0], "ranks 1, 2 of 3 did not connect")) << ranks[0].message();
  EXPECT_TRUE(has(ranks[0], "rank 1 had connected, and left")) << ranks[0].message();
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

}  // namespace
}  // namespace heddle
