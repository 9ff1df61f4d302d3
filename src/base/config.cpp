#include "base/config.hpp"

#include <algorithm>
#include <utility>

#include "base/config_rows.hpp"
#include "base/text.hpp"

extern char** environ;

namespace heddle {
namespace {

std::string_view nearest_name(std::string_view name) {
  // Long names are compared by their beginning: the distance is quadratic in the length.
  name = name.substr(0, 64);
  const auto nearer = [&](const ConfigRow& a, const ConfigRow& b) {
    return edit_distance(name, a.variable.name) < edit_distance(name, b.variable.name);
  };
  return std::ranges::min_element(config_rows(), nearer)->variable.name;
}

void keep_reproducible(ParsedConfig& parsed) {
  // Entries would be added in another order than vectors.
  parsed.config.sparse = false;
  const std::pair<const char*, const std::string&> first[] = {
      {"HEDDLE_ALGORITHM", parsed.config.algorithm},
      {"HEDDLE_TUNING_FILE", parsed.config.tuning_file},
      {"HEDDLE_COMPRESS", parsed.config.compress}};
  for (const auto& [name, value] : first) {
    if (value.empty()) continue;
    parsed.complaints.push_back(std::string(name) + "=" + quoted(value) +
                                " comes before HEDDLE_REPRODUCIBLE=1: sums that it is about may have other "
                                "bits in another run; unset one of them");
  }
}

}  // namespace

ParsedConfig parse_config(const std::vector<std::string>& environment) {
  constexpr std::string_view kPrefix = "HEDDLE_";
  constexpr std::string_view kOfUcx =
      "HEDDLE_UCX_";  // read by UCX itself, in the name of heddle's connections
  const std::span<const ConfigRow> rows = config_rows();
  ParsedConfig parsed;
  for (const std::string& entry : environment) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || entry.compare(0, kPrefix.size(), kPrefix) != 0) continue;
    if (entry.compare(0, kOfUcx.size(), kOfUcx) == 0) continue;
    const std::string_view name = std::string_view(entry).substr(0, equals);
    const std::string_view value = std::string_view(entry).substr(equals + 1);
    const auto row = std::ranges::find(rows, name, [](const ConfigRow& r) { return r.variable.name; });
    if (row == rows.end()) {
      parsed.complaints.push_back(std::string(name.substr(0, 120)) + "=" + quoted(value) +
                                  " is not a variable of heddle; ignored (the nearest is " +
                                  std::string(nearest_name(name)) + ")");
      continue;
    }
    if (value.empty()) continue;
    if (const std::string problem = row->set(value, parsed.config); !problem.empty()) {
      parsed.complaints.push_back(std::string(name) + "=" + quoted(value) + " " + problem +
                                  "; using the default, " + std::string(row->variable.fallback));
    }
  }
  if (parsed.config.reproducible) keep_reproducible(parsed);
  return parsed;
}

ParsedConfig parse_config_from_environ() {
  std::vector<std::string> ours;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::string_view(*entry).substr(0, 7) == "HEDDLE_") ours.emplace_back(*entry);
  }
  return parse_config(ours);
}

std::string config_table_markdown() {
  std::string out = "| variable | values | default | meaning |\n|---|---|---|---|\n";
  for (const ConfigRow& row : config_rows()) {
    const ConfigVariable& v = row.variable;
    out.append("| `").append(v.name).append("` | ").append(v.values).append(" | ");
    out.append(v.fallback).append(" | ").append(v.meaning).append(" |\n");
  }
  return out;
}

}  // namespace heddle
