// heddle-info: the machine, the transports, the environment, and which algorithm serves which message size.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>

#include "base/config.hpp"
#include "heddle/heddle.h"
#include "heddle_info/explain.hpp"
#include "heddle_info/info.hpp"
#include "help_lines.hpp"
#include "number_between.hpp"
#include "select/selector.hpp"
#include "setup/complaints.hpp"
#include "setup/usable_cores.hpp"

namespace {

constexpr std::size_t kLargestExplained = std::size_t{128} << 20;
constexpr int kWrongCommandLine = 2;
constexpr int kMostRanksExplained = 1 << 17;  // some seconds

CLI::Validator positive() {
  return heddle::tools::number_between(0.001, 1e6);
}

// Why prices cannot be shown; empty where they can.
std::string why_not(const heddle::info::DescribedMachine& machine) {
  if (machine.nodes * machine.ranks_per_node < 2)
    return "--explain: one rank alone has nothing to choose; give --ranks or --nodes of 2 or more";
  if (machine.nodes > kMostRanksExplained / machine.ranks_per_node)
    return fmt::format("--ranks {} on each of --nodes {}: prices are shown for {} ranks at most",
                       machine.ranks_per_node, machine.nodes, kMostRanksExplained);
  return "";
}

// What is said on standard error, so that what is printed stays prices.
void complain(const heddle::ParsedConfig& parsed) {
  for (const std::string& complaint : heddle::complaints_of(parsed))
    std::fprintf(stderr, "heddle-info: %s\n", complaint.c_str());
}

// The exit status.
int say(const std::string& text) {
  const bool written = std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  if (!written) std::perror("heddle-info: standard output");
  return written ? 0 : 1;
}

// What --explain goes by; an error without it, where it would mean nothing.
void add_described_machine(CLI::App& app, heddle::info::DescribedMachine& machine, CLI::Option* explain) {
  app.add_option("--nodes", machine.nodes, "with --explain: nodes")
      ->needs(explain)
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--latency", machine.latency_us,
                 "with --explain: microseconds of a small message between nodes")
      ->needs(explain)
      ->check(positive())
      ->capture_default_str();
  app.add_option("--gbit", machine.gbit, "with --explain: Gbit/s of a node's link")
      ->needs(explain)
      ->check(positive())
      ->capture_default_str();
  app.add_option(
         "--crossing", machine.crossing,
         "with --explain: how many times as long a message takes while every node sends to a distant one")
      ->needs(explain)
      ->check(positive())
      ->capture_default_str();
}

int run(int argc, char** argv) {
  CLI::App app("Shows what heddle finds on this machine and what it would choose.", "heddle-info");
  heddle::tools::prepare_command_line(app);
  int ranks = std::max(2, heddle::usable_cores());
  bool json = false;
  bool table = false;
  app.add_option("-n,--ranks", ranks,
                 "ranks on this machine to choose algorithms for (default: its usable cores, 2 at least)")
      ->check(CLI::Range(1, 256));
  app.add_flag("--json", json, "print JSON");
  bool explain = false;
  heddle::info::DescribedMachine machine;
  CLI::Option* const explains = app.add_flag(
      "--explain", explain,
      "print what each algorithm costs at each size, and which is chosen, for --ranks on each of --nodes");
  add_described_machine(app, machine, explains);
  app.add_flag("--environment-table", table,
               "print the table of HEDDLE_* variables in Markdown, and nothing else");
  std::string sysfs = "/sys";
  app.add_option("--sysfs", sysfs, "where the kernel shows devices")->group("");  // for tests
  app.set_version_flag("-v,--version", std::string("heddle ") + HEDDLE_VERSION_STRING);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream text;
    if (app.exit(error, text, text) == 0) return say(text.str());
    std::fprintf(stderr, "heddle-info: %s", text.str().c_str());
    return kWrongCommandLine;
  }
  std::string out;
  if (table) {
    out = heddle::config_table_markdown();
  } else if (explain) {
    machine.ranks_per_node = ranks;
    if (const std::string problem = why_not(machine); !problem.empty()) {
      std::fprintf(stderr, "heddle-info: %s\n", problem.c_str());
      return kWrongCommandLine;
    }
    const heddle::ParsedConfig parsed = heddle::parse_config_from_environ();
    complain(parsed);
    const auto sizes = heddle::info::explain(machine, kLargestExplained, parsed.config);
    if (!sizes.ok()) {
      std::fprintf(stderr, "heddle-info: %s\n", sizes.status().message().c_str());
      return 1;
    }
    out = json ? as_json(machine, sizes.value()) : as_text(machine, sizes.value());
  } else {
    const heddle::info::Info info = heddle::info::gather(ranks, sysfs);
    out = json ? heddle::info::as_json(info) : heddle::info::as_text(info);
  }
  return say(out);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "heddle-info: %s\n", error.what());
    return 1;
  }
}
