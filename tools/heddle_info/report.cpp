#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "heddle_info/info.hpp"

namespace heddle::info {
namespace {

// How much of `text` goes with its first word: up to a comma or semicolon that is in no square brackets.
std::size_t first_part(std::string_view text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    depth += text[i] == '[' ? 1 : text[i] == ']' ? -1 : 0;
    if (depth <= 0 && (text[i] == ',' || text[i] == ';')) return i + 1;
  }
  return text.size();
}

// In lines of 100 columns where commas and semicolons allow it. `begin` comes before the first, which is as
// long as what `indent` many spaces are for the others.
std::string wrapped(std::string begin, std::string_view text, std::size_t indent) {
  constexpr std::size_t kColumns = 100;
  std::string out = std::move(begin);
  for (std::size_t used = indent; !text.empty();) {
    const std::size_t end = first_part(text);
    if (used > indent && used + end > kColumns) {
      out += "\n" + std::string(indent, ' ');
      used = indent;
      while (text.starts_with(' '))
        text.remove_prefix(1);
      continue;
    }
    out += text.substr(0, end);
    used += end;
    text.remove_prefix(end);
  }
  return out + "\n";
}

std::string indented(std::string_view text) {
  std::string out;
  while (true) {
    const std::size_t end = text.find('\n');
    out += wrapped("    ", text.substr(0, end), 4).substr(2);
    if (end == std::string_view::npos) return out;
    text.remove_prefix(end + 1);
  }
}

std::string findings_text(const std::vector<Finding>& findings) {
  std::string out;
  for (const Finding& finding : findings) {
    const std::string begin = fmt::format("  {:<12} {:<3}  ", finding.name, finding.usable ? "yes" : "no");
    out += wrapped(begin, finding.detail, begin.size());
  }
  return out;
}

std::string gpu_pairs_text(const std::vector<GpuPair>& pairs) {
  if (pairs.empty()) return "";
  std::string out = fmt::format("\nGPUs and GPUs\n  {:<8} {:<8} {:<18} {:<5} {:<7} {:<4}\n", "GPU", "GPU",
                                "distance", "reach", "atomics", "rank");
  for (const GpuPair& pair : pairs)
    out += fmt::format("  {:<8} {:<8} {:<18} {:<5} {:<7} {:<4}  {}\n", pair.first, pair.second, pair.distance,
                       pair.reach, pair.atomics, pair.rank, pair.path);
  return out;
}

std::string gpu_networks_text(const std::vector<GpuNetwork>& pairs) {
  if (pairs.empty()) return "";
  std::string out = fmt::format("\nGPUs and networks\n  {:<8} {:<12} {:<18} {:<9} {:<9}\n", "GPU", "network",
                                "distance", "GDR read", "GDR write");
  for (const GpuNetwork& pair : pairs)
    out += fmt::format("  {:<8} {:<12} {:<18} {:<9} {:<9}  {}: {}\n", pair.gpu, pair.network, pair.distance,
                       pair.gdr_read, pair.gdr_write, pair.path, pair.why);
  return out;
}

std::string chosen_text(const ChosenAlgorithms& chosen) {
  std::string out =
      fmt::format("Algorithms for {} rank{} on this machine\n", chosen.ranks, chosen.ranks == 1 ? "" : "s");
  if (!chosen.error.empty()) return out + "  none: " + chosen.error + "\n";
  out += indented(chosen.communicator);
  for (const SizeRange& range : chosen.ranges) {
    const bool gathers = range.collective == Collective::allgather;
    out += fmt::format("  {:<10} {:>9} to {:>9}  {}{}\n", collective_name(range.collective),
                       bytes_text(range.first_bytes), bytes_text(range.last_bytes),
                       gathers ? "of each rank: " : "", range.algorithm);
  }
  return out;
}

nlohmann::json findings_json(const std::vector<Finding>& findings) {
  nlohmann::json out = nlohmann::json::array();
  for (const Finding& finding : findings) {
    out.push_back({{"name", finding.name}, {"usable", finding.usable}, {"detail", finding.detail}});
  }
  return out;
}

nlohmann::json gpu_pairs_json(const std::vector<GpuPair>& pairs) {
  nlohmann::json out = nlohmann::json::array();
  for (const GpuPair& pair : pairs) {
    out.push_back({{"first", pair.first},
                   {"second", pair.second},
                   {"distance", pair.distance},
                   {"reach", pair.reach},
                   {"atomics", pair.atomics},
                   {"rank", pair.rank},
                   {"path", pair.path}});
  }
  return out;
}

nlohmann::json gpu_networks_json(const std::vector<GpuNetwork>& pairs) {
  nlohmann::json out = nlohmann::json::array();
  for (const GpuNetwork& pair : pairs) {
    out.push_back({{"gpu", pair.gpu},
                   {"network", pair.network},
                   {"distance", pair.distance},
                   {"gdr_read", pair.gdr_read},
                   {"gdr_write", pair.gdr_write},
                   {"path", pair.path},
                   {"why", pair.why}});
  }
  return out;
}

nlohmann::json hardware_json(const Info& info) {
  if (!info.hardware_error.empty()) return {{"error", info.hardware_error}};
  const Hardware& h = info.hardware;
  return {{"host", h.host_name},
          {"processor", h.processor},
          {"usable_cores", h.usable_cores},
          {"hardware_threads", h.hardware_threads},
          {"cores", h.cores},
          {"packages", h.packages},
          {"numa_nodes", h.numa_nodes},
          {"l2_bytes", h.l2_bytes},
          {"l3_bytes", h.l3_bytes},
          {"l3_caches", h.l3_caches},
          {"memory_bytes", h.memory_bytes}};
}

}  // namespace

