// Non-blocking and persistent collectives: the C API over class Request.
#include <memory>
#include <utility>

#include "api/arguments.hpp"
#include "api/device_buffers.hpp"
#include "api/error.hpp"
#include "api/handles.hpp"
#include "base/no_memory.hpp"
#include "comm/communicator.hpp"

namespace heddle::edge {

Status heard_of(heddle_comm& comm, Status status) {
  if (status.code() == Code::system) comm.communicator->give_up(status);
  return status;
}

Status check_request_call(heddle_comm_t comm, heddle_request_t* out) {
  HEDDLE_TRY(check_not_null(out, "request"));
  *out = nullptr;
  return check(comm);
}

Status hand_out(heddle_comm& comm, Result<std::unique_ptr<Request>> made, Life life, heddle_request_t* out) {
  if (!made.ok()) return life == Life::once ? heard_of(comm, made.status()) : made.status();
  auto request = std::make_unique<heddle_request>();
  request->request = std::move(made).value();
  request->persistent = life == Life::persistent;
  comm.requests.push_back(request.get());
  request->comm = &comm;
  if (life == Life::once) HEDDLE_TRY(heard_of(comm, request->request->start()));
  request->active = life == Life::once;
  *out = request.release();
  return {};
}

namespace {

Status open_allreduce(const void* sendbuf, void* recvbuf, std::size_t count, const heddle_dtype& dtype,
                      const heddle_op& op, heddle_comm_t comm, Life life, heddle_request_t* request) {
  HEDDLE_TRY(check_request_call(comm, request));
  Reduction r;
  HEDDLE_TRY(check_reduction(sendbuf, recvbuf, count, dtype, op, &r));
  const std::size_t bytes = r.count * dtype_size(r.type);
  return hand_out(*comm,
                  request_with_images(*comm, r.in, bytes, r.out, bytes, Access::write,
                                      [&](const void* in, void* out) {
                                        return comm->communicator->allreduce_request(in, out, r.count, r.type,
                                                                                     r.op);
                                      }),
                  life, request);
}

Status open_bcast(void* buffer, std::size_t bytes, int root, heddle_comm_t comm, Life life,
                  heddle_request_t* request) {
  HEDDLE_TRY(check_request_call(comm, request));
  HEDDLE_TRY(check_bcast(buffer, bytes, root, comm->communicator->size()));
  return hand_out(*comm,
                  request_with_images(*comm, nullptr, 0, buffer, bytes, access_of(*comm, root),
                                      [&](const void* /*in*/, void* at) {
                                        return comm->communicator->bcast_request(at, bytes, root);
                                      }),
                  life, request);
}

Status open_reduce(const void* sendbuf, void* recvbuf, std::size_t count, const heddle_dtype& dtype,
                   const heddle_op& op, int root, heddle_comm_t comm, Life life, heddle_request_t* request) {
  HEDDLE_TRY(check_request_call(comm, request));
  Reduction r;
  HEDDLE_TRY(check_reduce(sendbuf, recvbuf, count, dtype, op, root, comm->communicator->rank(),
                          comm->communicator->size(), &r));
  const std::size_t bytes = r.count * dtype_size(r.type);
  return hand_out(
      *comm,
      request_with_images(*comm, r.in, bytes, r.out, bytes, r.out != nullptr ? Access::write : Access::none,
                          [&](const void* in, void* out) {
                            return comm->communicator->reduce_request(in, out, r.count, r.type, r.op, root);
                          }),
      life, request);
}

Status open_allgather(const void* sendbuf, void* recvbuf, std::size_t bytes, heddle_comm_t comm, Life life,
                      heddle_request_t* request) {
  HEDDLE_TRY(check_request_call(comm, request));
  const int size = comm->communicator->size();
  const void* given = nullptr;
  HEDDLE_TRY(check_allgather(sendbuf, recvbuf, bytes, size, &given));
  return hand_out(*comm,
                  request_with_images(*comm, given, bytes, recvbuf, bytes * static_cast<std::size_t>(size),
                                      given != nullptr ? Access::write : Access::both,
                                      [&](const void* in, void* out) {
                                        return comm->communicator->allgather_request(
                                            given != nullptr ? in : nullptr, out, bytes);
                                      }),
                  life, request);
}

Status open_barrier(heddle_comm_t comm, Life life, heddle_request_t* request) {
  HEDDLE_TRY(check_request_call(comm, request));
  return hand_out(*comm, comm->communicator->barrier_request(), life, request);
}

// A request of one use ends with the test or wait that finds it complete, well or badly.
void finish(heddle_request_t* request) {
  (*request)->active = false;
  if ((*request)->persistent) return;
  delete *request;
  *request = nullptr;
}

Status wait_for(heddle_request_t* request) {
  if (*request == nullptr) return {};
  HEDDLE_TRY(check(*request));
  Status status = (*request)->request->wait();
  finish(request);
  return status;
}

}  // namespace
}  // namespace heddle::edge

using heddle::Code;
using heddle::Status;
namespace edge = heddle::edge;

heddle_status heddle_iallreduce(const void* sendbuf, void* recvbuf, size_t count, heddle_dtype dtype,
                                heddle_op op, heddle_comm_t comm, heddle_request_t* request) {
  return edge::guarded([&] {
    return edge::open_allreduce(sendbuf, recvbuf, count, dtype, op, comm, edge::Life::once, request);
  });
}

