#include "interpose/backend/staged_requests.hpp"

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>

#include "interpose/backend/staged_calls.hpp"

namespace heddle::backend {
namespace {

// One of a datatype.
struct Element {
  std::size_t bytes = 0;      // of data
  std::ptrdiff_t low = 0;     // where it begins
  std::size_t length = 0;     // and how far it reaches
  std::ptrdiff_t extent = 0;  // where the next one is

  Status look_at(const HostMpi& mpi, MPI_Datatype type) {
    MPI_Count size = 0;
    MPI_Aint unused = 0;
    MPI_Aint apart = 0;
    MPI_Aint lowest = 0;
    MPI_Aint reach = 0;
    if (mpi.Type_size_x(type, &size) != MPI_SUCCESS || size <= 0 ||
        mpi.Type_get_extent(type, &unused, &apart) != MPI_SUCCESS ||
        mpi.Type_get_true_extent(type, &lowest, &reach) != MPI_SUCCESS)
      return Status(Code::system, "the host MPI does not say how large a datatype is");
    *this = {static_cast<std::size_t>(size), lowest, static_cast<std::size_t>(reach), apart};
    return {};
  }

  // Where its first `count` bytes of data lie, from where it begins: the host finds that, as it found it for the data.
  Status find_runs(const Packing& packing, MPI_Datatype type, std::size_t count,
                   std::vector<gpu::Rows>* runs) const {
    std::vector<unsigned char> marks(length);
    std::vector<unsigned char> data(bytes);
    std::fill_n(data.begin(), static_cast<std::ptrdiff_t>(count), static_cast<unsigned char>(1));
    void* const to = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(marks.data()) -
                                             static_cast<std::uintptr_t>(low));
    if (bytes > packing.most_bytes() || !packing.unpack(data.data(), bytes, to, 1, type))
      return Status(Code::system, "MPI_Unpack does not say where the data of a datatype lies");
    for (std::size_t at = 0; at < length;) {
      std::size_t end = at;
      while (end < length && marks[end] != 0)
        ++end;
      if (end > at) runs->push_back({at, end - at, end - at, 1});
      at = end + 1;
    }
    return {};
  }
};

// Those runs, so many bytes further on, of which some may be as far apart from each other.
void join_rows(const std::vector<gpu::Rows>& runs, std::ptrdiff_t begin, std::vector<gpu::Rows>* rows) {
  gpu::Rows open{0, 0, 0, 0};
  for (const gpu::Rows& run : runs) {
    const std::size_t at = static_cast<std::size_t>(begin) + run.begin;
    if (open.height == 1 && run.width == open.width) open.pitch = at - open.begin;
    if (run.width == open.width && at == open.begin + open.height * open.pitch) {
      ++open.height;
      continue;
    }
    if (open.height > 0) rows->push_back(open);
    open = {at, run.width, run.width, 1};
  }
  if (open.height > 0) rows->push_back(open);
}

}  // namespace

// ---- What is written

// Without its attributes, whose callbacks are the program's.
KeptType::KeptType(const HostMpi& mpi, MPI_Datatype type) : mpi_(&mpi) {
  if (mpi.Type_contiguous(1, type, &type_) != MPI_SUCCESS || mpi.Type_commit(&type_) != MPI_SUCCESS)
    type_ = MPI_DATATYPE_NULL;
}

KeptType::KeptType(KeptType&& other) noexcept
    : mpi_(other.mpi_), type_(std::exchange(other.type_, MPI_DATATYPE_NULL)) {}

KeptType::~KeptType() {
  if (type_ != MPI_DATATYPE_NULL) (void)mpi_->Type_free(&type_);
}

Status StagedViews::set_written(const HostMpi& mpi, const Span& span, const std::vector<StagedPart>& parts) {
  span_ = span;
  if (!written.beside() || !span.has_gaps) return {};
  parts_.reserve(parts.size());
  for (const StagedPart& part : parts) {
    parts_.push_back({part.begin, part.count, KeptType(mpi, part.type)});
    if (parts_.back().type.get() == MPI_DATATYPE_NULL)
      return Status(Code::out_of_memory, "the host MPI has no room for another datatype");
  }
  return {};
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

// At most so many bytes, in the elements' order.
Status StagedViews::store_elements(const HostMpi& mpi, const Packing& packing, std::size_t most_bytes) try {
  std::vector<gpu::Rows> rows;
  for (const Part& part : parts_)
    HEDDLE_TRY(add_rows(part, mpi, packing, &most_bytes, &rows));
  return written.store_rows(rows);
} catch (const std::bad_alloc&) {
  return Status(Code::out_of_memory, "no memory to find the elements of a datatype");
}

Status StagedViews::add_rows(const Part& part, const HostMpi& mpi, const Packing& packing,
                             std::size_t* most_bytes, std::vector<gpu::Rows>* rows) const {
  Element element{};
  HEDDLE_TRY(element.look_at(mpi, part.type.get()));
  const std::size_t whole = std::min(part.count, *most_bytes / element.bytes);
  const std::size_t rest = whole < part.count ? *most_bytes % element.bytes : 0;
  *most_bytes -= whole * element.bytes + rest;
  const std::ptrdiff_t begin = part.begin + element.low - span_.begin;
  std::vector<gpu::Rows> runs;
  HEDDLE_TRY(element.find_runs(packing, part.type.get(), element.bytes, &runs));
  const auto extent = static_cast<std::size_t>(element.extent);
  const bool is_apart =
      element.extent > 0 &&
      std::all_of(runs.begin(), runs.end(), [&](const gpu::Rows& run) { return run.width <= extent; });
  if (whole > 1 && is_apart) {
    // One run of all elements after the other.
    for (const gpu::Rows& run : runs) {
      const std::size_t at = static_cast<std::size_t>(begin) + run.begin;
      rows->push_back(run.width < extent ? gpu::Rows{at, run.width, extent, whole}
                                         : gpu::Rows{at, extent * whole, extent * whole, 1});
    }
  } else {
    for (std::size_t i = 0; i < whole; ++i)
      join_rows(runs, begin + static_cast<std::ptrdiff_t>(i) * element.extent, rows);
  }
  if (rest == 0) return {};
  runs.clear();
  HEDDLE_TRY(element.find_runs(packing, part.type.get(), rest, &runs));
  join_rows(runs, begin + static_cast<std::ptrdiff_t>(whole) * element.extent, rows);
  return {};
}

// ---- Requests

StagedRequests::Held::node_type StagedRequests::hold(StagedViews views) {
  Held one;
  one.emplace(MPI_REQUEST_NULL, std::move(views));
  return one.extract(one.begin());
}

Status StagedRequests::add(Held::node_type held, MPI_Request request) {
  int done = 0;
  MPI_Status status{};
  if (mpi_.Request_get_status(request, &done, &status) == MPI_SUCCESS && done != 0)
    return end(std::move(held), status);
  held.key() = request;
  end_left();
  put_back(std::move(held));
  return {};
}

// One that is there already has ended unseen, since its handle was given out again.
void StagedRequests::put_back(Held::node_type held) {
  const std::lock_guard lock(mutex_);
  held_.erase(held.key());
  held_.insert(std::move(held));
  count_.store(held_.size(), std::memory_order_relaxed);
}

std::vector<StagedRequests::Held::node_type> StagedRequests::take(const std::vector<MPI_Request>& requests) {
  std::vector<Held::node_type> taken(requests.size());
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < requests.size(); ++i)
    taken[i] = held_.extract(requests[i]);
  count_.store(held_.size(), std::memory_order_relaxed);
  return taken;
}

