// What is found out about one density.
#pragma once

#include <optional>
#include <string>

#include "common/results.hpp"

namespace heddle::bench {

// How many times longer another side takes than heddle's sparse allreduce.
struct Ratio {
  double value = 0;
  Interval interval;
};

struct SparseRow {
  double percent = 0;
  std::size_t entries = 0;         // of each rank
  std::size_t result_entries = 0;  // in the sum
  Series sparse;
  Series dense;                // heddle's own dense allreduce
  std::optional<Series> host;  // the host MPI's
  Ratio dense_ratio;
  std::optional<Ratio> host_ratio;  // over the rounds in which the host was measured
  std::string algorithm;
  std::string dense_algorithm;
  std::optional<double> bytes_sent;  // by the rank that sent most; unset where the vector was exchanged, or
                                     // streams were handed over in memory
  double pair_bytes = 0;             // see pair_bytes_of
  std::optional<double> wire_share;  // of the bandwidth that was measured
  std::optional<bool> valid;

  // The share of all ranks' entries that met another of the same index.
  double overlap(int ranks) const {
    return 1 - static_cast<double>(result_entries) / (static_cast<double>(entries) * ranks);
  }
};

// What a rank would send if the same algorithm sent plain pairs (32-bit index, value).
double pair_bytes_of(const std::string& algorithm, int ranks, std::size_t entries, std::size_t result_entries,
                     std::size_t width);

}  // namespace heddle::bench
