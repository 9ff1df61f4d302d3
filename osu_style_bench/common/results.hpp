// Rows of results.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/stats.hpp"

namespace heddle::bench {

// One library's times at one size, as `--vs` sees them.
struct Series {
  long calls_per_sample = 0;
  std::vector<double> samples_us;  // one per round: time of a call, the largest over all ranks
  double median_us = 0;
  Interval interval_us;  // 95% confidence interval of the median
};

struct ComparedRow {
  std::size_t bytes = 0;
  std::size_t buffers = 0;  // of each kind, that calls take in turn
  Series host;
  Series heddle;
  double ratio = 0;  // host / heddle: above 1, heddle is faster
  Interval ratio_interval;
  std::vector<double> bootstrap;  // ratios of the resamples
  std::string algorithm;
  std::optional<bool> valid;
};

// A row as OSU's programs print it: microseconds, or MB/s in the bandwidth tests.
struct PlainRow {
  std::size_t bytes = 0;
  std::size_t buffers = 0;
  double average = 0;
  double minimum = 0;
  double maximum = 0;
  long iterations = 0;
  std::string algorithm = "-";
  std::optional<bool> valid;
};

// How much of a non-blocking collective went on beside a computation.
struct OverlapRow {
  std::size_t bytes = 0;
  std::size_t buffers = 0;
  double overall_us = 0;                  // both at once
  double compute_us = 0;                  // the computation alone
  double pure_us = 0;                     // the collective alone
  std::optional<double> overlap_percent;  // of the shorter of the two; unset where the times do not tell
  std::string why_not;                    // then
  long rounds = 0;
  std::optional<bool> valid;
};

// Over all sizes: the geometric mean of the ratios, with an interval from the same bootstrap, and the
// smallest ratio.
struct Summary {
  double geometric_mean = 0;
  Interval interval;
  double lowest = 0;
  std::size_t lowest_bytes = 0;
};
Summary summarize(const std::vector<ComparedRow>& rows);

}  // namespace heddle::bench
