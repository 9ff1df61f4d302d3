// Collectives among the neighbours of a topology.
#pragma once

#include "staged_calls.hpp"

namespace gpu_job {

// MPICH 4.0.2 loses parts in MPI_Neighbor_alltoallw by itself where ranks have more neighbours on one side
// than on the other.
#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION < 40100000
inline constexpr bool kLosesParts = true;
#else
inline constexpr bool kLosesParts = false;
#endif

// Of `sources` and `destinations` neighbours, as many on all ranks or not.
template <typename Calls>
void neighbours(Trial<Calls>& trial, int sources, int destinations, bool as_many, MPI_Datatype type,
                std::size_t width) {
  using Count = typename Calls::Count;
  constexpr std::size_t kCount = 700;
  const auto n = static_cast<Count>(kCount);
  const std::size_t own = kCount * width;
  const std::size_t in_all = own * static_cast<std::size_t>(destinations);
  const std::size_t out_all = own * static_cast<std::size_t>(sources);
  trial.run("neighbor_allgather", own, out_all, false, [&](const Calls& by, const void* in, void* out) {
    return by.Neighbor_allgather(in, n, type, out, n, type, trial.comm());
  });
  trial.run("neighbor_alltoall", in_all, out_all, false, [&](const Calls& by, const void* in, void* out) {
    return by.Neighbor_alltoall(in, n, type, out, n, type, trial.comm());
  });
  if constexpr (Calls::kHasArrays) {
    Parts<Calls> to;
    Parts<Calls> from;
    for (int i = 0; i < destinations; ++i)
      to.add(kCount, static_cast<std::size_t>(i) % 3);
    for (int i = 0; i < sources; ++i)
      from.add(kCount, static_cast<std::size_t>(i) % 2 + 1);
    trial.run("neighbor_allgatherv", own, from.span() * width, false,
              [&](const Calls& by, const void* in, void* out) {
                return by.Neighbor_allgatherv(in, n, type, out, from.counts.data(), from.places.data(), type,
                                              trial.comm());
              });
    trial.run("neighbor_alltoallv", to.span() * width, from.span() * width, false,
              [&](const Calls& by, const void* in, void* out) {
                return by.Neighbor_alltoallv(in, to.counts.data(), to.places.data(), type, out,
                                             from.counts.data(), from.places.data(), type, trial.comm());
              });
    const auto in_bytes = [&](const Parts<Calls>& parts) {
      std::vector<MPI_Aint> bytes;
      for (const auto place : parts.places)
        bytes.push_back(static_cast<MPI_Aint>(4 * width) * static_cast<MPI_Aint>(place));
      return bytes;
    };
    const std::vector<MPI_Aint> to_bytes = in_bytes(to);
    const std::vector<MPI_Aint> from_bytes = in_bytes(from);
    const std::vector<MPI_Datatype> to_types(static_cast<std::size_t>(destinations), type);
    const std::vector<MPI_Datatype> from_types(static_cast<std::size_t>(sources), type);
    if (!as_many && kLosesParts) return;
    trial.run("neighbor_alltoallw", to.span() * width, from.span() * width, false,
              [&](const Calls& by, const void* in, void* out) {
                return by.Neighbor_alltoallw(in, to.counts.data(), to_bytes.data(), to_types.data(), out,
                                             from.counts.data(), from_bytes.data(), from_types.data(),
                                             trial.comm());
              });
  }
}

// A ring, a grid with ends, a graph, and one whose edges go one way: each rank has data for the next one, and
// for the one after that.
template <typename Calls>
void among_neighbours(Job& job) {
  const int size = job::size_of(MPI_COMM_WORLD);
  const int rank = job::rank_of(MPI_COMM_WORLD);
  MPI_Datatype pair;
  MPI_Datatype gapped;
  MPI_Type_vector(2, 1, 2, MPI_INT, &pair);
  MPI_Type_create_resized(pair, 0, 16, &gapped);
  MPI_Type_commit(&gapped);
  const auto on = [&](MPI_Comm comm, const char* where, int sources, int destinations, bool as_many) {
    Trial<Calls> trial(job, comm, where);
    neighbours(trial, sources, destinations, as_many, MPI_INT, 1);
    neighbours(trial, sources, destinations, as_many, gapped, 4);
    MPI_Comm_free(&comm);
  };
  MPI_Comm comm;
  const int round = 1;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &round, 0, &comm);
  on(comm, "a ring", 2, 2, true);
  const int sides[] = {size, 1};
  const int ends[] = {0, 0};
  MPI_Cart_create(MPI_COMM_WORLD, 2, sides, ends, 0, &comm);
  on(comm, "a grid", 4, 4, true);
  std::vector<int> index;
  std::vector<int> edges;
  for (int i = 0; i < size; ++i) {
    // All know rank 0, and it them.
    for (int k = 0; k < size; ++k) {
      if ((i == 0) != (k == 0)) edges.push_back(k);
    }
    index.push_back(static_cast<int>(edges.size()));
  }
  if (size > 1) {
    MPI_Graph_create(MPI_COMM_WORLD, size, index.data(), edges.data(), 0, &comm);
    const int known = rank == 0 ? size - 1 : 1;
    on(comm, "a graph", known, known, true);
  }
  const int from[] = {(rank + size - 1) % size, (rank + 2 * size - 2) % size};
  const int to[] = {(rank + 1) % size, (rank + 2) % size};
  // The last rank has nothing for the second one.
  const int sources = rank == 1 % size ? 1 : 2;
  const int destinations = rank == (2 * size - 1) % size ? 1 : 2;
  MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, sources, from, MPI_UNWEIGHTED, destinations, to,
                                 MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
  on(comm, "a graph with directions", sources, destinations, false);
  MPI_Type_free(&pair);
  MPI_Type_free(&gapped);
}

}  // namespace gpu_job
