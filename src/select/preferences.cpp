#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "base/text.hpp"
#include "base/whole_file.hpp"
#include "select/selector.hpp"

namespace heddle {
namespace {

using nlohmann::json;

using Names = std::vector<std::string_view>;

Names names_of(Collective collective) {
  Names names;
  for (const Algorithm& a : catalog()) {
    if (a.collective == collective) names.emplace_back(a.name);
  }
  return names;
}

Names names_for_sparse() {
  Names names{"dense", "bitmaps"};
  for (const Algorithm& a : catalog()) {
    if (serves_streams(a)) names.emplace_back(a.name);
  }
  return names;
}

std::string listed(const Names& names) {
  std::string text;
  for (const std::string_view name : names)
    text.append(text.empty() ? "" : ", ").append(name);
  return text;
}

// Of a part of HEDDLE_ALGORITHM that forces nothing; `scope`: the collective in it, which may be empty.
std::string complaint(std::string_view item, std::string_view scope, std::string_view name) {
  std::vector<std::pair<std::string_view, Names>> all;
  for (const Collective collective : kChosenCollectives)
    all.emplace_back(collective_name(collective), names_of(collective));
  all.emplace_back("sparse", names_for_sparse());
  const bool scoped =
      std::ranges::any_of(all, [&](const auto& collective) { return scope == collective.first; });
  Names wanted;
  bool elsewhere = false;
  std::string known;
  for (const auto& [collective, names] : all) {
    elsewhere |= std::find(names.begin(), names.end(), name) != names.end();
    if (scoped && scope != collective) continue;
    wanted.insert(wanted.end(), names.begin(), names.end());
    known.append(known.empty() ? "" : "; ").append(collective).append(": ").append(listed(names));
  }
  const auto nearer = [&](std::string_view a, std::string_view b) {
    return edit_distance(name, a) < edit_distance(name, b);
  };
  std::string why = " is not an algorithm";
  if (!elsewhere) {
    why.append(" (the nearest is ").append(*std::min_element(wanted.begin(), wanted.end(), nearer)) += ")";
  } else if (scoped) {
    why.append(" of ").append(scope);
  }
  return "HEDDLE_ALGORITHM=" + quoted(item) + why + "; choosing as without it. Known: " + known;
}

// "ring", "allreduce:ring" or "allreduce:ring,bcast:chain". A bare name forces every collective that has it.
void read_forced(std::string_view text, Preferences& out) {
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    const std::size_t colon = item.find(':');
    const std::string_view name = colon == std::string_view::npos ? item : item.substr(colon + 1);
    const std::string_view scope =
        colon == std::string_view::npos ? std::string_view() : item.substr(0, colon);
    bool known = false;
    for (const Collective collective : kChosenCollectives) {
      if (!scope.empty() && scope != collective_name(collective)) continue;
      const Algorithm* const a = find_algorithm(collective, name);
      if (a != nullptr) out.forced[static_cast<std::size_t>(collective)] = a, known = true;
    }
    if (scope == "sparse") {
      const Algorithm* a = find_algorithm(Collective::allreduce, name);
      if (a != nullptr && serves_streams(*a)) out.forced_sparse = a, known = true;
      if (name == "dense") out.forced_dense = known = true;
      if (name == "bitmaps") out.forced_bitmaps = known = true;
    }
    if (known) continue;
    out.complaints.push_back(complaint(item, scope, name));
  }
}

// For the end of a sentence that says what the value of a key must be.
std::string but_is(const json& object, const char* key) {
  if (!object.contains(key)) return ", and is missing";
  constexpr std::size_t kLong = 60;
  const std::string value = object[key].dump();
  return ", not " + (value.size() <= kLong ? value : value.substr(0, kLong) + "...");
}

// A key that is none would leave out what it was meant to say.
Status known_keys(const json& object, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string names;
    for (const std::string_view name : known)
      names.append(names.empty() ? "" : ", ").append(name);
    return Status(Code::invalid_argument,
                  std::string("\"").append(key).append("\" is not a key; known: ").append(names));
  }
  return {};
}

