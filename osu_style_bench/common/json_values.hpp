// What the JSON files of all benchmarks have in common.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/job.hpp"
#include "common/results.hpp"

namespace heddle::bench {

nlohmann::json to_json(const Interval& interval);
nlohmann::json to_json(const Series& series);

// The program, the versions, the ranks and the machine.
nlohmann::json json_head(const char* program, const std::string& mode, const Job& job);

// False, with the sentence in `problem`, if that fails.
bool write_json_file(const nlohmann::json& document, const std::string& path, std::string& problem);

}  // namespace heddle::bench
