// Every algorithm: a pure function from (topology, rank, shape) to that rank's schedule.
//
// All of them serve any number of ranks >= 1 and any count, also one smaller than the number of chunks
// (chunks are then empty and messages have zero bytes). Cost formulas: alpha is a message's latency, beta its
// time per byte, n the bytes of the vector, p the ranks; lg is the logarithm to base 2. `in_order` says that
// the fold is in rank order for every p, so that the algorithm serves non-commutative operations too. Every
// rank ends with the same expression, hence the same bits. Functions are total and thread-safe; shape values
// out of range (chunks 0, radix below 2) count as the smallest legal ones; the root must be a rank.
#pragma once

#include <cstdint>

#include "schedule/schedule.hpp"
#include "schedule/topology_view.hpp"

namespace heddle {

class Builder;

namespace allreduce {

// Ranks at distance 1, 2, 4, ... exchange and fold the whole vector. Other sizes than powers of two first
// fold pairs of neighbours. lg p (alpha + n beta), two more messages for other sizes. Small vectors. In
// order. R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in
// MPICH", Int. J. High Performance Computing Applications 19(1), 2005.
Schedule recursive_doubling(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// Reduce-scatter by vector halving and distance doubling, then allgather by vector doubling and distance
// halving. 2 lg p alpha + 2n(p-1)/p beta for powers of two, 3 alpha and 2n beta more otherwise. Medium and
// large vectors on few ranks. `shape.chunks` pieces per message, so that a piece arrives while the one before
// is folded. In order. R. Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004, LNCS
// 3036.
Schedule rabenseifner(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// Reduce-scatter and allgather around the ring of ranks. 2(p-1) alpha + 2n(p-1)/p beta. Large vectors.
// `shape.chunks` pieces per block. Not in order: block b is folded from rank b around the ring.
// P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", J. Parallel
// and Distributed Computing 69(2), 2009.
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

// Every node folds in shared memory to its lowest rank, these leaders run another algorithm, every node
// spreads the result in shared memory. The leaders' algorithm follows from `shape.chunks`: 1 recursive
// doubling, 2 Rabenseifner, c >= 3 ring with c-2 pieces per block. The leaders' cost with p = nodes, plus two
// node phases. In order where nodes are runs of ranks in rising order and the leaders' algorithm is in order.
// T. Kielmann, R. Hofman, H. Bal, A. Plaat, R. Bhoedjang, "MagPIe: MPI's Collective Communication Operations
// for Clustered Wide Area Systems", PPoPP 1999.
Schedule two_level(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// The vector is split into one block per rank; each rank gets its block from every other, folds, and sends the result to
// every other. 2(p-1) messages of n/p bytes in two rounds: 2 alpha + 2(p-1) o + 2n(p-1)/p beta, with o the time to
// handle a message. Few ranks; sparse streams, whose parts meet once instead of lg p times. Not in order: block b is folded
// from rank b downwards around the ring. Beyond 32 ranks it is `rabenseifner`, whose volume is the same and whose messages are
// fewer. C. Renggli, S. Ashkboos, M. Aghagolzadeh, D. Alistarh, T. Hoefler, "SparCML:
// High-Performance Sparse Communication for Machine Learning", SC'19 (SSAR_Split_allgather).
Schedule split_allgather(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// Like two_level, but within nodes by messages to and from the lowest rank, so that it may overlap other collectives and
// serves streams. The leaders' algorithm: `shape.chunks` 1 recursive doubling, else split_allgather. The leaders' cost with p
// = nodes, plus twice m alpha + m n beta for the m members of a node. In order as two_level is. T. Kielmann et al. 1999, as
// above.
Schedule leaders(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// One fused verb of the node's team. Only where all ranks share one node. In order.
// R. Graham, G. Shipman, "MPI Support for Multi-core Architectures: Optimized Shared Memory Collectives",
// EuroPVM/MPI 2008, LNCS 5205.
Schedule team(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// One node of several domains (last-level caches, NUMA nodes) that all have teams of their own: each domain folds to
// its leaders, leaders in the same place fold across the domains, each domain spreads the result. With `shape.chunks`
// 1 the first of each domain leads: three hops instead of one, but every rank waits for those of its domain and not for
// all. From 2 on as many lead as the smallest domain has ranks, each for its part of every one of chunks-1 pieces: of d
// domains' vectors 2 d (d-1) n bytes cross between domains at most, where the one team moves p n. In order where domains
// are runs of ranks in rising order. M. Bayatpour, S. Chakraborty, H. Subramoni, X. Lu, D. K. Panda, "Scalable Reduction
// Collectives with Data Partitioning-based Multi-Leader Design", SC'17.
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

// `shape.chunks` pieces down the chain of ranks. (p - 2 + chunks)(alpha + n/chunks beta). Very large vectors
// on few ranks. J. Watts, R. van de Geijn, "A Pipelined Broadcast for Multidimensional Meshes", Parallel
// Processing Letters 5(2), 1995.
Schedule chain(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// The root scatters p blocks down a binomial tree, a ring allgathers them; blocks that the scatter left
// behind are not sent again. (lg p + p - 1) alpha + 2n(p-1)/p beta. Large vectors, short pipelines. M.
// Barnett, L. Shuler, S. Gupta, D. Payne, R. van de Geijn, J. Watts, "Building a High-Performance Collective
// Communication Library", Supercomputing 1994; R. Thakur et al. 2005.
Schedule scatter_allgather(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// The root feeds each half of the vector into one of two binary trees on the other ranks, each of which is an
// inner node of at most one. About (lg p + 2 chunks) steps of n/(2 chunks) bytes: 2 lg p alpha' + n beta.
// Large vectors on many ranks. `shape.chunks` pieces per tree. P. Sanders et al. 2009, as above.
Schedule double_binary_tree(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// The root, for its node, and the lowest rank of every other node run another algorithm; every node spreads
// the vector in shared memory. The former follows from `shape.chunks`: 1 k-nomial of `shape.radix`, 2
// scatter-allgather, c >= 3 double binary tree with c-2 pieces per tree. T. Kielmann et al. 1999, as above.
Schedule two_level(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// One fused verb of the node's team. Only where all ranks share one node. R. Graham, G. Shipman 2008, as
// above.
Schedule team(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// One node of several domains: from the root to the ranks in its place in the other domains, and from them through
// every domain, in `shape.chunks` pieces. A root whose place some domain lacks hands over to the first of its domain, which
// is one hop more. R. Graham, G. Shipman 2008, as above.
Schedule multi_leader(const TopologyView& topology, std::int32_t rank, const Shape& shape);

}  // namespace bcast

namespace barrier {

// Recursive doubling of nothing: messages without bytes in the pattern of allreduce::recursive_doubling,
// after which every rank has heard of every other. ceil(lg p) alpha for powers of two, 2 alpha more
// otherwise. R. Thakur et al. 2005; compare D. Hensgen, R. Finkel, U. Manber, "Two Algorithms for Barrier
// Synchronization", Int. J. Parallel Programming 17(1), 1988.
Schedule recursive_doubling(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// One node only: the team's allreduce of no elements, each member's flag read by all others.
Schedule team(const TopologyView& topology, std::int32_t rank, const Shape& shape);

// One node of several domains: allreduce::multi_leader of nothing, with one leader in each.
Schedule multi_leader(const TopologyView& topology, std::int32_t rank, const Shape& shape);

}  // namespace barrier

// What allreduce and barrier share: recursive doubling over `size` ranks of the one chunk that `builder` has.
void recursive_doubling_steps(Builder& builder, std::int32_t size, std::int32_t rank);

}  // namespace heddle
