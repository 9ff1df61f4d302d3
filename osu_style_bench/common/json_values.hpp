// What the JSON files of all benchmarks have in common.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/job.hpp"
#include "common/placement.hpp"
#include "common/results.hpp"

namespace heddle::bench {

nlohmann::json to_json(const Interval& interval);
nlohmann::json to_json(const Series& series);

// The program, its build and its command line, the date, the versions, the ranks on their hosts and cores,
// what was set for heddle and MPI, and the machine, as this rank sees them.
nlohmann::json json_head(const char* program, const std::string& mode, const CoreWatch& cores);

// Of the leading rank: whether write_json_file() could write `path` now, so that this is not found out after
// measuring. An earlier file stays as it is. Collective, and equal on all ranks; the sentence is in the
// leading rank's `problem`.
bool can_write_json(const Job& job, const std::string& path, std::string& problem);

// The whole file or, with the sentence in `problem`, false and what was there before.
bool write_json_file(const nlohmann::json& document, const std::string& path, std::string& problem);

}  // namespace heddle::bench
