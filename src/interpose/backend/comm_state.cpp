#include "interpose/backend/comm_state.hpp"

#include <new>

namespace heddle::backend {

void* Scratch::reserve(std::size_t bytes) {
  if (bytes > bytes_) {
    memory_.reset();
    bytes_ = 0;
    memory_.reset(new (std::nothrow) std::byte[bytes]);
    if (memory_ == nullptr) return nullptr;
    bytes_ = bytes;
  }
  return memory_.get();
}

void Scratch::relax() {
  if (bytes_ <= kKeep) return;
  memory_.reset();
  bytes_ = 0;
}

void CommState::reset() {
  savings.reset();
  communicator.reset();
  p2p.reset();
  scratch = Scratch();
  pairs.reset();
  explained = 0;
  mode = Mode::counting;
  explain = false;
  rank = 0;
  size = 1;
  calls = 0;
  saved = 0;
  to_save = 0;
  barriers = 0;
  name.clear();
}

CommState* Registry::find(MPI_Comm handle) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(handle);
  if (found == known_.end()) return nullptr;
  probe_[slot(handle)].store(found->second, std::memory_order_release);
  return found->second;
}

CommState* Registry::take() {
  const std::lock_guard lock(mutex_);
  if (unused_.empty()) {
    if (unused_.capacity() <= pool_.size()) unused_.reserve(2 * (pool_.size() + 1));
    known_.reserve(unused_.capacity());
    KnownStates made;
    made.emplace();
    CommState& state = pool_.emplace_back();
    state.place = made.extract(made.begin());
    return &state;
  }
  CommState* state = unused_.back();
  unused_.pop_back();
  return state;
}

void Registry::publish(CommState* state, MPI_Comm handle) {
  const std::lock_guard lock(mutex_);
  state->handle.store(handle, std::memory_order_relaxed);
  state->place.key() = handle;
  state->place.mapped() = state;
  if (auto put = known_.insert(std::move(state->place)); !put.inserted) {
    put.position->second = state;
    state->place = std::move(put.node);
  }
  probe_[slot(handle)].store(state, std::memory_order_release);
}

void Registry::recycle(CommState* state) {
  state->reset();
  const std::lock_guard lock(mutex_);
  // Without its handle a state is found by nobody, even where a probe still points to it.
  const auto found = known_.find(state->handle.exchange(MPI_Comm{}, std::memory_order_relaxed));
  if (found != known_.end()) state->place = known_.extract(found);
  unused_.push_back(state);
}

std::vector<CommState*> Registry::all() {
  const std::lock_guard lock(mutex_);
  std::vector<CommState*> states;
  states.reserve(known_.size());
  for (const auto& [handle, state] : known_)
    states.push_back(state);
  return states;
}

std::size_t Registry::allocated() {
  const std::lock_guard lock(mutex_);
  return pool_.size();
}

}  // namespace heddle::backend
