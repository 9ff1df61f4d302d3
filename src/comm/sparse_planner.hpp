// Which algorithm serves an allreduce of streams, or whether a dense one does: by price, with the overlap
// that was measured.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "base/dtype.hpp"
#include "base/log.hpp"
#include "select/selector.hpp"
#include "sparse/agreement.hpp"

namespace heddle {

struct SparseChoice {
  Choice streams;
  double dense_ns = 0;  // of the dense vector, conversions included
  bool dense = false;   // is cheaper
  double bitmaps_ns = 0;
  bool bitmaps = false;  // are cheapest
};

// What is asked for, equal on every rank.
struct SparseCall {
  std::uint64_t dimension = 0;
  std::uint64_t total = 0;  // entries of all ranks
  DType type = DType::f32;
  SparseForm form = SparseForm::entries;
  bool may_be_dense = false;    // there is a vector, and the operation is one that a dense allreduce serves
  bool handed = false;          // streams are handed over in the node's memory
  bool may_be_bitmaps = false;  // BitmapExchange serves as well
};

class SparsePlanner {
 public:
  // Borrows selector, preferences and log.
  SparsePlanner(int rank, const Selector& selector, const Preferences& preferences, const Log& log)
      : rank_(rank), selector_(selector), preferences_(preferences), log_(log) {}

  // `distinct`: of the profile. The same answer on every rank for the same arguments, whatever was asked
  // before: calls are told apart by half powers of two of dimension and entries and by sixteenths of
  // `distinct`, and each kind is priced once.
  const SparseChoice& choose(int ranks, const SparseCall& call, double distinct);

 private:
  struct Kind {
    SparseCall call;  // rounded
    int sixteenths = 0;
    auto key() const {
      return std::tuple(call.dimension, call.total, sixteenths, call.type, call.form, call.may_be_dense,
                        call.handed, call.may_be_bitmaps);
    }
    friend bool operator<(const Kind& a, const Kind& b) { return a.key() < b.key(); }
  };

  SparseChoice price(int ranks, const Kind& kind) const;
  void report(const Kind& kind, const SparseChoice& choice) const;

  int rank_;
  const Selector& selector_;
  const Preferences& preferences_;
  const Log& log_;
  std::map<Kind, SparseChoice> choices_;
};

}  // namespace heddle
