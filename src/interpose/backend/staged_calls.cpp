#include "interpose/backend/staged_calls.hpp"

#include "interpose/backend/backend.hpp"

namespace heddle::backend {

StagedCalls::StagedCalls(Backend& backend, const HeddleHostSymbols& host)
    : backend_(backend),
      mpi_(backend.host_mpi()),
      buffers_(backend.device_buffers()),
      next_(host.next),
      requests_(mpi_, backend.packing()),
      ask_host_(reinterpret_cast<int (*)()>(host.find(host.handle, "MPIX_Query_cuda_support"))) {}

// Before MPI is initialised the host says what is wrong. In callbacks of MPI_Finalize, when heddle serves
// nothing any more, buffers lie where they lay.
[[gnu::noinline]] bool StagedCalls::wanted() {
  if (!(backend_.is_ready() || backend_.make_ready()) || !buffers_.possible()) return false;
  int serves = host_serves_.load(std::memory_order_relaxed);
  if (serves < 0) {
    serves = ask_host_ != nullptr && ask_host_() == 1 ? 1 : 0;
    host_serves_.store(serves, std::memory_order_relaxed);
  }
  return serves == 0;
}

const Packing& StagedCalls::packing() const {
  return backend_.packing();
}

int StagedCalls::refuse(const Status& status, const char* call, MPI_Comm comm) {
  return backend_.refuse(status, call, comm);
}

Ranks Ranks::of(const HostMpi& mpi, MPI_Comm comm) {
  Ranks found;
  int is_inter = -1;
  // MPICH 5 returns MPI_SUCCESS for a wrong communicator when the user's error handler has returned: the
  // answer tells.
  if (mpi.Comm_test_inter(comm, &is_inter) != MPI_SUCCESS || is_inter < 0 ||
      mpi.Comm_size(comm, &found.size) != MPI_SUCCESS || mpi.Comm_rank(comm, &found.rank) != MPI_SUCCESS)
    return {};
  found.is_inter = is_inter != 0;
  found.others = found.size;
  if (found.is_inter && mpi.Comm_remote_size(comm, &found.others) != MPI_SUCCESS) return {};
  return found;
}

Ranks StagedCall::ranks(const void* in, const void* out) {
  if (!calls_.buffers_.may_lie_on_gpu(in) && !calls_.buffers_.may_lie_on_gpu(out)) return {};
  return Ranks::of(calls_.mpi_, comm_);
}

// In the order of MPI-4.1, 8.6: two for each dimension of a grid. Without a topology the host says so.
Neighbours StagedCall::neighbours(const void* in, const void* out) {
  if (!calls_.buffers_.may_lie_on_gpu(in) && !calls_.buffers_.may_lie_on_gpu(out)) return {};
  const HostMpi& mpi = calls_.mpi_;
  Neighbours found;
  int topology = MPI_UNDEFINED;
  int count = 0;
  int rank = 0;
  int weighted = 0;
  if (mpi.Topo_test(comm_, &topology) != MPI_SUCCESS) return {};
  if (topology == MPI_CART && mpi.Cartdim_get(comm_, &count) == MPI_SUCCESS)
    return {2 * count, 2 * count, true};
  if (topology == MPI_GRAPH && mpi.Comm_rank(comm_, &rank) == MPI_SUCCESS &&
      mpi.Graph_neighbors_count(comm_, rank, &count) == MPI_SUCCESS)
    return {count, count};
  if (topology == MPI_DIST_GRAPH &&
      mpi.Dist_graph_neighbors_count(comm_, &found.sources, &found.destinations, &weighted) == MPI_SUCCESS)
    return found;
  return {};
}

Area StagedCall::span_of(const void* buffer, std::size_t count, MPI_Datatype type) const {
  Area found;
  if (count == 0 || buffer == MPI_IN_PLACE || !calls_.buffers_.span_of(buffer, count, type, &found.span))
    return {};
  found.parts.push_back({0, count, type});
  return found;
}

void StagedCall::add_part(Area& all, Area part, std::ptrdiff_t bytes) {
  part.span.begin += bytes;
  all.span.join(part.span);
  for (StagedPart& each : part.parts) {
    each.begin += bytes;
    all.parts.push_back(each);
  }
}

// A host may touch what the buffer begins with, although the first part comes later: MPICH 4.0.2 does in
// MPI_Allgatherv on one rank. Where that is memory of the same allocation the image has it too.
void StagedCall::with_front(const void* buffer, Area& area) const {
  Span& span = area.span;
  if (span.bytes == 0 || span.begin <= 0) return;
  gpu::Gpu& gpu = calls_.buffers_.gpu();
  const Result<gpu::Place> front = gpu.place(buffer);
  const Result<gpu::Place> first = gpu.place(static_cast<const char*>(buffer) + span.begin);
  if (front.ok() && first.ok() && gpu::needs_image(first->kind) && front->kind == first->kind &&
      front->buffer == first->buffer)
    span.join({0, 1, true});
}

const void* StagedCall::read(const void* buffer, const Area& area) {
  if (!status_.ok()) return buffer;
  status_ = calls_.buffers_.view(const_cast<void*>(buffer), area.span, &views_.read);
  if (views_.read.beside()) {
    read_buffer_ = buffer;
    read_span_ = area.span;
  }
  return views_.read.buffer();
}

void* StagedCall::write(void* buffer, const Area& area, bool keeps) {
  if (!status_.ok()) return buffer;
  status_ = views_.view_written(calls_.buffers_, calls_.mpi_, buffer, area.span, area.parts);
  // The host would see two buffers, and not say so. Types with gaps may take turns in one.
  const bool is_same =
      views_.written.beside() && buffer == read_buffer_ && !area.span.has_gaps && !read_span_.has_gaps;
  if (status_.ok() && is_same)
    status_ = Status(Code::invalid_argument, "both buffers are the same one (MPI_IN_PLACE is for that)");
  views_.counts = keeps;
  return views_.written.buffer();
}

bool StagedCall::load() {
  if (status_.ok()) status_ = views_.load();
  return status_.ok();
}

int StagedCall::fail() {
  return calls_.refuse(status_, name_, comm_);
}

}  // namespace heddle::backend
