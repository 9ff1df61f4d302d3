// heddle-tune: measures which algorithm serves which size best, and writes a tuning file.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/launchers.hpp"
#include "base/whole_file.hpp"
#include "comm/communicator.hpp"
#include "comm/measured_choices.hpp"
#include "heddle/heddle.h"
#include "heddle_tune/launch.hpp"
#include "heddle_tune/options.hpp"
#include "heddle_tune/progress.hpp"
#include "heddle_tune/report.hpp"
#include "setup/complaints.hpp"
#include "setup/setup.hpp"

namespace heddle::tune {
namespace {

void say(const std::string& text) {
  std::fprintf(stderr, "heddle-tune: %s\n", text.c_str());
}

// The first rank, in order, whose options are others than rank 0's.
Status same_options(const Bootstrap& bootstrap, const Options& options) {
  struct Text {
    char text[160];
  };
  Text mine{};
  const std::string shared = shared_part(options);
  std::memcpy(mine.text, shared.data(), std::min(shared.size(), sizeof mine.text - 1));
  std::vector<Text> all(static_cast<std::size_t>(bootstrap.size));
  HEDDLE_TRY(bootstrap.allgather(&mine, all.data(), sizeof mine));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (std::strcmp(all[rank].text, all[0].text) != 0)
      return Status(Code::invalid_argument,
                    fmt::format("rank {} has {}, and rank 0 has {}: give all ranks the same", rank,
                                all[rank].text, all[0].text));
  }
  return {};
}

// What would be found out too late: after measuring.
Status check_alone(const CommandLine& line, const Config& config, int rank) {
  HEDDLE_TRY(Status(line.status));
  const Preferences preferences = read_preferences(config);
  if (preferences.forced_for(Collective::allreduce) != nullptr ||
      preferences.forced_for(Collective::bcast) != nullptr)
    return Status(
        Code::invalid_argument,
        fmt::format("HEDDLE_ALGORITHM=\"{}\" forces an algorithm, which counts more than a tuning file: "
                    "unset it",
                    config.algorithm));
  if (rank != 0) return {};
  HEDDLE_TRY(can_replace_file(line.options.output));
  return line.options.json.empty() ? Status() : can_replace_file(line.options.json);
}

Result<bool> all_have_cores(const Bootstrap& bootstrap, bool mine) {
  std::vector<char> all(static_cast<std::size_t>(bootstrap.size));
  const char have = mine ? 1 : 0;
  HEDDLE_TRY(bootstrap.allgather(&have, all.data(), sizeof have));
  return std::ranges::find(all, 0) == all.end();
}

SearchPlan plan_of(const Options& options) {
  SearchPlan plan;
  plan.collectives = options.collectives;
  plan.sizes = every_class(options.least, options.most);
  plan.budget = std::chrono::microseconds(static_cast<std::int64_t>(options.budget_s * 1e6));
  plan.thorough = true;
  return plan;
}

// Whom the file is for, since nothing else in it tells.
std::string made_for(const Subject& subject) {
  char host[HOST_NAME_MAX + 1] = {};
  gethostname(host, sizeof host - 1);
  return fmt::format("heddle {}, {} ranks on {} node{}, the first of them {}", HEDDLE_VERSION_STRING,
                     subject.ranks, subject.nodes, subject.nodes == 1 ? "" : "s", host);
}

std::size_t decided(const MeasuredChoices& measured) {
  return static_cast<std::size_t>(std::ranges::count_if(measured.sizes, &TriedSize::decided));
}

std::string how_to_use(const Subject& subject, const MeasuredChoices& measured, const std::string& output) {
  const std::size_t rules = measured.tuning.rules.size();
  if (rules == 0) {
    const std::size_t all = measured.sizes.size();
    const std::string where =
        decided(measured) == all
            ? ""
            : fmt::format(" at the {} of {} sizes that were decided", decided(measured), all);
    return fmt::format("\n{}: no rules, since nothing was clearly faster than the choice by price{}.\n",
                       output, where);
  }
  std::error_code ignored;
  const std::string path = std::filesystem::absolute(output, ignored).string();
  return fmt::format(
      "\n{}: {} rule{}, for {} ranks on {} node{} alone. To use them, on all ranks:\n  "
      "HEDDLE_TUNING_FILE={}\n",
      output, rules, rules == 1 ? "" : "s", subject.ranks, subject.nodes, subject.nodes == 1 ? "" : "s",
      path);
}

Status deliver(const Subject& subject, const MeasuredChoices& measured, const Options& options) {
  // What was measured first: it is of use even where the rest cannot be written.
  const std::string table = as_text(subject, measured);
  const bool shown = std::fputs(table.c_str(), stdout) >= 0;
  if (!options.json.empty()) HEDDLE_TRY(replace_file(options.json, as_json(subject, measured)));
  if (decided(measured) == 0)
    return Status(Code::invalid_argument,
                  fmt::format("--budget {}: that was too short to decide any size; {} was not written",
                              options.budget_s, options.output));
  HEDDLE_TRY(replace_file(options.output, write_tuning(measured.tuning, made_for(subject))));
  const std::string use = how_to_use(subject, measured, options.output);
  if (!shown || std::fputs(use.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
    return Status(Code::system, "standard output cannot be written; " + options.output + " is there");
  return {};
}

// The same on all ranks, unless `lost`: the ranks are then in different places.
Status measure(const Bootstrap& bootstrap, Config config, const Options& options, bool& lost) {
  const bool leads = bootstrap.rank == 0;
  if (leads && !config.tuning_file.empty())
    say(fmt::format("HEDDLE_TUNING_FILE=\"{}\" is left out: what is measured is compared with the price",
                    config.tuning_file));
  config.tuning_file.clear();
  Result<std::unique_ptr<Communicator>> made = Communicator::create(bootstrap, config);
  if (!made.ok()) return made.status();
  Communicator& comm = *made.value();
  const Result<bool> own_cores = all_have_cores(bootstrap, comm.has_own_core());
  if (!own_cores.ok()) return own_cores.status();
  const Subject subject{comm.size(), comm.topology().nodes(), comm.describe(), own_cores.value()};
  if (leads && !subject.own_cores)
    say("ranks take turns on cores here, and times say more about that than about algorithms: tune where "
        "each rank "
        "has a core of its own");
  SearchPlan plan = plan_of(options);
  auto progress = std::make_unique<ProgressLine>();
  if (leads) plan.progress = [&](const TrialProgress& at) { progress->show(at); };
  const Result<MeasuredChoices> measured = comm.try_all(plan);
  progress.reset();
  if (!measured.ok()) {
    lost = true;
    return Status(measured.status().code(), measured.status().message() + "; nothing was written");
  }
  return agree(bootstrap, leads ? deliver(subject, measured.value(), options) : Status());
}

Status run_ranks(const CommandLine& line, Launch& launch, bool& lost) {
  const Bootstrap& bootstrap = launch.bootstrap();
  ParsedConfig parsed = parse_config_from_environ();
  // It is not used, and need not be readable.
  const std::string tuning_file = std::exchange(parsed.config.tuning_file, "");
  HEDDLE_TRY(report_complaints(parsed, bootstrap));
  HEDDLE_TRY(agree(bootstrap, check_alone(line, parsed.config, bootstrap.rank)));
  HEDDLE_TRY(same_options(bootstrap, line.options));
  if (const std::string problem = other_launcher(find_launcher(), bootstrap.size); !problem.empty())
    return Status(Code::invalid_argument, problem);
  if (bootstrap.size == 1)
    return Status(
        Code::invalid_argument,
        "one rank has nothing to choose: start as many as the job has, mpiexec -n 16 heddle-tune ...");
  parsed.config.tuning_file = tuning_file;
  return measure(bootstrap, parsed.config, line.options, lost);
}

int run(int argc, char** argv) {
  const CommandLine line = parse_command_line(argc, argv);
  if (line.help) {
    if (speaks_first()) std::fputs(line.help->c_str(), stdout);
    return 0;
  }
  const int failed = line.status.ok() ? 1 : 2;
  const Launcher launcher = find_launcher();
  if (launcher == Launcher::none) {
    say(line.status.ok()
            ? "one rank has nothing to choose: start as many as the job has, mpiexec -n 16 heddle-tune "
              "..., or without MPI with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set"
            : line.status.message());
    return failed;
  }
  const Result<std::unique_ptr<Launch>> launched = start(launcher, parse_config_from_environ().config);
  if (!launched.ok()) {
    say(launched.status().message());
    return 1;
  }
  Launch& launch = *launched.value();
  bool lost = false;
  Status status;
  try {
    status = run_ranks(line, launch, lost);
  } catch (const std::exception& error) {
    status = Status(Code::internal, error.what());
    lost = true;
  }
  if (status.ok()) return 0;
  const int rank = launch.bootstrap().rank;
  if (lost) {
    say(fmt::format("rank {}: {}", rank, status.message()));
    launch.abort();
  }
  if (rank == 0 && speaks_first()) say(status.message());
  return failed;
}

}  // namespace
}  // namespace heddle::tune

int main(int argc, char** argv) {
  try {
    return heddle::tune::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "heddle-tune: %s\n", error.what());
    return 1;
  }
}
