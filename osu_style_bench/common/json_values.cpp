#include "common/json_values.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/whole_file.hpp"
#include "common/machine.hpp"

namespace heddle::bench {

using nlohmann::json;

json to_json(const Interval& interval) {
  return json::array({interval.low, interval.high});
}

json to_json(const Series& series) {
  return {{"median_us", series.median_us},
          {"median_ci95_us", to_json(series.interval_us)},
          {"calls_per_sample", series.calls_per_sample},
          {"samples_us", series.samples_us}};
}

json json_head(const char* program, const std::string& mode, const Job& job) {
  const Machine machine = this_machine();
  return {
      {"program", program},
      {"mode", mode},
      {"ranks", job.size()},
      {"heddle_version", heddle_version()},
      {"mpi_library", mpi_library()},
      {"machine",
       {{"host", machine.host}, {"cpu", machine.cpu}, {"cores", machine.cores}, {"kernel", machine.kernel}}}};
}

bool write_json_file(const json& document, const std::string& path, std::string& problem) {
  const Status written = replace_file(path, document.dump(1) + "\n");
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
