// Collectives on streams of CUDA: the C API over DevicePath.
#include "api/arguments.hpp"
#include "api/error.hpp"
#include "api/handles.hpp"
#include "device/device_path.hpp"
#include "device/stream_relay.hpp"
#include "heddle/heddle_cuda.h"

using heddle::CollectiveCall;
using heddle::Status;
namespace edge = heddle::edge;

namespace {

// By what serves streams on `comm`, the same on all ranks, who meet from the beginning on.
template <typename Serve>
Status on_stream(heddle_comm& comm, const Serve& serve) {
  return edge::until_begun(comm, [&](bool& begun) {
    begun = true;
    heddle::Communicator& ranks = *comm.communicator;
    heddle::DevicePath* const path = ranks.stream_path();
    return path != nullptr ? serve(*path) : serve(*ranks.stream_relay());
  });
}

}  // namespace

heddle_status heddle_allreduce_on_stream(const void* sendbuf, void* recvbuf, size_t count, heddle_dtype dtype,
                                         heddle_op op, heddle_comm_t comm, struct CUstream_st* stream) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    edge::Reduction r;
    const edge::OneCall call(*comm);
    HEDDLE_TRY(edge::agree(call, edge::check_reduction(sendbuf, recvbuf, count, dtype, op, &r), [&] {
      return CollectiveCall::allreduce(r.count, r.type, r.op).as(CollectiveCall::Form::stream);
    }));
    return on_stream(*comm, [&](auto& path) {
      return path.allreduce_on(comm->gpu, stream, r.in, r.out, r.count, r.type, r.op);
    });
  });
}

heddle_status heddle_bcast_on_stream(void* buffer, size_t bytes, int root, heddle_comm_t comm,
                                     struct CUstream_st* stream) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    const edge::OneCall call(*comm);
    HEDDLE_TRY(edge::agree(call, edge::check_bcast(buffer, bytes, root, comm->communicator->size()), [&] {
      return CollectiveCall::bcast(bytes, root).as(CollectiveCall::Form::stream);
    }));
    return on_stream(*comm,
                     [&](auto& path) { return path.bcast_on(comm->gpu, stream, buffer, bytes, root); });
  });
}