Status read_range(const json& rule, const char* key, std::int64_t (&range)[2]) {
  if (!rule.contains(key)) return {};
  const json& value = rule[key];
  if (!value.is_array() || value.size() != 2 || !value[0].is_number_integer() ||
      !value[1].is_number_integer()) {
    return Status(Code::invalid_argument,
                  std::string("\"") + key + "\" must be [least, most]" + but_is(rule, key));
  }
  // 2^64 - 1 is how many write "any".
  for (std::size_t i = 0; i < 2; ++i)
    range[i] = value[i].is_number_unsigned() && value[i].get<std::uint64_t>() > INT64_MAX
                   ? INT64_MAX
                   : value[i].get<std::int64_t>();
  if (range[0] < 0 || range[0] > range[1]) {
    return Status(
        Code::invalid_argument,
        std::string("\"") + key + "\" must be [least, most] with 0 <= least <= most" + but_is(rule, key));
  }
  return {};
}

// An integer of 1 to 65536; 0 when the key is absent.
Result<std::uint32_t> read_count(const json& rule, const char* key) {
  if (!rule.contains(key)) return std::uint32_t{0};
  if (!rule[key].is_number_integer() || rule[key].get<std::int64_t>() < 1 ||
      rule[key].get<std::int64_t>() > 65536) {
    return Status(Code::invalid_argument,
                  std::string("\"") + key + "\" must be an integer from 1 to 65536" + but_is(rule, key));
  }
  return rule[key].get<std::uint32_t>();
}

Result<json> read_json(std::string_view text) {
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    // The first byte of the piece that is wrong, or the end, counted from 1.
    const std::string_view before = text.substr(0, error.byte > 0 ? error.byte - 1 : 0);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t start = before.rfind('\n') + 1;  // 0 where there is none
    return Status(Code::invalid_argument, "it is not JSON (line " + std::to_string(line) + ", column " +
                                              std::to_string(before.size() - start + 1) + ")");
  }
}

Result<TuningRule> read_rule(const json& rule) {
  TuningRule out;
  if (!rule.is_object()) return Status(Code::invalid_argument, "is not an object");
  HEDDLE_TRY(
      known_keys(rule, {"collective", "bytes", "ranks", "nodes", "algorithm", "radix", "chunks", "leaders"}));
  const auto text = [&](const char* key) {
    return rule.contains(key) && rule[key].is_string() ? rule[key].get<std::string>() : std::string();
  };
  const std::string collective = text("collective");
  const auto* const named = std::ranges::find_if(
      kChosenCollectives, [&](Collective each) { return collective == collective_name(each); });
  if (named == kChosenCollectives.end()) {
    Names names;
    for (const Collective each : kChosenCollectives)
      names.emplace_back(collective_name(each));
    return Status(Code::invalid_argument,
                  "\"collective\" must be one of " + listed(names) + but_is(rule, "collective"));
  }
  out.collective = *named;
  out.algorithm = find_algorithm(out.collective, text("algorithm"));
  if (out.algorithm == nullptr) {
    return Status(Code::invalid_argument, "\"algorithm\" must be one of " + listed(names_of(out.collective)) +
                                              but_is(rule, "algorithm"));
  }
  HEDDLE_TRY(read_range(rule, "ranks", out.ranks));
  HEDDLE_TRY(read_range(rule, "nodes", out.nodes));
  HEDDLE_TRY(read_range(rule, "bytes", out.bytes));
  const Result<std::uint32_t> radix = read_count(rule, "radix");
  if (!radix.ok()) return radix.status();
  const Result<std::uint32_t> chunks = read_count(rule, "chunks");
  if (!chunks.ok()) return chunks.status();
  const Result<std::uint32_t> leaders = read_count(rule, "leaders");
  if (!leaders.ok()) return leaders.status();
  if (radix.value() == 1) return Status(Code::invalid_argument, "\"radix\" must be 2 or more");
  if (radix.value() != 0) out.shape.radix = static_cast<std::int32_t>(radix.value());
  if (chunks.value() != 0) out.shape.chunks = chunks.value();
  if (leaders.value() != 0) out.shape.leaders = leaders.value();
  return out;
}

}  // namespace

