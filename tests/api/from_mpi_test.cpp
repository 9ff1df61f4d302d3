// heddle_mpi.h: communicators from MPI's, in an MPI program. Exits with the number of failures on any rank.
#include <heddle/heddle_mpi.h>
#include <mpi.h>

#include <cstdio>
#include <string>
#include <vector>

namespace {

int failures = 0;

void expect(bool good, const char* what) {
  if (good) return;
  ++failures;
  std::fprintf(stderr, "from_mpi_test: %s (last error: %s)\n", what, heddle_last_error());
}

void sums_are_right(MPI_Comm mpi) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(mpi, &rank);
  MPI_Comm_size(mpi, &size);
  heddle_comm_t comm = nullptr;
  expect(heddle_comm_create_mpi(mpi, &comm) == HEDDLE_OK, "create");
  int our_rank = -1;
  expect(heddle_comm_rank(comm, &our_rank) == HEDDLE_OK && our_rank == rank, "rank");
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{300'000}}) {
    std::vector<double> data(count, rank + 1.0);
    expect(
        heddle_allreduce(HEDDLE_IN_PLACE, data.data(), count, HEDDLE_FLOAT64, HEDDLE_SUM, comm) == HEDDLE_OK,
        "allreduce");
    expect(data == std::vector<double>(count, size * (size + 1) / 2.0), "sum");
  }
  expect(heddle_comm_destroy(comm) == HEDDLE_OK, "destroy");
}

// More communicators than MPI has context ids: each must give its duplicate back.
void nothing_leaks() {
  for (int i = 0; i < 3000 && failures == 0; ++i) {
    heddle_comm_t comm = nullptr;
    expect(heddle_comm_create_mpi(MPI_COMM_SELF, &comm) == HEDDLE_OK, "create once more");
    expect(heddle_comm_destroy(comm) == HEDDLE_OK, "destroy once more");
  }
}

void intercommunicators_are_refused(int rank, int size) {
  if (size < 2) return;
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm inter = MPI_COMM_NULL;
  const int side = rank == 0 ? 0 : 1;
  MPI_Comm_split(MPI_COMM_WORLD, side, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, side == 0 ? 1 : 0, 7, &inter);
  heddle_comm_t comm = nullptr;
  expect(heddle_comm_create_mpi(inter, &comm) == HEDDLE_ERR_ARGUMENT && comm == nullptr, "intercommunicator");
  expect(std::string(heddle_last_error()).find("MPI_Intercomm_merge") != std::string::npos,
         "says what to do");
  MPI_Comm_free(&inter);
  sums_are_right(half);
  MPI_Comm_free(&half);
}

// The lent messages as the transport would use them, also longer than an int counts in pieces.
void messages_arrive(int rank, int size) {
  if (size < 2) return;
  heddle_mpi_lender lender{MPI_COMM_WORLD};
  alignas(16) unsigned char request[HEDDLE_P2P_REQUEST_BYTES];
  int value = rank == 0 ? 42 : 0;
  if (rank < 2) {
    int error = rank == 0 ? heddle_mpi_send(&value, sizeof(value), 1, 5, request, &lender)
                          : heddle_mpi_recv(&value, sizeof(value), 0, 5, request, &lender);
    expect(error == MPI_SUCCESS, "open a message");
    for (int done = 0; done == 0 && failures == 0;) {
      heddle_mpi_progress(&lender);
      expect(heddle_mpi_test(request, &done, &lender) == MPI_SUCCESS, "test a message");
    }
    expect(value == 42, "the message");
    int nothing = 0;
    expect(heddle_mpi_recv(&nothing, sizeof(nothing), 1 - rank, 6, request, &lender) == MPI_SUCCESS,
           "open another");
    expect(heddle_mpi_cancel(request, &lender) == MPI_SUCCESS, "cancel it");
  }
  MPI_Datatype type = MPI_DATATYPE_NULL;
  const std::size_t bytes = (std::size_t{5} << 30) + 12345;
  expect(heddle_mpi_long_type(bytes, &type) == MPI_SUCCESS, "a long type");
  MPI_Count length = 0;
  MPI_Type_size_x(type, &length);
  expect(static_cast<std::size_t>(length) == bytes, "its length");
  MPI_Type_free(&type);
}

}  // namespace

int main(int argc, char** argv) {
  heddle_comm_t comm = nullptr;
  expect(heddle_comm_create_mpi(MPI_COMM_WORLD, &comm) == HEDDLE_ERR_ARGUMENT, "before MPI_Init");
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  expect(heddle_comm_create_mpi(MPI_COMM_NULL, &comm) == HEDDLE_ERR_ARGUMENT, "MPI_COMM_NULL");
  expect(heddle_comm_create_mpi(MPI_COMM_WORLD, nullptr) == HEDDLE_ERR_ARGUMENT, "no place for the result");
  sums_are_right(MPI_COMM_WORLD);
  intercommunicators_are_refused(rank, size);
  messages_arrive(rank, size);
  nothing_leaks();
  int total = 0;
  MPI_Allreduce(&failures, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return total == 0 ? 0 : 1;
}
