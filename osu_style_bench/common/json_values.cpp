#include "common/json_values.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/whole_file.hpp"
#include "common/build_id.hpp"
#include "common/host_mpi.hpp"
#include "common/machine.hpp"

namespace heddle::bench {

using nlohmann::json;

namespace {

// Of what files hold: rises where a reader of an earlier one would go wrong. Files without it are from
// before.
constexpr int kSchema = 1;

// As ISO 8601 has it, in UTC.
std::string date_now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm parts{};
  char text[sizeof "2026-01-31T23:59:59Z"] = "";
  if (gmtime_r(&seconds, &parts) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// As this process was started: an MPI may take arguments out of main()'s.
json command_line() {
  json arguments = json::array();
  std::ifstream file("/proc/self/cmdline");
  for (std::string argument; std::getline(file, argument, '\0');)
    arguments.push_back(argument);
  return arguments;
}

// What was set for heddle, the MPIs and the networks below them: it decides what is measured as much as the
// command line does.
json environment() {
  constexpr std::string_view kPrefixes[] = {"HEDDLE_", "MPIR_CVAR_", "UCX_", "FI_", "OMPI_MCA_"};
  json set = json::object();
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    const auto starts = [&](std::string_view prefix) { return text.starts_with(prefix); };
    if (equals != std::string::npos && std::any_of(std::begin(kPrefixes), std::end(kPrefixes), starts))
      set[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return set;
}

}  // namespace

json to_json(const Interval& interval) {
  return json::array({interval.low, interval.high});
}

json to_json(const Series& series) {
  return {{"median_us", series.median_us},
          {"median_ci95_us", to_json(series.interval_us)},
          {"calls_per_sample", series.calls_per_sample},
          {"iterations", series.calls_per_sample * static_cast<long>(series.samples_us.size())},
          {"samples_us", series.samples_us}};
}

json json_head(const char* program, const std::string& mode, const CoreWatch& cores) {
  const std::vector<RankPlace>& places = cores.places();
  const Machine machine = this_machine();
  json core_lists = json::array();
  for (const RankPlace& place : places)
    core_lists.push_back(place.core_list);
  const std::string lack = cores.lack();
  return {{"schema", kSchema},
          {"program", program},
          {"command", command_line()},
          {"build", {{"source", build_source()}, {"type", build_type()}}},
          {"date", date_now()},
          {"mode", mode},
          {"ranks", places.size()},
          {"hosts", count_hosts(places)},
          {"rank_core_lists", core_lists},
          {"lack_of_cores", lack.empty() ? json() : json(lack)},
          {"interruptions",
           {{"most", cores.interruptions().most}, {"per_second", cores.interruptions().per_second}}},
          {"heddle_version", heddle_version()},
          {"mpi_library", host::library()},
          {"environment", environment()},
          {"machine",
           {{"host", machine.host},
            {"cpu", machine.cpu},
            {"cores", machine.cores},
            {"core_list", machine.core_list},
            {"kernel", machine.kernel}}}};
}

bool write_json_file(const json& document, const std::string& path, std::string& problem) {
  // An environment may hold bytes that are no UTF-8.
  const Status written =
      replace_file(path, document.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
  if (!written.ok()) problem = fmt::format("--json {}", written.message());
  return written.ok();
}

bool can_write_json(const Job& job, const std::string& path, std::string& problem) {
  Status writable;
  if (!path.empty() && job.leads()) writable = can_replace_file(path);
  // Only the leading rank says it.
  if (!writable.ok()) problem = fmt::format("--json {}", writable.message());
  return job.all(writable.ok());
}

}  // namespace heddle::bench
