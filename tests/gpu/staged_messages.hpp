// Messages between the ranks of a communicator.
#pragma once

#include "staged_calls.hpp"

namespace gpu_job {

// Around the ring, or from the even ranks to the odd ones.
template <typename Calls>
void messages(Trial<Calls>& trial, std::size_t count, MPI_Datatype type, std::size_t width) {
  using Count = typename Calls::Count;
  const auto n = static_cast<Count>(count);
  const int size = trial.size();
  const int rank = trial.rank();
  const int next = (rank + 1) % size;
  const int before = (rank + size - 1) % size;
  const std::size_t own = count * width;
  // A receive may have more room than the message has bytes, and what is behind those stays.
  const std::size_t room = own + 5 * width;
  const auto most = static_cast<Count>(count + 5);
  MPI_Status status;
  trial.run("sendrecv", own, room, false, [&](const Calls& by, const void* in, void* out) {
    return by.Sendrecv(in, n, type, next, 7, out, most, type, before, 7, trial.comm(), &status);
  });
  int came = -1;
  PMPI_Get_count(&status, type, &came);
  if (came != static_cast<int>(count) || status.MPI_SOURCE != before)
    job::fail("sendrecv: %d elements from %d", came, status.MPI_SOURCE);
  trial.run("sendrecv at the ends of a line", own, room, false,
            [&](const Calls& by, const void* in, void* out) {
              return by.Sendrecv(in, n, type, rank + 1 < size ? next : MPI_PROC_NULL, 7, out, most, type,
                                 rank > 0 ? before : MPI_PROC_NULL, 7, trial.comm(), MPI_STATUS_IGNORE);
            });
  trial.run("sendrecv_replace", 0, own, true, [&](const Calls& by, const void*, void* both) {
    return by.Sendrecv_replace(both, n, type, next, 8, before, 8, trial.comm(), MPI_STATUS_IGNORE);
  });
  const bool sends = rank % 2 == 0;
  const int partner = !sends ? before : rank + 1 < size ? next : MPI_PROC_NULL;
  for (int how = 0; how < 3; ++how) {
    trial.run("send and recv", sends ? own : 0, sends ? 0 : room, false,
              [&](const Calls& by, const void* in, void* out) {
                if (!sends)
                  return by.Recv(out, most, type, how == 0 ? MPI_ANY_SOURCE : partner, how, trial.comm(),
                                 MPI_STATUS_IGNORE);
                if (how == 0) return by.Send(in, n, type, partner, how, trial.comm());
                if (how == 1) return by.Ssend(in, n, type, partner, how, trial.comm());
                return by.Bsend(in, n, type, partner, how, trial.comm());
              });
  }
  trial.run("a message that was found", sends ? own : 0, sends ? 0 : room, false,
            [&](const Calls& by, const void* in, void* out) {
              if (sends) return by.Send(in, n, type, partner, 11, trial.comm());
              MPI_Message message;
              PMPI_Mprobe(partner, 11, trial.comm(), &message, MPI_STATUS_IGNORE);
              return by.Mrecv(out, most, type, &message, MPI_STATUS_IGNORE);
            });
  int go = 0;
  trial.run("rsend", sends ? own : 0, sends ? 0 : room, false,
            [&](const Calls& by, const void* in, void* out) {
              if (sends) {
                PMPI_Recv(&go, 1, MPI_INT, partner, 10, trial.comm(), MPI_STATUS_IGNORE);
                return by.Rsend(in, n, type, partner, 9, trial.comm());
              }
              MPI_Request open;
              PMPI_Isend(&go, 1, MPI_INT, partner, 10, trial.comm(), &open);
              const int rc = by.Recv(out, most, type, partner, 9, trial.comm(), MPI_STATUS_IGNORE);
              PMPI_Wait(&open, MPI_STATUS_IGNORE);
              return rc;
            });
}

}  // namespace gpu_job
