// UCX makes connections on demand.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "support/worlds.hpp"

namespace heddle::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

struct UcxWorld : NetworkWorld {
  explicit UcxWorld(int size) : NetworkWorld(size, [] { return open_ucx_network({}); }) {}
  std::string describe(int rank) { return networks[static_cast<std::size_t>(rank)]->describe(); }
};

// Progress of all ranks that are there, until `done` or the limit.
template <typename Done>
bool drive(UcxWorld& world, Done done, milliseconds limit = milliseconds(5000)) {
  const auto end = steady_clock::now() + limit;
  while (!done()) {
    for (const auto& transport : world.transports) {
      if (transport) (void)transport->progress();
    }
    if (steady_clock::now() > end) return false;
  }
  return true;
}

void exchange(UcxWorld& world, int from, int to) {
  std::vector<char> data(100, 1);
  std::vector<char> buffer(100);
  Ticket sent;
  Ticket received;
  ASSERT_TRUE(world.of(from).send(to, 3, data.data(), data.size(), sent).ok());
  ASSERT_TRUE(world.of(to).recv(from, 3, buffer.data(), buffer.size(), received).ok());
  ASSERT_TRUE(drive(world, [&] { return sent.done && received.done; }));
  EXPECT_EQ(buffer, data);
}

TEST(Ucx, ConnectionsAreMadeBySendsAlone) {
  UcxWorld world(6);
  // One each, which showed that there is a way.
  EXPECT_NE(world.describe(0).find(", 1 endpoint,"), std::string::npos) << world.describe(0);
  exchange(world, 0, 1);  // the same one
  EXPECT_NE(world.describe(0).find(", 1 endpoint,"), std::string::npos) << world.describe(0);
  exchange(world, 4, 0);
  EXPECT_NE(world.describe(0).find(", 1 endpoint,"), std::string::npos) << world.describe(0);
  exchange(world, 0, 3);
  EXPECT_NE(world.describe(0).find(", 2 endpoints,"), std::string::npos) << world.describe(0);
  EXPECT_NE(world.describe(0).find("over tcp/"), std::string::npos) << world.describe(0);
}

}  // namespace
}  // namespace heddle::test
