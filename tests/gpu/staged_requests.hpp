// The calls of staged_calls.hpp with requests, and every way of ending those.
#pragma once

#include "staged_calls.hpp"

namespace gpu_job {

// What ends is a message's, which may be freed before its end is told, or a collective's.
enum class Sort { message, collective };

// By MPI's names or PMPI's.
template <bool Mpi>
class Ends {
 public:
#define HEDDLE_TEST_END(name) (Mpi ? MPI_##name : PMPI_##name)
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
  static constexpr unsigned kWays = 12;
#else
  static constexpr unsigned kWays = 9;
#endif
  // In another way at every call.
  static int end(MPI_Request* request, MPI_Status* status, Sort sort) {
    static unsigned way = 0;
    MPI_Status own;
    MPI_Status* const seen = status == MPI_STATUS_IGNORE && way % 2 == 0 ? MPI_STATUS_IGNORE : &own;
    const int rc = by(way++ % kWays, request, seen, sort);
    if (status != MPI_STATUS_IGNORE) *status = own;
    return rc;
  }

 private:
  static int by(unsigned way, MPI_Request* request, MPI_Status* status, Sort sort) {
    int done = 0;
    int place = -1;
    int ended = 0;
    int rc = MPI_SUCCESS;
    // Among others that are none.
    MPI_Request all[3] = {MPI_REQUEST_NULL, *request, MPI_REQUEST_NULL};
    MPI_Status statuses[3];
    const bool ignored = status == MPI_STATUS_IGNORE;
    MPI_Status* const told = ignored ? MPI_STATUSES_IGNORE : statuses;
    switch (way) {
      case 0:
        return HEDDLE_TEST_END(Wait)(request, status);
      case 1:
        while (rc == MPI_SUCCESS && done == 0)
          rc = HEDDLE_TEST_END(Test)(request, &done, status);
        return rc;
      case 2:
        rc = HEDDLE_TEST_END(Waitall)(3, all, told);
        place = 1;
        break;
      case 3:
        while (rc == MPI_SUCCESS && done == 0)
          rc = HEDDLE_TEST_END(Testall)(3, all, &done, told);
        place = 1;
        break;
      case 4:
        rc = HEDDLE_TEST_END(Waitany)(3, all, &place, status);
        if (!ignored) statuses[1] = *status;
        break;
      case 5:
        while (rc == MPI_SUCCESS && done == 0)
          rc = HEDDLE_TEST_END(Testany)(3, all, &place, &done, status);
        if (!ignored) statuses[1] = *status;
        break;
      case 6:
        rc = HEDDLE_TEST_END(Waitsome)(3, all, &ended, &place, told);
        statuses[1] = statuses[0];
        break;
      case 7:
        while (rc == MPI_SUCCESS && ended == 0)
          rc = HEDDLE_TEST_END(Testsome)(3, all, &ended, &place, told);
        statuses[1] = statuses[0];
        break;
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
      // By itself: MPICH 5.0.2 takes no null requests here.
      case 8:
        while (rc == MPI_SUCCESS && done == 0)
          rc = HEDDLE_TEST_END(Request_get_status_all)(1, request, &done, told);
        if (!ignored) *status = statuses[0];
        return rc == MPI_SUCCESS ? HEDDLE_TEST_END(Wait)(request, MPI_STATUS_IGNORE) : rc;
      case 9:
        while (rc == MPI_SUCCESS && done == 0)
          rc = HEDDLE_TEST_END(Request_get_status_any)(1, request, &place, &done, status);
        return rc == MPI_SUCCESS ? HEDDLE_TEST_END(Wait)(request, MPI_STATUS_IGNORE) : rc;
      case 10:
        while (rc == MPI_SUCCESS && ended == 0)
          rc = HEDDLE_TEST_END(Request_get_status_some)(1, request, &ended, &place, told);
        if (!ignored) *status = statuses[0];
        return rc == MPI_SUCCESS ? HEDDLE_TEST_END(Wait)(request, MPI_STATUS_IGNORE) : rc;
#endif
      default:
        while (rc == MPI_SUCCESS && done == 0)
          rc = HEDDLE_TEST_END(Request_get_status)(*request, &done, status);
        if (rc != MPI_SUCCESS) return rc;
        return sort == Sort::message ? HEDDLE_TEST_END(Request_free)(request)
                                     : HEDDLE_TEST_END(Wait)(request, MPI_STATUS_IGNORE);
    }
    if (place != 1 || all[1] != MPI_REQUEST_NULL)
      job::fail("way %u of ending a request: place %d", way, place);
    *request = MPI_REQUEST_NULL;
    if (!ignored) *status = statuses[1];
    return rc;
  }
#undef HEDDLE_TEST_END
};

// What both kinds of calls have in common, which are as Calls, so that the same trials do.
class Requests {
 protected:
  explicit constexpr Requests(bool by_mpi) : mpi(by_mpi) {}
  template <typename Start, typename... A>
  int run(Sort sort, Start start, A... arguments) const {
    MPI_Request request;
    const int rc = start(arguments..., &request);
    return rc == MPI_SUCCESS ? end(&request, MPI_STATUS_IGNORE, sort) : rc;
  }
  int end(MPI_Request* request, MPI_Status* status, Sort sort) const {
    return mpi ? Ends<true>::end(request, status, sort) : Ends<false>::end(request, status, sort);
  }
  int end_both(MPI_Request* both, MPI_Status* status) const {
    MPI_Status statuses[2];
    const bool ignored = status == MPI_STATUS_IGNORE;
    const int rc = (mpi ? MPI_Waitall : PMPI_Waitall)(2, both, ignored ? MPI_STATUSES_IGNORE : statuses);
    if (!ignored) *status = statuses[0];
    return rc;
  }
  bool mpi;
};

#define HEDDLE_TEST_START(name, S) (mpi ? MPI_I##name##S : PMPI_I##name##S)
#define HEDDLE_TEST_COLLECTIVE(Name, name, S)                               \
  template <typename... A>                                                  \
  int Name(A... arguments) const {                                          \
    return run(Sort::collective, HEDDLE_TEST_START(name, S), arguments...); \
  }
#define HEDDLE_TEST_SEND(Name, name, S)                                  \
  template <typename... A>                                               \
  int Name(A... arguments) const {                                       \
    return run(Sort::message, HEDDLE_TEST_START(name, S), arguments...); \
  }
#define HEDDLE_TEST_ARRAY_REQUESTS                                   \
  HEDDLE_TEST_COLLECTIVE(Reduce_scatter, reduce_scatter, )           \
  HEDDLE_TEST_COLLECTIVE(Gatherv, gatherv, )                         \
  HEDDLE_TEST_COLLECTIVE(Scatterv, scatterv, )                       \
  HEDDLE_TEST_COLLECTIVE(Allgatherv, allgatherv, )                   \
  HEDDLE_TEST_COLLECTIVE(Alltoallv, alltoallv, )                     \
  HEDDLE_TEST_COLLECTIVE(Alltoallw, alltoallw, )                     \
  HEDDLE_TEST_COLLECTIVE(Neighbor_allgatherv, neighbor_allgatherv, ) \
  HEDDLE_TEST_COLLECTIVE(Neighbor_alltoallv, neighbor_alltoallv, )   \
  HEDDLE_TEST_COLLECTIVE(Neighbor_alltoallw, neighbor_alltoallw, )
#define HEDDLE_TEST_REQUESTS(S)                                                                              \
  HEDDLE_TEST_COLLECTIVE(Reduce, reduce, S)                                                                  \
  HEDDLE_TEST_COLLECTIVE(Scan, scan, S)                                                                      \
  HEDDLE_TEST_COLLECTIVE(Exscan, exscan, S)                                                                  \
  HEDDLE_TEST_COLLECTIVE(Reduce_scatter_block, reduce_scatter_block, S)                                      \
  HEDDLE_TEST_COLLECTIVE(Gather, gather, S)                                                                  \
  HEDDLE_TEST_COLLECTIVE(Scatter, scatter, S)                                                                \
  HEDDLE_TEST_COLLECTIVE(Allgather, allgather, S)                                                            \
  HEDDLE_TEST_COLLECTIVE(Alltoall, alltoall, S)                                                              \
  HEDDLE_TEST_COLLECTIVE(Neighbor_allgather, neighbor_allgather, S)                                          \
  HEDDLE_TEST_COLLECTIVE(Neighbor_alltoall, neighbor_alltoall, S)                                            \
  HEDDLE_TEST_COLLECTIVE(Allreduce, allreduce, S)                                                            \
  HEDDLE_TEST_COLLECTIVE(Bcast, bcast, S)                                                                    \
  HEDDLE_TEST_SEND(Send, send, S)                                                                            \
  HEDDLE_TEST_SEND(Ssend, ssend, S)                                                                          \
  HEDDLE_TEST_SEND(Rsend, rsend, S)                                                                          \
  HEDDLE_TEST_SEND(Bsend, bsend, S)                                                                          \
  int Recv(void* data, Count count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) \
      const {                                                                                                \
    MPI_Request request;                                                                                     \
    const int rc = HEDDLE_TEST_START(recv, S)(data, count, type, from, tag, comm, &request);                 \
    return rc == MPI_SUCCESS ? end(&request, status, Sort::message) : rc;                                    \
  }                                                                                                          \
  int Mrecv(void* data, Count count, MPI_Datatype type, MPI_Message* message, MPI_Status* status) const {    \
    MPI_Request request;                                                                                     \
    const int rc = HEDDLE_TEST_START(mrecv, S)(data, count, type, message, &request);                        \
    return rc == MPI_SUCCESS ? end(&request, status, Sort::message) : rc;                                    \
  }                                                                                                          \
  int Sendrecv(const void* in, Count in_count, MPI_Datatype in_type, int to, int in_tag, void* out,          \
               Count out_count, MPI_Datatype out_type, int from, int out_tag, MPI_Comm comm,                 \
               MPI_Status* status) const {                                                                   \
    MPI_Request both[2];                                                                                     \
    int rc = HEDDLE_TEST_START(recv, S)(out, out_count, out_type, from, out_tag, comm, &both[0]);            \
    if (rc == MPI_SUCCESS)                                                                                   \
      rc = HEDDLE_TEST_START(send, S)(in, in_count, in_type, to, in_tag, comm, &both[1]);                    \
    return rc == MPI_SUCCESS ? end_both(both, status) : rc;                                                  \
  }                                                                                                          \
  int Sendrecv_replace(void* data, Count count, MPI_Datatype type, int to, int in_tag, int from,             \
                       int out_tag, MPI_Comm comm, MPI_Status* status) const {                               \
    return (mpi ? MPI_Sendrecv_replace##S : PMPI_Sendrecv_replace##S)(data, count, type, to, in_tag, from,   \
                                                                      out_tag, comm, status);                \
  }

class RequestCalls : public Requests {
 public:
  using Count = int;
  using Place = int;
  static const RequestCalls kMpi;
  static const RequestCalls kPmpi;
  static constexpr bool kHasArrays = true;
  static constexpr bool kHasRequests = true;
  HEDDLE_TEST_REQUESTS()
  HEDDLE_TEST_ARRAY_REQUESTS
 private:
  using Requests::Requests;
};
inline const RequestCalls RequestCalls::kMpi{true};
inline const RequestCalls RequestCalls::kPmpi{false};

#if MPI_VERSION >= 4
class LargeRequestCalls : public Requests {
 public:
  using Count = MPI_Count;
  using Place = MPI_Aint;
  static const LargeRequestCalls kMpi;
  static const LargeRequestCalls kPmpi;
  static constexpr bool kHasArrays = false;
  static constexpr bool kHasRequests = true;
  HEDDLE_TEST_REQUESTS(_c)
 private:
  using Requests::Requests;
};
inline const LargeRequestCalls LargeRequestCalls::kMpi{true};
inline const LargeRequestCalls LargeRequestCalls::kPmpi{false};
#endif

}  // namespace gpu_job
