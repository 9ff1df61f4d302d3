// The calls that heddle leaves to the host, by MPI's names and by PMPI's, and trials that compare the two.
#pragma once

#include <algorithm>
#include <vector>

#include "mpi_buffers.hpp"

namespace gpu_job {

using Bytes = std::vector<unsigned char>;

// X(Name, suffix)
#define HEDDLE_TEST_ARRAY_CALLS(X, S) \
  X(Reduce_scatter, S)                \
  X(Gatherv, S)                       \
  X(Scatterv, S)                      \
  X(Allgatherv, S)                    \
  X(Alltoallv, S) X(Alltoallw, S) X(Neighbor_allgatherv, S) X(Neighbor_alltoallv, S) X(Neighbor_alltoallw, S)
#define HEDDLE_TEST_CALLS(X, S) \
  X(Reduce, S)                  \
  X(Scan, S)                    \
  X(Exscan, S)                  \
                                \
  X(Reduce_scatter_block, S)    \
  X(Gather, S)                  \
  X(Scatter, S)                 \
  X(Allgather, S)               \
  X(Alltoall, S)                \
  X(Neighbor_allgather, S)      \
  X(Neighbor_alltoall, S)       \
  X(Send, S) X(Ssend, S) X(Rsend, S) X(Bsend, S) X(Recv, S) X(Mrecv, S) X(Sendrecv, S) X(Sendrecv_replace, S)
#define HEDDLE_TEST_MEMBER(name, S) decltype(&MPI_##name##S) name;
#define HEDDLE_TEST_MPI(name, S) MPI_##name##S,
#define HEDDLE_TEST_PMPI(name, S) PMPI_##name##S,

struct Calls {
  using Count = int;
  using Place = int;
  static constexpr bool kHasArrays = true;
  static constexpr bool kHasRequests = false;
  HEDDLE_TEST_CALLS(HEDDLE_TEST_MEMBER, )
  HEDDLE_TEST_ARRAY_CALLS(HEDDLE_TEST_MEMBER, )
  static const Calls kMpi;
  static const Calls kPmpi;
};
inline const Calls Calls::kMpi = {HEDDLE_TEST_CALLS(HEDDLE_TEST_MPI, )
                                      HEDDLE_TEST_ARRAY_CALLS(HEDDLE_TEST_MPI, )};
inline const Calls Calls::kPmpi = {HEDDLE_TEST_CALLS(HEDDLE_TEST_PMPI, )
                                       HEDDLE_TEST_ARRAY_CALLS(HEDDLE_TEST_PMPI, )};

#if MPI_VERSION >= 4
// Those of MPI-4 with large counts, which are the host's where counts are in arrays.
struct LargeCalls {
  using Count = MPI_Count;
  using Place = MPI_Aint;
  static constexpr bool kHasArrays = false;
  static constexpr bool kHasRequests = false;
  HEDDLE_TEST_CALLS(HEDDLE_TEST_MEMBER, _c)
  static const LargeCalls kMpi;
  static const LargeCalls kPmpi;
};
inline const LargeCalls LargeCalls::kMpi = {HEDDLE_TEST_CALLS(HEDDLE_TEST_MPI, _c)};
inline const LargeCalls LargeCalls::kPmpi = {HEDDLE_TEST_CALLS(HEDDLE_TEST_PMPI, _c)};
#endif

// One part for each rank, with places that leave gaps.
template <typename Calls>
struct Parts {
  std::vector<typename Calls::Count> counts;
  std::vector<typename Calls::Place> places;
  std::size_t end = 0;

  void add(std::size_t count, std::size_t gap) {
    counts.push_back(static_cast<typename Calls::Count>(count));
    places.push_back(static_cast<typename Calls::Place>(end + gap));
    end += gap + count;
  }
  std::size_t of(int rank) const { return static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]); }
  std::size_t total() const {
    std::size_t sum = 0;
    for (const auto count : counts)
      sum += static_cast<std::size_t>(count);
    return sum;
  }
  std::size_t span() const { return end; }
};

template <typename Calls>
class Trial {
 public:
  Trial(Job& job, MPI_Comm comm, const char* where) : job_(job), comm_(comm), where_(where) {}

  MPI_Comm comm() const { return comm_; }
  int size() const { return job::size_of(comm_); }
  int rank() const { return job::rank_of(comm_); }
  // The same on all ranks, as all that follows.
  int rank_of_all() { return static_cast<int>(job_.random.below(static_cast<std::uint64_t>(size()))); }
  // Of up to `most` elements each, perhaps none. MPICH 4.0.2 ignores where the only one begins.
  Parts<Calls> parts(std::size_t most) {
    Parts<Calls> all;
    for (int i = 0; i < size(); ++i) {
      const std::size_t count = job_.random.below(most + 1);
      const std::size_t gap = job_.random.below(3);
      all.add(count, size() > 1 ? gap : 0);
    }
    return all;
  }
  // As many for one rank as that rank has for this one.
  Parts<Calls> pairs(std::size_t most) {
    Parts<Calls> mine;
    const std::uint64_t seed = job_.random.next();
    for (int i = 0; i < size(); ++i) {
      const auto a = static_cast<std::uint64_t>(std::min(i, rank()));
      const auto b = static_cast<std::uint64_t>(std::max(i, rank()));
      mine.add(job::Random(seed + 100 * a + b).below(most + 1), 1);
    }
    return mine;
  }

  // `call(functions, in, out)` with buffers of so many ints. `in_place`: there is data in the output too.
  template <typename Call>
  void run(const char* what, std::size_t in_ints, std::size_t out_ints, bool in_place, const Call& call) {
    job::Random own(job_.random.next() + static_cast<std::uint64_t>(job::rank_of(MPI_COMM_WORLD)));
    const Bytes mine = data(in_ints, own);
    const Bytes before = data(out_ints, own);
    Bytes source = mine;
    Bytes expected = before;
    // MPICH takes no null pointers, also for what it does not look at.
    source.reserve(source.size() + 1);
    expected.reserve(expected.size() + 1);
    expect("the host", call(Calls::kPmpi, source.data(), expected.data()), MPI_SUCCESS);
    const int place = job::rank_of(MPI_COMM_WORLD);
    const Memory in_kind = job_.kind(place);
    const Memory out_kind = job_.kind(place);
    const Buffer in(job_.driver, in_kind, mine.size(), place % 2);
    const Buffer out(job_.driver, out_kind, before.size(), (place + 1) % 2);
    in.set(mine);
    out.set(before);
    const int rc = call(Calls::kMpi, in.at(), out.at());
    if (rc == MPI_SUCCESS && out.value() == expected && in.value() == mine) return;
    job::fail("%s of %zu to %zu ints on %s from %s to %s memory%s: %s", what, in_ints, out_ints, where_,
              memory_name(in_kind), memory_name(out_kind), in_place ? " in place" : "",
              rc != MPI_SUCCESS ? "error" : "wrong");
  }

 private:
  static Bytes data(std::size_t ints, job::Random& random) {
    Bytes bytes(4 * ints);
    for (std::size_t i = 0; i < ints; ++i) {
      const auto value = static_cast<int>(random.below(100'000));
      std::memcpy(bytes.data() + 4 * i, &value, 4);
    }
    return bytes;
  }

  Job& job_;
  const MPI_Comm comm_;
  const char* const where_;
};

}  // namespace gpu_job
