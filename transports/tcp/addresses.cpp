#include "transports/tcp/addresses.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <tuple>

namespace heddle::tcp {
namespace {

using InterfaceList = std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)>;

struct Found {
  std::string interface;
  bool loopback;
  Address address;
};

int mask_bits(const std::uint8_t* mask, std::size_t bytes) {
  int bits = 0;
  for (std::size_t i = 0; i < bytes; ++i)
    bits += std::popcount(mask[i]);
  return bits;
}

std::uint32_t megabits_of(const std::string& interface) {
  const std::string folder = "/sys/class/net/" + interface;
  std::error_code ignored;
  if (std::filesystem::exists(folder + "/bridge", ignored)) return 0;
  std::ifstream file(folder + "/speed");
  int megabits = 0;
  return file >> megabits && megabits > 0 ? static_cast<std::uint32_t>(megabits) : 0;
}

bool is_link_local(const Address& address) {
  return address.family == 4 && address.bytes[0] == 169 && address.bytes[1] == 254;
}

// It means nothing without the number that an interface has on its own host.
bool is_link_local(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0 || entry.ifa_addr->sa_family != AF_INET6)
    return false;
  sockaddr_in6 address{};
  std::memcpy(&address, entry.ifa_addr, sizeof address);
  return IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr);
}

// False for what other hosts cannot connect to.
bool read_address(const ifaddrs& entry, Address& out) {
  if (entry.ifa_addr == nullptr || entry.ifa_netmask == nullptr || (entry.ifa_flags & IFF_UP) == 0)
    return false;
  if (entry.ifa_addr->sa_family == AF_INET) {
    sockaddr_in address{};
    sockaddr_in mask{};
    std::memcpy(&address, entry.ifa_addr, sizeof address);
    std::memcpy(&mask, entry.ifa_netmask, sizeof mask);
    out.family = 4;
    std::memcpy(out.bytes.data(), &address.sin_addr, 4);
    out.prefix =
        static_cast<std::uint8_t>(mask_bits(reinterpret_cast<const std::uint8_t*>(&mask.sin_addr), 4));
    return true;
  }
  if (entry.ifa_addr->sa_family != AF_INET6 || is_link_local(entry)) return false;
  sockaddr_in6 address{};
  sockaddr_in6 mask{};
  std::memcpy(&address, entry.ifa_addr, sizeof address);
  std::memcpy(&mask, entry.ifa_netmask, sizeof mask);
  out.family = 6;
  std::memcpy(out.bytes.data(), &address.sin6_addr, 16);
  out.prefix =
      static_cast<std::uint8_t>(mask_bits(reinterpret_cast<const std::uint8_t*>(&mask.sin6_addr), 16));
  return true;
}

bool listed(const std::string& names, const std::string& name) {
  return names.empty() || ("," + names + ",").find("," + name + ",") != std::string::npos;
}

void add_name(std::string& names, const std::string& name) {
  if (names.empty() || !listed(names, name)) names += (names.empty() ? "" : ",") + name;
}

bool one_network(const Address& a, const Address& b) {
  if (a.family != b.family || a.prefix != b.prefix || a.prefix == 0) return false;
  for (std::size_t bit = 0; bit < a.prefix; ++bit) {
    const int shift = 7 - static_cast<int>(bit % 8);
    if (((a.bytes[bit / 8] ^ b.bytes[bit / 8]) >> shift & 1) != 0) return false;
  }
  return true;
}

bool same_host_part(const Address& a, const Address& b) {
  return a.family == b.family && a.bytes == b.bytes;
}

constexpr std::size_t kMostAddresses = 16;
struct Fixed {
  std::uint64_t key;
  std::uint16_t port;
  std::uint16_t addresses;
  std::uint32_t host_bytes;
};

}  // namespace

std::string encode(const Place& place) {
  const Fixed fixed{place.key, place.port, static_cast<std::uint16_t>(place.addresses.size()),
                    static_cast<std::uint32_t>(place.host.size())};
  std::string out(reinterpret_cast<const char*>(&fixed), sizeof fixed);
  for (const Address& address : place.addresses)
    out.append(reinterpret_cast<const char*>(&address), sizeof address);
  return out + place.host;
}

