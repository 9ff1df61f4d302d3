#include "schedule/expressions.hpp"

#include <algorithm>

namespace heddle {

Expressions::Expressions(std::int32_t ranks) : ranks_(ranks), table_(1024, kEmpty) {
  nodes_.reserve(static_cast<std::size_t>(ranks) * 2);
  for (std::int32_t r = 0; r < ranks; ++r)
    nodes_.push_back({kEmpty, kEmpty, 1, r, r + 1, true});
}

std::size_t Expressions::bucket(ExprId left, ExprId right, bool rounded) const {
  std::uint64_t h =
      (static_cast<std::uint64_t>(left) << 32 | right) * 0x9e3779b97f4a7c15ull + (rounded ? 0 : 1);
  h ^= h >> 32;
  return static_cast<std::size_t>(h) & (table_.size() - 1);
}

ExprId Expressions::node(ExprId left, ExprId right, bool rounded) {
  std::size_t at = bucket(left, right, rounded);
  while (table_[at] != kEmpty) {
    const Node& n = nodes_[table_[at]];
    if (n.left == left && n.right == right && n.rounded == rounded) return table_[at];
    at = (at + 1) & (table_.size() - 1);
  }
  const Node& a = nodes_[left];
  const Node& b = nodes_[right];
  const std::uint64_t leaves = static_cast<std::uint64_t>(a.leaves) + b.leaves;
  const bool run = a.first != kNoRun && b.first != kNoRun && a.last == b.first;
  const Node node{left,
                  right,
                  static_cast<std::uint32_t>(std::min<std::uint64_t>(leaves, UINT32_MAX)),
                  run ? a.first : kNoRun,
                  run ? b.last : kNoRun,
                  rounded};
  const auto id = static_cast<ExprId>(nodes_.size());
  nodes_.push_back(node);
  table_[at] = id;
  if ((nodes_.size() - static_cast<std::size_t>(ranks_)) * 2 > table_.size()) grow();
  return id;
}

void Expressions::grow() {
  table_.assign(table_.size() * 2, kEmpty);
  for (auto id = static_cast<ExprId>(ranks_); id < nodes_.size(); ++id) {
    std::size_t at = bucket(nodes_[id].left, nodes_[id].right, nodes_[id].rounded);
    while (table_[at] != kEmpty)
      at = (at + 1) & (table_.size() - 1);
    table_[at] = id;
  }
}

std::vector<std::uint32_t> Expressions::occurrences(ExprId e) const {
  std::vector<std::uint32_t> count(static_cast<std::size_t>(ranks_), 0);
  std::vector<ExprId> todo{e};
  while (!todo.empty()) {
    const ExprId at = todo.back();
    todo.pop_back();
    if (at < static_cast<ExprId>(ranks_)) {
      ++count[at];
      continue;
    }
    todo.push_back(nodes_[at].right);
    todo.push_back(nodes_[at].left);
  }
  return count;
}

}  // namespace heddle
