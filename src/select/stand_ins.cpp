#include "select/stand_ins.hpp"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

namespace heddle {
namespace {

// Simulating every rank of a larger machine would cost more than the choice can save.
constexpr std::int32_t kPricedRanks = 128;
constexpr std::int32_t kMostNodes = 64;
constexpr std::int32_t kLeastNodes = 8;

bool is_power_of_two(std::int32_t n) {
  return std::has_single_bit(static_cast<std::uint32_t>(n));
}

// Of a number of things some that are spread evenly over them, the first among them.
bool keeps(std::int32_t place, std::int32_t of, std::int32_t kept) {
  return std::int64_t{place} * kept % of < kept;
}

// The machine with some of its nodes alone, and at most so many ranks of each, in the same order.
TopologyView fewer(const TopologyView& topology, std::int32_t nodes, std::int32_t ranks_of_node) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(topology.nodes()), -1);
  std::vector<std::int32_t> node_of;
  std::vector<std::int32_t> domain_of;
  std::int32_t next = 0;
  const bool has_domains = topology.has_domains();
  for (std::int32_t rank = 0; rank < topology.size(); ++rank) {
    const std::int32_t node = topology.node_of(rank);
    const auto members = static_cast<std::int32_t>(topology.members(node).size());
    if (!keeps(node, topology.nodes(), nodes)) continue;
    if (!keeps(topology.member_index(rank), members, std::min(members, ranks_of_node))) continue;
    std::int32_t& number = numbers[static_cast<std::size_t>(node)];
    if (number < 0) number = next++;
    node_of.push_back(number);
    if (has_domains) domain_of.push_back(topology.team_of(TeamKind::domain, rank));
  }
  return TopologyView({std::move(node_of)}, std::move(domain_of));
}

}  // namespace

// Nodes keep their ranks as far as they can, since what these share, their node's link and the team, decides
// between algorithms; rather there are fewer nodes. Powers of two only where the larger machine has them,
// since other counts take extra messages.
std::optional<StandIns> stand_ins(const TopologyView& topology) {
  if (topology.size() <= kPricedRanks) return std::nullopt;
  const std::int32_t nodes = topology.nodes();
  const std::int32_t all_ranks = topology.size() / nodes;
  const std::int32_t most_ranks = kPricedRanks / std::min(nodes, kLeastNodes);
  std::int32_t ranks = all_ranks;
  if (ranks > most_ranks) ranks = is_power_of_two(ranks) ? most_ranks : most_ranks * 3 / 4;
  std::int32_t large = kMostNodes;
  while (large > kLeastNodes && large * ranks > kPricedRanks)
    large /= 2;
  // Where there can be, eight times as few, so that a tree of any radix up to 8 grows from the one to the
  // other.
  const std::int32_t ratio = large == kMostNodes ? 8 : 4;
  if (!is_power_of_two(nodes)) large += large / 4;
  StandIns found{fewer(topology, std::min(nodes, large), ranks), std::nullopt, std::nullopt};
  if (nodes > large) found.fewer_nodes = fewer(topology, large / ratio, ranks);
  if (all_ranks > ranks) found.fewer_ranks = fewer(topology, std::min(nodes, large), ranks / 2);
  return found;
}

}  // namespace heddle
