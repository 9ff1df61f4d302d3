// A rank that has no descriptors left, so that one communicator after the other is left to the host: said of
// the first few, and then that it is said no more.
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

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  job::warm_up(MPI_COMM_WORLD);
  const int rank = job::rank_of(MPI_COMM_WORLD);
  std::vector<int> all;
  for (int one = 0; rank == 1 && one >= 0;) {
    one = open("/dev/null", O_RDONLY);
    if (one >= 0) all.push_back(one);
  }
  Said said;
  if (rank == 0) said.begin();
  for (int i = 0; i < kCommunicators; ++i) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    job::make_worthwhile(comm);
    int sum = 0;
    for (int call = 0; call < 4; ++call) {
      const int one = 1;
      MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    }
    if (sum != job::size_of(comm)) job::fail("sum is %d", sum);
    if (job::served_by(0, 4, comm) != "host") job::fail("communicator %d is not left to the host", i);
    MPI_Comm_free(&comm);
  }
  if (rank == 0) {
    const std::string text = said.end();
    const int warnings = count(text, "left to the host MPI");
    if (warnings < 1 || warnings > 3 || count(text, "HEDDLE_LOG=info says") != 1)
      job::fail("said %d times: %s", warnings, text.c_str());
  }
  for (const int one : all)
    close(one);
  MPI_Finalize();
  return 0;
}
