#include "common/program.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <fstream>

#include "common/collective_bench.hpp"
#include "common/message_bench.hpp"
#include "common/overlap_bench.hpp"
#include "common/report.hpp"

namespace heddle::bench {
namespace {

struct Sides {
  std::unique_ptr<Side> measured;
  std::unique_ptr<Side> host;  // of --vs only
  std::string mode;
};

// Null `measured` on failure, with the sentence in `problem`.
Sides make_sides(const Job& job, const Options& options, std::string& problem) {
  Sides sides;
  const char* preload = preload_version();
  if (options.vs_mpi && !job.has_mpi()) {
    problem = "--vs mpi: MPI did not start this process; start it with mpiexec";
    return sides;
  }
  if (options.vs_mpi) sides.host = make_host_side(options.dtype);
  // A comparison has something of heddle's to measure even without the preload library: the native API.
  if (options.native || (options.vs_mpi && preload == nullptr)) {
    sides.measured = make_native_side(job, options.dtype, problem);
    sides.mode = fmt::format("heddle {} native", heddle_version());
    if (options.vs_mpi && sides.measured == nullptr)
      problem += "; or run this with LD_PRELOAD=libheddle_preload.so";
  } else {
    sides.measured = make_mpi_side(options.dtype);
    sides.mode = preload != nullptr ? fmt::format("MPI with heddle {} preloaded", preload) : "MPI";
  }
  return sides;
}

std::string why_not(const Job& job, const Options& options) {
  if (!options.collective() && job.size() != 2)
    return fmt::format("needs 2 ranks, not {}; start it with mpiexec -n 2", job.size());
  if (job.size() < 2) return "needs 2 ranks or more; start it with mpiexec -n 2";
  return "";
}

// The same number on all ranks, since ranks must agree on which buffer is next to be fresh.
std::size_t memory_for_buffers(const Job& job, const Options& options) {
  const auto mine = static_cast<double>(affordable_memory(options.memory, job.size()));
  return static_cast<std::size_t>(-job.maximum(-mine));
}

void measure_all(const Job& job, const Options& options, const Sides& sides, Report& report) {
  const std::size_t memory = memory_for_buffers(job, options);
  if (!options.collective()) {
    MessageBench bench(job, options, memory);
    for (const std::size_t bytes : options.sizes())
      report.add(bench.measure(*sides.measured, bytes));
    return;
  }
  BufferPool::Source source;
  if (options.alloc_mem) source = [&](std::size_t bytes) { return sides.measured->allocate(bytes); };
  if (options.overlaps()) {
    OverlapBench bench(job, options, memory, source);
    for (const std::size_t bytes : options.sizes())
      report.add(bench.measure(*sides.measured, bytes));
    return;
  }
  CollectiveBench bench(job, options, memory, source);
  for (const std::size_t bytes : options.sizes()) {
    if (options.vs_mpi) {
      report.add(bench.compare(*sides.host, *sides.measured, bytes));
    } else {
      report.add(bench.measure(*sides.measured, bytes));
    }
  }
  report.footer();
}

int run_job(const Job& job, const Options& options) {
  const auto fail = [&](const std::string& problem) {
    if (job.leads()) std::fprintf(stderr, "%s: %s\n", program_name(options.kind), problem.c_str());
    return 1;
  };
  if (const std::string problem = why_not(job, options); !problem.empty()) return fail(problem);
  // Find out now, not after a minute of measuring, that results cannot be written.
  const bool writable = options.json.empty() || !job.leads() || std::ofstream(options.json).is_open();
  if (!job.all(writable)) return fail(fmt::format("cannot write --json {}", options.json));
  std::string problem;
  const Sides sides = make_sides(job, options, problem);
  if (sides.measured == nullptr) return fail(problem);
  Report report(job, options, sides.mode);
  report.header();
  measure_all(job, options, sides, report);
  if (!report.write_json(problem)) return fail(problem);
  if (!report.all_valid()) return fail("-c: results are wrong where a row says Fail");
  return 0;
}

}  // namespace

int run_program(Kind kind, int argc, char** argv) {
  try {
    const Parsed parsed = parse_options(kind, argc, argv);
    if (!parsed.run) {
      if (speaks_first()) std::fputs(parsed.text.c_str(), parsed.code == 0 ? stdout : stderr);
      return parsed.code;
    }
    std::string problem;
    // Sends and receives of the native API block: both directions at once take two threads.
    const bool threads = parsed.options.native && kind == Kind::bidirectional;
    const std::unique_ptr<Job> job = Job::start(&argc, &argv, parsed.options.native, threads, problem);
    if (job == nullptr) {
      std::fprintf(stderr, "%s: %s\n", program_name(kind), problem.c_str());
      return 1;
    }
    return run_job(*job, parsed.options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program_name(kind), error.what());
    return 1;
  }
}

}  // namespace heddle::bench
