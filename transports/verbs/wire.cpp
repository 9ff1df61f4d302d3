#include "transports/verbs/wire.hpp"

#include <cstring>

namespace heddle::verbs {
namespace {

constexpr std::uint32_t kAddressMagic = 0x41764448;  // "HDvA"
constexpr std::uint32_t kHelloMagic = 0x48764448;    // "HDvH"
constexpr std::uint8_t kVersion = 1;
constexpr std::uint32_t kLargestQueuePair = 0xffffff;  // they have 24 bits, as packet numbers have
constexpr std::uint8_t kSmallestMtu = 1;
constexpr std::uint8_t kLargestMtu = 5;
constexpr std::uint32_t kLongestSlot = 1U << 24;
constexpr std::uint16_t kPagesOnDemand = 1;  // of a hello's flags

class Writer {
 public:
  explicit Writer(std::byte* to) : to_(to) {}
  template <typename T>
  void put(T value) {
    for (std::size_t i = 0; i < sizeof value; ++i)
      *to_++ = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
  }
  void put(const Gid& gid) {
    std::memcpy(to_, gid.data(), gid.size());
    to_ += gid.size();
  }

 private:
  std::byte* to_;
};

class Reader {
 public:
  explicit Reader(const std::byte* from) : from_(from) {}
  template <typename T>
  T get() {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i)
      value |= static_cast<std::uint64_t>(*from_++) << (8 * i);
    return static_cast<T>(value);
  }
  Gid get_gid() {
    Gid gid;
    std::memcpy(gid.data(), from_, gid.size());
    from_ += gid.size();
    return gid;
  }

 private:
  const std::byte* from_;
};

bool is_mtu(std::uint8_t mtu) {
  return mtu >= kSmallestMtu && mtu <= kLargestMtu;
}
bool is_queue_pair(std::uint32_t number) {
  return number != 0 && number <= kLargestQueuePair;
}

}  // namespace

const char* link_kind_name(LinkKind kind) {
  switch (kind) {
    case LinkKind::infiniband:
      return "InfiniBand";
    case LinkKind::roce_v1:
      return "RoCE v1";
    case LinkKind::roce_v2:
      return "RoCE v2";
  }
  return "an unknown link";
}

std::string encode(const Address& address) {
  std::string text(kAddressBytes, '\0');
  Writer out(reinterpret_cast<std::byte*>(text.data()));
  out.put(kAddressMagic);
  out.put(static_cast<std::uint8_t>(address.link));
  out.put(address.mtu);
  out.put(address.lid);
  out.put(address.queue_pair);
  out.put(address.key);
  out.put(address.instance);
  out.put(address.gid);
  return text;
}

std::optional<Address> parse_address(std::string_view bytes) {
  if (bytes.size() != kAddressBytes) return std::nullopt;
  Reader in(reinterpret_cast<const std::byte*>(bytes.data()));
  if (in.get<std::uint32_t>() != kAddressMagic) return std::nullopt;
  Address a;
  a.link = in.get<LinkKind>();
  a.mtu = in.get<std::uint8_t>();
  a.lid = in.get<std::uint16_t>();
  a.queue_pair = in.get<std::uint32_t>();
  a.key = in.get<std::uint32_t>();
  a.instance = in.get<std::uint64_t>();
  a.gid = in.get_gid();
  if (a.link != LinkKind::infiniband && a.link != LinkKind::roce_v1 && a.link != LinkKind::roce_v2)
    return std::nullopt;
  if (!is_mtu(a.mtu) || !is_queue_pair(a.queue_pair)) return std::nullopt;
  // Without a LID only the GID leads there.
  if (a.lid == 0 && a.gid == Gid{}) return std::nullopt;
  return a;
}

