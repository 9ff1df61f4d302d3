// The collectives of staged_calls.hpp one by one: which buffers they have on this rank, and how long these
// are. Each is a function of the arguments of MPI's; with a request it is over when that has ended.
#pragma once

#include <cstddef>

#include "interpose/backend/staged_calls.hpp"

namespace heddle::backend::staged {

// What is no number of elements the host reports.
template <typename C>
std::size_t elements(C count) {
  return count > 0 ? static_cast<std::size_t>(count) : 0;
}
template <typename C>
std::size_t elements(C count, int ranks) {
  return elements(count) * elements(ranks);
}

// ---- Reductions

template <typename Host>
auto reduce(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](const void* in, void* out, auto count, heddle_word type, heddle_word op, int root,
                     heddle_word comm, auto... request) {
    StagedCall call(calls, name, comm);
    const Ranks ranks = call.ranks(in, out);
    const void* from = in;
    void* to = out;
    if (ranks.is_served_by(root)) from = call.read(in, call.span(in, elements(count), type));
    if (ranks.is_root(root)) to = call.write(out, call.span(out, elements(count), type), in == MPI_IN_PLACE);
    return call.finish([&] { return host(from, to, count, type, op, root, comm, request...); }, request...);
  };
}

template <typename Host>
auto scan(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](const void* in, void* out, auto count, heddle_word type, heddle_word op,
                     heddle_word comm, auto... request) {
    StagedCall call(calls, name, comm);
    const void* const from = call.read(in, call.span(in, elements(count), type));
    void* const to = call.write(out, call.span(out, elements(count), type), in == MPI_IN_PLACE);
    return call.finish([&] { return host(from, to, count, type, op, comm, request...); }, request...);
  };
}

// Nothing comes before rank 0, which need not have a place for it.
template <typename Host>
auto exscan(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](const void* in, void* out, auto count, heddle_word type, heddle_word op,
                     heddle_word comm, auto... request) {
    StagedCall call(calls, name, comm);
    const bool is_in_place = in == MPI_IN_PLACE;
    const Ranks ranks = call.ranks(in, out);
    const void* const from = call.read(in, call.span(in, elements(count), type));
    void* to = out;
    if (is_in_place || ranks.rank != 0)
      to = call.write(out, call.span(out, elements(count), type), is_in_place);
    return call.finish([&] { return host(from, to, count, type, op, comm, request...); }, request...);
  };
}

// `total` elements are summed, and rank's own part of them, `mine`, comes back; in place they were where it
// comes.
template <typename Host, typename... Request>
int reduce_scatter_as(StagedCall& call, const void* in, void* out, std::size_t total, std::size_t mine,
                      heddle_word type, const Host& host, Request... request) {
  const bool in_place = in == MPI_IN_PLACE;
  const void* const from = call.read(in, call.span(in, total, type));
  void* const to = call.write(out, call.span(out, in_place ? total : mine, type), in_place);
  return call.finish([&] { return host(from, to); }, request...);
}

template <typename Host>
auto reduce_scatter(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](const void* in, void* out, const auto* counts, heddle_word type, heddle_word op,
                     heddle_word comm, auto... request) {
    StagedCall call(calls, name, comm);
    const Ranks ranks = call.ranks(in, out);
    std::size_t total = 0;
    std::size_t mine = 0;
    for (int i = 0; counts != nullptr && i < ranks.size; ++i)
      total += elements(counts[i]);
    if (counts != nullptr && ranks.rank >= 0) mine = elements(counts[ranks.rank]);
    return reduce_scatter_as(
        call, in, out, total, mine, type,
        [&](const void* from, void* to) { return host(from, to, counts, type, op, comm, request...); },
        request...);
  };
}

template <typename Host>
auto reduce_scatter_block(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](const void* in, void* out, auto count, heddle_word type, heddle_word op,
                     heddle_word comm, auto... request) {
    StagedCall call(calls, name, comm);
    const Ranks ranks = call.ranks(in, out);
    return reduce_scatter_as(
        call, in, out, elements(count, ranks.size), elements(count), type,
        [&](const void* from, void* to) { return host(from, to, count, type, op, comm, request...); },
        request...);
  };
}

// ---- To one rank and from it

