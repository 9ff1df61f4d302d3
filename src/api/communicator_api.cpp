// Communicators, blocking collectives and information: the C API over class Communicator.
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "api/arguments.hpp"
#include "api/device_buffers.hpp"
#include "api/error.hpp"
#include "api/handles.hpp"
#include "base/log.hpp"
#include "comm/communicator.hpp"
#include "setup/bootstrap.hpp"
#include "setup/complaints.hpp"

namespace heddle::edge {
namespace {

// What the preload library alone goes by, and ranks of others need not agree on.
Config without_preload_settings(Config config) {
  const Config defaults;
  config.sparse = defaults.sparse;
  config.compress = defaults.compress;
  config.compress_from = defaults.compress_from;
  config.compress_f32 = defaults.compress_f32;
  config.compress_f64 = defaults.compress_f64;
  return config;
}

void hold(heddle_comm& comm, std::unique_ptr<Communicator> communicator) {
  const Config& config = communicator->config();
  comm.compares = communicator->compares();
  comm.gpu.configure({config.cuda, config.pinned_bytes});
  if (const Log log(config.log_level, communicator->rank());
      communicator->rank() == 0 && log.wants(LogLevel::info))
    log.info("a communicator of " + communicator->describe());
  comm.communicator = std::move(communicator);
}

// What is lent goes with the communicator, or back on every other way out.
Status create(const Bootstrap& bootstrap, const ParsedConfig& parsed, std::unique_ptr<LentMessages> lent,
              heddle_comm_t* out) {
  HEDDLE_TRY(report_complaints(parsed, bootstrap));
  auto comm = std::make_unique<heddle_comm>();
  Result<std::unique_ptr<Communicator>> communicator =
      Communicator::create(bootstrap, without_preload_settings(parsed.config));
  if (!communicator.ok()) return communicator.status();
  hold(*comm, std::move(communicator).value());
  comm->lent = std::move(lent);
  *out = comm.release();
  return {};
}

Status check_p2p(const heddle_p2p& p2p) {
  HEDDLE_TRY(check_not_null(reinterpret_cast<const void*>(p2p.send), "p2p->send"));
  HEDDLE_TRY(check_not_null(reinterpret_cast<const void*>(p2p.recv), "p2p->recv"));
  HEDDLE_TRY(check_not_null(reinterpret_cast<const void*>(p2p.test), "p2p->test"));
  return check_not_null(reinterpret_cast<const void*>(p2p.cancel), "p2p->cancel");
}

Bootstrap bootstrap_from_caller(int rank, int size, heddle_allgather_fn allgather, void* context,
                                const heddle_p2p* p2p) {
  Bootstrap bootstrap;
  bootstrap.rank = rank;
  bootstrap.size = size;
  bootstrap.allgather = [allgather, context](const void* mine, void* all, std::size_t bytes) {
    const int error = allgather(mine, all, bytes, context);
    if (error == 0) return Status();
    return Status(Code::peer_failed, "the caller's allgather failed with " + std::to_string(error));
  };
  if (p2p == nullptr) return bootstrap;
  // Given back by the handle, also where nobody ever asks for them.
  bootstrap.make_p2p = [lent = *p2p]() mutable -> Result<heddle_p2p> {
    lent.release = nullptr;
    return lent;
  };
  if (p2p->progress != nullptr) {
    bootstrap.host_progress = [progress = p2p->progress, lender = p2p->context] { progress(lender); };
  }
  return bootstrap;
}

}  // namespace
}  // namespace heddle::edge

using heddle::Code;
using heddle::Collective;
using heddle::CollectiveCall;
using heddle::Status;
namespace edge = heddle::edge;

heddle_status heddle_comm_create(int rank, int size, heddle_allgather_fn allgather, void* context,
                                 const heddle_p2p* p2p, heddle_comm_t* comm) {
  return edge::guarded([&]() -> Status {
    auto lent = p2p != nullptr ? std::make_unique<heddle::LentMessages>(*p2p) : nullptr;
    HEDDLE_TRY(edge::check_not_null(comm, "comm"));
    *comm = nullptr;
    HEDDLE_TRY(edge::check_not_null(reinterpret_cast<const void*>(allgather), "allgather"));
    if (size < 1 || rank < 0 || rank >= size) {
      return Status(Code::invalid_argument,
                    "rank " + std::to_string(rank) + " of " + std::to_string(size) + " ranks does not exist");
    }
    if (size > heddle::kMostRanks) {
      return Status(Code::invalid_argument,
                    "size " + std::to_string(size) + " is more than the " +
                        std::to_string(heddle::kMostRanks) +
                        " ranks that a communicator can have; pass the job's number of ranks");
    }
    if (p2p != nullptr) HEDDLE_TRY(edge::check_p2p(*p2p));
    return edge::create(edge::bootstrap_from_caller(rank, size, allgather, context, p2p),
                        heddle::parse_config_from_environ(), std::move(lent), comm);
  });
}

