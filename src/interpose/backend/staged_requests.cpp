#include "interpose/backend/staged_requests.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "interpose/backend/staged_calls.hpp"

namespace heddle::backend {

// ---- What is written

KeptType::KeptType(const HostMpi& mpi, MPI_Datatype type) : mpi_(&mpi) {
  if (mpi.Type_dup(type, &type_) != MPI_SUCCESS) type_ = MPI_DATATYPE_NULL;
}

KeptType::KeptType(KeptType&& other) noexcept
    : mpi_(other.mpi_), type_(std::exchange(other.type_, MPI_DATATYPE_NULL)) {}

KeptType::~KeptType() {
  if (type_ != MPI_DATATYPE_NULL) (void)mpi_->Type_free(&type_);
}

void StagedViews::set_written(const HostMpi& mpi, const Span& span, const std::vector<StagedPart>& parts) {
  span_ = span;
  if (!written.beside() || !span.has_gaps) return;
  parts_.reserve(parts.size());
  for (const StagedPart& part : parts)
    parts_.push_back({part.begin, part.count, KeptType(mpi, part.type)});
}

Status StagedViews::store(const HostMpi& mpi, const Packing& packing, const MPI_Status& status) {
  if (!written.beside()) return {};
  std::size_t bytes = SIZE_MAX;
  if (is_message) {
    MPI_Count came = 0;
    if (mpi.Get_elements_x(&status, MPI_BYTE, &came) != MPI_SUCCESS || came < 0)
      return Status(Code::system, "MPI_Get_elements_x does not say how long the message was");
    bytes = static_cast<std::size_t>(came);
  }
  if (span_.has_gaps) return store_elements(mpi, packing, bytes);
  return written.store_front(std::min(span_.bytes, bytes));
}

// The host finds the places of the first `most_bytes` bytes, in the elements' order, as it found them for the data.
Status StagedViews::store_elements(const HostMpi& mpi, const Packing& packing, std::size_t most_bytes) {
  std::vector<unsigned char> marks(span_.bytes);
  const auto origin =
      reinterpret_cast<std::uintptr_t>(marks.data()) - static_cast<std::uintptr_t>(span_.begin);
  std::vector<unsigned char> ones;
  for (const Part& part : parts_) {
    MPI_Count size = 0;
    if (part.type.get() == MPI_DATATYPE_NULL || mpi.Type_size_x(part.type.get(), &size) != MPI_SUCCESS)
      return Status(Code::out_of_memory, "the host MPI has no room for another datatype");
    const std::size_t bytes = static_cast<std::size_t>(size) * part.count;
    ones.assign(bytes, 0);
    std::fill_n(ones.begin(), static_cast<std::ptrdiff_t>(std::min(bytes, most_bytes)),
                static_cast<unsigned char>(1));
    void* const to = reinterpret_cast<void*>(origin + static_cast<std::uintptr_t>(part.begin));
    if (bytes > packing.most_bytes() || !packing.unpack(ones.data(), bytes, to, part.count, part.type.get()))
      return Status(Code::system, "MPI_Unpack does not say where the elements of a datatype lie");
  }
  return written.store_marked(marks.data());
}

// ---- Requests

StagedRequests::Held::node_type StagedRequests::hold(StagedViews views) {
  Held one;
  one.emplace(MPI_REQUEST_NULL, std::move(views));
  return one.extract(one.begin());
}

void StagedRequests::add(Held::node_type held, MPI_Request request) {
  held.key() = request;
  const std::lock_guard lock(mutex_);
  held_.insert(std::move(held));
  count_.store(held_.size(), std::memory_order_relaxed);
}

StagedRequests::Held::node_type StagedRequests::take(MPI_Request request) {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(request);
  if (found == held_.end()) return {};
  Held::node_type held = held_.extract(found);
  count_.store(held_.size(), std::memory_order_relaxed);
  return held;
}

Status StagedRequests::end(MPI_Request request, const MPI_Status& status) {
  Held::node_type held = take(request);
  return held.empty() ? Status() : held.mapped().store(mpi_, packing_, status);
}

void StagedRequests::drop(MPI_Request request) {
  (void)take(request);
}

void StagedRequests::leave(MPI_Request request) {
  Held::node_type held = take(request);
  if (held.empty()) return;
  const std::lock_guard lock(mutex_);
  left_.insert(std::move(held));
}

// ---- Their ends

StagedEnd::StagedEnd(StagedCalls& calls, const char* name, int count, const void* requests, void* statuses)
    : calls_(calls),
      name_(name),
      requests_(static_cast<const MPI_Request*>(requests)),
      statuses_(static_cast<MPI_Status*>(statuses)) {
  // What is no array the host reports.
  if (requests_ != nullptr && count > 0) before_.assign(requests_, requests_ + count);
  // The same as MPI_STATUS_IGNORE in every ABI.
  if (statuses == MPI_STATUSES_IGNORE) {
    own_.resize(std::max<std::size_t>(before_.size(), 1));
    statuses_ = own_.data();
  }
}

void StagedEnd::end(int place, int status) {
  const auto i = static_cast<std::size_t>(place);
  if (place < 0 || i >= before_.size()) return;
  Status stored = calls_.requests().end(before_[i], statuses_[status]);
  if (status_.ok()) status_ = std::move(stored);
  before_[i] = MPI_REQUEST_NULL;
}

// After `count` that have ended, or failed as their statuses say. What else the host has taken away has failed.
int StagedEnd::finish(int rc, int count, const int* places) {
  int error_class = rc;
  if (rc != MPI_SUCCESS) (void)calls_.host_mpi().Error_class(rc, &error_class);
  for (int k = 0; k < count && (rc == MPI_SUCCESS || error_class == MPI_ERR_IN_STATUS); ++k) {
    if (rc == MPI_SUCCESS || statuses_[k].MPI_ERROR == MPI_SUCCESS) end(places != nullptr ? places[k] : k, k);
  }
  for (std::size_t i = 0; i < before_.size() && rc != MPI_SUCCESS; ++i) {
    if (before_[i] != MPI_REQUEST_NULL && requests_[i] == MPI_REQUEST_NULL)
      calls_.requests().drop(before_[i]);
  }
  return rc == MPI_SUCCESS && !status_.ok() ? calls_.refuse(status_, name_, MPI_COMM_SELF) : rc;
}

int StagedEnd::all(int rc, bool done) {
  return finish(rc, done || rc != MPI_SUCCESS ? static_cast<int>(before_.size()) : 0, nullptr);
}

int StagedEnd::one(int rc, bool done, const int* place) {
  return finish(rc, rc == MPI_SUCCESS && done && *place != MPI_UNDEFINED ? 1 : 0, place);
}

int StagedEnd::some(int rc, const int* ended, const int* places) {
  const bool told = rc == MPI_SUCCESS || (ended != nullptr && places != nullptr);
  return finish(rc, told && *ended != MPI_UNDEFINED ? *ended : 0, places);
}

void StagedEnd::leave() {
  if (!before_.empty()) calls_.requests().leave(before_[0]);
}

}  // namespace heddle::backend