template <typename Host>
auto gather(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](const void* in, auto in_count, heddle_word in_type, void* out, auto out_count,
                     heddle_word out_type, int root, heddle_word comm, auto... request) {
    StagedCall call(calls, name, comm);
    const Ranks ranks = call.ranks(in, out);
    const void* from = in;
    void* to = out;
    if (ranks.is_served_by(root)) from = call.read(in, call.span(in, elements(in_count), in_type));
    if (ranks.is_root(root))
      to = call.write(out, call.span(out, elements(out_count, ranks.others), out_type), in == MPI_IN_PLACE);
    return call.finish(
        [&] { return host(from, in_count, in_type, to, out_count, out_type, root, comm, request...); },
        request...);
  };
}

template <typename Host>
auto gatherv(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](const void* in, auto in_count, heddle_word in_type, void* out, const auto* out_counts,
                     const auto* out_places, heddle_word out_type, int root, heddle_word comm,
                     auto... request) {
    StagedCall call(calls, name, comm);
    const Ranks ranks = call.ranks(in, out);
    const void* from = in;
    void* to = out;
    if (ranks.is_served_by(root)) from = call.read(in, call.span(in, elements(in_count), in_type));
    if (ranks.is_root(root))
      to = call.write(out, call.parts(out, ranks.others, out_counts, out_places, out_type),
                      in == MPI_IN_PLACE);
    return call.finish(
        [&] {
          return host(from, in_count, in_type, to, out_counts, out_places, out_type, root, comm, request...);
        },
        request...);
  };
}

template <typename Host>
auto scatter(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](const void* in, auto in_count, heddle_word in_type, void* out, auto out_count,
                     heddle_word out_type, int root, heddle_word comm, auto... request) {
    StagedCall call(calls, name, comm);
    const Ranks ranks = call.ranks(in, out);
    const void* from = in;
    void* to = out;
    if (ranks.is_root(root)) from = call.read(in, call.span(in, elements(in_count, ranks.others), in_type));
    if (ranks.is_served_by(root)) to = call.write(out, call.span(out, elements(out_count), out_type), false);
    return call.finish(
        [&] { return host(from, in_count, in_type, to, out_count, out_type, root, comm, request...); },
        request...);
  };
}

template <typename Host>
auto scatterv(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](const void* in, const auto* in_counts, const auto* in_places, heddle_word in_type,
                     void* out, auto out_count, heddle_word out_type, int root, heddle_word comm,
                     auto... request) {
    StagedCall call(calls, name, comm);
    const Ranks ranks = call.ranks(in, out);
    const void* from = in;
    void* to = out;
    if (ranks.is_root(root))
      from = call.read(in, call.parts(in, ranks.others, in_counts, in_places, in_type));
    if (ranks.is_served_by(root)) to = call.write(out, call.span(out, elements(out_count), out_type), false);
    return call.finish(
        [&] {
          return host(from, in_counts, in_places, in_type, to, out_count, out_type, root, comm, request...);
        },
        request...);
  };
}

// ---- Among all, or among neighbours, which `among(call, in, out)` counts. These are never in place.

template <typename Host, typename Among>
auto allgather_among(StagedCalls& calls, const char* name, Host host, Among among) {
  return [=, &calls](const void* in, auto in_count, heddle_word in_type, void* out, auto out_count,
                     heddle_word out_type, heddle_word comm, auto... request) {
    StagedCall call(calls, name, comm);
    const Neighbours others = among(call, in, out);
    const void* from = in;
    if (others.destinations > 0) from = call.read(in, call.span(in, elements(in_count), in_type));
    void* const to =
        call.write(out, call.span(out, elements(out_count, others.sources), out_type), others.keeps);
    return call.finish(
        [&] { return host(from, in_count, in_type, to, out_count, out_type, comm, request...); }, request...);
  };
}

template <typename Host, typename Among>
auto allgatherv_among(StagedCalls& calls, const char* name, Host host, Among among) {
  return [=, &calls](const void* in, auto in_count, heddle_word in_type, void* out, const auto* out_counts,
                     const auto* out_places, heddle_word out_type, heddle_word comm, auto... request) {
    StagedCall call(calls, name, comm);
    const Neighbours others = among(call, in, out);
    const void* from = in;
    if (others.destinations > 0) from = call.read(in, call.span(in, elements(in_count), in_type));
    void* const to =
        call.write(out, call.parts(out, others.sources, out_counts, out_places, out_type), others.keeps);
    return call.finish(
        [&] { return host(from, in_count, in_type, to, out_counts, out_places, out_type, comm, request...); },
        request...);
  };
}

