// What travels, byte by byte (docs/verbs.md): the address that ranks tell each other at set-up, the datagrams
// that make a connection, and the headers of messages. All numbers are little-endian. What comes from outside
// is checked here, and what does not hold together is nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace heddle::verbs {

using Gid = std::array<std::uint8_t, 16>;

enum class LinkKind : std::uint8_t { infiniband = 1, roce_v1 = 2, roce_v2 = 3 };
const char* link_kind_name(LinkKind kind);

// Where the datagrams of a rank arrive, and which of its lives they are meant for.
struct Address {
  LinkKind link = LinkKind::infiniband;
  std::uint8_t mtu = 0;  // active MTU of the port, as enum ibv_mtu: 1 (256) to 5 (4096)
  std::uint16_t lid = 0;
  std::uint32_t queue_pair = 0;
  std::uint32_t key = 0;
  std::uint64_t instance = 0;  // random
  Gid gid{};
  bool operator==(const Address&) const = default;
};
constexpr std::size_t kAddressBytes = 40;
std::string encode(const Address& address);
std::optional<Address> parse_address(std::string_view bytes);

// How much of a connection its sender has: a queue pair; that of the other side as well; the word that the
// other side has both.
enum class Stage : std::uint8_t { calling = 0, known = 1, open = 2 };

// "My end of the connection between us is this queue pair", or, as a notice, "this rank is gone".
struct Hello {
  enum class Kind : std::uint8_t { hello = 1, notice = 2 };
  Kind kind = Kind::hello;
  Stage stage = Stage::calling;
  std::uint8_t mtu = 0;
  std::uint16_t credits = 0;  // receives that the sender keeps open for the other side
  std::uint32_t from = 0;     // ranks
  std::uint32_t to = 0;
  std::uint64_t from_instance = 0;  // Address::instance of both
  std::uint64_t to_instance = 0;
  std::uint32_t queue_pair = 0;    // notice: the rank that is gone
  std::uint32_t first_packet = 0;  // its packet sequence number
  std::uint32_t slot_bytes = 0;    // the longest message that a receive takes, with its header
  bool pages_on_demand = false;    // its device may let writes wait for pages
  bool operator==(const Hello&) const = default;
};
constexpr std::size_t kHelloBytes = 48;
std::array<std::byte, kHelloBytes> encode(const Hello& hello);
std::optional<Hello> parse_hello(const std::byte* bytes, std::size_t length);

// At the start of every message over a connection.
struct Header {
  enum class Kind : std::uint8_t {
    eager = 1,     // the message itself follows
    announce = 2,  // a message of `bytes` waits for grants
    grant = 3,    // to message `id`: write `bytes` from `offset` on to `address`; without an address: send it
                  // as content
    credit = 4,   // nothing but the credits
    refuse = 5,   // to the receive `id`: the message that it has granted room to is not sent any more
    content = 6,  // to the receive `id`: a message that was announced for want of room, as short as it is
  };
  Kind kind = Kind::credit;
  std::uint16_t credits = 0;   // receives that were used and are open again
  std::uint32_t sequence = 0;  // of headers on this connection
  std::uint32_t tag = 0;
  std::uint32_t id = 0;
  std::uint64_t bytes = 0;
  std::uint64_t matched = 0;  // bytes of eager messages from the other side that have met their receives
  // A grant alone has these.
  std::uint64_t address = 0;
  std::uint64_t offset = 0;
  std::uint32_t key = 0;
  std::uint32_t receive = 0;  // what the write carries as its immediate value
  bool operator==(const Header&) const = default;
};
constexpr std::size_t kHeaderBytes = 32;
constexpr std::size_t kGrantBytes = 56;
constexpr std::size_t header_bytes(Header::Kind kind) {
  return kind == Header::Kind::grant ? kGrantBytes : kHeaderBytes;
}
// Writes header_bytes(header.kind).
void encode(const Header& header, std::byte* to);
// `length` is what arrived: of eager messages and contents the header and exactly their bytes, else the
// header alone.
std::optional<Header> parse_header(const std::byte* bytes, std::size_t length);

}  // namespace heddle::verbs
