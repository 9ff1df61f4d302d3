#include "cases.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "schedule/verifier.hpp"

namespace heddle::test {
namespace {

// Up to this many ranks a proof is cheap, and everything is tried with everything; beyond, each size has its
// own sample.
constexpr std::int32_t kAllOf = 32;

// Whether some rank's schedule is another one with the one shape than with the other.
bool differs(const Algorithm& algorithm, const Shape& one, const Shape& other) {
  constexpr std::int32_t kSize = 9;
  for (const TopologyView& topology : topologies_of(algorithm, kSize)) {
    for (std::int32_t rank = 0; rank < kSize; ++rank) {
      const Schedule a = algorithm.build(topology, rank, one);
      const Schedule b = algorithm.build(topology, rank, other);
      if (a.chunks != b.chunks || a.steps != b.steps) return true;
    }
  }
  return false;
}

// Whether schedules depend on which ranks share a node although no team verb needs to know.
bool goes_by_nodes(const Algorithm& algorithm) {
  constexpr std::int32_t kSize = 9;
  const TopologyView mixed = round_robin(kSize, 3);
  const TopologyView flat = TopologyView::flat(kSize);
  for (std::int32_t rank = 0; rank < kSize; ++rank) {
    if (algorithm.build(mixed, rank, Shape{}).steps != algorithm.build(flat, rank, Shape{}).steps)
      return true;
  }
  return false;
}

std::vector<TopologyView> every_third(std::vector<TopologyView> all, std::size_t from) {
  std::vector<TopologyView> some;
  for (std::size_t i = from; i < all.size(); i += 3)
    some.push_back(std::move(all[i]));
  return some;
}

// Of the values of a parameter, those worth trying: all where it makes a difference, else the first.
template <typename T, typename ShapeOf>
std::vector<T> worth_trying(const Algorithm& algorithm, const std::vector<T>& values, ShapeOf shape_of) {
  for (const T value : values) {
    if (differs(algorithm, shape_of(values.front()), shape_of(value))) return values;
  }
  return {values.front()};
}

}  // namespace

std::vector<Algorithm> algorithms() {
  return catalog();
}

std::vector<Algorithm> folding_algorithms() {
  std::vector<Algorithm> result;
  for (const Algorithm& algorithm : catalog()) {
    if (folds(algorithm.collective)) result.push_back(algorithm);
  }
  return result;
}

std::string case_name(const Algorithm& algorithm) {
  return std::string(collective_name(algorithm.collective)) + "_" + algorithm.name;
}

std::vector<Shape> shapes_of(const Algorithm& algorithm, std::int32_t size,
                             const std::vector<std::int32_t>& radices,
                             const std::vector<std::uint32_t>& chunks) {
  std::set<std::int32_t> roots{0};
  if (has_root(algorithm.collective)) roots.insert({std::min(1, size - 1), size / 2, size - 1});
  const std::vector<std::int32_t> used_radices = worth_trying(algorithm, radices, [](std::int32_t radix) {
    return Shape{0, radix, 1};
  });
  const std::vector<std::uint32_t> used_chunks = worth_trying(algorithm, chunks, [](std::uint32_t count) {
    return Shape{0, 2, count};
  });
  const std::vector<std::uint32_t> used_leaders =
      worth_trying(algorithm, std::vector<std::uint32_t>{1, 2, 5}, [](std::uint32_t leaders) {
        return Shape{0, 2, 4, leaders};
      });
  std::vector<Shape> shapes;
  for (const std::int32_t root : roots)
    for (const std::int32_t radix : used_radices)
      for (const std::uint32_t count : used_chunks) {
        // Trees of another radix are not cut into pieces.
        if (count > 1 && radix != used_radices.front()) continue;
        shapes.push_back({root, radix, count, 1});
        // Several leaders differ from one in their lanes alone: a sample of the other parameters.
        const bool sampled = count == used_chunks.back() || (count == used_chunks.front() && size <= kAllOf);
        if (radix != used_radices.front() || !sampled) continue;
        for (std::size_t i = 1; i < used_leaders.size() && (i < 2 || size <= kAllOf); ++i)
          shapes.push_back({root, radix, count, used_leaders[i]});
      }
  return shapes;
}

std::vector<TopologyView> topologies_of(const Algorithm& algorithm, std::int32_t size) {
  // Where only the order of ranks follows the nodes, another order is the same proof.
  constexpr std::int32_t kOrders = 24;
  if (!algorithm.needs_team && !algorithm.by_nodes) {
    if (size > kOrders || !goes_by_nodes(algorithm)) return {TopologyView::flat(size)};
    return {TopologyView::flat(size), growing(size), scattered(size, static_cast<std::uint32_t>(size))};
  }
  if (!algorithm.needs_messages && !algorithm.needs_domains) return {TopologyView::one_node(size)};
  std::vector<TopologyView> all{TopologyView::one_node(size), blocks(size, 2), blocks(size, 8), growing(size),
                                scattered(size, static_cast<std::uint32_t>(size))};
  if (size > 1) all.push_back(round_robin(size, (size + 2) / 3));
  if (algorithm.by_nodes && size <= kAllOf) all.push_back(TopologyView::flat(size));
  if (size > kAllOf) all = every_third(std::move(all), static_cast<std::size_t>(size % 3));
  if (!algorithm.needs_domains) return all;
  for (TopologyView& view : all)
    view = domains_of(view);
  return all;
}

TopologyView domains_of(const TopologyView& nodes) {
  std::vector<std::int32_t> domain_of;
  for (std::int32_t rank = 0; rank < nodes.size(); ++rank)
    domain_of.push_back(nodes.node_of(rank));
  return TopologyView::of_domains(std::move(domain_of));
}

TopologyView blocks(std::int32_t size, std::int32_t per_node) {
  std::vector<std::int32_t> node_of;
  for (std::int32_t rank = 0; rank < size; ++rank)
    node_of.push_back(rank / per_node);
  return TopologyView({std::move(node_of)});
}

TopologyView growing(std::int32_t size) {
  std::vector<std::int32_t> node_of;
  for (std::int32_t node = 0; static_cast<std::int32_t>(node_of.size()) < size; ++node) {
    for (std::int32_t i = 0; i <= node && static_cast<std::int32_t>(node_of.size()) < size; ++i)
      node_of.push_back(node);
  }
  return TopologyView({std::move(node_of)});
}

TopologyView round_robin(std::int32_t size, std::int32_t nodes) {
  std::vector<std::int32_t> node_of;
  for (std::int32_t rank = 0; rank < size; ++rank)
    node_of.push_back(rank % nodes);
  return TopologyView({std::move(node_of)});
}

TopologyView scattered(std::int32_t size, std::uint32_t seed) {
  std::vector<std::int32_t> node_of;
  std::int32_t nodes = 0;
  for (std::int32_t rank = 0; rank < size; ++rank) {
    seed = seed * 1664525U + 1013904223U;
    // A new node for about one rank in three, so that some nodes have one rank.
    const auto pick =
        static_cast<std::int32_t>((seed >> 8) % static_cast<std::uint32_t>(nodes + nodes / 2 + 1));
    node_of.push_back(std::min(pick, nodes));
    nodes = std::max(nodes, node_of.back() + 1);
  }
  return TopologyView({std::move(node_of)});
}

std::string defect(const Algorithm& algorithm, const TopologyView& topology, const Shape& shape) {
  const Status status =
      verify(topology, [&](std::int32_t rank) { return algorithm.build(topology, rank, shape); });
  if (status.ok()) return "";
  return case_name(algorithm) + " on " + std::to_string(topology.size()) + " ranks, " +
         std::to_string(topology.nodes()) + " nodes, " + std::to_string(topology.domains(0)) +
         " domains, root " + std::to_string(shape.root) + ", radix " + std::to_string(shape.radix) +
         ", chunks " + std::to_string(shape.chunks) + ": " + status.message();
}

}  // namespace heddle::test
