// The command line of heddle_sparse_allreduce.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/options.hpp"
#include "sparse/entries.hpp"

namespace heddle::bench {

inline constexpr const char* kSparseProgram = "heddle_sparse_allreduce";

enum class SparseApi { sparse, dense_out, in_place };
const char* name_of(SparseApi api);
const char* name_of(Pattern pattern);

struct SparseOptions {
  std::size_t dimension = std::size_t{1} << 24;
  std::vector<double> densities = {0.01, 0.1, 0.781, 3, 10, 30, 100};  // percent
  Pattern pattern = Pattern::uniform;
  SparseApi api = SparseApi::sparse;
  Dtype dtype = Dtype::float32;
  std::optional<long> iterations;  // timed calls for each density; unset: as many as the time allows
  std::optional<long> warmup;      // untimed calls before them
  int rounds = 41;
  double max_seconds = 1.0;  // for each density and each side
  bool mpi = true;           // measure the host MPI as well, where there is one
  bool full = false;         // print the intervals of all medians, and the rounds
  bool validate = false;
  Place place = Place::host;
  bool wire = false;
  std::string json;

  // Entries that a rank has at a density: one at least.
  std::size_t entries(double percent) const;
};

// What the command line asks for: to run, or to print `text` and exit with `code`.
struct SparseParsed {
  bool run = false;
  int code = 0;
  std::string text;
  SparseOptions options;
};
SparseParsed parse_sparse_options(int argc, const char* const* argv);

}  // namespace heddle::bench
