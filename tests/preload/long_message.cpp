// A bcast by one message of more bytes than an int counts, which the host lends. It takes 2 GiB on each rank;
// where there is not as much it says so.
#include <climits>
#include <fstream>

#include "job.hpp"

namespace {

bool has_room(std::size_t bytes) {
  std::ifstream memory("/proc/meminfo");
  for (std::string name, rest; memory >> name && std::getline(memory, rest);) {
    if (name == "MemAvailable:") return std::strtoull(rest.c_str(), nullptr, 10) * 1024 > bytes;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int rank = job::rank_of(MPI_COMM_WORLD);
  constexpr std::size_t kWords = (std::size_t{INT_MAX} + 5000) / sizeof(std::uint64_t);
  int room = has_room(3 * kWords * sizeof(std::uint64_t)) ? 1 : 0;
  PMPI_Allreduce(MPI_IN_PLACE, &room, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (room == 0) {
    if (rank == 0) std::puts("no room for it");
    MPI_Finalize();
    return 0;
  }
  job::warm_up(MPI_COMM_WORLD);
  std::vector<std::uint64_t> words(kWords);
  for (std::size_t i = 0; i < kWords && rank == 0; i += 500)
    words[i] = i;
  words.back() = rank == 0 ? 77 : 0;
  MPI_Bcast(words.data(), static_cast<int>(kWords), MPI_UINT64_T, 0, MPI_COMM_WORLD);
  for (std::size_t i = 0; i + 1 < kWords; i += 500) {
    if (words[i] != i) job::fail("word %zu is %zu", i, static_cast<std::size_t>(words[i]));
  }
  if (words.back() != 77) job::fail("the last word");
  MPI_Finalize();
  return 0;
}
