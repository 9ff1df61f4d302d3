// The command line of heddle-tune.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "schedule/schedule.hpp"

namespace heddle::tune {

struct Options {
  std::string output;
  std::string json;  // empty: none
  std::size_t least = 4;
  std::size_t most = std::size_t{64} << 20;
  std::vector<Collective> collectives = {Collective::allreduce, Collective::bcast};
  double budget_s = 120;
};

struct CommandLine {
  Options options;
  Status status;                    // what is wrong with it
  std::optional<std::string> help;  // what was asked for instead of a run, to be printed
};
CommandLine parse_command_line(int argc, const char* const* argv);

// What must be the same on all ranks.
std::string shared_part(const Options& options);

}  // namespace heddle::tune
