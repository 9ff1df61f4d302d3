#include "common/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/round_up.hpp"
#include "base/text.hpp"
#include "common/buffers.hpp"
#include "common/host_mpi.hpp"
#include "heddle/heddle.h"
#include "tools/help_lines.hpp"
#include "tools/number_between.hpp"

namespace heddle::bench {
namespace {

constexpr std::size_t kLargest = std::size_t{1} << 30;
constexpr int kLeastRanks = 2;

void set_defaults(Options& options) {
  const bool reduces = options.reduces();
  options.dtype = reduces ? Dtype::float32 : Dtype::int8;
  options.min_bytes = reduces ? 4 : 1;
  options.max_bytes = options.collective() ? std::size_t{1} << 20 : std::size_t{4} << 20;
  if (!options.has_messages()) options.min_bytes = options.max_bytes = 0;
}

const char* description(Kind kind) {
  switch (kind) {
    case Kind::latency:
      return "Ping-pong latency between two ranks.";
    case Kind::bandwidth:
      return "Bandwidth from rank 0 to rank 1.";
    case Kind::bidirectional:
      return "Bandwidth between two ranks, both directions at once.";
    case Kind::allreduce:
      return "Latency of allreduce (sum).";
    case Kind::reduce:
      return "Latency of reduce (sum).";
    case Kind::allgather:
      return "Latency of allgather.";
    case Kind::bcast:
      return "Latency of bcast.";
    case Kind::barrier:
      return "Latency of barrier.";
    case Kind::iallreduce:
      return "Overlap of non-blocking allreduce (sum) with computation.";
    case Kind::ibcast:
      return "Overlap of non-blocking bcast with computation.";
  }
  return "";
}

// Whether the program takes --vs.
bool can_compare(const Options& options) {
  return options.collective() && !options.overlaps();
}

std::string start_by_mpi(const char* name, const Options& options) {
  std::string text = fmt::format(
      "Start it by MPICH's launcher, which is mpiexec.mpich where plain mpiexec is another MPI's:\n"
      "  mpiexec -n 2 {0}  # the host MPI\n",
      name);
  if (can_compare(options)) {
    text += fmt::format(
        "  mpiexec -n 2 env LD_PRELOAD=.../libheddle_preload.so {0}  # heddle under MPI's calls\n"
        "  mpiexec -n 2 {0} --vs mpi  # both, by turns\n",
        name);
  }
  return text + fmt::format("  mpiexec -n 2 {0} --native  # heddle's own API\n", name);
}

// How it is started.
std::string examples(Kind kind, const Options& options) {
  const char* name = program_name(kind);
  return (host::built_in() ? start_by_mpi(name, options) : "") +
         fmt::format(
             "Without MPI, with --native, give every rank RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT:\n"
             "  for r in 0 1; do RANK=$r WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 {0} --native & "
             "done; wait",
             name);
}

bool parse_dtype(std::string text, Dtype& dtype) {
  for (char& c : text)
    c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (text.rfind("MPI_", 0) != 0) text.insert(0, "MPI_");
  for (const Dtype known : {Dtype::int8, Dtype::int32, Dtype::float32, Dtype::float64}) {
    if (text == mpi_name(known)) {
      dtype = known;
      return true;
    }
  }
  return false;
}

// What CLI11 fills in as text and `finish` turns into options.
struct Texts {
  std::string sizes;
  std::string dtype;
  std::string device = "host";
  std::string versus;
  std::string root;
  long iterations = -1;
  long warmup = -1;
  int rounds = -1;
};

void declare_messages(CLI::App& app, Options& options, Texts& texts) {
  const bool compares = can_compare(options);
  app.add_option(
      "-m,--message-size", texts.sizes,
      fmt::format("sizes in bytes{}, [MIN:]MAX, with K, M or G if you like (default {}:{}M{})",
                  options.kind == Kind::allgather ? " of what each rank gives" : "", options.min_bytes,
                  options.max_bytes >> 20, compares ? "; with --vs up to 16M" : ""));
  app.add_flag("-c,--validation", options.validate, "check results");
  app.add_option("-T,--type", texts.dtype,
                 fmt::format("mpi_char, mpi_int, mpi_float or mpi_double (default {})",
                             options.reduces() ? "mpi_float" : "mpi_char"));
  app.add_option("-d,--accelerator", texts.device, "where buffers lie: host, cuda or managed (default host)");
  app.add_option("-M,--mem-limit", options.memory_given,
                 "memory for buffers on each rank (default 256M, or what the largest messages need)");
  app.add_flag("--warm-buffers", options.warm_buffers,
               "use one buffer again and again (default: a fresh one each time)");
  if (options.kind == Kind::allreduce)
    app.add_flag("--in-place", options.in_place, "send what lies where the sum goes (MPI_IN_PLACE)");
  if (options.kind == Kind::allgather)
    app.add_flag("--in-place", options.in_place, "send what lies in its place in the result (MPI_IN_PLACE)");
  app.add_flag("--alloc-mem", options.alloc_mem,
               compares ? "buffers from MPI_Alloc_mem; from heddle_alloc with --native, and with --vs where "
                          "nothing is preloaded"
                        : "buffers from MPI_Alloc_mem; with --native from heddle_alloc");
  if (options.kind == Kind::bandwidth || options.kind == Kind::bidirectional) {
    app.add_option("-W,--window-size", options.window, "messages in flight (default 64)")
        ->check(CLI::Range(1, 4096));
  }
}

void declare(CLI::App& app, Options& options, Texts& texts) {
  const bool compares = can_compare(options);
  app.set_version_flag("-v,--version", fmt::format("{} {}", program_name(options.kind), heddle_version()));
  if (options.has_messages()) declare_messages(app, options, texts);
  const char* const each = options.has_messages() ? " for each size" : "";
  app.add_option("-i,--iterations", texts.iterations,
                 fmt::format("timed calls{}{} (default: adapts to the time)", each,
                             compares ? "; with --vs of each side, at least one in each round" : ""))
      ->check(CLI::Range(1L, 1'000'000'000L));
  app.add_option("-x,--warmup", texts.warmup,
                 compares
                     ? "untimed calls before them; with --vs of each side, before its first round (default: "
                       "adapts to the time)"
                     : "untimed calls before them (default: adapts to the time)")
      ->check(CLI::Range(0L, 1'000'000'000L));
  app.add_flag("-f,--full", options.full, "print minimum, maximum and the number of iterations as well");
  app.add_option("--max-seconds", options.max_seconds,
                 fmt::format("time{}{} (default 1)", each,
                             !compares                ? ""
                             : options.has_messages() ? " and each side"
                                                      : " for each side"))
      ->check(tools::number_between(0.01, 1e6));
  app.add_flag("--native", options.native, "call heddle's own API instead of MPI");
  app.add_option("--json", options.json,
                 "write results, samples and a description of the machine to this file");
  if (options.overlaps()) {
    app.add_option("--tests", options.tests, "calls of test, spread over the computation (default 0)")
        ->check(CLI::Range(0, 1'000'000));
  } else if (options.collective()) {
    app.add_option("--vs", texts.versus,
                   options.has_messages()
                       ? "measure heddle and another alternately and compare: 'mpi', the host MPI; 'staged', "
                         "of buffers on a GPU, copies to the host around a collective there"
                       : "measure heddle and another alternately and compare: 'mpi', the host MPI")
        ->check(options.has_messages() ? CLI::IsMember({"mpi", "staged"}) : CLI::IsMember({"mpi"}));
    app.add_option("--rounds", texts.rounds, "of --vs: blocks of each side (default 41)")
        ->check(CLI::Range(6, 10000));
    if (options.has_root()) {
      app.add_option(
             "--root", texts.root,
             fmt::format("of --vs: 'moving', another rank for each call; 'fixed', rank 0, {} (default "
                         "moving)",
                         options.reduces() ? "of which the others may run ahead"
                                           : "which may run ahead of the others"))
          ->check(CLI::IsMember({"fixed", "moving"}));
    }
  }
}

// A sum in place is what the next call that meets the buffer sends. Floating-point numbers grow to infinity,
// which is added as fast as any; whole numbers wrap to 0, and zeros may go by ways of their own.
std::string in_place_problem(const Options& options) {
  if (!options.in_place) return "";
  if (options.reduces() && options.dtype != Dtype::float32 && options.dtype != Dtype::float64)
    return fmt::format(
        "--in-place -T {}: sums of sums of whole numbers end as 0; take mpi_float or mpi_double",
        mpi_name(options.dtype));
  if (options.versus == Versus::staged)
    return "--in-place --vs staged: what is staged is copied in any case; leave --in-place out";
  return "";
}

// The sentence that says what is wrong, or nothing.
std::string finish_messages(Options& options, const Texts& texts) {
  if (options.compares()) options.max_bytes = std::size_t{16} << 20;
  if (!texts.dtype.empty() && !parse_dtype(texts.dtype, options.dtype))
    return fmt::format("-T {}: not a datatype; write mpi_char, mpi_int, mpi_float or mpi_double",
                       texts.dtype);
  if (!parse_place(texts.device, options.place))
    return fmt::format("-d {}: no place for buffers; write host, cuda or managed", texts.device);
  if (options.place == Place::host && options.versus == Versus::staged)
    return "--vs staged: buffers in the host's memory are not staged; put them on a GPU with -d cuda";
  if (options.place != Place::host && options.alloc_mem)
    return fmt::format("--alloc-mem: that is the host's memory; leave it or -d {} out", texts.device);
  if (!texts.sizes.empty() && !parse_range(texts.sizes, options.min_bytes, options.max_bytes))
    return fmt::format("-m {}: not a range of sizes; write [MIN:]MAX, for example 4:16M", texts.sizes);
  if (options.max_bytes > kLargest) return fmt::format("-m {}: sizes end at 1G", texts.sizes);
  // A message holds whole elements: round up, as the smallest message cannot be less than one.
  const std::size_t unit = size_of(options.dtype);
  options.min_bytes = round_up(options.min_bytes, unit);
  if (options.max_bytes < unit || options.max_bytes < options.min_bytes)
    return fmt::format("-m {}: no size in it is whole elements; {} takes {} bytes", texts.sizes,
                       mpi_name(options.dtype), unit);
  if (!options.memory_given.empty() && !parse_positive(options.memory_given, options.memory))
    return fmt::format("-M {}: not a size; write for example 256M", options.memory_given);
  if (std::string problem = fit_memory(options, kLeastRanks); !problem.empty()) return problem;
  // Who gives more memory means it: there may be more buffers then, in proportion.
  if (!options.memory_given.empty() && options.memory > kUsualMemory)
    options.most_buffers =
        static_cast<std::size_t>(kMostBuffers * (static_cast<double>(options.memory) / kUsualMemory));
  return in_place_problem(options);
}

std::string finish(Options& options, const Texts& texts) {
  if (texts.versus == "mpi") options.versus = Versus::mpi;
  if (texts.versus == "staged") options.versus = Versus::staged;
  if (texts.rounds >= 0 && !options.compares())
    return fmt::format("--rounds {}: rounds are those of a comparison; add --vs mpi, or leave it out",
                       texts.rounds);
  if (texts.rounds >= 0) options.rounds = texts.rounds;
  if (!texts.root.empty() && !options.compares())
    return fmt::format("--root {}: without a comparison it is rank 0; add --vs mpi, or leave it out",
                       texts.root);
  options.fixed_root = texts.root == "fixed";
  if (texts.iterations >= 0) options.iterations = texts.iterations;
  if (texts.warmup >= 0) options.warmup = texts.warmup;
  return options.has_messages() ? finish_messages(options, texts) : "";
}

}  // namespace

std::vector<std::size_t> Options::sizes() const {
  std::vector<std::size_t> result;
  std::size_t bytes = min_bytes;
  if (bytes == 0) {
    result.push_back(0);
    bytes = size_of(dtype);
  }
  for (; bytes <= max_bytes; bytes *= 2)
    result.push_back(bytes);
  return result;
}

std::size_t Options::send_bytes(std::size_t bytes, int ranks) const {
  return kind == Kind::allgather && in_place ? bytes * static_cast<std::size_t>(ranks) : bytes;
}

std::size_t Options::receive_bytes(std::size_t bytes, int ranks) const {
  if (pools() == 1) return 0;
  return kind == Kind::allgather ? bytes * static_cast<std::size_t>(ranks) : bytes;
}

std::size_t least_memory(const Options& options, int ranks) {
  const std::size_t send = BufferPool::least_size(options.send_bytes(options.max_bytes, ranks));
  if (options.pools() == 1) return send;
  return send + BufferPool::least_size(options.receive_bytes(options.max_bytes, ranks));
}

std::string fit_memory(Options& options, int ranks) {
  const std::size_t least = least_memory(options, ranks);
  if (options.memory_given.empty()) options.memory = std::max(options.memory, least);
  if (options.memory >= least) return "";
  return fmt::format("-M {}: buffers for messages of {} bytes take {}; give -M that much, or end -m sooner",
                     options.memory_given, options.max_bytes, size_text(least));
}

bool parse_positive(std::string_view text, std::size_t& number) {
  number = parse_size(text).value_or(0);
  return number > 0;
}

bool parse_range(const std::string& text, std::size_t& min_bytes, std::size_t& max_bytes) {
  const std::string_view view = text;
  const std::size_t colon = view.find(':');
  const bool one = colon == std::string_view::npos;
  const bool open = !one && colon + 1 == view.size();
  const auto high = open ? std::optional(max_bytes) : parse_size(one ? view : view.substr(colon + 1));
  if (!high) return false;
  const auto low = one ? std::optional(std::min(min_bytes, *high)) : parse_size(view.substr(0, colon));
  if (!low || *low > *high) return false;
  min_bytes = *low;
  max_bytes = *high;
  return true;
}

Parsed parse_options(Kind kind, int argc, const char* const* argv) {
  Parsed parsed;
  parsed.options.kind = kind;
  set_defaults(parsed.options);
  Texts texts;
  CLI::App app(description(kind), program_name(kind));
  tools::prepare_command_line(app);
  app.footer(examples(kind, parsed.options));
  declare(app, parsed.options, texts);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    parsed.code = app.exit(error, out, out) == 0 ? 0 : 2;
    parsed.text = parsed.code == 0 ? out.str() : fmt::format("{}: {}", program_name(kind), out.str());
    return parsed;
  }
  if (const std::string problem = finish(parsed.options, texts); !problem.empty()) {
    parsed.code = 2;
    parsed.text = fmt::format("{}: {}\n", program_name(kind), problem);
    return parsed;
  }
  parsed.run = true;
  return parsed;
}

}  // namespace heddle::bench