heddle_status heddle_ibcast(void* buffer, size_t bytes, int root, heddle_comm_t comm,
                            heddle_request_t* request) {
  return edge::guarded(
      [&] { return edge::open_bcast(buffer, bytes, root, comm, edge::Life::once, request); });
}

heddle_status heddle_ireduce(const void* sendbuf, void* recvbuf, size_t count, heddle_dtype dtype,
                             heddle_op op, int root, heddle_comm_t comm, heddle_request_t* request) {
  return edge::guarded([&] {
    return edge::open_reduce(sendbuf, recvbuf, count, dtype, op, root, comm, edge::Life::once, request);
  });
}

heddle_status heddle_iallgather(const void* sendbuf, void* recvbuf, size_t bytes, heddle_comm_t comm,
                                heddle_request_t* request) {
  return edge::guarded(
      [&] { return edge::open_allgather(sendbuf, recvbuf, bytes, comm, edge::Life::once, request); });
}

heddle_status heddle_ibarrier(heddle_comm_t comm, heddle_request_t* request) {
  return edge::guarded([&] { return edge::open_barrier(comm, edge::Life::once, request); });
}

heddle_status heddle_allreduce_init(const void* sendbuf, void* recvbuf, size_t count, heddle_dtype dtype,
                                    heddle_op op, heddle_comm_t comm, heddle_request_t* request) {
  return edge::guarded([&] {
    return edge::open_allreduce(sendbuf, recvbuf, count, dtype, op, comm, edge::Life::persistent, request);
  });
}

heddle_status heddle_bcast_init(void* buffer, size_t bytes, int root, heddle_comm_t comm,
                                heddle_request_t* request) {
  return edge::guarded(
      [&] { return edge::open_bcast(buffer, bytes, root, comm, edge::Life::persistent, request); });
}

heddle_status heddle_reduce_init(const void* sendbuf, void* recvbuf, size_t count, heddle_dtype dtype,
                                 heddle_op op, int root, heddle_comm_t comm, heddle_request_t* request) {
  return edge::guarded([&] {
    return edge::open_reduce(sendbuf, recvbuf, count, dtype, op, root, comm, edge::Life::persistent, request);
  });
}

heddle_status heddle_allgather_init(const void* sendbuf, void* recvbuf, size_t bytes, heddle_comm_t comm,
                                    heddle_request_t* request) {
  return edge::guarded(
      [&] { return edge::open_allgather(sendbuf, recvbuf, bytes, comm, edge::Life::persistent, request); });
}

heddle_status heddle_barrier_init(heddle_comm_t comm, heddle_request_t* request) {
  return edge::guarded([&] { return edge::open_barrier(comm, edge::Life::persistent, request); });
}

heddle_status heddle_start(heddle_request_t request) {
  return edge::guarded([&]() -> Status {
    if (request == nullptr) {
      return Status(Code::invalid_argument,
                    "request is null: one that is not persistent (from a function not named "
                    "heddle_..._init) is started when it is made, and is gone once it is complete");
    }
    HEDDLE_TRY(edge::check(request));
    if (!request->persistent) {
      return Status(Code::invalid_argument,
                    "only a persistent request (from a function named heddle_..._init) can "
                    "be started; this one was, when it was made");
    }
    if (request->active)
      return Status(Code::invalid_argument, "the request is active; wait for it before you start it again");
    HEDDLE_TRY(edge::heard_of(*request->comm, request->request->start()));
    request->active = true;
    return {};
  });
}

heddle_status heddle_test(heddle_request_t* request, int* done) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check_not_null(request, "request"));
    HEDDLE_TRY(edge::check_not_null(done, "done"));
    *done = 0;
    if (*request == nullptr) {
      *done = 1;
      return {};
    }
    HEDDLE_TRY(edge::check(*request));
    bool complete = false;
    Status status = (*request)->request->test(&complete);
    *done = complete && status.ok() ? 1 : 0;
    if (complete || !status.ok()) edge::finish(request);
    return status;
  });
}

heddle_status heddle_wait(heddle_request_t* request) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check_not_null(request, "request"));
    return edge::wait_for(request);
  });
}

heddle_status heddle_waitall(size_t count, heddle_request_t* requests) {
  return edge::guarded([&]() -> Status {
    if (count > 0) HEDDLE_TRY(edge::check_not_null(requests, "requests"));
    Status first;
    for (std::size_t i = 0; i < count; ++i) {
      Status status = heddle::without_throwing([&] { return edge::wait_for(&requests[i]); });
      if (first.ok()) first = std::move(status);
    }
    return first;
  });
}

heddle_status heddle_request_free(heddle_request_t* request) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check_not_null(request, "request"));
    if (*request == nullptr) return {};
    if (edge::is_parents(*request)) {
      *request = nullptr;
      return {};
    }
    const bool orphaned = edge::is_orphan(*request);
    if (!orphaned) HEDDLE_TRY(edge::check(*request));
    if (!orphaned && (*request)->active && !(*request)->comm->communicator->failed()) {
      return Status(Code::invalid_argument, "the request is active; wait for it before you free it");
    }
    delete *request;
    *request = nullptr;
    return {};
  });
}
