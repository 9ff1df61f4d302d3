#include "common/host_mpi.hpp"
#include "common/side.hpp"

namespace heddle::bench {
namespace host {

bool built_in() {
  return false;
}

std::string library() {
  return "no MPI";
}

bool start(int*, char***, bool native, bool, std::string& problem) {
  problem = native ? "built without MPI: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT on each rank"
                   : "built without MPI: only heddle's own API can be measured; give --native";
  problem += ", or build heddle with -Dmpich=enabled";
  return false;
}

// Not reached, since there is no start.
void finish() {}
int rank() {
  return 0;
}
int size() {
  return 1;
}
int rank_on_machine() {
  return 0;
}
void reduce(std::span<double>, bool) {}
void barrier() {}
heddle_status make_comm(heddle_comm_t*) {
  return HEDDLE_ERR_UNSUPPORTED;
}
void abort() {}

}  // namespace host

std::unique_ptr<Side> make_mpi_side(Dtype) {
  return nullptr;
}
std::unique_ptr<Side> make_host_side(Dtype) {
  return nullptr;
}
bool host_takes_gpu_memory() {
  return false;
}
const char* preload_version() {
  return nullptr;
}

}  // namespace heddle::bench
