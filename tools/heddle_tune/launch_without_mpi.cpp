#include "heddle_tune/launch.hpp"

namespace heddle::tune {

Result<std::unique_ptr<Launch>> start_mpi() {
  return Status(
      Code::unsupported,
      "an MPI launcher started this, but it was built without MPI; set RANK, WORLD_SIZE, MASTER_ADDR "
      "and MASTER_PORT on each rank and use another launcher, or build with -Dmpich=enabled");
}

}  // namespace heddle::tune
