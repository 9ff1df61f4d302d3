// Wrong arguments: the class of the error, and what the user's error handler is called with, are the host's.
#include "job.hpp"

namespace {

int handler_calls = 0;
int handler_code = MPI_SUCCESS;

void handler(MPI_Comm*, int* code, ...) {
  ++handler_calls;
  handler_code = *code;
}

struct Outcome {
  int error_class = MPI_SUCCESS;
  int handled = 0;
  bool operator==(const Outcome&) const = default;
};

template <typename Call>
Outcome outcome(const Call& call) {
  handler_calls = 0;
  handler_code = MPI_SUCCESS;
  const int rc = call();
  Outcome o;
  PMPI_Error_class(rc, &o.error_class);
  int handled = 0;
  PMPI_Error_class(handler_code, &handled);
  o.handled = handler_calls * 1000 + handled;
  return o;
}

// MPICH 5 returns MPI_SUCCESS when the handler has returned. What a wrong communicator is can then be asked
// once more, which calls the handler again.
enum class Case { mistake, wrong_communicator, may_be_right };

template <typename Heddle, typename Host>
void compare(const char* what, const Heddle& heddle, const Host& host, Case kind = Case::mistake) {
  const Outcome a = outcome(heddle);
  const Outcome b = outcome(host);
  const bool asked_again =
      kind == Case::wrong_communicator && b.error_class == MPI_SUCCESS && a.handled == b.handled + 1000;
  if (a != b && !asked_again) {
    job::fail("%s: class %d, handler %d; the host: class %d, handler %d", what, a.error_class, a.handled,
              b.error_class, b.handled);
  }
  if (kind != Case::may_be_right && b == Outcome())
    job::fail("%s: the host does not mind; the case proves nothing", what);
}

#define ALLREDUCE(what, ...) \
  compare(                   \
      what, [&] { return MPI_Allreduce(__VA_ARGS__); }, [&] { return PMPI_Allreduce(__VA_ARGS__); })
#define BCAST(what, ...) \
  compare(               \
      what, [&] { return MPI_Bcast(__VA_ARGS__); }, [&] { return PMPI_Bcast(__VA_ARGS__); })

#define REDUCE(what, ...) \
  compare(                \
      what, [&] { return MPI_Reduce(__VA_ARGS__); }, [&] { return PMPI_Reduce(__VA_ARGS__); })

#define ALLGATHER(what, ...) \
  compare(                   \
      what, [&] { return MPI_Allgather(__VA_ARGS__); }, [&] { return PMPI_Allgather(__VA_ARGS__); })

// MPI forbids buffers that overlap; this host looks for the very same address only, and aborts the job when
// its own memcpy meets the others. heddle serves them: what the result is, nobody says, but nothing beside it
// may change.
void overlap(MPI_Comm comm) {
  constexpr std::size_t kGuard = 64;
  for (const std::size_t count :
       {std::size_t{4}, std::size_t{1000}, std::size_t{5000}, std::size_t{300'000}}) {
    const std::size_t shift = count / 3;
    std::vector<int> memory(kGuard + shift + count + kGuard, 7);
    int* const low = memory.data() + kGuard;
    for (const bool up : {true, false}) {
      const int rc = MPI_Allreduce(up ? low : low + shift, up ? low + shift : low, static_cast<int>(count),
                                   MPI_INT, MPI_SUM, comm);
      if (rc != MPI_SUCCESS) job::fail("overlapping buffers of %zu: %d", count, rc);
    }
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (memory[i] != 7 || memory[memory.size() - 1 - i] != 7)
        job::fail("memory beside overlapping buffers of %zu has changed", count);
    }
  }
}

// Dies of some mistakes when it wants to say what they are.
bool is_mpich_5() {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  PMPI_Get_library_version(version, &length);
  int major = 0;
  return std::sscanf(version, "MPICH Version: %d", &major) == 1 && major == 5;
}

void check(MPI_Comm comm) {
  int a[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  int b[8] = {};
  ALLREDUCE("aliased buffers", a, a, 4, MPI_INT, MPI_SUM, comm);
#ifndef OPEN_MPI  // which uses them
  ALLREDUCE("no send buffer", nullptr, b, 4, MPI_INT, MPI_SUM, comm);
  ALLREDUCE("no receive buffer", a, nullptr, 4, MPI_INT, MPI_SUM, comm);
#endif
  ALLREDUCE("receive buffer in place", a, MPI_IN_PLACE, 4, MPI_INT, MPI_SUM, comm);
  const bool speechless = is_mpich_5();
  if (!speechless) ALLREDUCE("null type", a, b, 4, MPI_DATATYPE_NULL, MPI_SUM, comm);
  ALLREDUCE("null op", a, b, 4, MPI_INT, MPI_OP_NULL, comm);
#ifndef OPEN_MPI  // handles are addresses there, and wrong ones lead anywhere
#ifndef MPI_ABI   // MPICH 5 takes it for one
  ALLREDUCE("not an op", a, b, 4, MPI_INT, (MPI_Op)MPI_COMM_WORLD, comm);
#endif
  BCAST("not a type", a, 4, (MPI_Datatype)MPI_COMM_WORLD, 0, comm);
#endif
  ALLREDUCE("bits of floats", a, b, 4, MPI_FLOAT, MPI_BAND, comm);
#ifndef OPEN_MPI  // which sums them
  ALLREDUCE("sum of bytes", a, b, 4, MPI_BYTE, MPI_SUM, comm);
#endif
  ALLREDUCE("order of complex", a, b, 1, MPI_C_FLOAT_COMPLEX, MPI_MAX, comm);
  ALLREDUCE("location of ints", a, b, 1, MPI_INT, MPI_MAXLOC, comm);
  // What all ranks are told of: a mistake of the root's alone leaves the others' messages behind. (MPICH 4.0
  // dies of a negative count.)
  REDUCE("negative root", a, b, 4, MPI_INT, MPI_SUM, -5, comm);
  REDUCE("root too large", a, b, 4, MPI_INT, MPI_SUM, job::size_of(comm), comm);
  REDUCE("null op", a, b, 4, MPI_INT, MPI_OP_NULL, 0, comm);
  REDUCE("bits of floats", a, b, 4, MPI_FLOAT, MPI_BAND, 0, comm);
  REDUCE("location of ints", a, b, 1, MPI_INT, MPI_MAXLOC, 0, comm);
  if (!speechless) REDUCE("null type", a, b, 4, MPI_DATATYPE_NULL, MPI_SUM, 0, comm);
#ifndef OPEN_MPI  // which looks for neither
  ALLGATHER("sent from its place", b + job::rank_of(comm), 1, MPI_INT, b, 1, MPI_INT, comm);
  ALLGATHER("no send buffer", nullptr, 1, MPI_INT, b, 1, MPI_INT, comm);
  ALLGATHER("no receive buffer", a, 1, MPI_INT, nullptr, 1, MPI_INT, comm);
#endif
  ALLGATHER("receive buffer in place", a, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, comm);
  ALLGATHER("negative count", a, 1, MPI_INT, b, -1, MPI_INT, comm);
  ALLGATHER("null type", a, 1, MPI_INT, b, 1, MPI_DATATYPE_NULL, comm);
  BCAST("negative count", a, -1, MPI_INT, 0, comm);
  BCAST("negative root", a, 4, MPI_INT, -1, comm);
  BCAST("root too large", a, 4, MPI_INT, job::size_of(comm), comm);
#ifndef OPEN_MPI
  BCAST("no buffer", nullptr, 4, MPI_INT, 0, comm);
#endif
  BCAST("null type", a, 4, MPI_DATATYPE_NULL, 0, comm);
  MPI_Datatype uncommitted;
  MPI_Type_vector(2, 1, 2, MPI_INT, &uncommitted);
  BCAST("uncommitted type", a, 1, uncommitted, 0, comm);
  ALLREDUCE("uncommitted type", a, b, 1, uncommitted, MPI_SUM, comm);
  ALLGATHER("uncommitted type", a, 1, uncommitted, b, 2, MPI_INT, comm);
  MPI_Type_commit(&uncommitted);
#ifndef OPEN_MPI
  BCAST("no buffer, derived type", nullptr, 1, uncommitted, 0, comm);
#endif
  ALLREDUCE("predefined op on a derived type", a, b, 1, uncommitted, MPI_SUM, comm);
  MPI_Type_free(&uncommitted);

  // Some hosts have these, some do not.
  compare(
      "logic of Fortran's integers", [&] { return MPI_Allreduce(a, b, 1, MPI_INTEGER, MPI_LAND, comm); },
      [&] { return PMPI_Allreduce(a, b, 1, MPI_INTEGER, MPI_LAND, comm); }, Case::may_be_right);
  // Nothing to do is no mistake.
  compare(
      "no elements", [&] { return MPI_Allreduce(nullptr, nullptr, 0, MPI_INT, MPI_SUM, comm); },
      [&] { return PMPI_Allreduce(nullptr, nullptr, 0, MPI_INT, MPI_SUM, comm); }, Case::may_be_right);
  compare(
      "no elements", [&] { return MPI_Bcast(nullptr, 0, MPI_INT, 0, comm); },
      [&] { return PMPI_Bcast(nullptr, 0, MPI_INT, 0, comm); }, Case::may_be_right);
  compare(
      "no elements", [&] { return MPI_Allgather(nullptr, 0, MPI_INT, nullptr, 0, MPI_INT, comm); },
      [&] { return PMPI_Allgather(nullptr, 0, MPI_INT, nullptr, 0, MPI_INT, comm); }, Case::may_be_right);
  // And after all that the communicator still works.
  int sum = 0;
  if (MPI_Allreduce(&a[0], &sum, 1, MPI_INT, MPI_SUM, comm) != MPI_SUCCESS || sum != job::size_of(comm))
    job::fail("after mistakes");
  sum = -1;
  const int last = job::size_of(comm) - 1;
  if (MPI_Reduce(&a[0], &sum, 1, MPI_INT, MPI_SUM, last, comm) != MPI_SUCCESS ||
      sum != (job::rank_of(comm) == last ? job::size_of(comm) : -1))
    job::fail("a reduce after mistakes");
  std::vector<int> all(static_cast<std::size_t>(last) + 1, -1);
  if (MPI_Allgather(&last, 1, MPI_INT, all.data(), 1, MPI_INT, comm) != MPI_SUCCESS || all.front() != last ||
      all.back() != last)
    job::fail("an allgather after mistakes");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Errhandler mine;
  MPI_Comm_create_errhandler(handler, &mine);
  // Wrong communicators are reported on these two.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, mine);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, mine);
  int a = 1;
  int b = 0;
  ALLREDUCE("null communicator", &a, &b, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL);
  BCAST("null communicator", &a, 1, MPI_INT, 0, MPI_COMM_NULL);
#ifndef OPEN_MPI  // which dies of it
  ALLGATHER("null communicator", &a, 1, MPI_INT, &b, 1, MPI_INT, MPI_COMM_NULL);
#endif
  REDUCE("null communicator", &a, &b, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_NULL);
#ifndef OPEN_MPI
  compare(
      "not a communicator", [&] { return MPI_Allreduce(&a, &b, 1, MPI_INT, MPI_SUM, (MPI_Comm)MPI_INT); },
      [&] { return PMPI_Allreduce(&a, &b, 1, MPI_INT, MPI_SUM, (MPI_Comm)MPI_INT); },
      Case::wrong_communicator);
#endif
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, mine);
  check(comm);  // mistakes are the first calls that the communicator sees
  job::warm_up(comm);
  overlap(comm);
  check(comm);
#ifdef OPEN_MPI
  MPI_Comm_free(&comm);
#else
  const MPI_Comm stale = comm;
  MPI_Comm_free(&comm);
  compare(
      "freed communicator", [&] { return MPI_Allreduce(&a, &b, 1, MPI_INT, MPI_SUM, stale); },
      [&] { return PMPI_Allreduce(&a, &b, 1, MPI_INT, MPI_SUM, stale); }, Case::wrong_communicator);
  compare(
      "freed communicator", [&] { return MPI_Bcast(&a, 1, MPI_INT, 0, stale); },
      [&] { return PMPI_Bcast(&a, 1, MPI_INT, 0, stale); }, Case::wrong_communicator);
#endif
  MPI_Errhandler_free(&mine);
  MPI_Finalize();
  return 0;
}
