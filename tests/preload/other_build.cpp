// A rank that runs another build of heddle, with a protocol of its own: what builds say to each other first
// never changes, so that they can refuse each other. That rank is played by the last one, which runs without
// the library. Argument: the protocol that it says it has.
#include "job.hpp"

namespace {

constexpr std::size_t kRecord = 1024;
constexpr int kTakeoverCall = 3;

struct Head {
  std::uint64_t arrived = 0x6865646c646c6533;
  std::uint64_t protocol = 0;
};

void meet_as(std::uint64_t protocol) {
  const auto size = static_cast<std::size_t>(job::size_of(MPI_COMM_WORLD));
  Head head;
  head.protocol = protocol;
  std::vector<char> out(kRecord, 'x');
  std::memcpy(out.data(), &head, sizeof head);
  std::vector<char> in(kRecord * size);
  const std::vector<int> counts(size, kRecord);
  const std::vector<int> zeros(size, 0);
  std::vector<int> places(size);
  for (std::size_t i = 0; i < size; ++i)
    places[i] = static_cast<int>(i * kRecord);
  MPI_Request request;
  PMPI_Ialltoallv(out.data(), counts.data(), zeros.data(), MPI_BYTE, in.data(), counts.data(), places.data(),
                  MPI_BYTE, MPI_COMM_WORLD, &request);
  PMPI_Wait(&request, MPI_STATUS_IGNORE);
  Head theirs;
  std::memcpy(&theirs, in.data(), sizeof theirs);
  if (theirs.arrived != head.arrived)
    job::fail("rank 0 begins its record with %llx", static_cast<unsigned long long>(theirs.arrived));
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int size = job::size_of(MPI_COMM_WORLD);
  const bool plays = job::rank_of(MPI_COMM_WORLD) == size - 1;
  if (plays != (job::served_by(0, 4, MPI_COMM_WORLD) == "absent")) job::fail("wrong ranks have the library");
  for (int call = 1; call <= 10; ++call) {
    if (plays && call == kTakeoverCall) meet_as(std::strtoull(argc > 1 ? argv[1] : "0", nullptr, 10));
    const int one = 1;
    int sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (sum != size) job::fail("call %d: %d of %d", call, sum, size);
  }
  if (!plays && job::served_by(0, 4, MPI_COMM_WORLD) != "host") job::fail("not left to the host");
  MPI_Finalize();
  return 0;
}
