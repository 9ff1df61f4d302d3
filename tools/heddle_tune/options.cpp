#include "heddle_tune/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <filesystem>
#include <string_view>

#include "base/text.hpp"
#include "heddle/heddle.h"
#include "help_lines.hpp"
#include "number_between.hpp"

namespace heddle::tune {
namespace {

constexpr const char* kDescription =
    "Measures which algorithm serves which size best in a job like this one, and writes a tuning file.\n"
    "Started like the job: mpiexec -n 16 heddle-tune -o tuning.json, or without MPI on each rank with RANK, "
    "WORLD_SIZE, MASTER_ADDR and MASTER_PORT.";

Status read_sizes(std::string_view text, Options& options) {
  constexpr std::uint64_t kMost = std::uint64_t{1}
                                  << 40;  // two vectors of them are more than any machine has
  const std::size_t colon = text.find(':');
  const auto least =
      colon == std::string_view::npos ? std::optional(options.least) : parse_size(text.substr(0, colon));
  const auto most = parse_size(colon == std::string_view::npos ? text : text.substr(colon + 1));
  const bool valid = least && most && *least >= 4 && *least <= *most && std::has_single_bit(*least) &&
                     std::has_single_bit(*most) && *most <= kMost;
  if (!valid)
    return Status(
        Code::invalid_argument,
        fmt::format("--sizes {}: give [MIN:]MAX, both powers of two of 4 bytes to 1024G and MIN <= MAX, "
                    "such as 4:64M",
                    text));
  options.least = *least;
  options.most = *most;
  return {};
}

Status read_collectives(std::string_view text, Options& options) {
  options.collectives.clear();
  for (const std::string_view name : split_list(text)) {
    const bool bcast = name == "bcast";
    if (!bcast && name != "allreduce")
      return Status(Code::invalid_argument,
                    fmt::format("--collectives {}: \"{}\" is none; give allreduce, bcast or both, separated "
                                "by a comma",
                                text, name));
    const Collective collective = bcast ? Collective::bcast : Collective::allreduce;
    if (std::ranges::find(options.collectives, collective) == options.collectives.end())
      options.collectives.push_back(collective);
  }
  return {};
}

// The second one would replace what the first one wrote.
Status differ(const Options& options) {
  if (options.json.empty()) return {};
  std::error_code ignored;
  if (std::filesystem::weakly_canonical(options.json, ignored) !=
      std::filesystem::weakly_canonical(options.output, ignored))
    return {};
  return Status(
      Code::invalid_argument,
      fmt::format("--json {}: that is the tuning file (--output {}); give the report a file of its own",
                  options.json, options.output));
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  CommandLine line;
  Options& options = line.options;
  std::string sizes;
  std::string collectives;
  CLI::App app(kDescription, "heddle-tune");
  tools::prepare_command_line(app);
  app.add_option("-o,--output", options.output, "the tuning file to write; one that is there is replaced")
      ->required();
  app.add_option("-m,--sizes", sizes, "sizes in bytes, [MIN:]MAX, powers of two, with K, M or G if you like")
      ->default_str("4:64M");
  app.add_option("-c,--collectives", collectives, "what to measure")->default_str("allreduce,bcast");
  app.add_option("-t,--budget", options.budget_s, "seconds for measuring; set-up and prices come on top")
      ->check(tools::number_between(0.1, 1e6))
      ->capture_default_str();
  app.add_option("--json", options.json, "write all that was measured and predicted to this file");
  app.set_version_flag("-v,--version", std::string("heddle ") + HEDDLE_VERSION_STRING);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    line.help = app.help();
    return line;
  } catch (const CLI::CallForVersion&) {
    line.help = app.version() + "\n";
    return line;
  } catch (const CLI::ParseError& error) {
    line.status = Status(Code::invalid_argument, tools::failure(app, error));
    return line;
  }
  if (!sizes.empty()) line.status = read_sizes(sizes, options);
  if (line.status.ok() && !collectives.empty()) line.status = read_collectives(collectives, options);
  if (line.status.ok()) line.status = differ(options);
  return line;
}

std::string shared_part(const Options& options) {
  std::string text =
      fmt::format("--sizes {}:{} --budget {} --collectives ", options.least, options.most, options.budget_s);
  for (const Collective collective : options.collectives)
    text += fmt::format("{}{}", text.back() == ' ' ? "" : ",", collective_name(collective));
  return text;
}

}  // namespace heddle::tune
