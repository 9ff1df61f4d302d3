// Reduction expressions as values: equal expressions have equal numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle {

using ExprId = std::uint32_t;

// All expressions of one symbolic run, hash-consed. leaf(r) is the input of rank r, and op(a, b) is "a op b";
// op is neither assumed commutative nor associative, so equal numbers mean equal bits for every operation and
// datatype. Who folds several inputs at once rounds the last step alone (floats of 8 and 16 bits are folded
// in 32): unrounded(a, b) is "a op b" as it is before.
class Expressions {
 public:
  explicit Expressions(std::int32_t ranks);

  std::int32_t ranks() const { return ranks_; }
  ExprId leaf(std::int32_t rank) const { return static_cast<ExprId>(rank); }
  ExprId op(ExprId left, ExprId right) { return node(left, right, true); }
  ExprId unrounded(ExprId left, ExprId right) { return node(left, right, false); }

  // Leaves in the expression, counted with repetition; saturates.
  std::uint32_t leaves(ExprId e) const { return nodes_[e].leaves; }
  // True when the expression, read from left to right, is first, first+1, ..., last-1: then it is that sum of
  // consecutive ranks for every associative operation.
  bool in_order(ExprId e, std::int32_t first, std::int32_t last) const {
    return nodes_[e].first == first && nodes_[e].last == last;
  }
  // How often each rank's leaf occurs. Takes time in proportion to leaves(), which can be huge for a wrong
  // schedule.
  std::vector<std::uint32_t> occurrences(ExprId e) const;

 private:
  struct Node {
    ExprId left;
    ExprId right;
    std::uint32_t leaves;
    std::int32_t first;  // of the run of consecutive ranks, or kNoRun
    std::int32_t last;
    bool rounded;
  };
  static constexpr std::int32_t kNoRun = -1;
  static constexpr ExprId kEmpty = UINT32_MAX;

  ExprId node(ExprId left, ExprId right, bool rounded);
  std::size_t bucket(ExprId left, ExprId right, bool rounded) const;
  void grow();

  std::int32_t ranks_;
  std::vector<Node> nodes_;
  std::vector<ExprId> table_;  // open addressing, a power of two, at most half full
};

}  // namespace heddle
