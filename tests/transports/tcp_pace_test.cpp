// TCP: how often addresses are tried, by a clock of this program's own.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <ctime>
#include <utility>

#include "tcp_pair.hpp"

namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

nanoseconds time_now = seconds(1000);
// Of connections to kRefusing.
int tries = 0;

}  // namespace

// In place of the library's.
extern "C" int clock_gettime(clockid_t, timespec* now) noexcept {
  *now = {time_now / seconds(1), (time_now % seconds(1)).count()};
  return 0;
}

namespace heddle::tcp {
namespace {

const Address kSilent = ipv4({127, 0, 0, 2}, 8);
const Address kRefusing = ipv4({127, 0, 0, 3}, 8);

}  // namespace
}  // namespace heddle::tcp

extern "C" int connect(int fd, const sockaddr* to, socklen_t bytes) {
  sockaddr_storage refusing{};
  (void)heddle::tcp::to_sockaddr(heddle::tcp::kRefusing, 0, refusing);
  if (reinterpret_cast<const sockaddr_in*>(to)->sin_addr.s_addr ==
      reinterpret_cast<const sockaddr_in&>(refusing).sin_addr.s_addr)
    ++tries;
  return static_cast<int>(::syscall(SYS_connect, fd, to, bytes));
}

namespace heddle::tcp {
namespace {

// Once a second, and not four times as beside addresses that take no connection.
TEST(TcpPace, WhatRefusesBesideASilentAddressIsNotTriedAllTheTime) {
  constexpr std::chrono::milliseconds kStep{10};
  constexpr seconds kInAll{10};
  Socket own = listen_at(kLoopback, 0);
  const auto port = static_cast<std::uint16_t>(tcp_local_port(own));
  const Socket silent = listen_at(kSilent, port);
  ASSERT_TRUE(silent.open());
  Pair pair(tcp_listen(0).value(), std::move(own), {}, {kSilent, kRefusing});
  int value = 5;
  Ticket sent;
  ASSERT_TRUE(pair.of(0).send(1, 1, &value, sizeof value, sent).ok());
  for (nanoseconds passed{0}; passed < kInAll; passed += kStep) {
    time_now += kStep;
    ASSERT_TRUE(pair.of(0).progress().ok());
  }
  EXPECT_GE(tries, 5) << pair.of(0).trouble(1);
  EXPECT_LE(tries, 10) << pair.of(0).trouble(1);
  pair.of(0).cancel(sent);
}

}  // namespace
}  // namespace heddle::tcp
