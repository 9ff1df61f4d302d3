// What the MPI programs of these tests share. They are ordinary MPI programs: they call MPI_ functions, which
// the preload library takes over, and compare with what PMPI_ functions of the host say.
#pragma once

#define MPICH_SKIP_MPICXX 1
#define OMPI_SKIP_MPICXX 1
#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "support/divided_machine.hpp"

namespace job {

// Says what is wrong and ends the job: a collective that some ranks never enter cannot be left in another
// way.
[[noreturn]] __attribute__((format(printf, 1, 2))) inline void fail(const char* format, ...) {
  int rank = -1;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::fprintf(stderr, "WRONG on rank %d: ", rank);
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fputc('\n', stderr);
  ::usleep(200'000);  // Hydra drops what it has not read when a job aborts
  PMPI_Abort(MPI_COMM_WORLD, 9);
  std::abort();
}

// What a test passes as an argument: "domains" puts the ranks in turn into the two domains of a machine that
// is not there.
inline void take_place(const char* where) {
  if (std::strcmp(where, "domains") != 0) return;
  static const heddle::test::DividedMachine machine;
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (!heddle::test::DividedMachine::enter(rank % 2)) fail("this needs cores 0 and 1");
}

inline int rank_of(MPI_Comm comm) {
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  return rank;
}

inline int size_of(MPI_Comm comm) {
  int size = 0;
  PMPI_Comm_size(comm, &size);
  return size;
}

// The name of what serves a collective now, or "absent" without the preload library.
inline std::string served_by(int collective, std::size_t bytes, MPI_Comm comm) {
  using Ask = const char* (*)(int, std::size_t, std::uintptr_t);
  auto ask = reinterpret_cast<Ask>(dlsym(RTLD_DEFAULT, "heddle_preload_algorithm"));
  // A handle is an integer or a pointer.
  std::uintptr_t word = 0;
  std::memcpy(&word, &comm, sizeof(MPI_Comm));
  return ask != nullptr ? ask(collective, bytes, word) : "absent";
}

// A call that saves more than the set-up of a communicator costs: heddle takes `comm` over at the third call
// after that at the latest.
inline void make_worthwhile(MPI_Comm comm) {
  std::vector<char> much(std::size_t{5} << 18);
  MPI_Bcast(much.data(), static_cast<int>(much.size()), MPI_CHAR, 0, comm);
}

// Calls until heddle has taken `comm` over, and makes sure that it did: a test of the host proves nothing.
inline void warm_up(MPI_Comm comm) {
  if (size_of(comm) > 1) make_worthwhile(comm);
  for (int i = 0; i < 4; ++i) {
    int one = 1;
    int sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    if (sum != size_of(comm)) fail("warm-up %d: sum is %d of %d ranks", i, sum, size_of(comm));
  }
  if (size_of(comm) == 1) return;
  for (int collective = 0; collective < 5; ++collective) {
    const std::string name = served_by(collective, collective == 2 ? 0 : 1024, comm);
    if (name == "host" || name == "absent")
      fail("heddle has not taken over: collective %d is served by %s", collective, name.c_str());
  }
}

// A small generator that is the same everywhere, so that every rank knows every rank's input.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

inline std::uint64_t hash_bytes(std::uint64_t hash, const void* data, std::size_t bytes) {
  const auto* byte = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i)
    hash = (hash ^ byte[i]) * 0x100000001b3u;
  return hash;
}

// Fails unless `hash` is the same on all ranks.
inline void same_everywhere(std::uint64_t hash, MPI_Comm comm, const char* what) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(size_of(comm)));
  PMPI_Allgather(&hash, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, comm);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] != hash) fail("%s: other bits on rank %zu of the communicator", what, i);
  }
}

// In a callback of MPI_Finalize: that collectives work there, and was reached.
inline void sum_in_finalize(MPI_Comm comm) {
  const int one = 1;
  int sum = 0;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
  if (sum != size_of(comm)) fail("allreduce in MPI_Finalize: %d of %d", sum, size_of(comm));
  if (rank_of(comm) == 0) {
    std::puts("reached the callback in MPI_Finalize");
    std::fflush(stdout);
  }
}

// The communicators every test of results runs on; free with free_communicators().
struct Named {
  const char* name;
  MPI_Comm comm;
};

inline std::vector<Named> make_communicators() {
  const int rank = rank_of(MPI_COMM_WORLD);
  std::vector<Named> all = {{"world", MPI_COMM_WORLD}, {"self", MPI_COMM_SELF}};
  MPI_Comm made;
  MPI_Comm_dup(MPI_COMM_WORLD, &made);
  all.push_back({"dup", made});
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &made);
  all.push_back({"reversed", made});
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &made);
  all.push_back({"odd-even", made});
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 0, rank * 7 % 5, &made);
  if (made != MPI_COMM_NULL) all.push_back({"all but the first, shuffled", made});
  return all;
}

// Of the world's even and odd ranks, of which there must be some; `half`: this rank's. Both to be freed.
inline MPI_Comm between_halves(MPI_Comm* half) {
  const int rank = rank_of(MPI_COMM_WORLD);
  MPI_Comm inter;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, half);
  MPI_Intercomm_create(*half, 0, MPI_COMM_WORLD, 1 - rank % 2, 3, &inter);
  return inter;
}

inline void free_communicators(std::vector<Named>& all) {
  for (Named& named : all) {
    if (named.comm != MPI_COMM_WORLD && named.comm != MPI_COMM_SELF) MPI_Comm_free(&named.comm);
  }
}

// The program of a conformance test: `check(named, seed)` on each communicator, once heddle has it.
// Arguments: the seed (1), and where its ranks take their places.
template <typename Check>
int run_on_all(int argc, char** argv, Check check) {
  MPI_Init(&argc, &argv);
  const auto seed = static_cast<std::uint64_t>(argc > 1 ? std::atoll(argv[1]) : 1);
  if (argc > 2) take_place(argv[2]);
  std::vector<Named> all = make_communicators();
  for (const Named& where : all) {
    warm_up(where.comm);
    check(where, seed);
  }
  free_communicators(all);
  MPI_Finalize();
  return 0;
}

}  // namespace job
