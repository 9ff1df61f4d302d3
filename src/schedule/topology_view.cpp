#include "schedule/topology_view.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace heddle {

using Ranks = std::vector<std::int32_t>;

TopologyView::TopologyView(std::vector<Ranks> group_of, Ranks domain_of) : group_of_(std::move(group_of)) {
  const Ranks& nodes = group_of_.at(0);
  for (std::vector<Seat>& seats : seats_)
    seats.resize(nodes.size());
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    const auto node = static_cast<std::size_t>(nodes[rank]);
    if (node >= members_.size()) members_.resize(node + 1);
    members_[node].push_back(static_cast<std::int32_t>(rank));
  }
  for (const Ranks& members : members_) {
    add_team(TeamKind::node, members);
    if (domain_of.empty()) {
      add_team(TeamKind::domain, members);
      add_peers({members});
      continue;
    }
    std::map<std::int32_t, Ranks> domains;
    for (const std::int32_t rank : members)
      domains[domain_of.at(static_cast<std::size_t>(rank))].push_back(rank);
    std::vector<Ranks> in_order;
    for (auto& [number, ranks] : domains) {
      add_team(TeamKind::domain, ranks);
      in_order.push_back(std::move(ranks));
    }
    add_peers(in_order);
  }
}

void TopologyView::add_team(TeamKind kind, Ranks members) {
  std::int32_t place = 0;
  for (const std::int32_t rank : members)
    seats_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(rank)] = {teams(), place++};
  teams_.push_back(std::move(members));
}

void TopologyView::add_peers(const std::vector<Ranks>& domains) {
  std::size_t least = domains.front().size();
  for (const Ranks& ranks : domains)
    least = std::min(least, ranks.size());
  for (std::size_t place = 0; place < least; ++place) {
    Ranks peers;
    for (const Ranks& ranks : domains)
      peers.push_back(ranks[place]);
    add_team(TeamKind::peers, std::move(peers));
  }
  for (const Ranks& ranks : domains) {
    for (std::size_t place = least; place < ranks.size(); ++place)
      add_team(TeamKind::peers, {ranks[place]});
  }
  domains_.push_back({static_cast<std::int32_t>(domains.size()), static_cast<std::int32_t>(least)});
}

std::int32_t TopologyView::most_members() const {
  std::size_t most = 0;
  for (const std::vector<std::int32_t>& members : members_)
    most = std::max(most, members.size());
  return static_cast<std::int32_t>(most);
}

bool TopologyView::has_domains() const {
  return std::any_of(domains_.begin(), domains_.end(), [](const Domains& d) { return d.count > 1; });
}

TopologyView TopologyView::flat(std::int32_t size) {
  return uniform(size, 1);
}
TopologyView TopologyView::one_node(std::int32_t size) {
  return uniform(1, size);
}

TopologyView TopologyView::of_domains(Ranks domain_of) {
  Ranks node_of(domain_of.size(), 0);
  return TopologyView({std::move(node_of)}, std::move(domain_of));
}

TopologyView TopologyView::uniform(std::int32_t nodes, std::int32_t ranks_per_node) {
  std::vector<std::int32_t> node_of;
  node_of.reserve(static_cast<std::size_t>(nodes) * static_cast<std::size_t>(ranks_per_node));
  for (std::int32_t node = 0; node < nodes; ++node)
    node_of.insert(node_of.end(), static_cast<std::size_t>(ranks_per_node), node);
  return TopologyView({std::move(node_of)});
}

}  // namespace heddle