heddle_status heddle_comm_create_env(heddle_comm_t* comm) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check_not_null(comm, "comm"));
    *comm = nullptr;
    const heddle::ParsedConfig parsed = heddle::parse_config_from_environ();
    heddle::Result<heddle::Bootstrap> bootstrap = heddle::bootstrap_from_env(parsed.config);
    if (!bootstrap.ok()) return bootstrap.status();
    return edge::create(bootstrap.value(), parsed, nullptr, comm);
  });
}

namespace {

Status check_split(int color, const heddle_comm_t* newcomm) {
  HEDDLE_TRY(edge::check_not_null(newcomm, "newcomm"));
  if (color >= 0 || color == HEDDLE_NO_COLOR) return {};
  return Status(Code::invalid_argument, "color " + std::to_string(color) +
                                            " is neither 0 or more nor HEDDLE_NO_COLOR (" +
                                            std::to_string(HEDDLE_NO_COLOR) + ")");
}

}  // namespace

heddle_status heddle_comm_split(heddle_comm_t comm, int color, int key, heddle_comm_t* newcomm) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    if (newcomm != nullptr) *newcomm = nullptr;
    const edge::OneCall call(*comm);
    HEDDLE_TRY(edge::agree(call, check_split(color, newcomm),
                           [] { return heddle::CollectiveCall::of(heddle::CollectiveCall::Kind::split); }));
    auto made = std::make_unique<heddle_comm>();
    heddle::Result<std::unique_ptr<heddle::Communicator>> split = comm->communicator->split(color, key);
    if (!split.ok()) return split.status();
    if (color < 0) return {};
    edge::hold(*made, std::move(split).value());
    *newcomm = made.release();
    return {};
  });
}

heddle_status heddle_comm_destroy(heddle_comm_t comm) {
  if (comm == nullptr) return HEDDLE_OK;
  return edge::guarded([&]() -> Status {
    if (edge::is_parents(comm)) return {};
    HEDDLE_TRY(edge::check(comm));
    std::size_t active = 0;
    for (const heddle_request* request : comm->requests)
      active += request->active ? 1 : 0;
    if (active != 0 && !comm->communicator->failed()) {
      return Status(Code::invalid_argument,
                    std::to_string(active) + (active == 1 ? " request is" : " requests are") +
                        " active on this communicator; wait for them before you destroy it");
    }
    delete comm;
    return {};
  });
}

heddle_status heddle_comm_failed(heddle_comm_t comm, int* failed) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    HEDDLE_TRY(edge::check_not_null(failed, "failed"));
    *failed = comm->communicator->failed() ? 1 : 0;
    return {};
  });
}

heddle_status heddle_comm_rank(heddle_comm_t comm, int* rank) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    HEDDLE_TRY(edge::check_not_null(rank, "rank"));
    *rank = comm->communicator->rank();
    return {};
  });
}

heddle_status heddle_comm_size(heddle_comm_t comm, int* size) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    HEDDLE_TRY(edge::check_not_null(size, "size"));
    *size = comm->communicator->size();
    return {};
  });
}

heddle_status heddle_allreduce(const void* sendbuf, void* recvbuf, size_t count, heddle_dtype dtype,
                               heddle_op op, heddle_comm_t comm) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    edge::Reduction r;
    const edge::OneCall call(*comm);
    HEDDLE_TRY(edge::agree(call, edge::check_reduction(sendbuf, recvbuf, count, dtype, op, &r),
                           [&] { return CollectiveCall::allreduce(r.count, r.type, r.op); }));
    if (comm->gpu.present()) [[unlikely]]
      return edge::allreduce_anywhere(*comm, r);
    return comm->communicator->allreduce(r.in, r.out, r.count, r.type, r.op);
  });
}

heddle_status heddle_bcast(void* buffer, size_t bytes, int root, heddle_comm_t comm) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    const edge::OneCall call(*comm);
    HEDDLE_TRY(edge::agree(call, edge::check_bcast(buffer, bytes, root, comm->communicator->size()),
                           [&] { return CollectiveCall::bcast(bytes, root); }));
    if (comm->gpu.present()) [[unlikely]]
      return edge::bcast_anywhere(*comm, buffer, bytes, root);
    return comm->communicator->bcast(buffer, bytes, root);
  });
}

heddle_status heddle_reduce(const void* sendbuf, void* recvbuf, size_t count, heddle_dtype dtype,
                            heddle_op op, int root, heddle_comm_t comm) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    edge::Reduction r;
    const edge::OneCall call(*comm);
    const int rank = comm->communicator->rank();
    HEDDLE_TRY(edge::agree(
        call,
        edge::check_reduce(sendbuf, recvbuf, count, dtype, op, root, rank, comm->communicator->size(), &r),
        [&] { return CollectiveCall::reduce(r.count, r.type, r.op, root); }));
    if (comm->gpu.present()) [[unlikely]]
      return edge::reduce_anywhere(*comm, r, root);
    return comm->communicator->reduce(r.in, r.out, r.count, r.type, r.op, root);
  });
}

