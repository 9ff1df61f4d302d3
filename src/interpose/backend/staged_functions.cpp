// The calls of staged_calls.hpp one by one: which buffers they have on this rank, and how long these are.
#include <numeric>

#include "interpose/backend/staged_calls.hpp"

namespace heddle::backend {
namespace {

// MPI's functions have no argument for it (entry.cpp).
StagedCalls* process = nullptr;

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
auto reduce(Host host) {
  return [host](const void* in, void* out, auto count, heddle_word type, heddle_word op, int root,
                heddle_word comm) {
    StagedCall call(*process, "MPI_Reduce", comm);
    const Ranks ranks = call.ranks();
    const void* from = in;
    void* to = out;
    if (ranks.is_served_by(root)) from = call.read(in, call.span(in, elements(count), type));
    if (ranks.is_root(root)) to = call.write(out, call.span(out, elements(count), type), in == MPI_IN_PLACE);
    return call.finish([&] { return host(from, to, count, type, op, root, comm); });
  };
}

// `keeps`: what was there stays where the call writes nothing.
template <typename Host>
auto scan_as(const char* name, bool keeps, Host host) {
  return [=](const void* in, void* out, auto count, heddle_word type, heddle_word op, heddle_word comm) {
    StagedCall call(*process, name, comm);
    const void* const from = call.read(in, call.span(in, elements(count), type));
    void* const to = call.write(out, call.span(out, elements(count), type), keeps || in == MPI_IN_PLACE);
    return call.finish([&] { return host(from, to, count, type, op, comm); });
  };
}

template <typename Host>
auto scan(Host host) {
  return scan_as("MPI_Scan", false, host);
}

// Nothing comes before rank 0.
template <typename Host>
auto exscan(Host host) {
  return scan_as("MPI_Exscan", true, host);
}

// `total` elements are summed, and rank's own part of them, `mine`, comes back; in place they were where it comes.
template <typename Host>
int reduce_scatter_as(StagedCall& call, const void* in, void* out, std::size_t total, std::size_t mine,
                      heddle_word type, const Host& host) {
  const bool in_place = in == MPI_IN_PLACE;
  const void* const from = call.read(in, call.span(in, total, type));
  void* const to = call.write(out, call.span(out, in_place ? total : mine, type), in_place);
  return call.finish([&] { return host(from, to); });
}

template <typename Host>
auto reduce_scatter(Host host) {
  return [host](const void* in, void* out, const auto* counts, heddle_word type, heddle_word op,
                heddle_word comm) {
    StagedCall call(*process, "MPI_Reduce_scatter", comm);
    const Ranks ranks = call.ranks();
    std::size_t total = 0;
    std::size_t mine = 0;
    for (int i = 0; counts != nullptr && i < ranks.size; ++i)
      total += elements(counts[i]);
    if (counts != nullptr && ranks.rank >= 0) mine = elements(counts[ranks.rank]);
    return reduce_scatter_as(call, in, out, total, mine, type, [&](const void* from, void* to) {
      return host(from, to, counts, type, op, comm);
    });
  };
}

template <typename Host>
auto reduce_scatter_block(Host host) {
  return [host](const void* in, void* out, auto count, heddle_word type, heddle_word op, heddle_word comm) {
    StagedCall call(*process, "MPI_Reduce_scatter_block", comm);
    const Ranks ranks = call.ranks();
    return reduce_scatter_as(
        call, in, out, elements(count, ranks.size), elements(count), type,
        [&](const void* from, void* to) { return host(from, to, count, type, op, comm); });
  };
}

// ---- To one rank and from it

template <typename Host>
auto gather(Host host) {
  return [host](const void* in, auto in_count, heddle_word in_type, void* out, auto out_count,
                heddle_word out_type, int root, heddle_word comm) {
    StagedCall call(*process, "MPI_Gather", comm);
    const Ranks ranks = call.ranks();
    const void* from = in;
    void* to = out;
    if (ranks.is_served_by(root)) from = call.read(in, call.span(in, elements(in_count), in_type));
    if (ranks.is_root(root))
      to = call.write(out, call.span(out, elements(out_count, ranks.others), out_type), in == MPI_IN_PLACE);
    return call.finish([&] { return host(from, in_count, in_type, to, out_count, out_type, root, comm); });
  };
}

template <typename Host>
auto gatherv(Host host) {
  return [host](const void* in, auto in_count, heddle_word in_type, void* out, const auto* out_counts,
                const auto* out_places, heddle_word out_type, int root, heddle_word comm) {
    StagedCall call(*process, "MPI_Gatherv", comm);
    const Ranks ranks = call.ranks();
    const void* from = in;
    void* to = out;
    if (ranks.is_served_by(root)) from = call.read(in, call.span(in, elements(in_count), in_type));
    if (ranks.is_root(root))
      to = call.write(out, call.parts(out, ranks.others, out_counts, out_places, out_type),
                      in == MPI_IN_PLACE);
    return call.finish(
        [&] { return host(from, in_count, in_type, to, out_counts, out_places, out_type, root, comm); });
  };
}

template <typename Host>
auto scatter(Host host) {
  return [host](const void* in, auto in_count, heddle_word in_type, void* out, auto out_count,
                heddle_word out_type, int root, heddle_word comm) {
    StagedCall call(*process, "MPI_Scatter", comm);
    const Ranks ranks = call.ranks();
    const void* from = in;
    void* to = out;
    if (ranks.is_root(root)) from = call.read(in, call.span(in, elements(in_count, ranks.others), in_type));
    if (ranks.is_served_by(root)) to = call.write(out, call.span(out, elements(out_count), out_type), false);
    return call.finish([&] { return host(from, in_count, in_type, to, out_count, out_type, root, comm); });
  };
}

template <typename Host>
auto scatterv(Host host) {
  return [host](const void* in, const auto* in_counts, const auto* in_places, heddle_word in_type, void* out,
                auto out_count, heddle_word out_type, int root, heddle_word comm) {
    StagedCall call(*process, "MPI_Scatterv", comm);
    const Ranks ranks = call.ranks();
    const void* from = in;
    void* to = out;
    if (ranks.is_root(root))
      from = call.read(in, call.parts(in, ranks.others, in_counts, in_places, in_type));
    if (ranks.is_served_by(root)) to = call.write(out, call.span(out, elements(out_count), out_type), false);
    return call.finish(
        [&] { return host(from, in_counts, in_places, in_type, to, out_count, out_type, root, comm); });
  };
}

// ---- Among all

template <typename Host>
auto allgather(Host host) {
  return [host](const void* in, auto in_count, heddle_word in_type, void* out, auto out_count,
                heddle_word out_type, heddle_word comm) {
    StagedCall call(*process, "MPI_Allgather", comm);
    const Ranks ranks = call.ranks();
    const void* const from = call.read(in, call.span(in, elements(in_count), in_type));
    void* const to =
        call.write(out, call.span(out, elements(out_count, ranks.others), out_type), in == MPI_IN_PLACE);
    return call.finish([&] { return host(from, in_count, in_type, to, out_count, out_type, comm); });
  };
}

template <typename Host>
auto allgatherv(Host host) {
  return [host](const void* in, auto in_count, heddle_word in_type, void* out, const auto* out_counts,
                const auto* out_places, heddle_word out_type, heddle_word comm) {
    StagedCall call(*process, "MPI_Allgatherv", comm);
    const Ranks ranks = call.ranks();
    const void* const from = call.read(in, call.span(in, elements(in_count), in_type));
    void* const to =
        call.write(out, call.parts(out, ranks.others, out_counts, out_places, out_type), in == MPI_IN_PLACE);
    return call.finish(
        [&] { return host(from, in_count, in_type, to, out_counts, out_places, out_type, comm); });
  };
}

template <typename Host>
auto alltoall(Host host) {
  return [host](const void* in, auto in_count, heddle_word in_type, void* out, auto out_count,
                heddle_word out_type, heddle_word comm) {
    StagedCall call(*process, "MPI_Alltoall", comm);
    const Ranks ranks = call.ranks();
    const void* const from = call.read(in, call.span(in, elements(in_count, ranks.others), in_type));
    void* const to =
        call.write(out, call.span(out, elements(out_count, ranks.others), out_type), in == MPI_IN_PLACE);
    return call.finish([&] { return host(from, in_count, in_type, to, out_count, out_type, comm); });
  };
}

// alltoallw has one type for each rank.
template <typename Host>
auto alltoall_of_parts(const char* name, Host host) {
  return [=](const void* in, const auto* in_counts, const auto* in_places, auto in_types, void* out,
             const auto* out_counts, const auto* out_places, auto out_types, heddle_word comm) {
    StagedCall call(*process, name, comm);
    const Ranks ranks = call.ranks();
    const bool in_place = in == MPI_IN_PLACE;
    const void* from = in;
    // Not significant in place, and perhaps not there.
    if (!in_place) from = call.read(in, call.parts(in, ranks.others, in_counts, in_places, in_types));
    void* const to =
        call.write(out, call.parts(out, ranks.others, out_counts, out_places, out_types), in_place);
    return call.finish([&] {
      return host(from, in_counts, in_places, in_types, to, out_counts, out_places, out_types, comm);
    });
  };
}

template <typename Host>
auto alltoallv(Host host) {
  return alltoall_of_parts("MPI_Alltoallv", host);
}

template <typename Host>
auto alltoallw(Host host) {
  return alltoall_of_parts("MPI_Alltoallw", host);
}

// ---- Messages. With MPI_PROC_NULL there is none, and a buffer need not be one.

template <typename Host>
auto send_as(const char* name, Host host) {
  return [=](const void* data, auto count, heddle_word type, int to, int tag, heddle_word comm) {
    StagedCall call(*process, name, comm);
    const void* from = data;
    if (to != MPI_PROC_NULL) from = call.read(data, call.span(data, elements(count), type));
    return call.finish([&] { return host(from, count, type, to, tag, comm); });
  };
}

template <typename Host>
auto send(Host host) {
  return send_as("MPI_Send", host);
}

template <typename Host>
auto ssend(Host host) {
  return send_as("MPI_Ssend", host);
}

template <typename Host>
auto rsend(Host host) {
  return send_as("MPI_Rsend", host);
}

template <typename Host>
auto bsend(Host host) {
  return send_as("MPI_Bsend", host);
}

template <typename Host>
auto recv(Host host) {
  return [host](void* data, auto count, heddle_word type, int from, int tag, heddle_word comm, void* status) {
    StagedCall call(*process, "MPI_Recv", comm);
    void* to = data;
    if (from != MPI_PROC_NULL) to = call.write(data, call.span(data, elements(count), type), false);
    return call.finish_message(status,
                               [&](void* seen) { return host(to, count, type, from, tag, comm, seen); });
  };
}

template <typename Host>
auto sendrecv(Host host) {
  return [host](const void* in, auto in_count, heddle_word in_type, int to, int in_tag, void* out,
                auto out_count, heddle_word out_type, int from, int out_tag, heddle_word comm, void* status) {
    StagedCall call(*process, "MPI_Sendrecv", comm);
    const void* source = in;
    void* target = out;
    if (to != MPI_PROC_NULL) source = call.read(in, call.span(in, elements(in_count), in_type));
    if (from != MPI_PROC_NULL) target = call.write(out, call.span(out, elements(out_count), out_type), false);
    return call.finish_message(status, [&](void* seen) {
      return host(source, in_count, in_type, to, in_tag, target, out_count, out_type, from, out_tag, comm,
                  seen);
    });
  };
}

template <typename Host>
auto sendrecv_replace(Host host) {
  return [host](void* data, auto count, heddle_word type, int to, int in_tag, int from, int out_tag,
                heddle_word comm, void* status) {
    StagedCall call(*process, "MPI_Sendrecv_replace", comm);
    void* both = data;
    if (to != MPI_PROC_NULL || from != MPI_PROC_NULL)
      both = call.write(data, call.span(data, elements(count), type), true);
    return call.finish_message(
        status, [&](void* seen) { return host(both, count, type, to, in_tag, from, out_tag, comm, seen); });
  };
}

// Exceptions may pass: an error handler of the user's, which the host calls in here, may throw one.
namespace functions {
#define HEDDLE_FUNCTION(call, name, parameters, arguments) \
  int name parameters {                                    \
    const auto host = process->next().name;                \
    if (!process->possible()) [[likely]]                   \
      return host arguments;                               \
    return call(host) arguments;                           \
  }
HEDDLE_STAGED_CALLS(HEDDLE_FUNCTION)
#undef HEDDLE_FUNCTION
}  // namespace functions

}  // namespace

HeddleStagedCalls staged_functions(StagedCalls& calls) {
  process = &calls;
  HeddleStagedCalls all = {};
#define HEDDLE_MEMBER(call, name, parameters, arguments) \
  if (calls.next().name != nullptr) all.name = functions::name;
  HEDDLE_STAGED_CALLS(HEDDLE_MEMBER)
#undef HEDDLE_MEMBER
  return all;
}

}  // namespace heddle::backend
