#include "transports/verbs/gid.hpp"

#include <gtest/gtest.h>

namespace heddle::verbs {
namespace {

const Gid kLinkLocal{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, 1};
const Gid kGlobal{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
const Gid kIpv4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 1};

std::uint32_t chosen(const std::vector<GidEntry>& table, int wanted = -1) {
  const Result<GidEntry> result = choose_gid(table, wanted, "dev0 port 1");
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? result.value().index : 999;
}

TEST(VerbsGid, PrefersRoutableAddresses) {
  const std::vector<GidEntry> table{{0, kLinkLocal, LinkKind::roce_v1}, {1, kLinkLocal, LinkKind::roce_v2},
                                    {2, kIpv4, LinkKind::roce_v1},      {3, kIpv4, LinkKind::roce_v2},
                                    {4, kGlobal, LinkKind::roce_v2},    {5, kIpv4, LinkKind::roce_v2}};
  EXPECT_EQ(chosen(table), 3U);
  EXPECT_EQ(chosen({table[0], table[1], table[2], table[4]}), 4U);
  EXPECT_EQ(chosen({table[0], table[1], table[2]}), 1U);  // v2 before v1, whatever the address
  EXPECT_EQ(chosen({table[0], table[2]}), 2U);
  EXPECT_EQ(chosen({table[0]}), 0U);
}

TEST(VerbsGid, OnInfiniBandTheFirst) {
  EXPECT_EQ(chosen({{0, kLinkLocal, LinkKind::infiniband}, {1, kGlobal, LinkKind::infiniband}}), 0U);
}

TEST(VerbsGid, TheUsersChoiceCounts) {
  const std::vector<GidEntry> table{
      {0, kLinkLocal, LinkKind::roce_v2}, {3, kIpv4, LinkKind::roce_v2}, {4, Gid{}, LinkKind::roce_v2}};
  EXPECT_EQ(chosen(table, 0), 0U);
  for (const int wrong : {1, 4, 77}) {
    const Result<GidEntry> none = choose_gid(table, wrong, "dev0 port 1");
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.status().code(), Code::unsupported);
    EXPECT_EQ(none.status().message(), "HEDDLE_VERBS_GID=" + std::to_string(wrong) +
                                           ": dev0 port 1 has no such GID; there are: 0 "
                                           "(fe80::200:ff:fe00:1, RoCE v2), 3 (::ffff:10.9.0.1, RoCE v2)");
  }
}

TEST(VerbsGid, NoneAtAllSaysSo) {
  const Result<GidEntry> none = choose_gid({{0, Gid{}, LinkKind::roce_v2}}, -1, "dev0 port 1");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().message(), "dev0 port 1 has no GID: give its network interface an address");
}

// Keys of partitions are the fabric's, indices each port's own.
TEST(VerbsGid, PartitionsByTheirKeys) {
  const std::vector<std::uint16_t> keys{0xffff, 0, 0x0002, 0x8001, 0x8002};
  const auto index = [&](int wanted) { return choose_partition(keys, wanted, "dev0 port 1").value(); };
  EXPECT_EQ(index(-1), 0);
  EXPECT_EQ(index(0x7fff), 0);
  EXPECT_EQ(index(1), 3);
  EXPECT_EQ(index(0x8001), 3);
  EXPECT_EQ(index(2), 4);  // the full member
  EXPECT_EQ(choose_partition({0x0002}, 0x8002, "").value(), 0);
  EXPECT_EQ(choose_partition({}, -1, "").value(), 0);
  const Result<std::uint16_t> none = choose_partition(keys, 3, "dev0 port 1");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), Code::unsupported);
  EXPECT_EQ(
      none.status().message(),
      "HEDDLE_VERBS_PKEY=0x3: dev0 port 1 is in no such partition; it is in: 0xffff, 0x2, 0x8001, 0x8002");
}

TEST(VerbsGid, NamesOfDevices) {
  EXPECT_EQ(parse_device_name("").value().name, "");
  EXPECT_EQ(parse_device_name("mlx5_0").value().name, "mlx5_0");
  EXPECT_EQ(parse_device_name("mlx5_0").value().port, 0);
  EXPECT_EQ(parse_device_name("mlx5_0:2").value().name, "mlx5_0");
  EXPECT_EQ(parse_device_name("mlx5_0:2").value().port, 2);
  for (const char* wrong :
       {"mlx5_0:", "mlx5_0:0", "mlx5_0:256", "mlx5_0:1x", "mlx5_0:-1", ":1", "a:b:1", "x:99999999999"})
    EXPECT_FALSE(parse_device_name(wrong).ok()) << wrong;
}

}  // namespace
}  // namespace heddle::verbs
