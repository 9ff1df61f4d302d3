// What the tests of all algorithms share: every algorithm of the catalog with the shapes and topologies to
// prove it on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/topology_view.hpp"
#include "select/catalog.hpp"

namespace heddle::test {

// All catalog entries, in order.
std::vector<Algorithm> algorithms();
std::vector<Algorithm> folding_algorithms();        // those of allreduce and barrier
std::string case_name(const Algorithm& algorithm);  // "allreduce_ring"

// Every combination of roots, radices and chunk counts that makes a difference to the algorithm, on `size`
// ranks, and of some of them with several leaders a node.
std::vector<Shape> shapes_of(const Algorithm& algorithm, std::int32_t size,
                             const std::vector<std::int32_t>& radices,
                             const std::vector<std::uint32_t>& chunks);

// The topologies of `size` ranks that the algorithm is for: one node, each rank on its own, or any mixture;
// mixtures also for those that order ranks by node.
std::vector<TopologyView> topologies_of(const Algorithm& algorithm, std::int32_t size);

// Nodes as hosts are handed out in practice and worse.
TopologyView blocks(std::int32_t size, std::int32_t per_node);    // the last node may be smaller
TopologyView growing(std::int32_t size);                          // nodes of 1, 2, 3, ... ranks
TopologyView round_robin(std::int32_t size, std::int32_t nodes);  // rank r on node r mod nodes
TopologyView scattered(std::int32_t size, std::uint32_t seed);    // ranks anywhere
TopologyView domains_of(const TopologyView& nodes);               // one node, with these as its domains

// verify(), with the case in the message; "" when proved.
std::string defect(const Algorithm& algorithm, const TopologyView& topology, const Shape& shape);

}  // namespace heddle::test
