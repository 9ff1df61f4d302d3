// One rank of many: a communicator and 100 allreduces, then what this process holds for it (footprint.py).
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "heddle/heddle.h"

namespace {

long open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

// "VmRSS:" of "status" and the like, in KiB.
long figure(const char* file, const std::string& name) {
  std::ifstream in(std::string("/proc/self/") + file);
  std::string word;
  long value = 0;
  while (in >> word) {
    if (word == name) in >> value;
  }
  return value;
}

int failed(const char* what) {
  std::printf("%s: %s\n", what, heddle_last_error());
  return 1;
}

}  // namespace

int main() {
  const long descriptors = open_descriptors();
  const long resident = figure("status", "VmRSS:");
  heddle_comm_t comm = nullptr;
  if (heddle_comm_create_env(&comm) != HEDDLE_OK) return failed("create");
  int size = 0;
  if (heddle_comm_size(comm, &size) != HEDDLE_OK) return failed("size");
  for (int call = 0; call < 100; ++call) {
    std::vector<float> values(call % 2 == 0 ? 1024 : 1, 1.0F);
    if (heddle_allreduce(HEDDLE_IN_PLACE, values.data(), values.size(), HEDDLE_FLOAT32, HEDDLE_SUM, comm) !=
        HEDDLE_OK)
      return failed("allreduce");
    if (values.back() != static_cast<float>(size)) return failed("a wrong sum");
  }
  std::printf("HELD %ld %ld %ld %ld\n", open_descriptors() - descriptors, figure("status", "VmRSS:"),
              resident, figure("smaps_rollup", "Pss:"));
  std::fflush(stdout);
  // Nobody leaves while others are still looking.
  if (heddle_barrier(comm) != HEDDLE_OK) return failed("barrier");
  return heddle_comm_destroy(comm) == HEDDLE_OK ? 0 : failed("destroy");
}
