// One communicator after the other is left to the host. Because a rank has no descriptors left: that is said
// of the first few, not tried with each of them, and over when it has some again. Or, with the argument
// "network", because nothing arrives by the network that heddle has, which only the first of them waits for.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <string>
#include <vector>

#include "job.hpp"

namespace {

constexpr int kCommunicators = 12;

// What this process writes to its standard error from begin() to end().
class Said {
 public:
  void begin() {
    std::fflush(stderr);
    before_ = dup(2);
    file_ = memfd_create("said", 0);
    if (before_ < 0 || file_ < 0 || dup2(file_, 2) < 0) job::fail("no file for what is said");
  }
  std::string end() const {
    std::fflush(stderr);
    dup2(before_, 2);
    std::string text(static_cast<std::size_t>(lseek(file_, 0, SEEK_END)), '\0');
    if (pread(file_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) job::fail("pread");
    close(file_);
    close(before_);
    return text;
  }

 private:
  int before_ = -1;
  int file_ = -1;
};

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

std::vector<int> all_descriptors() {
  std::vector<int> all;
  for (int one = 0; one >= 0;) {
    one = open("/dev/null", O_RDONLY);
    if (one >= 0) all.push_back(one);
  }
  return all;
}

void check(const std::string& text, bool by_network) {
  const int refusals = count(text, "left to the host MPI");
  if (!by_network && (refusals < 2 || refusals > 3 || count(text, "may still be: not tried") != 1 ||
                      count(text, "HEDDLE_LOG=info says") != (refusals == 3 ? 1 : 0)))
    job::fail("said %d times: %s", refusals, text.c_str());
  // It is known from the second one on, and said once.
  if (by_network && (refusals != 2 || count(text, "these ranks do not try tcp again") != 1 ||
                     count(text, "tcp: has not connected ranks of this job before") != 1))
    job::fail("said %d times: %s", refusals, text.c_str());
}

// Whether heddle serves it.
bool use_one() {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  job::make_worthwhile(comm);
  int sum = 0;
  for (int call = 0; call < 4; ++call) {
    const int one = 1;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
  }
  if (sum != job::size_of(comm)) job::fail("sum is %d", sum);
  const bool served = job::served_by(0, 4, comm) != "host";
  MPI_Comm_free(&comm);
  return served;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const bool by_network = argc > 1 && std::strcmp(argv[1], "network") == 0;
  if (!by_network) job::warm_up(MPI_COMM_WORLD);
  const int rank = job::rank_of(MPI_COMM_WORLD);
  std::vector<int> all;
  if (rank == 1 && !by_network) all = all_descriptors();
  Said said;
  if (rank == 0) said.begin();
  for (int i = 0; i < kCommunicators; ++i) {
    if (use_one()) job::fail("communicator %d is not left to the host", i);
  }
  if (rank == 0) check(said.end(), by_network);
  for (const int one : all)
    close(one);
  bool served = by_network;
  for (int i = 0; i < 40 && !served; ++i)
    served = use_one();
  if (!served) job::fail("left to the host although there is what was short");
  MPI_Finalize();
  return 0;
}
