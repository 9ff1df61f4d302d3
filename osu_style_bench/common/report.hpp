// Prints rows as they are measured, in OSU's columns, and writes them as JSON in the end. Only the leading
// rank prints.
#pragma once

#include <string>
#include <vector>

#include "common/job.hpp"
#include "common/options.hpp"
#include "common/placement.hpp"
#include "common/results.hpp"

namespace heddle::bench {

class Report {
 public:
  // `mode` says in a few words what is called: "MPI", "MPI with heddle 0.1.0 preloaded", ... `column` heads,
  // in a comparison, the times of that. `memory` is what the buffers of each rank may take. `job` and
  // `options` outlive the report. Collective.
  Report(const Job& job, const Options& options, std::string mode, std::string column, std::size_t memory);

  void header() const;
  void add(const PlainRow& row);
  void add(const ComparedRow& row);
  void add(const OverlapRow& row);
  void footer() const;  // of a comparison: what it comes to

  // Collective, once all is measured: CoreWatch::end().
  void end();
  bool all_valid() const;
  // Writes options.json if it is wanted; false, with the sentence in `problem`, if that fails.
  bool write_json(std::string& problem) const;

 private:
  const Job& job_;
  const Options& options_;
  std::string mode_;
  std::string column_;
  std::size_t memory_;
  CoreWatch cores_;
  std::vector<PlainRow> plain_;
  std::vector<ComparedRow> compared_;
  std::vector<OverlapRow> overlaps_;
};

}  // namespace heddle::bench
