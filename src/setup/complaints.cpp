#include "setup/complaints.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "base/log.hpp"
#include "compress/compression.hpp"
#include "select/selector.hpp"

namespace heddle {
namespace {

std::uint64_t fingerprint(const std::vector<std::string>& lines) {
  std::uint64_t hash = fnv1a("");
  for (const std::string& line : lines)
    hash = fnv1a("\n", fnv1a(line, hash));
  return hash;
}

}  // namespace

std::vector<std::string> complaints_of(const ParsedConfig& parsed) {
  std::vector<std::string> complaints = parsed.complaints;
  for (std::string& line : read_preferences(parsed.config).complaints)
    complaints.push_back(std::move(line));
  if (std::string line = compression_complaint(parsed.config.compress); !line.empty())
    complaints.push_back(std::move(line));
  return complaints;
}

Status report_complaints(const ParsedConfig& parsed, const Bootstrap& bootstrap) {
  const std::vector<std::string> complaints = complaints_of(parsed);
  const std::uint64_t mine = fingerprint(complaints);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(bootstrap.size));
  HEDDLE_TRY(bootstrap.allgather(&mine, all.data(), sizeof(mine)));
  if (bootstrap.rank != 0 && mine == all[0]) return {};
  const Log log(parsed.config.log_level, bootstrap.rank);
  for (const std::string& complaint : complaints)
    log.warn(complaint);
  return {};
}

}  // namespace heddle
