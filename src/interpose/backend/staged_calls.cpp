#include "interpose/backend/staged_calls.hpp"

#include <algorithm>
#include <utility>

#include "interpose/backend/backend.hpp"

namespace heddle::backend {

StagedCalls::StagedCalls(Backend& backend, const HeddleHostSymbols& host)
    : backend_(backend),
      mpi_(backend.host_mpi()),
      buffers_(backend.device_buffers()),
      next_(host.next),
      ask_host_(reinterpret_cast<int (*)()>(host.find(host.handle, "MPIX_Query_cuda_support"))) {}

// Before MPI is initialised, and after it has ended, the host says what is wrong.
[[gnu::noinline]] bool StagedCalls::wanted() {
  if (!backend_.make_ready() || !buffers_.possible()) return false;
  int serves = host_serves_.load(std::memory_order_relaxed);
  if (serves < 0) {
    serves = ask_host_ != nullptr && ask_host_() == 1 ? 1 : 0;
    host_serves_.store(serves, std::memory_order_relaxed);
  }
  return serves == 0;
}

Ranks StagedCall::ranks() {
  const HostMpi& mpi = calls_.mpi_;
  Ranks found;
  int is_inter = -1;
  // MPICH 5 returns MPI_SUCCESS for a wrong communicator when the user's error handler has returned: the answer tells.
  if (mpi.Comm_test_inter(comm_, &is_inter) != MPI_SUCCESS || is_inter < 0 ||
      mpi.Comm_size(comm_, &found.size) != MPI_SUCCESS || mpi.Comm_rank(comm_, &found.rank) != MPI_SUCCESS)
    return {};
  found.is_inter = is_inter != 0;
  found.others = found.size;
  if (found.is_inter && mpi.Comm_remote_size(comm_, &found.others) != MPI_SUCCESS) return {};
  return found;
}

Span StagedCall::span_of(const void* buffer, std::size_t count, MPI_Datatype type) const {
  Span found;
  if (count == 0 || buffer == MPI_IN_PLACE || !calls_.buffers_.span_of(buffer, count, type, &found))
    return {};
  return found;
}

void StagedCall::add_part(Span& all, Span part, std::ptrdiff_t bytes) {
  part.begin += bytes;
  all.join(part);
}

// A host may touch what the buffer begins with, although the first part comes later: MPICH 4.0.2 does in MPI_Allgatherv on one rank. Where that
// is memory of the same allocation the image has it too.
Span StagedCall::with_front(const void* buffer, Span parts) const {
  if (parts.bytes == 0 || parts.begin <= 0) return parts;
  gpu::Gpu& gpu = calls_.buffers_.gpu();
  const Result<gpu::Place> front = gpu.place(buffer);
  const Result<gpu::Place> first = gpu.place(static_cast<const char*>(buffer) + parts.begin);
  if (front.ok() && first.ok() && gpu::needs_image(first->kind) && front->kind == first->kind &&
      front->buffer == first->buffer)
    parts.join({0, 1, false});
  return parts;
}

const void* StagedCall::read(const void* buffer, const Span& span) {
  if (!status_.ok()) return buffer;
  status_ = calls_.buffers_.view(const_cast<void*>(buffer), span, &read_);
  if (status_.ok()) status_ = read_.load();
  if (read_.beside()) read_buffer_ = buffer;
  return read_.buffer();
}

void* StagedCall::write(void* buffer, const Span& span, bool keeps) {
  if (!status_.ok()) return buffer;
  status_ = calls_.buffers_.view(buffer, span, &written_);
  written_bytes_ = span.bytes;
  // The host would see two buffers, and not say so.
  if (status_.ok() && written_.beside() && buffer == read_buffer_)
    status_ = Status(Code::invalid_argument, "both buffers are the same one (MPI_IN_PLACE is for that)");
  if (status_.ok() && (keeps || written_.has_gaps())) status_ = written_.load();
  return written_.buffer();
}

Status StagedCall::store_message(const MPI_Status& status) {
  MPI_Count bytes = 0;
  // What has gaps was loaded before.
  if (!written_.beside() || written_.has_gaps()) return written_.store();
  if (calls_.mpi_.Get_elements_x(&status, MPI_BYTE, &bytes) != MPI_SUCCESS || bytes < 0)
    return Status(Code::system, "MPI_Get_elements_x does not say how long the message was");
  return written_.store_front(std::min(written_bytes_, static_cast<std::size_t>(bytes)));
}

int StagedCall::fail() {
  return calls_.backend_.refuse(status_, name_, comm_);
}

}  // namespace heddle::backend
