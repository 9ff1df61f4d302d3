#include "interpose/backend/staged_requests.hpp"

#include <algorithm>
#include <utility>

#include "interpose/backend/staged_calls.hpp"

namespace heddle::backend {

StagedRequests::Held::node_type StagedRequests::hold(StagedViews views) {
  Held one;
  one.emplace(MPI_REQUEST_NULL, StagedRequest{std::move(views)});
  return one.extract(one.begin());
}

Status StagedRequests::add(Held::node_type held, MPI_Request request) {
  int done = 0;
  MPI_Status status{};
  if (mpi_.Request_get_status(request, &done, &status) == MPI_SUCCESS && done != 0) return end(held, status);
  held.key() = request;
  end_left();
  put_back(std::move(held));
  return {};
}

void StagedRequests::add_persistent(Held::node_type held, MPI_Request request) {
  held.mapped().is_persistent = true;
  held.mapped().is_started = false;
  held.key() = request;
  put_back(std::move(held));
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

Status StagedRequests::end(Held::node_type& held, const MPI_Status& status) {
  StagedRequest& request = held.mapped();
  // Of a persistent one that nobody has started hosts say as well that it has ended.
  Status stored = request.is_started ? request.views.store(mpi_, packing_, status) : Status();
  request.is_started = false;
  if (!request.is_persistent) held = {};
  return stored;
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
    const int rc = mpi_.Test(&request, &done, &status);
    if (rc == MPI_SUCCESS && done == 0) {
      ++each;
      continue;
    }
    if (rc == MPI_SUCCESS) (void)each->second.views.store(mpi_, packing_, status);
    // A persistent one, or one that has failed and is still there. The handle of any other one may be
    // somebody else's by now.
    if (request != MPI_REQUEST_NULL) (void)mpi_.Request_free(&request);
    each = left.erase(each);
  }
  const std::lock_guard lock(mutex_);
  left_.merge(left);
}

// ---- Their ends

TakenRequests::TakenRequests(StagedRequests& requests, int count, const void* array) : requests_(requests) {
  const auto* const first = static_cast<const MPI_Request*>(array);
  if (first != nullptr && count > 0) held_ = requests.take(std::vector<MPI_Request>(first, first + count));
}

TakenRequests::~TakenRequests() {
  for (auto& held : held_) {
    if (!held.empty()) requests_.put_back(std::move(held));
  }
}

StagedRequests::Held::node_type& TakenRequests::operator[](int i) {
  return i >= 0 && i < size() ? held_[static_cast<std::size_t>(i)] : none_;
}

Status TakenRequests::load() {
  for (auto& held : held_) {
    if (!held.empty() && held.mapped().is_persistent) HEDDLE_TRY(held.mapped().views.load());
  }
  return {};
}

void TakenRequests::start() {
  for (auto& held : held_) {
    if (!held.empty()) held.mapped().is_started = true;
  }
}

StagedEnd::StagedEnd(StagedCalls& calls, const char* name, int count, const void* requests, void* statuses)
    : calls_(calls),
      name_(name),
      requests_(static_cast<const MPI_Request*>(requests)),
      held_(calls.requests(), count, requests),
      statuses_(static_cast<MPI_Status*>(statuses)) {
  // The same as MPI_STATUS_IGNORE in every ABI.
  if (statuses == MPI_STATUSES_IGNORE) {
    own_.resize(static_cast<std::size_t>(std::max(held_.size(), 1)));
    statuses_ = own_.data();
  }
}

void StagedEnd::end(int place, int status) {
  auto& held = held_[place];
  if (held.empty()) return;
  Status stored = calls_.requests().end(held, statuses_[status]);
  if (status_.ok()) status_ = std::move(stored);
}

// After `count` that have ended, or failed as their statuses say. What else the host has taken away has
// failed.
int StagedEnd::finish(int rc, int count, const int* places) {
  int error_class = rc;
  if (rc != MPI_SUCCESS) (void)calls_.host_mpi().Error_class(rc, &error_class);
  for (int k = 0; k < count && (rc == MPI_SUCCESS || error_class == MPI_ERR_IN_STATUS); ++k) {
    if (rc == MPI_SUCCESS || statuses_[k].MPI_ERROR == MPI_SUCCESS) end(places != nullptr ? places[k] : k, k);
  }
  for (int i = 0; i < held_.size() && rc != MPI_SUCCESS; ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) held_[i] = {};
  }
  return rc == MPI_SUCCESS && !status_.ok() ? calls_.refuse(status_, name_, MPI_COMM_SELF) : rc;
}

int StagedEnd::all(int rc, bool done) {
  return finish(rc, done || rc != MPI_SUCCESS ? held_.size() : 0, nullptr);
}

int StagedEnd::one(int rc, bool done, const int* place) {
  return finish(rc, rc == MPI_SUCCESS && done && *place != MPI_UNDEFINED ? 1 : 0, place);
}

int StagedEnd::some(int rc, const int* ended, const int* places) {
  const bool told = rc == MPI_SUCCESS || (ended != nullptr && places != nullptr);
  return finish(rc, told && *ended != MPI_UNDEFINED ? *ended : 0, places);
}

bool StagedEnd::leave(void* request) {
  auto& held = held_[0];
  if (held.empty()) return false;
  if (!held.mapped().is_started) {
    held = {};
    return false;
  }
  calls_.requests().leave(std::move(held));
  *static_cast<MPI_Request*>(request) = MPI_REQUEST_NULL;
  return true;
}

}  // namespace heddle::backend