Result<Tuning> parse_tuning(std::string_view text, std::string_view made_for) {
  const Result<json> parsed = read_json(text);
  if (!parsed.ok()) return parsed.status();
  const json& root = parsed.value();
  const bool is_tuning = root.is_object() && root.contains("version") && root.contains("rules");
  if (!is_tuning || !root["rules"].is_array()) {
    return Status(Code::invalid_argument, "a tuning file has \"version\": 1 and \"rules\": [...]");
  }
  if (root["version"] != 1)
    return Status(Code::invalid_argument,
                  "\"version\" must be 1, the only one that this heddle reads" + but_is(root, "version"));
  if (!made_for.empty() && root.value("made_for", json()) != json(std::string(made_for))) {
    return Status(Code::invalid_argument, "it was made for another machine, placement of ranks or version");
  }
  HEDDLE_TRY(known_keys(root, {"version", "made_for", "rules", "streamed_results_from", "found_once"}));
  Tuning tuning;
  if (const json once = root.value("found_once", json(false)); once.is_boolean()) {
    tuning.found_once = once;
  } else {
    return Status(Code::invalid_argument,
                  "\"found_once\" must be true or false" + but_is(root, "found_once"));
  }
  if (root.contains("streamed_results_from")) {
    const json& from = root["streamed_results_from"];
    if (from.is_number_unsigned()) {
      tuning.streamed_from = from.get<std::size_t>();
    } else if (from == "never") {
      tuning.streamed_from = SIZE_MAX;
    } else {
      return Status(Code::invalid_argument,
                    "\"streamed_results_from\" must be a number of bytes or \"never\"" +
                        but_is(root, "streamed_results_from"));
    }
  }
  for (const json& item : root["rules"]) {
    Result<TuningRule> rule = read_rule(item);
    if (!rule.ok()) {
      return Status(Code::invalid_argument,
                    "rule " + std::to_string(tuning.rules.size() + 1) + ": " + rule.status().message());
    }
    tuning.rules.push_back(rule.value());
  }
  return tuning;
}

std::string write_tuning(const Tuning& tuning, std::string_view made_for) {
  json items = json::array();
  for (const TuningRule& rule : tuning.rules) {
    items.push_back({{"collective", collective_name(rule.collective)},
                     {"ranks", rule.ranks},
                     {"nodes", rule.nodes},
                     {"bytes", rule.bytes},
                     {"algorithm", rule.algorithm->name},
                     {"radix", rule.shape.radix},
                     {"chunks", rule.shape.chunks},
                     {"leaders", rule.shape.leaders}});
  }
  json root = {{"version", 1}, {"made_for", std::string(made_for)}, {"rules", std::move(items)}};
  if (tuning.streamed_from == SIZE_MAX) {
    root["streamed_results_from"] = "never";
  } else if (tuning.streamed_from) {
    root["streamed_results_from"] = *tuning.streamed_from;
  }
  if (tuning.found_once) root["found_once"] = true;
  return root.dump(1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace) + "\n";
}

Result<std::string> tuning_text(const std::string& path) {
  constexpr std::size_t kLargest = std::size_t{16} << 20;
  return read_file(path, kLargest);
}

namespace {

Result<Tuning> tuning_in(const std::string& path, const Result<std::string>& text) {
  if (!text.ok()) return text.status();
  Result<Tuning> tuning = parse_tuning(text.value());
  if (tuning.ok()) return tuning;
  return Status(tuning.status().code(), path + ": " + tuning.status().message());
}

}  // namespace

Result<Tuning> read_tuning_file(const std::string& path) {
  return tuning_in(path, tuning_text(path));
}

Preferences read_preferences(const Config& config) {
  Preferences out;
  read_forced(config.algorithm, out);
  out.reproducible = config.reproducible;
  if (!config.tuning_file.empty()) {
    const Result<std::string> text = tuning_text(config.tuning_file);
    out.tuning_hash = fnv1a(text.ok() ? text.value() : "unreadable");
    Result<Tuning> tuning = tuning_in(config.tuning_file, text);
    if (tuning.ok()) {
      out.tuning = std::move(tuning).value();
    } else {
      out.complaints.push_back("HEDDLE_TUNING_FILE is not used: " + tuning.status().message() +
                               "; choosing as without it");
    }
  }
  return out;
}

}  // namespace heddle
