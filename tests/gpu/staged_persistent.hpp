// The calls of staged_calls.hpp as persistent requests: collectives are started twice, so that what they
// leave in place counts. They are waited for one by one: MPICH 5.0.2 fails by itself where a persistent
// collective is among several requests. With MPICH 4.0.2's they take a derived datatype's memory away, and
// MPI-3 has messages of this kind alone: for those there are staged_persistent_cases.cpp.
#pragma once

#include "staged_requests.hpp"

namespace gpu_job {

#if MPI_VERSION >= 4 && !(defined(MPICH_NUMVERSION) && MPICH_NUMVERSION < 40100000)
#define HEDDLE_TEST_PERSISTENT
class PersistentCalls : public Requests {
 public:
  using Count = int;
  using Place = int;
  static const PersistentCalls kMpi;
  static const PersistentCalls kPmpi;
  static constexpr bool kHasArrays = true;
  static constexpr bool kHasRequests = true;

#define HEDDLE_TEST_INIT(name) (mpi ? MPI_##name##_init : PMPI_##name##_init)
#define HEDDLE_TEST_COLLECTIVE_INIT(name)                                         \
  template <typename... A>                                                        \
  int name(A... arguments) const {                                                \
    MPI_Request request;                                                          \
    const int rc = HEDDLE_TEST_INIT(name)(arguments..., MPI_INFO_NULL, &request); \
    return rc == MPI_SUCCESS ? run_started(&request, MPI_STATUS_IGNORE, 2) : rc;  \
  }
#define HEDDLE_TEST_SEND_INIT(name)                                              \
  template <typename... A>                                                       \
  int name(A... arguments) const {                                               \
    MPI_Request request;                                                         \
    const int rc = HEDDLE_TEST_INIT(name)(arguments..., &request);               \
    return rc == MPI_SUCCESS ? run_started(&request, MPI_STATUS_IGNORE, 1) : rc; \
  }
  HEDDLE_TEST_COLLECTIVE_INIT(Reduce)
  HEDDLE_TEST_COLLECTIVE_INIT(Scan)
  HEDDLE_TEST_COLLECTIVE_INIT(Exscan)
  HEDDLE_TEST_COLLECTIVE_INIT(Reduce_scatter_block)
  HEDDLE_TEST_COLLECTIVE_INIT(Reduce_scatter)
  HEDDLE_TEST_COLLECTIVE_INIT(Gather)
  HEDDLE_TEST_COLLECTIVE_INIT(Gatherv)
  HEDDLE_TEST_COLLECTIVE_INIT(Scatter)
  HEDDLE_TEST_COLLECTIVE_INIT(Scatterv)
  HEDDLE_TEST_COLLECTIVE_INIT(Allgather)
  HEDDLE_TEST_COLLECTIVE_INIT(Allgatherv)
  HEDDLE_TEST_COLLECTIVE_INIT(Alltoall)
  HEDDLE_TEST_COLLECTIVE_INIT(Alltoallv)
  HEDDLE_TEST_COLLECTIVE_INIT(Alltoallw)
  HEDDLE_TEST_COLLECTIVE_INIT(Allreduce)
  HEDDLE_TEST_COLLECTIVE_INIT(Bcast)
  HEDDLE_TEST_COLLECTIVE_INIT(Neighbor_allgather)
  HEDDLE_TEST_COLLECTIVE_INIT(Neighbor_allgatherv)
  HEDDLE_TEST_COLLECTIVE_INIT(Neighbor_alltoall)
  HEDDLE_TEST_COLLECTIVE_INIT(Neighbor_alltoallv)
  HEDDLE_TEST_COLLECTIVE_INIT(Neighbor_alltoallw)
  HEDDLE_TEST_SEND_INIT(Send)
  HEDDLE_TEST_SEND_INIT(Ssend)
  HEDDLE_TEST_SEND_INIT(Rsend)
  HEDDLE_TEST_SEND_INIT(Bsend)
  int Recv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
           MPI_Status* status) const {
    MPI_Request request;
    const int rc = HEDDLE_TEST_INIT(Recv)(data, count, type, from, tag, comm, &request);
    return rc == MPI_SUCCESS ? run_started(&request, status, 1) : rc;
  }
  int Mrecv(void* data, int count, MPI_Datatype type, MPI_Message* message, MPI_Status* status) const {
    return (mpi ? MPI_Mrecv : PMPI_Mrecv)(data, count, type, message, status);
  }
  // There are no persistent ones of these.
  template <typename... A>
  int Sendrecv(A... arguments) const {
    return (mpi ? MPI_Sendrecv : PMPI_Sendrecv)(arguments...);
  }
  template <typename... A>
  int Sendrecv_replace(A... arguments) const {
    return (mpi ? MPI_Sendrecv_replace : PMPI_Sendrecv_replace)(arguments...);
  }
#undef HEDDLE_TEST_COLLECTIVE_INIT
#undef HEDDLE_TEST_SEND_INIT
#undef HEDDLE_TEST_INIT

 private:
  using Requests::Requests;

  int wait(MPI_Request* request, MPI_Status* status) const {
    return (mpi ? MPI_Wait : PMPI_Wait)(request, status);
  }
  int run_started(MPI_Request* request, MPI_Status* status, int rounds) const {
    int rc = MPI_SUCCESS;
    for (int i = 0; i < rounds && rc == MPI_SUCCESS; ++i) {
      rc = i % 2 == 0 ? (mpi ? MPI_Start : PMPI_Start)(request)
                      : (mpi ? MPI_Startall : PMPI_Startall)(1, request);
      if (rc == MPI_SUCCESS) rc = wait(request, status);
    }
    const int freed = (mpi ? MPI_Request_free : PMPI_Request_free)(request);
    return rc != MPI_SUCCESS ? rc : freed;
  }
};
inline const PersistentCalls PersistentCalls::kMpi{true};
inline const PersistentCalls PersistentCalls::kPmpi{false};
#endif

}  // namespace gpu_job