Result<Place> decode(const std::string& bytes) {
  const Status damaged(Code::internal, "a rank's TCP address is damaged");
  Fixed fixed{};
  if (bytes.size() < sizeof fixed) return damaged;
  std::memcpy(&fixed, bytes.data(), sizeof fixed);
  const std::size_t end = sizeof fixed + fixed.addresses * sizeof(Address);
  if (fixed.addresses > kMostAddresses || bytes.size() != end + fixed.host_bytes) return damaged;
  Place place{bytes.substr(end), fixed.key, fixed.port, std::vector<Address>(fixed.addresses)};
  for (std::size_t i = 0; i < place.addresses.size(); ++i)
    std::memcpy(&place.addresses[i], bytes.data() + sizeof fixed + i * sizeof(Address), sizeof(Address));
  return place;
}

Result<std::vector<Address>> local_addresses(const std::string& interfaces) {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return system_error("getifaddrs", errno);
  const InterfaceList list(raw, &::freeifaddrs);
  std::vector<Found> found;
  std::string names;
  std::string link_local;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    const std::string name = entry->ifa_name;
    if (is_link_local(*entry) && listed(interfaces, name)) add_name(link_local, name);
    Address address;
    if (!read_address(*entry, address)) continue;
    add_name(names, name);
    if (!listed(interfaces, name)) continue;
    address.megabits = megabits_of(name);
    found.push_back({name, (entry->ifa_flags & IFF_LOOPBACK) != 0, address});
  }
  // Where there is a network the loopback is no way to other hosts.
  if (!link_local.empty() ||
      std::any_of(found.begin(), found.end(), [](const Found& f) { return !f.loopback; }))
    std::erase_if(found, [](const Found& f) { return f.loopback; });
  if (found.empty() && !link_local.empty())
    return Status(Code::unsupported,
                  fmt::format("there is no address but link-local ones ({}), which heddle does not use: give "
                              "the interface another, or "
                              "set HEDDLE_TCP_INTERFACES=lo where all ranks are on this host",
                              link_local));
  if (found.empty())
    return Status(Code::unsupported,
                  fmt::format("no interface{}{} is up and has an address (there {} {})",
                              interfaces.empty() ? "" : " in HEDDLE_TCP_INTERFACES=", interfaces,
                              names.empty() ? "are" : "is", names.empty() ? "none" : names));
  std::vector<Address> addresses;
  for (const Found& each : found)
    addresses.push_back(each.address);
  addresses = by_preference(std::move(addresses), {});
  if (addresses.size() > kMostAddresses) addresses.resize(kMostAddresses);
  return addresses;
}

bool is_loopback(const Address& address) {
  if (address.family == 4) return address.bytes[0] == 127;
  return std::count(address.bytes.begin(), address.bytes.end() - 1, 0) == 15 && address.bytes[15] == 1;
}

std::vector<Address> by_preference(std::vector<Address> theirs, const std::vector<Address>& ours) {
  std::uint32_t fastest = 0;
  for (const Address& address : theirs)
    fastest = std::max(fastest, address.megabits);
  const auto rank = [&ours, fastest](const Address& address) {
    int nearness = 1;  // by a router
    // All hosts with link-local addresses seem to share a network, as by their management controllers. A
    // cable of one's own is fast.
    const bool may_be_near = !is_link_local(address) || address.megabits == fastest;
    for (const Address& own : ours) {
      if (same_host_part(own, address)) return std::tuple(0, address.megabits);
      if (may_be_near && one_network(own, address)) nearness = 2;
    }
    return std::tuple(nearness, address.megabits);
  };
  std::stable_sort(theirs.begin(), theirs.end(),
                   [&rank](const Address& a, const Address& b) { return rank(a) > rank(b); });
  return theirs;
}

socklen_t to_sockaddr(const Address& address, std::uint16_t port, sockaddr_storage& out) {
  out = {};
  if (address.family == 4) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&in.sin_addr, address.bytes.data(), 4);
    std::memcpy(&out, &in, sizeof in);
    return sizeof in;
  }
  sockaddr_in6 in{};
  in.sin6_family = AF_INET6;
  in.sin6_port = htons(port);
  std::memcpy(&in.sin6_addr, address.bytes.data(), 16);
  std::memcpy(&out, &in, sizeof in);
  return sizeof in;
}

std::string to_string(const Address& address) {
  char text[INET6_ADDRSTRLEN] = {};
  (void)::inet_ntop(address.family == 4 ? AF_INET : AF_INET6, address.bytes.data(), text, sizeof text);
  return text;
}

std::string to_string(const Address& address, std::uint16_t port) {
  const std::string text = to_string(address);
  return address.family == 4 ? fmt::format("{}:{}", text, port) : fmt::format("[{}]:{}", text, port);
}

}  // namespace heddle::tcp
