// TCP's congestion control, as HEDDLE_TCP_CONGESTION chooses it.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "support/worlds.hpp"
#include "transports/tcp/socket.hpp"

namespace heddle::test {
namespace {

// Of this process's TCP sockets that are connected.
std::vector<std::string> of_connections() {
  std::vector<std::string> names;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  for (int fd = 0; fd < static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 4096)); ++fd) {
    char name[16] = {};
    socklen_t length = sizeof name;
    sockaddr_storage peer{};
    socklen_t peer_length = sizeof peer;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0 &&
        getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) == 0)
      names.emplace_back(name);
  }
  return names;
}

// Sends a byte from rank 1 to rank 0, and so connects them.
void greet(NetworkWorld& world) {
  char out = 1;
  char in = 0;
  Ticket sent;
  Ticket received;
  ASSERT_TRUE(world.of(1).send(0, 3, &out, 1, sent).ok());
  ASSERT_TRUE(world.of(0).recv(1, 3, &in, 1, received).ok());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!received.done && std::chrono::steady_clock::now() < end) {
    for (const auto& each : world.transports)
      ASSERT_TRUE(each->progress().ok());
  }
  ASSERT_TRUE(received.done);
}

// Both ends of every connection have what was asked for; or the system's, but Reno in BBR's place to ranks as
// near as these. Which one the system has differs: on one with BBR this sees all of it.
TEST(TcpCongestion, IsWhatWasAskedFor) {
  const std::string systems = tcp_congestion(tcp_listen(0).value());
  const bool paces = tcp_paces(systems);
  for (const std::string& asked : {std::string(), std::string(kReno), systems}) {
    NetworkOptions options;
    options.tcp_congestion = asked;
    NetworkWorld world(2, [&](int) { return open_tcp_network(options); });
    greet(world);
    const std::string near = paces ? kReno : systems;
    EXPECT_EQ(of_connections(), std::vector<std::string>(2, asked.empty() ? near : asked));
    const std::string said = !asked.empty() ? asked
                             : paces        ? systems + ", reno to ranks that are near"
                                            : systems;
    EXPECT_NE(world.networks[0]->describe().find(" (" + said + "), 1 connection,"), std::string::npos)
        << world.networks[0]->describe();
  }
}

// Who is not connected is not known to be near.
TEST(TcpCongestion, BbrAloneIsReplacedAndToTheNear) {
  EXPECT_FALSE(tcp_is_near(tcp_listen(0).value()));
  EXPECT_TRUE(tcp_paces("bbr"));
  EXPECT_TRUE(tcp_paces("bbr3"));
  for (const char* other : {"", "reno", "cubic", "dctcp"})
    EXPECT_FALSE(tcp_paces(other)) << other;
}

TEST(TcpCongestion, AnUnknownOneIsNamed) {
  NetworkOptions options;
  options.tcp_congestion = "no_such_one";
  const auto opened = open_tcp_network(options);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), Code::unsupported);
  EXPECT_NE(opened.status().message().find("HEDDLE_TCP_CONGESTION='no_such_one': the kernel has none"),
            std::string::npos)
      << opened.status().message();
}

}  // namespace
}  // namespace heddle::test
