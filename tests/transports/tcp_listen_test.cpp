// TCP: what waits in a listener's queue.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>

#include <fstream>
#include <thread>

#include "transports/tcp/socket.hpp"

namespace heddle {
namespace {

// As /proc has it for the network namespace of the thread.
constexpr const char* kLimit = "/proc/sys/net/core/somaxconn";

unsigned room_in_queue() {
  const Result<Socket> listener = tcp_listen(0);
  tcp_info info{};
  socklen_t length = sizeof info;
  if (!listener.ok() || ::getsockopt(listener->fd(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return 0;
  return info.tcpi_sacked;  // of a listener: tcp(7) does not say so, ss(8) shows it as Send-Q
}

TEST(TcpListen, AsManyMayWaitAsTheSystemLetsThem) {
  unsigned limit = 0;
  std::ifstream(kLimit) >> limit;
  EXPECT_EQ(room_in_queue(), limit);
}

// More than the constant that programs are built with.
TEST(TcpListen, AsManyMayWaitAsTheAdministratorLetsThem) {
  constexpr unsigned kMany = 3 * SOMAXCONN;
  bool set = false;
  unsigned room = 0;
  std::thread([&] {
    // Which all later sockets of this thread belong to.
    if (::unshare(CLONE_NEWNET) != 0) return;
    set = static_cast<bool>(std::ofstream(kLimit) << kMany << std::flush);
    room = room_in_queue();
  }).join();
  if (!set) GTEST_SKIP() << "no network namespace of its own: needs root";
  EXPECT_EQ(room, kMany);
}

}  // namespace
}  // namespace heddle
