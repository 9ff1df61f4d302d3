#include "transports/verbs/gid.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace heddle::verbs {
namespace {

bool is_empty(const Gid& gid) {
  return gid == Gid{};
}
bool is_ipv4(const Gid& gid) {
  return std::all_of(gid.begin(), gid.begin() + 10, [](std::uint8_t b) { return b == 0; }) &&
         gid[10] == 0xff && gid[11] == 0xff;
}
bool is_link_local(const Gid& gid) {
  return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

int worth(const GidEntry& entry) {
  if (entry.kind == LinkKind::infiniband) return 0;  // the first is the port's own
  const int kind = entry.kind == LinkKind::roce_v2 ? 10 : 0;
  if (is_ipv4(entry.gid)) return kind + 3;
  return kind + (is_link_local(entry.gid) ? 1 : 2);
}

std::string indices(const std::vector<GidEntry>& table) {
  std::string text;
  for (const GidEntry& e : table) {
    if (is_empty(e.gid)) continue;
    text += fmt::format("{}{} ({}, {})", text.empty() ? "" : ", ", e.index, gid_text(e.gid),
                        link_kind_name(e.kind));
  }
  return text.empty() ? "none" : text;
}

}  // namespace

std::string gid_text(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, gid.data(), text, sizeof text);
  return text;
}

Result<GidEntry> choose_gid(const std::vector<GidEntry>& table, int wanted, const std::string& port) {
  const GidEntry* best = nullptr;
  for (const GidEntry& entry : table) {
    if (is_empty(entry.gid)) continue;
    if (wanted >= 0 ? entry.index == static_cast<std::uint32_t>(wanted)
                    : best == nullptr || worth(entry) > worth(*best))
      best = &entry;
  }
  if (best != nullptr) return *best;
  if (wanted >= 0)
    return Status(Code::unsupported, fmt::format("HEDDLE_VERBS_GID={}: {} has no such GID; there are: {}",
                                                 wanted, port, indices(table)));
  return Status(Code::unsupported, fmt::format("{} has no GID: give its network interface an address", port));
}

Result<std::uint16_t> choose_partition(const std::vector<std::uint16_t>& keys, int wanted,
                                       const std::string& port) {
  if (wanted < 0) return std::uint16_t{0};
  constexpr int kPartition = 0x7fff;
  constexpr int kFull = 0x8000;
  std::optional<std::uint16_t> found;
  std::string all;
  for (std::size_t index = 0; index < keys.size(); ++index) {
    if ((keys[index] & kPartition) == 0) continue;
    all += fmt::format("{}{:#x}", all.empty() ? "" : ", ", keys[index]);
    if ((keys[index] & kPartition) != (wanted & kPartition)) continue;
    if (!found || ((keys[index] & kFull) != 0 && (keys[*found] & kFull) == 0))
      found = static_cast<std::uint16_t>(index);
  }
  if (found) return *found;
  return Status(Code::unsupported,
                fmt::format("HEDDLE_VERBS_PKEY={:#x}: {} is in no such partition; it is in: {}", wanted, port,
                            all.empty() ? "none" : all));
}

Result<DeviceName> parse_device_name(std::string_view text) {
  DeviceName found{std::string(text), 0};
  const std::size_t colon = text.find(':');
  if (colon != std::string_view::npos) {
    found.name = text.substr(0, colon);
    const std::string_view port = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), found.port);
    if (error != std::errc() || end != port.data() + port.size() || found.port < 1 || found.port > 255)
      return Status(Code::unsupported,
                    fmt::format("HEDDLE_VERBS_DEVICE={}: the port is not a number from 1 to 255", text));
  }
  if (found.name.empty() && !text.empty())
    return Status(Code::unsupported, fmt::format("HEDDLE_VERBS_DEVICE={}: no device is named", text));
  return found;
}

}  // namespace heddle::verbs
