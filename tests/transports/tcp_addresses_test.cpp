// TCP: which addresses are told and tried.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tcp_ipv4.hpp"
#include "transports/tcp/addresses.hpp"

namespace heddle::tcp {
namespace {

TEST(TcpAddresses, TravelAndDamageIsNoticed) {
  const Place place{"a host", 0x123456789abcdefULL, 4711, {ipv4({10, 0, 0, 1}, 24, 1000), kLoopback}};
  const std::string bytes = encode(place);
  const Result<Place> back = decode(bytes);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->host, place.host);
  EXPECT_EQ(back->key, place.key);
  EXPECT_EQ(back->port, place.port);
  EXPECT_EQ(back->addresses, place.addresses);
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_EQ(decode(bytes.substr(0, length)).status().code(), Code::internal) << length;
  EXPECT_FALSE(decode(bytes + "x").ok());
}

TEST(TcpAddresses, ANetworkInCommonFirstThenSpeedOwnAddressesLast) {
  const Address bridge = ipv4({172, 17, 0, 1}, 16, 1'000'000);
  const Address slow = ipv4({10, 1, 0, 9}, 16, 1000);
  const Address fast = ipv4({10, 2, 7, 9}, 16, 100'000);
  const Address elsewhere = ipv4({192, 168, 5, 9}, 24, 400'000);
  const std::vector<Address> ours{bridge, ipv4({10, 1, 3, 4}, 16, 1000), ipv4({10, 2, 0, 1}, 16, 100'000)};
  EXPECT_EQ(by_preference({bridge, elsewhere, slow, fast}, ours),
            (std::vector{fast, slow, elsewhere, bridge}));
  // A mask that differs, or a bit within it, makes another network.
  const Address other_mask = ipv4({10, 1, 0, 9}, 24, 1000);
  const Address other_bit = ipv4({10, 3, 0, 9}, 16, 1000);
  EXPECT_EQ(by_preference({other_mask, other_bit, slow}, ours).front(), slow);
}

// All hosts have one, by their management controllers. One that is the fastest is a cable.
TEST(TcpAddresses, LinkLocalNetworksAreNotTakenForCommonOnes) {
  const Address routed = ipv4({10, 1, 0, 9}, 24, 100'000);
  const Address controller = ipv4({169, 254, 3, 9}, 16, 0);
  const Address cable = ipv4({169, 254, 7, 9}, 16, 200'000);
  const std::vector<Address> ours{ipv4({10, 9, 0, 1}, 24, 100'000), ipv4({169, 254, 3, 4}, 16, 0)};
  EXPECT_EQ(by_preference({controller, routed}, ours), (std::vector{routed, controller}));
  EXPECT_EQ(by_preference({controller, routed, cable}, ours), (std::vector{cable, routed, controller}));
}

TEST(TcpAddresses, OfThisMachine) {
  const Result<std::vector<Address>> all = local_addresses("");
  ASSERT_TRUE(all.ok()) << all.status().message();
  const auto own = local_addresses("lo");
  ASSERT_TRUE(own.ok()) << own.status().message();
  EXPECT_NE(
      std::find_if(own->begin(), own->end(), [](const Address& a) { return to_string(a) == "127.0.0.1"; }),
      own->end());
  const Status none = local_addresses("no_such,nor_this").status();
  EXPECT_EQ(none.code(), Code::unsupported);
  EXPECT_NE(none.message().find("HEDDLE_TCP_INTERFACES=no_such,nor_this"), std::string::npos)
      << none.message();
  EXPECT_NE(none.message().find("lo"), std::string::npos) << none.message();
}

TEST(TcpAddresses, AreWritten) {
  EXPECT_EQ(to_string(ipv4({10, 0, 0, 1}, 8), 4000), "10.0.0.1:4000");
  Address six;
  six.family = 6;
  six.bytes = {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  EXPECT_EQ(to_string(six, 4000), "[fd00::1]:4000");
  sockaddr_storage where{};
  EXPECT_EQ(to_sockaddr(six, 4000, where), sizeof(sockaddr_in6));
  EXPECT_EQ(where.ss_family, AF_INET6);
}

}  // namespace
}  // namespace heddle::tcp