Status StagedRequests::end(Held::node_type held, const MPI_Status& status) {
  return held.mapped().store(mpi_, packing_, status);
}

void StagedRequests::leave(Held::node_type held) {
  end_left();
  const std::lock_guard lock(mutex_);
  left_.insert(std::move(held));
}

// What has ended meanwhile of those that nobody will ask for.
void StagedRequests::end_left() {
  Held left;
  {
    const std::lock_guard lock(mutex_);
    left.swap(left_);
  }
  for (auto each = left.begin(); each != left.end();) {
    MPI_Request request = each->first;
    int done = 0;
    MPI_Status status{};
    if (mpi_.Test(&request, &done, &status) != MPI_SUCCESS || done == 0) {
      ++each;
      continue;
    }
    (void)each->second.store(mpi_, packing_, status);
    each = left.erase(each);
  }
  const std::lock_guard lock(mutex_);
  left_.merge(left);
}

// ---- Their ends

StagedEnd::StagedEnd(StagedCalls& calls, const char* name, int count, const void* requests, void* statuses)
    : calls_(calls),
      name_(name),
      requests_(static_cast<const MPI_Request*>(requests)),
      statuses_(static_cast<MPI_Status*>(statuses)) {
  // What is no array the host reports.
  const int known = requests_ != nullptr && count > 0 ? count : 0;
  held_ = calls.requests().take(std::vector<MPI_Request>(requests_, requests_ + known));
  // The same as MPI_STATUS_IGNORE in every ABI.
  if (statuses == MPI_STATUSES_IGNORE) {
    own_.resize(std::max<std::size_t>(held_.size(), 1));
    statuses_ = own_.data();
  }
}

StagedEnd::~StagedEnd() {
  for (auto& held : held_) {
    if (!held.empty()) calls_.requests().put_back(std::move(held));
  }
}

void StagedEnd::end(int place, int status) {
  const auto i = static_cast<std::size_t>(place);
  if (place < 0 || i >= held_.size() || held_[i].empty()) return;
  Status stored = calls_.requests().end(std::move(held_[i]), statuses_[status]);
  if (status_.ok()) status_ = std::move(stored);
}

// After `count` that have ended, or failed as their statuses say. What else the host has taken away has failed.
int StagedEnd::finish(int rc, int count, const int* places) {
  int error_class = rc;
  if (rc != MPI_SUCCESS) (void)calls_.host_mpi().Error_class(rc, &error_class);
  for (int k = 0; k < count && (rc == MPI_SUCCESS || error_class == MPI_ERR_IN_STATUS); ++k) {
    if (rc == MPI_SUCCESS || statuses_[k].MPI_ERROR == MPI_SUCCESS) end(places != nullptr ? places[k] : k, k);
  }
  for (std::size_t i = 0; i < held_.size() && rc != MPI_SUCCESS; ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) held_[i] = {};
  }
  return rc == MPI_SUCCESS && !status_.ok() ? calls_.refuse(status_, name_, MPI_COMM_SELF) : rc;
}

int StagedEnd::all(int rc, bool done) {
  return finish(rc, done || rc != MPI_SUCCESS ? static_cast<int>(held_.size()) : 0, nullptr);
}

int StagedEnd::one(int rc, bool done, const int* place) {
  return finish(rc, rc == MPI_SUCCESS && done && *place != MPI_UNDEFINED ? 1 : 0, place);
}

int StagedEnd::some(int rc, const int* ended, const int* places) {
  const bool told = rc == MPI_SUCCESS || (ended != nullptr && places != nullptr);
  return finish(rc, told && *ended != MPI_UNDEFINED ? *ended : 0, places);
}

bool StagedEnd::leave(void* request) {
  if (held_.empty() || held_[0].empty()) return false;
  calls_.requests().leave(std::move(held_[0]));
  *static_cast<MPI_Request*>(request) = MPI_REQUEST_NULL;
  return true;
}

}  // namespace heddle::backend
