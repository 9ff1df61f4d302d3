// How a communicator becomes known, and is taken over, and how results are compared with the host's: for the
// sources of the calls that heddle serves.
#pragma once

#include "interpose/backend/backend.hpp"

namespace heddle::backend {

// Of a communicator that is not known: the state, or null where the host has served the call. Memory is taken
// before that: what it has served would count on the other ranks alone if this one ran out of it afterwards.
template <typename Call>
CommState* Backend::meet(MPI_Comm comm, const Call& call, int* rc) {
  CommState* const state = make_ready() ? registry_.take() : nullptr;
  // (Of a wrong communicator the user's error handler then hears twice.)
  bool attached = state != nullptr && reproducible_ && attach(comm, state);
  if (attached) return state;
  // The host goes first: it knows whether this is a communicator, and what to tell the user if not.
  *rc = call.host();
  if (state == nullptr) return nullptr;
  int error_class = MPI_SUCCESS;
  if (*rc != MPI_SUCCESS) mpi_.Error_class(*rc, &error_class);
  attached = error_class != MPI_ERR_COMM && attach(comm, state);
  if (!attached) registry_.recycle(state);
  if (attached && state->mode == Mode::counting) (void)call.is_due(*state);
  return nullptr;
}

template <typename Call>
[[gnu::noinline]] CommState* Backend::enter(MPI_Comm comm, const Call& call, int* rc) {
  CommState* state = registry_.find_fast(comm);
  if (state == nullptr) state = registry_.find(comm);
  if (state == nullptr) {
    state = meet(comm, call, rc);
    if (state == nullptr) return nullptr;
  }
  if (state->mode == Mode::counting && call.is_due(*state)) {
    take_over(comm, *state);
    if (compares(*state)) {
      *rc = compare(call.described(*state), Call::kName, comm, *state);
      if (*rc != MPI_SUCCESS) return nullptr;
    }
  }
  if (state->mode == Mode::heddle || (state->mode == Mode::partly && call.is_agreed(*state))) return state;
  *rc = state->mode == Mode::failed ? fail(Status(), comm, *state) : call.host();
  return nullptr;
}

// A rank that heddle's call failed on, or that cannot read what it gave, or has no memory for more, does not
// come to the host's collectives, where the others would wait for it without end. So all meet by heddle
// first, whose waits end and say who is missing.
template <typename Compare>
int Backend::repeat(const char* name, MPI_Comm comm, CommState& state, const Compare& compare) {
  if (const Status met = state.communicator->barrier(); !met.ok()) return fail(met, comm, state);
  const Status status = compare();
  return status.ok() ? MPI_SUCCESS : refuse(status, name, comm);
}

}  // namespace heddle::backend
