// Ranks that an MPI launcher started. Messages between nodes may be MPI's.
#include <cstdlib>
#include <memory>

#include "heddle/heddle_mpi.h"
#include "heddle_tune/launch.hpp"
#include "leave_mpi.hpp"

namespace heddle::tune {
namespace {

// On a communicator of its own, which goes with the messages.
Result<heddle_p2p> lend() {
  auto* lender = static_cast<heddle_mpi_lender*>(std::malloc(sizeof(heddle_mpi_lender)));
  if (lender == nullptr) return Status(Code::out_of_memory, "out of memory");
  if (MPI_Comm_dup(MPI_COMM_WORLD, &lender->comm) != MPI_SUCCESS) {
    std::free(lender);
    return Status(Code::peer_failed, "MPI_Comm_dup failed");
  }
  MPI_Comm_set_errhandler(lender->comm, MPI_ERRORS_RETURN);
  return heddle_p2p{heddle_mpi_send,     heddle_mpi_recv,    heddle_mpi_test, heddle_mpi_cancel,
                    heddle_mpi_progress, heddle_mpi_release, lender};
}

class MpiLaunch final : public Launch {
 public:
  MpiLaunch() {
    MPI_Comm_dup(MPI_COMM_WORLD, &world_.comm);
    MPI_Comm_rank(world_.comm, &bootstrap_.rank);
    MPI_Comm_size(world_.comm, &bootstrap_.size);
    bootstrap_.allgather = [this](const void* mine, void* all, std::size_t bytes) {
      return heddle_mpi_allgather(mine, all, bytes, &world_) == MPI_SUCCESS
                 ? Status()
                 : Status(Code::peer_failed, "MPI_Allgather failed");
    };
    bootstrap_.make_p2p = lend;
    bootstrap_.host_progress = [this] { heddle_mpi_progress(&world_); };
  }
  MpiLaunch(const MpiLaunch&) = delete;
  MpiLaunch& operator=(const MpiLaunch&) = delete;
  ~MpiLaunch() override {
    tools::meet_before_finalize(world_.comm);
    MPI_Comm_free(&world_.comm);
    MPI_Finalize();
  }

  [[noreturn]] void abort() override { tools::abort_mpi(); }

 private:
  heddle_mpi_lender world_{};
};

}  // namespace

Result<std::unique_ptr<Launch>> start_mpi() {
  if (MPI_Init(nullptr, nullptr) != MPI_SUCCESS) return Status(Code::peer_failed, "MPI_Init failed");
  return std::unique_ptr<Launch>(std::make_unique<MpiLaunch>());
}

}  // namespace heddle::tune
