// MPI_Barrier: nobody leaves one that somebody has not entered, on every kind of communicator, between sums
// and bcasts of any root, and before heddle takes a communicator over; calls for which there is no
// communicator are the host's. A communicator that has nothing but barriers is taken over when there were
// many.
#include <sys/mman.h>
#include <time.h>

#include <atomic>

#include "job.hpp"

namespace {

// How far each rank has come, for all ranks of the machine to see.
class Marks {
 public:
  // `path`: the same on all ranks.
  Marks(const std::string& path, int ranks) {
    std::FILE* const file = std::fopen(path.c_str(), "a+");
    const std::size_t bytes = static_cast<std::size_t>(ranks) * sizeof(Mark);
    if (file == nullptr || ::ftruncate(::fileno(file), static_cast<off_t>(bytes)) != 0)
      job::fail("cannot make %s", path.c_str());
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ::fileno(file), 0);
    if (at == MAP_FAILED) job::fail("cannot map %s", path.c_str());
    std::fclose(file);
    marks_ = static_cast<Mark*>(at);
  }
  void set(int rank, std::uint64_t round) { marks_[rank].store(round, std::memory_order_relaxed); }
  std::uint64_t get(int rank) const { return marks_[rank].load(std::memory_order_relaxed); }

 private:
  using Mark = std::atomic<std::uint64_t>;
  Mark* marks_ = nullptr;
};

// The ranks of `comm` in MPI_COMM_WORLD.
std::vector<int> members_of(MPI_Comm comm) {
  const int mine = job::rank_of(MPI_COMM_WORLD);
  std::vector<int> ranks(static_cast<std::size_t>(job::size_of(comm)));
  PMPI_Allgather(&mine, 1, MPI_INT, ranks.data(), 1, MPI_INT, comm);
  return ranks;
}

void wait_a_while(job::Random& random) {
  if (random.below(3) != 0) return;
  const timespec while_ = {0, static_cast<long>(random.below(300'000))};
  ::nanosleep(&while_, nullptr);
}

void check(Marks& marks, std::uint64_t& round, const job::Named& named, bool mixed) {
  const std::vector<int> members = members_of(named.comm);
  const int world_rank = job::rank_of(MPI_COMM_WORLD);
  const int size = job::size_of(named.comm);
  job::Random own(static_cast<std::uint64_t>(world_rank) + 77);
  for (int i = 0; i < 60; ++i) {
    wait_a_while(own);
    marks.set(world_rank, ++round);
    if (MPI_Barrier(named.comm) != MPI_SUCCESS) job::fail("a barrier of %s", named.name);
    for (const int other : members) {
      if (marks.get(other) < round)
        job::fail("left barrier %d of %s before rank %d entered it", i, named.name, other);
    }
    if (!mixed || i % 3 == 0) continue;
    int x = job::rank_of(named.comm);
    if (i % 3 == 1)
      MPI_Bcast(&x, 1, MPI_INT, i % size, named.comm);
    else
      MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_INT, MPI_SUM, named.comm);
    if (x != (i % 3 == 1 ? i % size : size * (size - 1) / 2))
      job::fail("%d after barrier %d of %s", x, i, named.name);
  }
}

void intercommunicator(Marks& marks, std::uint64_t& round) {
  const int rank = job::rank_of(MPI_COMM_WORLD);
  const int size = job::size_of(MPI_COMM_WORLD);
  if (size < 2) return;
  MPI_Comm half;
  MPI_Comm inter = job::between_halves(&half);
  for (int i = 0; i < 5; ++i) {
    marks.set(rank, ++round);
    MPI_Barrier(inter);
    for (int other = 1 - rank % 2; other < size; other += 2) {
      if (marks.get(other) < round) job::fail("left a barrier of an intercommunicator");
    }
    PMPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
}

// The world's error handler hears of it.
void no_communicator() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  int error_class = MPI_SUCCESS;
  MPI_Error_class(MPI_Barrier(MPI_COMM_NULL), &error_class);
  if (error_class != MPI_ERR_COMM) job::fail("a barrier of nobody: error class %d", error_class);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

void nothing_else() {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (int i = 0; i < 100; ++i)
    MPI_Barrier(comm);
  if (job::served_by(2, 0, comm) != "host") job::fail("taken over for some barriers");
  for (int i = 0; i < 500; ++i)
    MPI_Barrier(comm);
  if (job::size_of(comm) > 1 && job::served_by(2, 0, comm) == "host")
    job::fail("not taken over for many barriers");
  MPI_Comm_free(&comm);
}

}  // namespace

// barriers PATH-OF-A-FILE
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc < 2) job::fail("a file's path is missing");
  int pid = ::getpid();
  PMPI_Bcast(&pid, 1, MPI_INT, 0, MPI_COMM_WORLD);
  const std::string path = argv[1] + std::string(".") + std::to_string(pid);
  Marks marks(path, job::size_of(MPI_COMM_WORLD));
  PMPI_Barrier(MPI_COMM_WORLD);
  std::remove(path.c_str());
  PMPI_Barrier(MPI_COMM_WORLD);

  std::uint64_t round = 0;
  nothing_else();
  no_communicator();
  std::vector<job::Named> all = job::make_communicators();
  for (const bool warm : {false, true}) {
    for (const job::Named& named : all) {
      if (warm) job::warm_up(named.comm);
      if (warm && job::size_of(named.comm) > 1 && job::served_by(2, 0, named.comm) == "host")
        job::fail("barriers of %s are left to the host", named.name);
      for (const bool mixed : {false, true}) {
        // Ranks that are not of this communicator count on.
        PMPI_Allreduce(MPI_IN_PLACE, &round, 1, MPI_UINT64_T, MPI_MAX, named.comm);
        check(marks, round, named, mixed);
      }
    }
    PMPI_Allreduce(MPI_IN_PLACE, &round, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    intercommunicator(marks, round);
  }
  job::free_communicators(all);
  MPI_Finalize();
  return 0;
}
