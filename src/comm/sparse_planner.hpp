// Which algorithm serves an allreduce of streams, or whether a dense one does: by price, with the overlap that was measured.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "base/dtype.hpp"
#include "base/log.hpp"
#include "select/selector.hpp"

namespace heddle {

struct SparseChoice {
  Choice streams;
  double dense_ns = 0;  // of the dense vector, conversions included
  bool dense = false;   // is cheaper
};

// What is asked for, equal on every rank.
struct SparseCall {
  std::uint64_t dimension = 0;
  std::uint64_t total = 0;  // entries of all ranks
  DType type = DType::f32;
  bool may_be_dense = false;  // a vector of the dimension is at hand, or no larger than the streams
};

class SparsePlanner {
 public:
  // Borrows selector, preferences and log.
  SparsePlanner(int rank, const Selector& selector, const Preferences& preferences, const Log& log)
      : rank_(rank), selector_(selector), preferences_(preferences), log_(log) {}

  // `distinct`: of the profile. The same answer on every rank for the same arguments, whatever was asked before: calls are told
  // apart by half powers of two of dimension and entries and by sixteenths of `distinct`, and each kind is priced once.
  const SparseChoice& choose(int ranks, const SparseCall& call, double distinct);

 private:
  // Dimension, entries, sixteenths.
  using Key = std::tuple<std::uint64_t, std::uint64_t, int, DType, bool>;

  SparseChoice price(int ranks, const Key& key) const;
  void report(const Key& key, const SparseChoice& choice) const;

  int rank_;
  const Selector& selector_;
  const Preferences& preferences_;
  const Log& log_;
  std::map<Key, SparseChoice> choices_;
};

}  // namespace heddle