heddle_status heddle_allgather(const void* sendbuf, void* recvbuf, size_t bytes, heddle_comm_t comm) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    const edge::OneCall call(*comm);
    const void* in = nullptr;
    HEDDLE_TRY(edge::agree(call,
                           edge::check_allgather(sendbuf, recvbuf, bytes, comm->communicator->size(), &in),
                           [&] { return CollectiveCall::allgather(bytes); }));
    if (comm->gpu.present()) [[unlikely]]
      return edge::allgather_anywhere(*comm, in, recvbuf, bytes);
    return comm->communicator->allgather(in, recvbuf, bytes);
  });
}

heddle_status heddle_barrier(heddle_comm_t comm) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    const edge::OneCall call(*comm);
    HEDDLE_TRY(edge::agree(call, CollectiveCall::Kind::barrier));
    return comm->communicator->barrier();
  });
}

heddle_status heddle_alloc(size_t bytes, heddle_comm_t comm, void** memory) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check_not_null(memory, "memory"));
    *memory = nullptr;
    HEDDLE_TRY(edge::check(comm));
    if (bytes == 0) return {};
    comm->memory.push_back(nullptr);
    heddle::Result<void*> allocated = comm->communicator->allocate(bytes);
    if (!allocated.ok()) {
      comm->memory.pop_back();
      return allocated.status();
    }
    *memory = comm->memory.back() = allocated.value();
    return {};
  });
}

heddle_status heddle_free(void* memory, heddle_comm_t comm) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    if (memory == nullptr) return {};
    if (std::erase(comm->memory, memory) == 0)
      return Status(heddle::Code::invalid_argument,
                    "this memory is not from heddle_alloc on this communicator, or was freed before");
    return comm->communicator->release(memory);
  });
}

heddle_status heddle_send(const void* data, size_t bytes, int peer, heddle_comm_t comm) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    HEDDLE_TRY(edge::check_buffer(data, bytes, "data"));
    HEDDLE_TRY(edge::check_peer(peer, comm->communicator->rank(), comm->communicator->size()));
    return edge::with_image(*comm, data, bytes, edge::Access::read,
                            [&](const void* from) { return comm->communicator->send(from, bytes, peer); });
  });
}

heddle_status heddle_recv(void* data, size_t bytes, int peer, heddle_comm_t comm) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    HEDDLE_TRY(edge::check_buffer(data, bytes, "data"));
    HEDDLE_TRY(edge::check_peer(peer, comm->communicator->rank(), comm->communicator->size()));
    return edge::with_image(*comm, data, bytes, edge::Access::write,
                            [&](void* to) { return comm->communicator->recv(to, bytes, peer); });
  });
}

const char* heddle_last_error(void) {
  return edge::last_error();
}

heddle_status heddle_set_last_error(heddle_status status, const char* message) {
  return edge::fail(status, message != nullptr ? message : "");
}

const char* heddle_status_name(heddle_status status) {
  return heddle::code_name(static_cast<Code>(status));
}

const char* heddle_version(void) {
  return HEDDLE_VERSION_STRING;
}

namespace {

heddle_status algorithm_of(Collective collective, size_t bytes, heddle_comm_t comm, const char** name) {
  return edge::guarded([&]() -> Status {
    HEDDLE_TRY(edge::check(comm));
    HEDDLE_TRY(edge::check_not_null(name, "name"));
    *name = comm->communicator->algorithm(collective, bytes);
    return {};
  });
}

// The types come by reference, as in arguments.hpp.
heddle_status algorithm_of(Collective collective, size_t count, const heddle_dtype& dtype,
                           const heddle_op& op, heddle_comm_t comm, const char** name) {
  edge::Reduction r;
  const heddle_status checked =
      edge::guarded([&]() -> Status { return edge::check_types(count, dtype, op, &r); });
  return checked == HEDDLE_OK ? algorithm_of(collective, count * heddle::dtype_size(r.type), comm, name)
                              : checked;
}

}  // namespace

heddle_status heddle_allreduce_algorithm(size_t count, heddle_dtype dtype, heddle_op op, heddle_comm_t comm,
                                         const char** name) {
  return algorithm_of(Collective::allreduce, count, dtype, op, comm, name);
}

heddle_status heddle_reduce_algorithm(size_t count, heddle_dtype dtype, heddle_op op, heddle_comm_t comm,
                                      const char** name) {
  return algorithm_of(Collective::reduce, count, dtype, op, comm, name);
}

heddle_status heddle_bcast_algorithm(size_t bytes, heddle_comm_t comm, const char** name) {
  return algorithm_of(Collective::bcast, bytes, comm, name);
}

heddle_status heddle_allgather_algorithm(size_t bytes, heddle_comm_t comm, const char** name) {
  return algorithm_of(Collective::allgather, bytes, comm, name);
}
