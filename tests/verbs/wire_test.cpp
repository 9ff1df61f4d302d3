// Headers and datagrams: what is written is read again, and nothing damaged is taken.
#include "transports/verbs/wire.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace heddle::verbs {
namespace {

Address some_address() {
  Address a;
  a.link = LinkKind::roce_v2;
  a.mtu = 5;
  a.lid = 0x1234;
  a.queue_pair = 0xabcdef;
  a.key = 0x12345678;
  a.instance = 0x1122334455667788;
  a.gid = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  return a;
}

Hello some_hello() {
  Hello h;
  h.stage = Stage::known;
  h.mtu = 3;
  h.credits = 8;
  h.from = 3;
  h.to = 4;
  h.from_instance = 77;
  h.to_instance = 78;
  h.queue_pair = 17;
  h.first_packet = 0xffffff;
  h.slot_bytes = 8192;
  return h;
}

TEST(VerbsWire, AddressesComeBack) {
  const std::string bytes = encode(some_address());
  ASSERT_EQ(bytes.size(), kAddressBytes);
  EXPECT_EQ(parse_address(bytes), some_address());
}

TEST(VerbsWire, DamagedAddressesAreNone) {
  const std::string good = encode(some_address());
  EXPECT_FALSE(parse_address(""));
  EXPECT_FALSE(parse_address(good.substr(1)));
  EXPECT_FALSE(parse_address(good + "x"));
  const auto with = [](const std::function<void(Address&)>& change) {
    Address a = some_address();
    change(a);
    return parse_address(encode(a));
  };
  EXPECT_FALSE(with([](Address& a) { a.link = static_cast<LinkKind>(0); }));
  EXPECT_FALSE(with([](Address& a) { a.link = static_cast<LinkKind>(4); }));
  EXPECT_FALSE(with([](Address& a) { a.mtu = 0; }));
  EXPECT_FALSE(with([](Address& a) { a.mtu = 6; }));
  EXPECT_FALSE(with([](Address& a) { a.queue_pair = 0; }));
  EXPECT_FALSE(with([](Address& a) { a.queue_pair = 0x1000000; }));
  EXPECT_FALSE(with([](Address& a) {
    a.lid = 0;
    a.gid = {};
  }));
  EXPECT_TRUE(with([](Address& a) { a.gid = {}; }));
  std::string magic = good;
  magic[0] ^= 1;
  EXPECT_FALSE(parse_address(magic));
}

TEST(VerbsWire, HellosComeBack) {
  const auto bytes = encode(some_hello());
  EXPECT_EQ(parse_hello(bytes.data(), bytes.size()), some_hello());
  Hello paging = some_hello();
  paging.pages_on_demand = true;
  const auto other = encode(paging);
  EXPECT_EQ(parse_hello(other.data(), other.size()), paging);
}

TEST(VerbsWire, DamagedHellosAreNone) {
  const auto good = encode(some_hello());
  for (std::size_t length = 0; length < kHelloBytes; ++length)
    EXPECT_FALSE(parse_hello(good.data(), length));
  const auto with = [](const std::function<void(Hello&)>& change) {
    Hello h = some_hello();
    change(h);
    const auto bytes = encode(h);
    return parse_hello(bytes.data(), bytes.size());
  };
  EXPECT_FALSE(with([](Hello& h) { h.kind = static_cast<Hello::Kind>(0); }));
  EXPECT_FALSE(with([](Hello& h) { h.kind = static_cast<Hello::Kind>(3); }));
  EXPECT_FALSE(with([](Hello& h) { h.stage = static_cast<Stage>(3); }));
  EXPECT_FALSE(with([](Hello& h) { h.mtu = 0; }));
  EXPECT_FALSE(with([](Hello& h) { h.mtu = 6; }));
  EXPECT_FALSE(with([](Hello& h) { h.queue_pair = 0; }));
  EXPECT_FALSE(with([](Hello& h) { h.queue_pair = 0x1000000; }));
  EXPECT_FALSE(with([](Hello& h) { h.first_packet = 0x1000000; }));
  EXPECT_FALSE(with([](Hello& h) { h.credits = 1; }));  // the last credit carries no message
  EXPECT_FALSE(with([](Hello& h) { h.slot_bytes = kGrantBytes; }));
  EXPECT_FALSE(with([](Hello& h) { h.slot_bytes = 0xffffffff; }));
  // A notice has no queue pair; its rank may be 0.
  EXPECT_TRUE(with([](Hello& h) {
    h.kind = Hello::Kind::notice;
    h.queue_pair = 0;
  }));
  // Magic, version, and the bytes that are always 0.
  for (const std::size_t at : {0, 1, 2, 3, 4, 46, 47}) {
    auto bad = good;
    bad[at] ^= std::byte{0x40};
    EXPECT_FALSE(parse_hello(bad.data(), bad.size())) << at;
  }
}

std::vector<std::byte> written(const Header& header, std::size_t content) {
  std::vector<std::byte> bytes(header_bytes(header.kind) + content);
  encode(header, bytes.data());
  return bytes;
}
std::optional<Header> read(const std::vector<std::byte>& bytes) {
  return parse_header(bytes.data(), bytes.size());
}

TEST(VerbsWire, HeadersComeBack) {
  Header h{.kind = Header::Kind::eager,
           .credits = 7,
           .sequence = 9,
           .tag = 0xffffffff,
           .id = 3,
           .bytes = 100,
           .matched = 1ULL << 40};
  EXPECT_EQ(read(written(h, 100)), h);
  h.kind = Header::Kind::content;
  EXPECT_EQ(read(written(h, 100)), h);
  for (const Header::Kind kind : {Header::Kind::announce, Header::Kind::credit, Header::Kind::refuse}) {
    h.kind = kind;
    EXPECT_EQ(read(written(h, 0)), h);
  }
  h.kind = Header::Kind::grant;
  h.address = 0xffff800000000000;
  h.offset = 1ULL << 33;
  h.key = 5;
  h.receive = 6;
  EXPECT_EQ(read(written(h, 0)), h);
}

TEST(VerbsWire, HeadersOfTheWrongLengthAreNone) {
  const Header eager{.kind = Header::Kind::eager, .bytes = 100};
  EXPECT_FALSE(read(written(eager, 99)));
  EXPECT_FALSE(read(written(eager, 101)));
  for (const Header::Kind kind :
       {Header::Kind::announce, Header::Kind::grant, Header::Kind::credit, Header::Kind::refuse}) {
    const Header h{.kind = kind, .bytes = 10};
    EXPECT_TRUE(read(written(h, 0)));
    EXPECT_FALSE(read(written(h, 1)));
    auto shorter = written(h, 0);
    shorter.pop_back();
    EXPECT_FALSE(read(shorter));
  }
  EXPECT_FALSE(parse_header(nullptr, 0));
}

TEST(VerbsWire, DamagedHeadersAreNone) {
  EXPECT_FALSE(read(written({.kind = static_cast<Header::Kind>(0)}, 0)));
  EXPECT_FALSE(read(written({.kind = static_cast<Header::Kind>(7)}, 0)));
  auto version = written({.kind = Header::Kind::credit}, 0);
  version[1] = std::byte{2};
  EXPECT_FALSE(read(version));
  // Grants of nothing, and around the end of memory.
  EXPECT_FALSE(read(written({.kind = Header::Kind::grant, .bytes = 0, .address = 4096}, 0)));
  EXPECT_FALSE(read(written({.kind = Header::Kind::grant, .bytes = 4097, .address = UINT64_MAX - 4096}, 0)));
  EXPECT_FALSE(read(written({.kind = Header::Kind::grant, .bytes = 2, .offset = UINT64_MAX - 1}, 0)));
}

}  // namespace
}  // namespace heddle::verbs
