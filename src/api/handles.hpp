// What the opaque handles of the C API point to.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/no_memory.hpp"
#include "base/status.hpp"
#include "comm/communicator.hpp"
#include "device/placed_residual.hpp"
#include "gpu/gpu.hpp"
#include "heddle/heddle.h"
#include "heddle/heddle_compress.h"
#include "setup/lent_messages.hpp"

namespace heddle::edge {

// First words of live handles. They are overwritten before the memory is given back, so that most uses of a
// destroyed handle, and of a pointer that never was one, are told instead of followed. That is help, not a
// guarantee: the memory may belong to somebody else by then.
inline constexpr std::uint64_t kCommMagic = 0x6d6d6f63'656c6468ULL;
inline constexpr std::uint64_t kRequestMagic = 0x71657231'656c6468ULL;
inline constexpr std::uint64_t kResidualMagic = 0x73657231'656c6468ULL;
inline constexpr std::uint64_t kDeadMagic = 0;

// How many times this process and those that it comes from were forked off, since the first communicator.
int forks_so_far();

// A sparse result that waits to be fetched.
struct KeptResult {
  SparseView view;
  std::vector<std::byte> indices;
  std::vector<std::byte> values;
};

}  // namespace heddle::edge

struct heddle_request;

struct heddle_comm {
  volatile std::uint64_t magic = heddle::edge::kCommMagic;
  const int forks = heddle::edge::forks_so_far();  // when it was made
  std::unique_ptr<heddle::LentMessages> lent;      // null where the caller lends none
  heddle::gpu::Gpu gpu;                            // outlives what has images of its buffers: the requests
  std::unique_ptr<heddle::Communicator> communicator;
  bool compares = false;                           // HEDDLE_CHECK
  std::atomic<bool> in_call = false;               // looked at where it compares
  std::vector<heddle_request*> requests;           // not owned: the caller has them
  std::unique_ptr<heddle::edge::KeptResult> kept;  // a sparse result that did not fit
  // From heddle_alloc on this one. The heap that it is from is also that of all communicators which were
  // split off each other.
  std::vector<void*> memory;

  heddle_comm() = default;
  heddle_comm(const heddle_comm&) = delete;
  heddle_comm& operator=(const heddle_comm&) = delete;
  ~heddle_comm();
};

struct heddle_request {
  volatile std::uint64_t magic = heddle::edge::kRequestMagic;
  heddle_comm* comm = nullptr;  // null once the communicator is destroyed
  std::unique_ptr<heddle::Request> request;
  bool persistent = false;
  // And no call of the caller's has told of its completion yet, however far it is: what is allowed must not
  // depend on who was faster.
  bool active = false;

  heddle_request() = default;
  heddle_request(const heddle_request&) = delete;
  heddle_request& operator=(const heddle_request&) = delete;
  ~heddle_request();
};

struct heddle_residual {
  volatile std::uint64_t magic = heddle::edge::kResidualMagic;
  heddle::PlacedResidual residual;

  explicit heddle_residual(heddle::Residual values) : residual(std::move(values)) {}
  heddle_residual(const heddle_residual&) = delete;
  heddle_residual& operator=(const heddle_residual&) = delete;
  ~heddle_residual();
};

namespace heddle::edge {

// A child has copies of handles that reach what is still the parent's: there it is an error to use them.
bool is_parents(const heddle_comm* comm);
bool is_parents(const heddle_request* request);
Status check(const heddle_comm* comm);
Status check(const heddle_request* request);
Status check(const heddle_residual* residual);
// A request that outlived its communicator: it can only be freed.
bool is_orphan(const heddle_request* request);

// A blocking call, or one on a stream, for as long as it lasts. With HEDDLE_CHECK it is known whether another
// thread is in one on the same communicator.
class OneCall {
 public:
  explicit OneCall(heddle_comm& comm) : comm_(comm) {
    if (comm.compares) [[unlikely]]
      entered_ = !comm.in_call.exchange(true);
  }
  OneCall(const OneCall&) = delete;
  OneCall& operator=(const OneCall&) = delete;
  ~OneCall() {
    if (entered_) [[unlikely]]
      comm_.in_call = false;
  }
  heddle_comm& comm() const { return comm_; }
  // Where the communicator compares.
  bool alone() const { return entered_; }

 private:
  heddle_comm& comm_;
  bool entered_ = false;
};

// A blocking call of several steps, which no rank can make again by itself: where there is no memory for what
// is around the steps the communicator fails, and the others, who may be in one of them, hear of it.
template <typename Body>
Status in_steps(heddle_comm& comm, const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    Status none = no_memory();
    comm.communicator->give_up(none);
    return none;
  }
}

// A call that a rank which lacks memory may make again until it has `begun`, which `body` is given to set.
// After that the communicator fails, unless the others were told, of which device/verdict.hpp makes something
// else.
template <typename Body>
Status until_begun(heddle_comm& comm, const Body& body) {
  bool begun = false;
  Status status = without_throwing([&] { return body(begun); });
  if (begun && status.code() == Code::out_of_memory) comm.communicator->give_up(status);
  return status;
}

// Before a call whose arguments are `checked`: with HEDDLE_CHECK the other ranks hear what `describe()` says
// of it, or that the arguments are refused here.
template <typename Describe>
Status agree(const OneCall& call, Status checked, const Describe& describe) {
  if (!call.comm().compares) [[likely]]
    return checked;
  if (!call.alone())
    return Status(
        Code::invalid_argument,
        "two threads are in calls on one communicator (HEDDLE_CHECK): calls on it come from one at a "
        "time; give each thread a communicator of its own (heddle_comm_split)");
  Status compared = call.comm().communicator->compare(checked.ok() ? describe() : CollectiveCall());
  return checked.ok() ? std::move(compared) : std::move(checked);
}
inline Status agree(const OneCall& call, CollectiveCall::Kind kind) {
  return agree(call, Status(), [&] { return CollectiveCall::of(kind); });
}

enum class Life : std::uint8_t { once, persistent };

// What came of a start, which it gives back. Where this rank's buffers could not be read on their GPU it has
// not begun, and the others wait for it: as in blocking calls (outcome() in device_buffers.cpp) they hear of
// it.
Status heard_of(heddle_comm& comm, Status status);

// What every call begins with that makes a request: *out is null until there is one.
Status check_request_call(heddle_comm_t comm, heddle_request_t* out);
// Wraps what the communicator made; a request of one use is started as well.
Status hand_out(heddle_comm& comm, Result<std::unique_ptr<Request>> made, Life life, heddle_request_t* out);

}  // namespace heddle::edge