std::array<std::byte, kHelloBytes> encode(const Hello& hello) {
  std::array<std::byte, kHelloBytes> bytes{};
  Writer out(bytes.data());
  out.put(kHelloMagic);
  out.put(kVersion);
  out.put(static_cast<std::uint8_t>(hello.kind));
  out.put(static_cast<std::uint8_t>(hello.stage));
  out.put(hello.mtu);
  out.put(hello.from);
  out.put(hello.to);
  out.put(hello.from_instance);
  out.put(hello.to_instance);
  out.put(hello.queue_pair);
  out.put(hello.first_packet);
  out.put(hello.slot_bytes);
  out.put(hello.credits);
  out.put(hello.pages_on_demand ? kPagesOnDemand : std::uint16_t{0});
  return bytes;
}

std::optional<Hello> parse_hello(const std::byte* bytes, std::size_t length) {
  if (length != kHelloBytes) return std::nullopt;
  Reader in(bytes);
  if (in.get<std::uint32_t>() != kHelloMagic || in.get<std::uint8_t>() != kVersion) return std::nullopt;
  Hello h;
  h.kind = in.get<Hello::Kind>();
  h.stage = in.get<Stage>();
  h.mtu = in.get<std::uint8_t>();
  h.from = in.get<std::uint32_t>();
  h.to = in.get<std::uint32_t>();
  h.from_instance = in.get<std::uint64_t>();
  h.to_instance = in.get<std::uint64_t>();
  h.queue_pair = in.get<std::uint32_t>();
  h.first_packet = in.get<std::uint32_t>();
  h.slot_bytes = in.get<std::uint32_t>();
  h.credits = in.get<std::uint16_t>();
  const auto flags = in.get<std::uint16_t>();
  if ((flags & ~kPagesOnDemand) != 0) return std::nullopt;
  h.pages_on_demand = (flags & kPagesOnDemand) != 0;
  if (h.kind == Hello::Kind::notice) return h;
  if (h.kind != Hello::Kind::hello || h.stage > Stage::open) return std::nullopt;
  if (!is_mtu(h.mtu) || !is_queue_pair(h.queue_pair) || h.first_packet > kLargestQueuePair)
    return std::nullopt;
  if (h.credits < 2 || h.slot_bytes <= kGrantBytes || h.slot_bytes > kLongestSlot) return std::nullopt;
  return h;
}

void encode(const Header& header, std::byte* to) {
  Writer out(to);
  out.put(static_cast<std::uint8_t>(header.kind));
  out.put(kVersion);
  out.put(header.credits);
  out.put(header.sequence);
  out.put(header.tag);
  out.put(header.id);
  out.put(header.bytes);
  out.put(header.matched);
  if (header.kind != Header::Kind::grant) return;
  out.put(header.address);
  out.put(header.offset);
  out.put(header.key);
  out.put(header.receive);
}

std::optional<Header> parse_header(const std::byte* bytes, std::size_t length) {
  if (length < kHeaderBytes) return std::nullopt;
  Reader in(bytes);
  Header h;
  h.kind = in.get<Header::Kind>();
  if (h.kind < Header::Kind::eager || h.kind > Header::Kind::content) return std::nullopt;
  if (in.get<std::uint8_t>() != kVersion) return std::nullopt;
  h.credits = in.get<std::uint16_t>();
  h.sequence = in.get<std::uint32_t>();
  h.tag = in.get<std::uint32_t>();
  h.id = in.get<std::uint32_t>();
  h.bytes = in.get<std::uint64_t>();
  h.matched = in.get<std::uint64_t>();
  const std::size_t rest = length - kHeaderBytes;
  if (h.kind == Header::Kind::eager || h.kind == Header::Kind::content) {
    if (h.bytes != rest) return std::nullopt;
    return h;
  }
  if (length != header_bytes(h.kind)) return std::nullopt;
  if (h.kind != Header::Kind::grant) return h;
  h.address = in.get<std::uint64_t>();
  h.offset = in.get<std::uint64_t>();
  h.key = in.get<std::uint32_t>();
  h.receive = in.get<std::uint32_t>();
  // Neither empty nor around the end of memory.
  if (h.bytes == 0 || h.bytes > UINT64_MAX - h.address || h.bytes > UINT64_MAX - h.offset)
    return std::nullopt;
  return h;
}

}  // namespace heddle::verbs
