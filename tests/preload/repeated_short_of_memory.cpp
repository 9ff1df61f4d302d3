// HEDDLE_CHECK=2 where rank 1 runs out of memory, at each allocation of a call in turn: nobody waits for it
// in the host's calls, and what is given without an error is right. Ends by the job's timeout otherwise.
#include <algorithm>
#include <vector>

#include "job.hpp"
#include "support/failing_allocations.hpp"

namespace {

constexpr int kCount = 1000;

// One of each, and what it gives where there is no error. The vectors are made before.
class Calls {
 public:
  enum Kind { sum, sum_in_place, bcast };

  int make(Kind kind, MPI_Comm comm) {
    const int rank = job::rank_of(comm);
    const auto size = static_cast<float>(job::size_of(comm));
    std::fill(in_.begin(), in_.end(), kind == bcast ? static_cast<float>(rank) + 5 : 0.5F);
    std::copy(in_.begin(), in_.end(), out_.begin());
    if (rank == 1) heddle::test::allocations_left = allocations_;
    const int rc = kind == bcast ? MPI_Bcast(out_.data(), kCount, MPI_FLOAT, 0, comm)
                                 : MPI_Allreduce(kind == sum ? in_.data() : MPI_IN_PLACE, out_.data(), kCount,
                                                 MPI_FLOAT, MPI_SUM, comm);
    ran_out_ = rank == 1 && heddle::test::allocations_left < 0 ? 1 : 0;
    heddle::test::allocations_left = -1;
    const float right = kind == bcast ? 5 : 0.5F * size;
    if (rc == MPI_SUCCESS && std::count(out_.begin(), out_.end(), right) != kCount)
      job::fail("other values, and no error");
    return rc;
  }

  // With a communicator of its own for each allocation, which may fail for good.
  void run_out(const char* what, Kind kind) {
    int failed = 0;
    ran_out_ = 1;
    for (allocations_ = 0; ran_out_ != 0; ++allocations_) {
      MPI_Comm comm;
      MPI_Comm_dup(MPI_COMM_WORLD, &comm);
      MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
      job::warm_up(comm);
      if (make(kind, comm) != MPI_SUCCESS) ++failed;
      PMPI_Bcast(&ran_out_, 1, MPI_INT, 1, comm);
      MPI_Comm_free(&comm);
    }
    if (failed == 0) job::fail("%s: no call failed", what);
    std::printf("%s: %d calls failed\n", what, failed);
  }

 private:
  std::vector<float> in_ = std::vector<float>(kCount);
  std::vector<float> out_ = std::vector<float>(kCount);
  long allocations_ = 0;  // that do not fail
  int ran_out_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Calls calls;
  calls.run_out("sum", Calls::sum);
  calls.run_out("sum in place", Calls::sum_in_place);
  calls.run_out("bcast", Calls::bcast);
  MPI_Finalize();
  return 0;
}
