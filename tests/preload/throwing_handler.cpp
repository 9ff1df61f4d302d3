// Error handlers that throw: what they throw passes through MPI's functions, be the error the host's to find
// or heddle's to leave to it.
#include "job.hpp"

namespace {

struct Thrown {
  int code;
};

void handler(MPI_Comm*, int* code, ...) {
  throw Thrown{*code};
}

template <typename Call>
void catches(const char* what, const Call& call) {
  try {
    call();
  } catch (const Thrown& thrown) {
    if (thrown.code != MPI_SUCCESS) return;
  }
  job::fail("%s: nothing came", what);
}

}  // namespace

int main(int argc, char** argv) {
  int a[2] = {1, 1};
  int b[2] = {};
  MPI_Init(&argc, &argv);
  MPI_Errhandler mine;
  MPI_Comm_create_errhandler(handler, &mine);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, mine);
  for (int round = 0; round < 2; ++round) {  // the first time they are the very first calls
    catches("bcast", [&] { MPI_Bcast(a, -1, MPI_INT, 0, MPI_COMM_WORLD); });
    catches("allreduce", [&] { MPI_Allreduce(a, b, 2, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD); });
    catches("aliased buffers", [&] { MPI_Allreduce(a, a, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD); });
    if (job::rank_of(MPI_COMM_WORLD) == 0) {
      catches("free", [] {
        MPI_Comm copy = MPI_COMM_WORLD;
        MPI_Comm_free(&copy);
      });
    }
    job::warm_up(MPI_COMM_WORLD);
  }
  MPI_Errhandler_free(&mine);
  MPI_Finalize();
  return 0;
}
