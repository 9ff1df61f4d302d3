// Prints a row for each density as it is measured, and writes all as JSON in the end. Only the leading rank
// prints.
#pragma once

#include <string>
#include <vector>

#include "common/device.hpp"
#include "common/job.hpp"
#include "common/placement.hpp"
#include "sparse/options.hpp"
#include "sparse/results.hpp"

namespace heddle::bench {

class SparseReport {
 public:
  // `with_host`: rows have figures of the host MPI. `device` is where vectors lie; null: in the host's
  // memory. `bytes_per_second` of the wire; 0 where it was not measured.
  SparseReport(const Job& job, const SparseOptions& options, bool with_host, const Device* device,
               double bytes_per_second);

  void header() const;
  void add(const SparseRow& row);

  // Collective, once all is measured: CoreWatch::end().
  void end();
  bool all_valid() const;
  // Writes options.json if it is wanted; false, with the sentence in `problem`, if that fails.
  bool write_json(std::string& problem) const;

 private:
  const Job& job_;
  const SparseOptions& options_;
  bool with_host_;
  CoreWatch cores_;
  double bytes_per_second_;
  std::string mode_;
  std::vector<SparseRow> rows_;
};

}  // namespace heddle::bench