template <typename Host, typename Among>
auto alltoall_among(StagedCalls& calls, const char* name, Host host, Among among) {
  return [=, &calls](const void* in, auto in_count, heddle_word in_type, void* out, auto out_count,
                     heddle_word out_type, heddle_word comm, auto... request) {
    StagedCall call(calls, name, comm);
    const Neighbours others = among(call, in, out);
    const void* const from = call.read(in, call.span(in, elements(in_count, others.destinations), in_type));
    void* const to =
        call.write(out, call.span(out, elements(out_count, others.sources), out_type), others.keeps);
    return call.finish(
        [&] { return host(from, in_count, in_type, to, out_count, out_type, comm, request...); }, request...);
  };
}

// alltoallw has one type for each rank.
template <typename Host, typename Among>
auto alltoall_of_parts_among(StagedCalls& calls, const char* name, Host host, Among among) {
  return [=, &calls](const void* in, const auto* in_counts, const auto* in_places, auto in_types, void* out,
                     const auto* out_counts, const auto* out_places, auto out_types, heddle_word comm,
                     auto... request) {
    StagedCall call(calls, name, comm);
    const Neighbours others = among(call, in, out);
    const bool in_place = in == MPI_IN_PLACE;
    const void* from = in;
    // Not significant in place, and perhaps not there.
    if (!in_place) from = call.read(in, call.parts(in, others.destinations, in_counts, in_places, in_types));
    void* const to =
        call.write(out, call.parts(out, others.sources, out_counts, out_places, out_types), others.keeps);
    return call.finish(
        [&] {
          return host(from, in_counts, in_places, in_types, to, out_counts, out_places, out_types, comm,
                      request...);
        },
        request...);
  };
}

constexpr auto kAll = [](StagedCall& call, const void* in, const void* out) {
  const int others = call.ranks(in, out).others;
  return Neighbours{others, others, in == MPI_IN_PLACE};
};
constexpr auto kNeighbours = [](StagedCall& call, const void* in, const void* out) {
  return call.neighbours(in, out);
};

#define HEDDLE_AMONG(name, as, among)                              \
  template <typename Host>                                         \
  auto name(StagedCalls& calls, const char* mpi_name, Host host) { \
    return as(calls, mpi_name, host, among);                       \
  }
HEDDLE_AMONG(allgather, allgather_among, kAll)
HEDDLE_AMONG(allgatherv, allgatherv_among, kAll)
HEDDLE_AMONG(alltoall, alltoall_among, kAll)
HEDDLE_AMONG(alltoallv, alltoall_of_parts_among, kAll)
HEDDLE_AMONG(alltoallw, alltoall_of_parts_among, kAll)
HEDDLE_AMONG(neighbor_allgather, allgather_among, kNeighbours)
HEDDLE_AMONG(neighbor_allgatherv, allgatherv_among, kNeighbours)
HEDDLE_AMONG(neighbor_alltoall, alltoall_among, kNeighbours)
HEDDLE_AMONG(neighbor_alltoallv, alltoall_of_parts_among, kNeighbours)
HEDDLE_AMONG(neighbor_alltoallw, alltoall_of_parts_among, kNeighbours)
#undef HEDDLE_AMONG

// ---- Those that heddle serves without a request

template <typename Host>
auto allreduce(StagedCalls& calls, const char* name, Host host) {
  return scan(calls, name, host);
}

template <typename Host>
auto bcast(StagedCalls& calls, const char* name, Host host) {
  return [=, &calls](void* data, auto count, heddle_word type, int root, heddle_word comm, auto... request) {
    StagedCall call(calls, name, comm);
    const Ranks ranks = call.ranks(data, data);
    void* at = data;
    if (ranks.is_root(root))
      at = const_cast<void*>(call.read(data, call.span(data, elements(count), type)));
    else if (ranks.is_served_by(root))
      at = call.write(data, call.span(data, elements(count), type), false);
    return call.finish([&] { return host(at, count, type, root, comm, request...); }, request...);
  };
}

}  // namespace heddle::backend::staged