std::string bytes_text(std::size_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit)
    value /= 1024;
  return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

std::string as_text(const Info& info) {
  std::string out = fmt::format("heddle {}\n\nMachine\n", info.version);
  out += indented(info.hardware_error.empty() ? describe(info.hardware) : info.hardware_error);
  out += fmt::format("  reductions run with {} instructions\n", info.fold_target);
  out += "\nTransports\n" + findings_text(info.transports);
  out += "\nDevices\n" + findings_text(info.devices);
  out += gpu_pairs_text(info.gpu_pairs);
  out += gpu_networks_text(info.gpu_networks);
  out += "\nEnvironment\n";
  if (info.environment.empty()) out += "  no HEDDLE_* variable is set\n";
  for (const std::string& entry : info.environment)
    out += indented(entry);
  for (const std::string& line : info.complaints)
    out += indented("warning: " + line);
  return out + "\n" + chosen_text(info.chosen);
}

std::string as_json(const Info& info) {
  nlohmann::json ranges = nlohmann::json::array();
  for (const SizeRange& range : info.chosen.ranges) {
    ranges.push_back({{"collective", collective_name(range.collective)},
                      {"first_bytes", range.first_bytes},
                      {"last_bytes", range.last_bytes},
                      {"algorithm", range.algorithm}});
  }
  nlohmann::json chosen = {
      {"ranks", info.chosen.ranks}, {"communicator", info.chosen.communicator}, {"ranges", ranges}};
  if (!info.chosen.error.empty()) chosen["error"] = info.chosen.error;
  const nlohmann::json out = {{"version", info.version},
                              {"fold_target", info.fold_target},
                              {"hardware", hardware_json(info)},
                              {"transports", findings_json(info.transports)},
                              {"devices", findings_json(info.devices)},
                              {"gpu_pairs", gpu_pairs_json(info.gpu_pairs)},
                              {"gpu_networks", gpu_networks_json(info.gpu_networks)},
                              {"environment", info.environment},
                              {"complaints", info.complaints},
                              {"algorithms", chosen}};
  // An environment may hold bytes that are no UTF-8: replaced, not thrown at.
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace heddle::info
