#include "common/report.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/buffers.hpp"
#include "common/host_mpi.hpp"
#include "common/json_values.hpp"

namespace heddle::bench {
namespace {

using nlohmann::json;

// Column widths of OSU's tables.
constexpr int kSizeWidth = 10;
constexpr int kFieldWidth = 20;
constexpr int kNarrow = 12;

const char* title(Kind kind) {
  switch (kind) {
    case Kind::latency:
      return "Latency Test";
    case Kind::bandwidth:
      return "Bandwidth Test";
    case Kind::bidirectional:
      return "Bi-Directional Bandwidth Test";
    case Kind::allreduce:
      return "Allreduce Latency Test";
    case Kind::reduce:
      return "Reduce Latency Test";
    case Kind::allgather:
      return "Allgather Latency Test";
    case Kind::bcast:
      return "Broadcast Latency Test";
    case Kind::barrier:
      return "Barrier Latency Test";
    case Kind::iallreduce:
      return "Non-blocking Allreduce Latency Test";
    case Kind::ibcast:
      return "Non-blocking Broadcast Latency Test";
  }
  return "";
}

bool is_bandwidth(Kind kind) {
  return kind == Kind::bandwidth || kind == Kind::bidirectional;
}

const char* verdict(const std::optional<bool>& valid) {
  return valid.value_or(false) ? "Pass" : "Fail";
}

// OSU's programs print two decimals, which of 0.07 microseconds is one digit.
std::string figure(double value) {
  return fmt::format("{:.{}f}", value, value < 10 ? 3 : 2);
}

void print(const std::string& line) {
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

json to_json(const ComparedRow& row) {
  json value = {{"bytes", row.bytes},
                {"buffers", row.buffers},
                {"rounds", row.host.samples_us.size()},
                {"host", to_json(row.host)},
                {"heddle", to_json(row.heddle)},
                {"ratio", row.ratio},
                {"ratio_ci95", to_json(row.ratio_interval)},
                {"algorithm", row.algorithm}};
  if (row.valid) value["valid"] = *row.valid;
  return value;
}

json to_json(const PlainRow& row, bool bandwidth) {
  const std::string unit = bandwidth ? "_mb_per_s" : "_us";
  json value = {{"bytes", row.bytes},
                {"buffers", row.buffers},
                {"average" + unit, row.average},
                {"minimum" + unit, row.minimum},
                {"maximum" + unit, row.maximum},
                {"iterations", row.iterations},
                {"algorithm", row.algorithm}};
  if (row.valid) value["valid"] = *row.valid;
  return value;
}

json to_json(const OverlapRow& row) {
  json value = {{"bytes", row.bytes},
                {"buffers", row.buffers},
                {"overall_us", row.overall_us},
                {"compute_us", row.compute_us},
                {"pure_us", row.pure_us},
                {"overlap_percent", row.overlap_percent ? json(*row.overlap_percent) : json()},
                {"rounds", row.rounds}};
  if (!row.why_not.empty()) value["no_overlap_because"] = row.why_not;
  if (row.valid) value["valid"] = *row.valid;
  return value;
}

}  // namespace

Report::Report(const Job& job, const Options& options, std::string mode, std::string column,
               std::size_t memory)
    : job_(job),
      options_(options),
      mode_(std::move(mode)),
      column_(std::move(column)),
      memory_(memory),
      cores_(job) {}

void Report::header() const {
  if (!job_.leads()) return;
  std::string text = fmt::format("\n# heddle {} v{}\n# {}; {} ranks; {}\n", title(options_.kind),
                                 heddle_version(), mode_, job_.size(), host::library());
  if (options_.has_messages())
    text +=
        fmt::format("# Datatype: {}.{}\n", mpi_name(options_.dtype), options_.fixed_root ? " Root: 0." : "");
  if (options_.compares()) {
    const std::string peer = options_.versus == Versus::mpi ? "MPI" : "staged";
    text += fmt::format(
        "# Medians of rounds, ratio {}/{} with its 95% confidence "
        "interval of this run\n{:<{}}{:>{}}{:>{}}{:>{}}{:>{}}{:>{}}",
        peer, column_, "# Size", kSizeWidth, peer + "(us)", kNarrow, column_ + "(us)", kNarrow, "Ratio",
        kNarrow, "Low", kNarrow, "High", kNarrow);
    if (options_.full) {
      for (const std::string& column :
           {peer + "-low", peer + "-high", column_ + "-low", column_ + "-high", std::string("Rounds")})
        text += fmt::format("{:>{}}", column, kNarrow);
    }
    if (options_.validate) text += fmt::format("{:>{}}", "Validation", kNarrow);
    text += "  Algorithm\n";
  } else if (options_.overlaps()) {
    text += fmt::format("# Medians of rounds, the slowest rank's; {} test{} in each computation\n{:<{}}",
                        options_.tests, options_.tests == 1 ? "" : "s", "# Size", kSizeWidth);
    for (const char* column : {"Overall(us)", "Compute(us)", "Pure Comm.(us)", "Overlap(%)"})
      text += fmt::format("{:>{}}", column, kFieldWidth);
    if (options_.full) text += fmt::format("{:>{}}", "Rounds", kFieldWidth);
    if (options_.validate) text += fmt::format("{:>{}}", "Validation", kFieldWidth);
    text += "\n";
  } else {
    const bool bandwidth = is_bandwidth(options_.kind);
    text += fmt::format("{:<{}}{:>{}}", "# Size", kSizeWidth,
                        bandwidth ? "Bandwidth (MB/s)" : "Avg Latency(us)", kFieldWidth);
    if (options_.full) {
      text +=
          fmt::format("{:>{}}{:>{}}{:>{}}", bandwidth ? "Min (MB/s)" : "Min Latency(us)", kFieldWidth,
                      bandwidth ? "Max (MB/s)" : "Max Latency(us)", kFieldWidth, "Iterations", kFieldWidth);
    }
    if (options_.validate) text += fmt::format("{:>{}}", "Validation", kFieldWidth);
    text += "\n";
  }
  print(text);
}

void Report::add(const PlainRow& row) {
  plain_.push_back(row);
  if (!job_.leads()) return;
  std::string text = fmt::format("{:<{}}{:>{}}", row.bytes, kSizeWidth, figure(row.average), kFieldWidth);
  if (options_.full) {
    text += fmt::format("{:>{}}{:>{}}{:>{}}", figure(row.minimum), kFieldWidth, figure(row.maximum),
                        kFieldWidth, row.iterations, kFieldWidth);
  }
  if (options_.validate) text += fmt::format("{:>{}}", verdict(row.valid), kFieldWidth);
  print(text + "\n");
}

void Report::add(const ComparedRow& row) {
  compared_.push_back(row);
  if (!job_.leads()) return;
  std::string text = fmt::format("{:<{}}", row.bytes, kSizeWidth);
  for (const double value :
       {row.host.median_us, row.heddle.median_us, row.ratio, row.ratio_interval.low, row.ratio_interval.high})
    text += fmt::format("{:>{}.3f}", value, kNarrow);
  if (options_.full) {
    for (const double value : {row.host.interval_us.low, row.host.interval_us.high,
                               row.heddle.interval_us.low, row.heddle.interval_us.high})
      text += fmt::format("{:>{}.3f}", value, kNarrow);
    text += fmt::format("{:>{}}", row.host.samples_us.size(), kNarrow);
  }
  if (options_.validate) text += fmt::format("{:>{}}", verdict(row.valid), kNarrow);
  print(text + "  " + row.algorithm + "\n");
}

void Report::add(const OverlapRow& row) {
  overlaps_.push_back(row);
  if (!job_.leads()) return;
  std::string text = fmt::format("{:<{}}", row.bytes, kSizeWidth);
  for (const double value : {row.overall_us, row.compute_us, row.pure_us})
    text += fmt::format("{:>{}}", figure(value), kFieldWidth);
  text += fmt::format("{:>{}}", row.overlap_percent ? fmt::format("{:.2f}", *row.overlap_percent) : "-",
                      kFieldWidth);
  if (options_.full) text += fmt::format("{:>{}}", row.rounds, kFieldWidth);
  if (options_.validate) text += fmt::format("{:>{}}", verdict(row.valid), kFieldWidth);
  print(text + "\n");
  if (!row.why_not.empty())
    print(fmt::format("# {} B: no overlap is shown, since {}\n", row.bytes, row.why_not));
}

void Report::footer() const {
  if (!job_.leads() || compared_.empty()) return;
  const Summary summary = summarize(compared_);
  print(fmt::format(
      "# Geometric mean of ratios {:.3f} (95% interval of this run {:.3f} to {:.3f}) over {} size{}; lowest "
      "{:.3f} at {} B\n# Launches differ by more than that: heddle-show-results --launches puts several "
      "together\n",
      summary.geometric_mean, summary.interval.low, summary.interval.high, compared_.size(),
      compared_.size() == 1 ? "" : "s", summary.lowest, summary.lowest_bytes));
}

void Report::end() {
  cores_.end(job_, program_name(options_.kind));
}

bool Report::all_valid() const {
  for (const PlainRow& row : plain_)
    if (!row.valid.value_or(true)) return false;
  for (const ComparedRow& row : compared_)
    if (!row.valid.value_or(true)) return false;
  for (const OverlapRow& row : overlaps_)
    if (!row.valid.value_or(true)) return false;
  return true;
}

bool Report::write_json(std::string& problem) const {
  if (options_.json.empty() || !job_.leads()) return true;
  json document = json_head(program_name(options_.kind), mode_, cores_);
  document["settings"] = {{"dtype", mpi_name(options_.dtype)},
                          {"min_bytes", options_.min_bytes},
                          {"max_bytes", options_.max_bytes},
                          {"warm_buffers", options_.warm_buffers},
                          {"in_place", options_.in_place},
                          {"alloc_mem", options_.alloc_mem},
                          {"iterations", options_.iterations ? json(*options_.iterations) : json()},
                          {"warmup", options_.warmup ? json(*options_.warmup) : json()},
                          {"validate", options_.validate},
                          {"native", options_.native},
                          {"max_seconds", options_.max_seconds},
                          {"rounds", options_.rounds},
                          {"window", options_.window},
                          {"tests", options_.tests},
                          {"buffers", name_of(options_.place)},
                          {"versus", options_.versus == Versus::staged ? "staged"
                                     : options_.versus == Versus::mpi  ? "mpi"
                                                                       : "nothing"},
                          {"memory_bytes", options_.memory},
                          {"memory_allowed_bytes", memory_},
                          {"memory_allocated_bytes", pooled_memory(options_, memory_, job_.size())}};
  if (options_.has_root())
    document["settings"]["root"] = options_.compares() && !options_.fixed_root ? "moving" : "fixed";
  document["rows"] = json::array();
  for (const PlainRow& row : plain_)
    document["rows"].push_back(to_json(row, is_bandwidth(options_.kind)));
  for (const ComparedRow& row : compared_)
    document["rows"].push_back(to_json(row));
  for (const OverlapRow& row : overlaps_)
    document["rows"].push_back(to_json(row));
  if (!compared_.empty()) {
    const Summary summary = summarize(compared_);
    document["geometric_mean_ratio"] = summary.geometric_mean;
    document["geometric_mean_ratio_ci95"] = to_json(summary.interval);
  }
  return write_json_file(document, options_.json, problem);
}

}  // namespace heddle::bench
