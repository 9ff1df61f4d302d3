#include "sparse/program.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "base/launchers.hpp"
#include "common/device.hpp"
#include "common/job.hpp"
#include "common/json_values.hpp"
#include "common/side.hpp"
#include "sparse/bandwidth.hpp"
#include "sparse/report.hpp"
#include "sparse/sparse_bench.hpp"

namespace heddle::bench {
namespace {

int run_job(const Job& job, const SparseOptions& options) {
  const auto fail = [&](const std::string& problem) {
    if (job.leads()) std::fprintf(stderr, "%s: %s\n", kSparseProgram, problem.c_str());
    return 1;
  };
  if (const std::string problem = job.other_launcher(); !problem.empty())
    return speaks_first() ? fail(problem) : 1;  // each process leads
  if (job.size() < 2) return fail("needs 2 ranks or more; " + how_two_start(""));
  std::string problem;
  if (!can_write_json(job, options.json, problem)) return fail(problem);
  const std::size_t least = least_sparse_memory(options, job.size());
  if (const std::size_t memory = affordable_memory(job, least); memory < least)
    return fail(fmt::format(
        "--dimension {}: vectors take {} on each rank, and half of the available memory leaves each of "
        "{} ranks {}; give a smaller --dimension, or start fewer ranks",
        options.dimension, size_text(least), job.size(), size_text(memory)));
  std::unique_ptr<Device> device;
  if (options.place != Place::host) {
    device = Device::open(job, options.place);
    if (device == nullptr) return fail(fmt::format("-d {}: not on all ranks", name_of(options.place)));
    if (!heddle_takes_gpu_memory(job, options.place, problem)) return fail(problem);
  }
  const NativeComm comm = job.make_native_comm(problem);
  if (comm == nullptr) return fail(problem);
  const std::unique_ptr<Side> dense = make_native_side(job, options.dtype, problem);
  if (dense == nullptr) return fail(problem);
  const bool host_can = job.has_mpi() && (device == nullptr || host_takes_gpu_memory());
  const std::unique_ptr<Side> host = options.mpi && host_can ? make_host_side(options.dtype) : nullptr;

  const double wire = options.wire ? measure_wire(job, comm.get(), options.max_seconds) : 0;
  SparseReport report(job, options, host != nullptr, device.get(), wire);
  report.header();
  SparseBench bench(job, options, comm.get(), *dense, host.get(), device.get());
  for (const double percent : options.densities)
    report.add(bench.measure(percent, wire));
  report.end();
  if (!report.write_json(problem)) return fail(problem);
  if (job.leads() && std::ferror(stdout) != 0) return fail("standard output cannot be written");
  if (!report.all_valid()) return fail("-c: results are wrong where a row says Fail");
  return 0;
}

}  // namespace

int run_sparse_program(int argc, char** argv) {
  try {
    const SparseParsed parsed = parse_sparse_options(argc, argv);
    if (!parsed.run) {
      if (speaks_first()) std::fputs(parsed.text.c_str(), parsed.code == 0 ? stdout : stderr);
      return parsed.code;
    }
    std::string problem;
    const std::unique_ptr<Job> job = Job::start(&argc, &argv, true, false, problem);
    if (job == nullptr) {
      std::fprintf(stderr, "%s: %s\n", kSparseProgram, problem.c_str());
      return 1;
    }
    return job->run([&] { return run_job(*job, parsed.options); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", kSparseProgram, error.what());
    return 1;
  }
}

}  // namespace heddle::bench
