#include "sparse/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "common/host_mpi.hpp"
#include "heddle/heddle.h"
#include "tools/help_lines.hpp"
#include "tools/number_between.hpp"

namespace heddle::bench {
namespace {

constexpr std::size_t kLargestDimension = std::size_t{1} << 30;  // MPI counts with an int

const std::map<std::string, Pattern> kPatterns = {{"uniform", Pattern::uniform},
                                                  {"clustered", Pattern::clustered},
                                                  {"identical", Pattern::identical},
                                                  {"skewed", Pattern::skewed}};
const std::map<std::string, SparseApi> kApis = {
    {"sparse", SparseApi::sparse}, {"dense-out", SparseApi::dense_out}, {"in-place", SparseApi::in_place}};
const std::map<std::string, Dtype> kTypes = {{"float32", Dtype::float32}, {"float64", Dtype::float64}};

template <typename T>
CLI::IsMember one_of(const std::map<std::string, T>& names) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : names)
    keys.push_back(key);
  return CLI::IsMember(keys);
}

// What CLI11 fills in as text and `finish` turns into options.
struct Texts {
  std::string dimension;
  std::string pattern = "uniform";
  std::string api = "sparse";
  std::string dtype = "float32";
  std::string device = "host";
  long iterations = -1;
  long warmup = -1;
  bool no_mpi = false;
};

void declare(CLI::App& app, SparseOptions& options, Texts& texts) {
  app.set_version_flag("-v,--version", fmt::format("{} {}", kSparseProgram, heddle_version()));
  app.add_option("--dimension", texts.dimension,
                 "elements of the vectors, with K, M or G if you like (default 16M)");
  app.add_option("--density", options.densities,
                 "percent of the elements that a rank has, separated by commas "
                 "(default 0.01,0.1,0.781,3,10,30,100)")
      ->delimiter(',')
      ->check(tools::number_between(1e-9, 100));
  app.add_option("--pattern", texts.pattern,
                 "where the entries lie: uniform, clustered, identical or skewed (default uniform)")
      ->check(one_of(kPatterns));
  app.add_option("--api", texts.api, "what is called: sparse, dense-out or in-place (default sparse)")
      ->check(one_of(kApis));
  app.add_option("--dtype", texts.dtype, "float32 or float64 (default float32)")->check(one_of(kTypes));
  app.add_option("-i,--iterations", texts.iterations,
                 "timed calls for each density (default: adapts to the time)")
      ->check(CLI::Range(1L, 1'000'000'000L));
  app.add_option("-x,--warmup", texts.warmup, "untimed calls before them (default: adapts to the time)")
      ->check(CLI::Range(0L, 1'000'000'000L));
  app.add_option("--rounds", options.rounds, "blocks of each side (default 41)")->check(CLI::Range(6, 10000));
  app.add_option("--max-seconds", options.max_seconds, "time for each density and each side (default 1)")
      ->check(tools::number_between(0.01, 1e6));
  app.add_flag("--no-mpi", texts.no_mpi, "leave out the host MPI's dense allreduce");
  app.add_option("-d,--accelerator", texts.device, "where vectors lie: host, cuda or managed (default host)");
  app.add_flag("-f,--full", options.full,
               "print the intervals of all medians and the number of rounds as well");
  app.add_flag("-c,--validation", options.validate, "check results");
  app.add_flag("--wire", options.wire,
               "measure the bandwidth from rank 0 to the last rank first, and what share of it is used");
  app.add_option("--json", options.json,
                 "write results, samples and a description of the machine to this file");
}

// The sentence that says what is wrong, or nothing.
std::string finish(SparseOptions& options, const Texts& texts) {
  if (!texts.dimension.empty() && !parse_positive(texts.dimension, options.dimension))
    return fmt::format("--dimension {}: not a number of elements; write for example 16M", texts.dimension);
  if (options.dimension > kLargestDimension)
    return fmt::format("--dimension {}: dimensions end at 1G", texts.dimension);
  options.pattern = kPatterns.at(texts.pattern);
  options.api = kApis.at(texts.api);
  options.dtype = kTypes.at(texts.dtype);
  if (!parse_place(texts.device, options.place))
    return fmt::format("-d {}: no place for vectors; write host, cuda or managed", texts.device);
  options.mpi = !texts.no_mpi;
  if (texts.iterations >= 0) options.iterations = texts.iterations;
  if (texts.warmup >= 0) options.warmup = texts.warmup;
  return "";
}

template <typename T>
const char* name_in(const std::map<std::string, T>& names, T wanted) {
  const auto found =
      std::find_if(names.begin(), names.end(), [&](const auto& entry) { return entry.second == wanted; });
  return found == names.end() ? "" : found->first.c_str();
}

}  // namespace

const char* name_of(SparseApi api) {
  return name_in(kApis, api);
}
const char* name_of(Pattern pattern) {
  return name_in(kPatterns, pattern);
}

std::size_t SparseOptions::entries(double percent) const {
  const auto wanted = static_cast<std::size_t>(std::llround(percent / 100 * static_cast<double>(dimension)));
  return std::clamp(wanted, std::size_t{1}, dimension);
}

SparseParsed parse_sparse_options(int argc, const char* const* argv) {
  SparseParsed parsed;
  Texts texts;
  CLI::App app("Latency of allreduce (sum) of sparse vectors, beside that of dense ones.", kSparseProgram);
  tools::prepare_command_line(app);
  const std::string by_mpi =
      "Start it on two ranks or more, by MPICH's launcher (mpiexec.mpich where plain mpiexec is another "
      "MPI's):\n"
      "  mpiexec -n 2 heddle_sparse_allreduce --density 0.1,1,10\n";
  app.footer((host::built_in() ? by_mpi : "") +
             "Without MPI, give every rank RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT:\n"
             "  for r in 0 1; do RANK=$r WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "
             "heddle_sparse_allreduce & "
             "done; wait");
  declare(app, parsed.options, texts);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    parsed.code = app.exit(error, out, out) == 0 ? 0 : 2;
    parsed.text = parsed.code == 0 ? out.str() : fmt::format("{}: {}", kSparseProgram, out.str());
    return parsed;
  }
  if (const std::string problem = finish(parsed.options, texts); !problem.empty()) {
    parsed.code = 2;
    parsed.text = fmt::format("{}: {}\n", kSparseProgram, problem);
    return parsed;
  }
  parsed.run = true;
  return parsed;
}

}  // namespace heddle::bench
