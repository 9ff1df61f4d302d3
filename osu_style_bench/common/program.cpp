#include "common/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>

#include "base/launchers.hpp"
#include "common/collective_bench.hpp"
#include "common/device.hpp"
#include "common/host_mpi.hpp"
#include "common/json_values.hpp"
#include "common/message_bench.hpp"
#include "common/overlap_bench.hpp"
#include "common/report.hpp"

namespace heddle::bench {
namespace {

struct Sides {
  std::unique_ptr<Side> measured;
  std::unique_ptr<Side> host;  // of --vs only: the other one
  std::string mode;
  std::string column = "heddle";  // of --vs: what `measured` is
};

// Calls, more than go by before the preload library takes a communicator over.
constexpr int kTakenOver = 4;
constexpr int kTakenOverByBarriers = 600;

// Whether the preload library, which is in this process, serves any of the sizes. Collective: only once it
// was called does it know.
bool preload_serves(const Options& options) {
  if (!options.collective() || options.overlaps()) return false;
  const std::unique_ptr<Side> side = make_mpi_side(options.dtype);
  if (options.kind == Kind::barrier) {
    for (int call = 0; call < kTakenOverByBarriers; ++call)
      side->barrier();
    return side->algorithm(options.kind, 0) != "host";
  }
  const std::size_t width = size_of(options.dtype);
  const std::size_t bytes = std::max(options.min_bytes, width);
  // In the host's memory, which the host can serve as well.
  BufferPool send(0, bytes, options.dtype);
  std::optional<BufferPool> receive;
  if (options.kind != Kind::bcast) receive.emplace(0, bytes, options.dtype);
  for (int call = 0; call < kTakenOver; ++call) {
    // Reduces alone would have to be as many as barriers; sums set heddle up for all.
    if (options.kind == Kind::bcast) {
      side->bcast(send.next(), bytes / width, 0);
    } else {
      side->allreduce(send.next(), receive->next(), bytes / width);
    }
  }
  const std::vector<std::size_t> sizes = options.sizes();
  return std::any_of(sizes.begin(), sizes.end(),
                     [&](std::size_t size) { return side->algorithm(options.kind, size / width) != "host"; });
}

// Whether a call of MPI's would get memory that MPI must be able to serve itself.
bool asks_host_for_gpu_memory(const Options& options, bool native, bool preload) {
  if (options.place == Place::host) return false;
  return options.versus == Versus::mpi || (!native && !preload);
}

// What heddle is compared with; null on failure.
std::unique_ptr<Side> make_other_side(const Job& job, const Options& options, Device* device,
                                      std::string& problem) {
  if (options.versus == Versus::mpi) return make_host_side(options.dtype);
  std::unique_ptr<Side> inner =
      job.has_mpi() ? make_host_side(options.dtype) : make_native_side(job, options.dtype, problem);
  return inner != nullptr ? make_staged_side(job, options, *device, std::move(inner)) : nullptr;
}

// Null `measured` on failure, with the sentence in `problem`.
Sides make_sides(const Job& job, const Options& options, Device* device, std::string& problem) {
  Sides sides;
  const char* preload = preload_version();
  if (options.versus == Versus::mpi && !job.has_mpi()) {
    problem = host::built_in()
                  ? "--vs mpi: MPI did not start this process; start it with mpiexec"
                  : "--vs mpi: built without MPI; leave it out, or build heddle with -Dmpich=enabled";
    return sides;
  }
  // A comparison has something of heddle's to measure even without the preload library: the native API.
  const bool native = options.native || (options.compares() && preload == nullptr);
  const bool served = preload != nullptr && !native && preload_serves(options);
  if (asks_host_for_gpu_memory(options, native, served) && !host_takes_gpu_memory()) {
    problem =
        fmt::format("-d {}: the host MPI does not say that it takes GPU memory (MPIX_Query_cuda_support); {}",
                    name_of(options.place),
                    options.versus == Versus::mpi
                        ? "compare with --vs staged"
                        : "measure heddle's own API with --native, or heddle_allreduce, heddle_reduce and "
                          "heddle_bcast with LD_PRELOAD=libheddle_preload.so");
    return sides;
  }
  if (device != nullptr && (native || served) && !heddle_takes_gpu_memory(job, options.place, problem))
    return sides;
  if (options.compares()) {
    sides.host = make_other_side(job, options, device, problem);
    if (sides.host == nullptr) return sides;
  }
  if (native) {
    sides.measured = make_native_side(job, options.dtype, problem);
    sides.mode = fmt::format("heddle {} native", heddle_version());
    if (options.compares() && sides.measured == nullptr)
      problem += "; or run this with LD_PRELOAD=libheddle_preload.so";
  } else {
    sides.measured = make_mpi_side(options.dtype);
    sides.mode = "MPI";
    if (served) sides.mode = fmt::format("MPI with heddle {} preloaded", preload);
    if (preload != nullptr && !served) {
      sides.mode = fmt::format("heddle {} preloaded, but the host MPI serves this", preload);
      sides.column = "preload";
    }
  }
  if (device != nullptr) sides.mode += fmt::format("; {}", device->name());
  return sides;
}

std::string why_not(const Job& job, const Options& options) {
  if (std::string problem = job.other_launcher(); !problem.empty()) return problem;
  if (!options.collective() && job.size() != 2)
    return fmt::format("needs 2 ranks, not {}; {}", job.size(), how_two_start("--native"));
  if (job.size() < 2) return "needs 2 ranks or more; " + how_two_start("--native");
  return "";
}

void measure_all(const Job& job, const Options& options, const Sides& sides, Device* device,
                 std::size_t memory, Report& report) {
  BufferPool::Source source;
  if (device != nullptr) source = device->source();
  if (options.alloc_mem) source.allocate = [&](std::size_t bytes) { return sides.measured->allocate(bytes); };
  if (!options.collective()) {
    MessageBench bench(job, options, memory, source);
    for (const std::size_t bytes : options.sizes())
      report.add(bench.measure(*sides.measured, bytes));
    return;
  }
  if (options.overlaps()) {
    OverlapBench bench(job, options, memory, source);
    for (const std::size_t bytes : options.sizes())
      report.add(bench.measure(*sides.measured, bytes));
    return;
  }
  CollectiveBench bench(job, options, memory, source);
  for (const std::size_t bytes : options.sizes()) {
    if (options.compares()) {
      report.add(bench.compare(*sides.host, *sides.measured, bytes));
    } else {
      report.add(bench.measure(*sides.measured, bytes));
    }
  }
  report.footer();
}

int run_job(const Job& job, Options options) {
  const auto fail = [&](const std::string& problem) {
    if (job.leads()) std::fprintf(stderr, "%s: %s\n", program_name(options.kind), problem.c_str());
    return 1;
  };
  // Where each process is alone, each leads.
  if (const std::string problem = why_not(job, options); !problem.empty())
    return speaks_first() ? fail(problem) : 1;
  std::string problem;
  if (!can_write_json(job, options.json, problem)) return fail(problem);
  // How long what is received is depends on the ranks.
  problem = fit_memory(options, job.size());
  if (!problem.empty()) return fail(problem);
  const std::size_t least = least_memory(options, job.size());
  const std::size_t memory = affordable_memory(job, options.memory);
  if (memory < least)
    return fail(
        fmt::format("buffers for messages of {} bytes take {} on each rank, and half of the available "
                    "memory leaves each of {} ranks {}; end -m sooner, or start fewer ranks",
                    options.max_bytes, size_text(least), job.size(), size_text(memory)));
  std::unique_ptr<Device> device;
  if (options.place != Place::host) {
    device = Device::open(job, options.place);
    if (device == nullptr) return fail(fmt::format("-d {}: not on all ranks", name_of(options.place)));
  }
  const Sides sides = make_sides(job, options, device.get(), problem);
  if (sides.measured == nullptr) return fail(problem);
  if (sides.host != nullptr && sides.column == "preload" && job.leads())
    std::fprintf(stderr,
                 "%s: warning: the preload library is loaded, but the host MPI serves these calls: both "
                 "columns are its times; see "
                 "HEDDLE_ENABLE, and what HEDDLE_LOG=info says\n",
                 program_name(options.kind));
  Report report(job, options, sides.mode, sides.column, memory);
  report.header();
  measure_all(job, options, sides, device.get(), memory, report);
  report.end();
  if (!report.write_json(problem)) return fail(problem);
  if (job.leads() && std::ferror(stdout) != 0) return fail("standard output cannot be written");
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
    return job->run([&] { return run_job(*job, parsed.options); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program_name(kind), error.what());
    return 1;
  }
}

}  // namespace heddle::bench
