// Every algorithm: a pure function from (topology, rank, shape) to that rank's schedule.
//
// All of them serve any number of ranks >= 1 and any count, also one smaller than the number of chunks
// (chunks are then empty and messages have zero bytes). Cost formulas: alpha is a message's latency, beta its
// time per byte, n the bytes of the vector, p the ranks; lg is the logarithm to base 2. `in_order` says that
// the fold is in rank order for every p, so that the algorithm serves non-commutative operations too. Every
// rank ends with the same expression, hence the same bits (a reduce: the root alone, whatever the others
// hold). Functions are total and thread-safe; shape values out of range (chunks 0, radix below 2) count as
// the smallest legal ones; the root must be a rank.
#pragma once

#include <cstdint>

#include "schedule/schedule.hpp"
#include "schedule/topology_view.hpp"

namespace heddle {

class Builder;

namespace allreduce {

// Ranks at distance 1, k, k^2, ... exchange the whole vector, k at a time, and fold it; k is `shape.radix`.
// Numbers of ranks that are not k^a b with b < k first fold pairs of neighbours. log_k p (alpha + (k-1)(o + n
// beta)) with o the time to handle a message, two more messages where pairs are folded. Small vectors; a
// radix above 2 where o is small compared with alpha, or the number of ranks is no power of two. In order. R.
// Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", Int. J.
// High Performance Computing Applications 19(1), 2005; M. Ruefenacht, M. Bull, S. Booth, "Generalisation of
// recursive doubling for AllReduce: Now with simulation", Parallel Computing 69, 2017.
Schedule recursive_doubling(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// Reduce-scatter by vector halving and distance doubling, then allgather by vector doubling and distance
// halving. 2 lg p alpha + 2n(p-1)/p beta for powers of two, 3 alpha and 2n beta more otherwise. Medium and
// large vectors on few ranks. `shape.chunks` pieces per message, so that a piece arrives while the one before
// is folded. `shape.radix` > 2: as many parts instead of halves (in one piece), radix - 1 messages at a time
// in log_radix p rounds each way, with as many bytes: where latency counts, and handing over a message takes
// less than that. In order. R. Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004,
// LNCS 3036; Ruefenacht et al. 2017 as above.
Schedule rabenseifner(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// Reduce-scatter and allgather around the ring of ranks. 2(p-1) alpha + 2n(p-1)/p beta. Large vectors.
// `shape.chunks` pieces per block. Not in order: block b is folded from the rank in place b around the ring.
// Ranks of a node are neighbours, so that each node sends and receives the vector of one rank. P. Patarasuk,
// X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", J. Parallel and
// Distributed Computing 69(2), 2009.
Schedule ring(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// Two binary trees, each carrying one half of the vector, every rank an inner node of at most one; pieces
// flow up and down both at once. About 2 lg p alpha' + 2n beta, where alpha' is the time of one of the 2
// `shape.chunks` pieces: latency of a tree, bandwidth of a ring. Large vectors on many ranks. In order. P.
// Sanders, J. Speck, J. L. Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
// Parallel Computing 35(12), 2009.
Schedule double_binary_tree(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// Up a k-nomial tree to rank 0 and down again; k is `shape.radix`. 2 log_k p rounds, in each of which an
// inner node has up to k-1 messages: 2 log_k p (alpha + (k-1)(o + n beta)) with o the time to handle a
// message. Small vectors where latency is large compared with o; p-1 messages each way, against p lg p of
// recursive doubling. In order. R. Karp, A. Sahay, E. Santos, K. Schauser, "Optimal Broadcast and Summation
// in the LogP Model", SPAA 1993.
Schedule knomial(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// Rabenseifner's halves and quarters between other partners: at distance 1, 1, 3, 5, 11, ..., in turn to
// either side, so that a message has two thirds as far to go around a ring or along a line of switches.
// `shape.chunks` 1: whole vectors, farthest first, lg p (alpha + n beta) like recursive doubling; c >= 2:
// halves, 2 lg p alpha + 2n(p-1)/p beta in c-1 pieces. Not in order. D. De Sensi, T. Bonato, D. Saam, T.
// Hoefler, "Swing: Short-cutting Rings for Higher Bandwidth Allreduce", NSDI 2024; D. De Sensi et al., "Bine
// Trees: Enhancing Collective Operations by Optimizing Communication Locality", SC'25, whose butterflies are
// these.
Schedule swing(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// Every node folds in shared memory to its leaders, leaders in the same place of all nodes run another
// algorithm on their part of the vector, every node spreads the result in shared memory. `shape.leaders` of
// them, at most as many as the smallest node has ranks: however many, a node sends what one rank would. The
// leaders' algorithm follows from `shape.chunks`: 1 recursive doubling of `shape.radix`, c >= 2 Rabenseifner,
// in up to `shape.radix` parts, on each of c-1 pieces, where a piece is folded while the first messages of
// the one before are under way, and spread during the last messages of the one after. The leaders' cost with
// p = nodes, plus what of the node phases is not hidden. In order where nodes are runs of ranks in rising
// order. T. Kielmann, R. Hofman, H. Bal, A. Plaat, R. Bhoedjang, "MagPIe: MPI's Collective Communication
// Operations for Clustered Wide Area Systems", PPoPP 1999; M. Bayatpour, S. Chakraborty, H. Subramoni, X. Lu,
// D. K. Panda, "Scalable Reduction Collectives with Data Partitioning-based Multi-Leader Design", SC'17
// (DPML).
Schedule two_level(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// The ring of nodes with `shape.leaders` leaders each, as above: a block is folded over the node while the
// one before is on its way around, and spread while the next one is. 2(m-1) alpha + 2n(m-1)/m beta for m
// nodes, and nothing for all but the first and last block's node phases where messages take longer than
// these. `shape.chunks` pieces per block. Not in order. Bayatpour et al. 2017, as above; the ring as above.
Schedule two_level_ring(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// The same whose leaders run split_allgather, of all of their part at once. The leaders' cost with p = nodes,
// plus both node phases. What coded vectors take between nodes of several ranks: they are exact within nodes,
// and coded twice between them. In order on one node alone. Bayatpour et al. 2017, as above; split_allgather
// as below.
Schedule two_level_split(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// The vector is split into one block per rank; each rank gets its block from every other, folds, and sends
// the result to every other. 2(p-1) messages of n/p bytes in two rounds: 2 alpha + 2(p-1) o + 2n(p-1)/p beta,
// with o the time to handle a message. Few ranks; sparse streams, whose parts meet once instead of lg p
// times. Not in order: block b is folded from rank b downwards around the ring. Beyond 32 ranks it is
// `rabenseifner`, whose volume is the same and whose messages are fewer. C. Renggli, S. Ashkboos, M.
// Aghagolzadeh, D. Alistarh, T. Hoefler, "SparCML: High-Performance Sparse Communication for Machine
// Learning", SC'19 (SSAR_Split_allgather).
Schedule split_allgather(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// Like two_level, but within nodes by messages to and from the lowest rank, so that it may overlap other
// collectives and serves streams. The leaders' algorithm: `shape.chunks` 1 recursive doubling, else
// split_allgather. The leaders' cost with p = nodes, plus twice m alpha + m n beta for the m members of a
// node. In order as two_level is. T. Kielmann et al. 1999, as above.
Schedule leaders(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// One fused verb of the node's team. Only where all ranks share one node. In order.
// R. Graham, G. Shipman, "MPI Support for Multi-core Architectures: Optimized Shared Memory Collectives",
// EuroPVM/MPI 2008, LNCS 5205.
Schedule team(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// One node of several domains (last-level caches, NUMA nodes) that all have teams of their own: each domain
// folds to its leaders, leaders in the same place fold across the domains, each domain spreads the result.
// With `shape.chunks` 1 the first of each domain leads: three hops instead of one, but every rank waits for
// those of its domain and not for all. From 2 on as many lead as the smallest domain has ranks, each for its
// part of every one of chunks-1 pieces: of d domains' vectors 2 d (d-1) n bytes cross between domains at
// most, where the one team moves p n. In order where domains are runs of ranks in rising order. M. Bayatpour,
// S. Chakraborty, H. Subramoni, X. Lu, D. K. Panda, "Scalable Reduction Collectives with Data
// Partitioning-based Multi-Leader Design", SC'17.
Schedule multi_leader(const TopologyView& topology, std::int32_t rank, const Shape& shape);

}  // namespace allreduce

namespace bcast {

// The binomial tree below `shape.root`. ceil(lg p) (alpha + n beta). Small vectors.
// R. Thakur et al. 2005, as above.
Schedule binomial(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// The k-nomial tree below `shape.root`; k is `shape.radix`. ceil(log_k p) (alpha + (k-1)(o + n beta)). Small
// vectors where latency is large compared with the time o to hand over one message. R. Karp et al. 1993, as
// above.
Schedule knomial(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// The tree below `shape.root` in which everybody who has the vector hands it on without a pause, and who got
// it first has the most below it: where a message takes `shape.radix` times as long as a sender is busy with
// it, nobody can have it earlier. Time T, of which N(T / (o + n beta)) >= p, N(t) = N(t-1) + N(t-k). Small
// vectors where latency is large compared with the time o to hand over a message. A. Bar-Noy, S. Kipnis,
// "Designing Broadcasting Algorithms in the Postal Model for Message-Passing Systems", Mathematical Systems
// Theory 27(5), 1994; Karp et al. 1993, as above.
Schedule postal(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// A binomial tree below `shape.root` whose edges reach two thirds as far as those of `binomial`: the first to
// the place a third of the way around, the next ones to both sides. ceil(lg p) (alpha + n beta), one more for
// other numbers of ranks than powers of two. Small vectors. D. De Sensi et al., SC'25, as above.
Schedule bine(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// `shape.chunks` pieces down the chain of ranks, in which ranks of a node follow each other. (p - 2 +
// chunks)(alpha + n/chunks beta). Very large vectors on few ranks. J. Watts, R. van de Geijn, "A Pipelined
// Broadcast for Multidimensional Meshes", Parallel Processing Letters 5(2), 1995.
Schedule chain(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// `shape.chunks` pieces on a circulant graph: in every round each rank receives one piece and sends one, to
// ranks at distances of about p/2, p/4,
// ..., 1 in turn. (chunks - 1 + ceil(lg p))(alpha + n/chunks beta), which is optimal: about n beta + 2
// sqrt(lg p n alpha beta). Middle-sized and large vectors, any number of ranks, where the network bears all
// of them sending far. J. L. Traeff, "Optimal broadcast schedules in logarithmic time", 2025
// (doi 10.1145/3735139).
Schedule circulant(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// The root scatters p blocks down a binomial tree, a ring allgathers them; blocks that the scatter left
// behind are not sent again. (lg p + p - 1) alpha + 2n(p-1)/p beta. Large vectors, short pipelines. M.
// Barnett, L. Shuler, S. Gupta, D. Payne, R. van de Geijn, J. Watts, "Building a High-Performance Collective
// Communication Library", Supercomputing 1994; R. Thakur et al. 2005.
Schedule scatter_allgather(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// The root scatters the vector to its nearest neighbours, these their parts on to the next nearest, and back
// they go: ranks at distance k^m, ..., k^2, k, 1 exchange what they have, k at a time; k is `shape.radix`. 2
// log_k p alpha + 2n(p-1)/p beta; two more messages, of n bytes, where the number of ranks is not k^a b with
// b < k. Middle-sized and large vectors on many ranks; most bytes go to close neighbours. R. Thakur et al.
// 2005 and Ruefenacht et al. 2017, as above.
Schedule scatter_doubling(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// The root feeds each half of the vector into one of two binary trees on the other ranks, each of which is an
// inner node of at most one. About (lg p + 2 chunks) steps of n/(2 chunks) bytes: 2 lg p alpha' + n beta.
// Large vectors on many ranks. `shape.chunks` pieces per tree. P. Sanders et al. 2009, as above.
Schedule double_binary_tree(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// The root, for its node, and the lowest rank of every other node run another algorithm; every node spreads
// the vector in shared memory, each piece while others are on their way. The former follows from
// `shape.chunks`: 1 k-nomial of `shape.radix`, 2 scatter-allgather, c >= 3 double binary tree with c-2 pieces
// per tree. `shape.leaders` as for allreduce (scatter-allgather has one). T. Kielmann et al. 1999, as above.
Schedule two_level(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// `shape.chunks` pieces down a chain of nodes with `shape.leaders` leaders each; a node spreads a piece while
// it is on its way to the next node. (m - 2 + chunks)(alpha + n/chunks beta) for m nodes, and one piece's
// node phase. Very large vectors. Watts and van de Geijn 1995, Kielmann et al. 1999, as above.
Schedule two_level_chain(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// One fused verb of the node's team. Only where all ranks share one node. R. Graham, G. Shipman 2008, as
// above.
Schedule team(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// One node of several domains: from the root to the ranks in its place in the other domains, and from them
// through every domain, in `shape.chunks` pieces. A root whose place some domain lacks hands over to the
// first of its domain, which is one hop more. R. Graham, G. Shipman 2008, as above.
Schedule multi_leader(const TopologyView& topology, std::int32_t rank, const Shape& shape);

}  // namespace bcast

namespace barrier {

// Recursive doubling of nothing: messages without bytes in the pattern of allreduce::recursive_doubling of
// `shape.radix`, after which every rank has heard of every other. R. Thakur et al. 2005; compare D. Hensgen,
// R. Finkel, U. Manber, "Two Algorithms for Barrier Synchronization", Int. J. Parallel Programming 17(1),
// 1988.
Schedule recursive_doubling(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// One node only: the team's allreduce of no elements, each member's flag read by all others.
Schedule team(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// One node of several domains: allreduce::multi_leader of nothing, with one leader in each.
Schedule multi_leader(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// Several nodes of several ranks: allreduce::two_level of nothing, with one leader in each node.
Schedule two_level(const TopologyView& topology, std::int32_t rank, const Shape& shape);

}  // namespace barrier

// Every rank's vector folded, at `shape.root` alone. Where it does not say "in order" the fold goes by places
// from the root on, which is in order for root 0 (by nodes: a root of the first) where nodes are runs of
// ranks; the double binary tree's is not.
namespace reduce {

// The exchanges of recursive doubling, of which in each round only those whose number agrees with the root's
// keep on: ceil(lg p) (alpha + n beta + n gamma), one more message where the root had handed its part to its
// neighbour. Small vectors. In order, with the expression of that allreduce. R. Thakur et al. 2005, as above.
Schedule binomial(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// Up the k-nomial tree below `shape.root`; k is `shape.radix`. ceil(log_k p) (alpha + (k-1)(o + n beta + n
// gamma)), gamma the time to fold a byte. Small vectors. R. Karp et al. 1993, as above; R. Thakur et al.
// 2005.
Schedule knomial(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// Reduce-scatter by vector halving and distance doubling, then a binomial gather to the root; halves go in
// `shape.chunks` pieces. 2 lg p alpha + 2n(p-1)/p beta + n(p-1)/p gamma; two more messages, of n/2 bytes,
// where p is no power of two, and perhaps a third, of n. Middle-sized vectors on many ranks. In order. R.
// Rabenseifner 2004, as above.
Schedule rabenseifner(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// `shape.chunks` pieces up a chain of ranks that ends at the root, in which ranks of a node follow each
// other. (p - 2 + chunks)(alpha + n/chunks (beta + gamma)). Very large vectors on few ranks. J. Watts and R.
// van de Geijn 1995, as above, backwards.
Schedule chain(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// Each half of the vector goes up one of two binary trees, in `shape.chunks` pieces; every rank but the root
// is an inner node of at most one. 2 lg p alpha' + n beta. Large vectors on many ranks. P. Sanders et al.
// 2009, as above.
Schedule double_binary_tree(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// Every node folds by its team, at the root's node to the root, at others to their lowest rank, and these run
// another algorithm: `shape.chunks` 1: k-nomial of `shape.radix`, but binomial where that is 2; 2:
// Rabenseifner's; c >= 3: double binary tree with c-2 pieces per tree, each folded by the node while others
// are on their way. The second and third go in the order of nodes. T. Kielmann et al. 1999, as above.
Schedule two_level(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// The same with `shape.chunks` pieces up a chain of nodes. Watts and van de Geijn 1995, Kielmann et al. 1999,
// as above.
Schedule two_level_chain(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// Without a team: the ranks of each node send to its first, these run binomial (`shape.chunks` 1) or
// Rabenseifner's (2), and the first of the root's node hands over. Folds as allreduce::leaders does, in order
// where nodes are runs of ranks. T. Kielmann et al. 1999, as above.
Schedule leaders(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// One fused verb of the node's team, folded in the order of ranks. Only where all ranks share one node. R.
// Graham, G. Shipman 2008, as above.
Schedule team(const TopologyView& topology, std::int32_t rank, const Shape& shape);

}  // namespace reduce

// What each rank has, in the order of ranks, at all of them: n are the bytes of all together.
namespace allgather {

// Ranks at distance 1, k, k^2, ... exchange what they have so far, k at a time; k is `shape.radix`. log_k p
// alpha + n(p-1)/p beta. Where p is no product of numbers up to k it is `bruck`. R. Thakur et al. 2005 and
// M. Ruefenacht et al. 2017, as above.
Schedule recursive_doubling(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// In round i every rank gets what the k-1 ranks at distance k^i, 2k^i, ... above it have, k is `shape.radix`:
// ceil(log_k p) alpha + n(p-1)/p beta for any number of ranks; what reaches past the last rank goes in two
// messages, to its place in the result. With k = p each rank sends to each other at once. J. Bruck, C.-T. Ho,
// S. Kipnis, E. Upfal, D. Weathersby, "Efficient Algorithms for All-to-All Communications in Multiport
// Message-Passing Systems", IEEE Trans. Parallel and Distributed Systems 8(11), 1997.
Schedule bruck(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// Around the ring of ranks, in which those of a node follow each other. (p-1) alpha + n(p-1)/p beta. Much
// data. R. Thakur et al. 2005, as above.
Schedule ring(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// One fused verb of the node's team. Only where all ranks share one node. R. Graham, G. Shipman 2008, as
// above.
Schedule team(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// Every node gathers in shared memory, its lowest rank runs `bruck` of `shape.radix` between nodes, and
// spreads what it has. The leaders' cost with p = nodes, plus both node phases. Where nodes are no runs of
// ranks it is `bruck` itself. T. Kielmann et al. 1999, as above.
Schedule two_level(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// A ring of nodes for each place in them: every rank passes on what the ranks of its place have, and each
// node gathers a node's in shared memory while the next one's is on its way. A node's link carries each byte
// once, and all its ranks send. (m-1) alpha + n(m-1)/m beta for m nodes, and one node phase. Where nodes are
// no runs of ranks, all of one length, it is `ring`. M. Bayatpour et al. 2017 and R. Thakur et al. 2005, as
// above.
Schedule two_level_ring(const TopologyView& topology, std::int32_t rank, const Shape& shape);

}  // namespace allgather

// What allreduce and barrier share: recursive doubling over `size` ranks of the one chunk that `builder` has.
void recursive_doubling_steps(Builder& builder, std::int32_t size, std::int32_t rank, std::int32_t radix);

}  // namespace heddle
