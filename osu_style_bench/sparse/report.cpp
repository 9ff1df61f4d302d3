#include "sparse/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/host_mpi.hpp"
#include "common/json_values.hpp"
#include "heddle/heddle.h"

namespace heddle::bench {
namespace {

using nlohmann::json;

// Four digits are more than times repeat to.
std::string times(double value) {
  if (value >= 1000) return fmt::format("{:.0f}", value);
  return fmt::format("{:.{}f}", value, value >= 100 ? 1 : value >= 10 ? 2 : 3);
}

// Without blanks, so that a row splits into its columns.
std::string range(const Interval& interval) {
  return times(interval.low) + ".." + times(interval.high);
}

std::string ratio(double value) {
  return fmt::format("{:.{}f}", value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

std::string range(const Ratio& r) {
  return ratio(r.interval.low) + ".." + ratio(r.interval.high);
}

std::string share(const std::optional<double>& value) {
  return value ? fmt::format("{:.3f}", *value) : "-";
}

void print(const std::string& line) {
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

// A line of the table; the first column is aligned to the left, as in OSU's.
class Line {
 public:
  Line& put(const std::string& text, int width) {
    text_ += text_.empty() ? fmt::format("{:<{}}", text, width) : fmt::format(" {:>{}}", text, width - 1);
    return *this;
  }
  void end(const std::string& last) { print(text_ + "  " + last + "\n"); }

 private:
  std::string text_;
};

json to_json(const Ratio& r) {
  return {{"ratio", r.value}, {"ratio_ci95", to_json(r.interval)}};
}

template <typename T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

json to_json(const SparseRow& row, int ranks) {
  json value = {{"density_percent", row.percent},
                {"entries", row.entries},
                {"result_entries", row.result_entries},
                {"overlap", row.overlap(ranks)},
                {"sparse", to_json(row.sparse)},
                {"dense", to_json(row.dense)},
                {"dense_over_sparse", to_json(row.dense_ratio)},
                {"algorithm", row.algorithm},
                {"dense_algorithm", row.dense_algorithm},
                {"bytes_sent", or_null(row.bytes_sent)},
                {"pair_bytes", row.pair_bytes},
                {"wire_share", or_null(row.wire_share)}};
  if (row.host) value["host"] = to_json(*row.host);
  if (row.host_ratio) value["host_over_sparse"] = to_json(*row.host_ratio);
  if (row.valid) value["valid"] = *row.valid;
  return value;
}

}  // namespace

SparseReport::SparseReport(const Job& job, const SparseOptions& options, bool with_host, const Device* device,
                           double bytes_per_second)
    : job_(job),
      options_(options),
      with_host_(with_host),
      cores_(job),
      bytes_per_second_(bytes_per_second),
      mode_(fmt::format("heddle {} native", heddle_version())) {
  if (device != nullptr) mode_ += "; " + device->name();
}

void SparseReport::header() const {
  if (!job_.leads()) return;
  std::string text = fmt::format(
      "\n# heddle Sparse Allreduce Latency Test v{}\n# {}; {} ranks; {}\n# Dimension: {}. Datatype: {}. "
      "Pattern: {}. API: {}.\n",
      heddle_version(), mode_, job_.size(), host::library(), options_.dimension, mpi_name(options_.dtype),
      name_of(options_.pattern), name_of(options_.api));
  if (bytes_per_second_ > 0)
    text +=
        fmt::format("# Wire: {:.0f} MB/s from rank 0 to rank {}\n", bytes_per_second_ / 1e6, job_.size() - 1);
  text +=
      "# Medians of rounds and ratios to sparse (above 1: sparse is faster), with their 95% confidence "
      "intervals of this run\n";
  print(text);
  Line line;
  line.put("# Dens%", 8).put("Entries", 9).put("Result", 10).put("Overlap", 8);
  line.put("Sparse(us)", 11).put("Interval", 16).put("Dense(us)", 10);
  if (options_.full) line.put("Interval", 16);
  if (with_host_) line.put("MPI(us)", 9);
  if (with_host_ && options_.full) line.put("Interval", 16);
  line.put("Ratio", 7).put("Interval", 12);
  if (with_host_) line.put("MPI-ratio", 10).put("Interval", 12);
  line.put("Sent(B)", 11).put("/Pairs", 7);
  if (bytes_per_second_ > 0) line.put("/Wire", 7);
  if (options_.full) line.put("Rounds", 7);
  if (options_.validate) line.put("Valid", 6);
  line.end("Algorithm");
}

void SparseReport::add(const SparseRow& row) {
  rows_.push_back(row);
  if (!job_.leads()) return;
  Line line;
  line.put(fmt::format("{:g}", row.percent), 8).put(fmt::format("{}", row.entries), 9);
  line.put(fmt::format("{}", row.result_entries), 10).put(share(row.overlap(job_.size())), 8);
  line.put(times(row.sparse.median_us), 11).put(range(row.sparse.interval_us), 16);
  line.put(times(row.dense.median_us), 10);
  if (options_.full) line.put(range(row.dense.interval_us), 16);
  if (row.host) line.put(times(row.host->median_us), 9);
  if (row.host && options_.full) line.put(range(row.host->interval_us), 16);
  line.put(ratio(row.dense_ratio.value), 7).put(range(row.dense_ratio), 12);
  if (row.host_ratio) line.put(ratio(row.host_ratio->value), 10).put(range(*row.host_ratio), 12);
  line.put(row.bytes_sent ? fmt::format("{:.0f}", *row.bytes_sent) : "-", 11);
  line.put(row.bytes_sent ? share(*row.bytes_sent / row.pair_bytes) : "-", 7);
  if (bytes_per_second_ > 0) line.put(share(row.wire_share), 7);
  if (options_.full) line.put(fmt::format("{}", row.sparse.samples_us.size()), 7);
  if (options_.validate) line.put(row.valid.value_or(false) ? "Pass" : "Fail", 6);
  line.end(row.algorithm);
}

void SparseReport::end() {
  cores_.end(job_, kSparseProgram);
}

bool SparseReport::all_valid() const {
  return std::all_of(rows_.begin(), rows_.end(),
                     [](const SparseRow& row) { return row.valid.value_or(true); });
}

bool SparseReport::write_json(std::string& problem) const {
  if (options_.json.empty() || !job_.leads()) return true;
  json document = json_head(kSparseProgram, mode_, cores_);
  document["settings"] = {{"dimension", options_.dimension},
                          {"dtype", mpi_name(options_.dtype)},
                          {"pattern", name_of(options_.pattern)},
                          {"api", name_of(options_.api)},
                          {"iterations", or_null(options_.iterations)},
                          {"warmup", or_null(options_.warmup)},
                          {"validate", options_.validate},
                          {"buffers", name_of(options_.place)},
                          {"max_seconds", options_.max_seconds},
                          {"rounds", options_.rounds},
                          {"mpi", with_host_}};
  document["wire_bytes_per_second"] = bytes_per_second_ > 0 ? json(bytes_per_second_) : json();
  document["rows"] = json::array();
  for (const SparseRow& row : rows_)
    document["rows"].push_back(to_json(row, job_.size()));
  return write_json_file(document, options_.json, problem);
}

}  // namespace heddle::bench
