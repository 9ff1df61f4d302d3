#include "api/handles.hpp"

#include <pthread.h>

#include <atomic>

heddle_comm::~heddle_comm() {
  for (heddle_request* request : requests) {
    request->request.reset();
    request->comm = nullptr;
  }
  for (void* each : memory)
    (void)communicator->release(each);
  // The lent messages go last: the communicator's transports use them.
  communicator.reset();
  lent.reset();
  magic = heddle::edge::kDeadMagic;
}

heddle_request::~heddle_request() {
  if (comm != nullptr) std::erase(comm->requests, this);
  magic = heddle::edge::kDeadMagic;
}

heddle_residual::~heddle_residual() {
  magic = heddle::edge::kDeadMagic;
}

namespace heddle::edge {
namespace {

// Reads memory that may have been given back: that is the point, so the sanitizer looks away.
template <typename Handle>
__attribute__((noinline, no_sanitize("address", "thread"))) bool has_magic(const Handle* handle,
                                                                           std::uint64_t magic) {
  const auto address = reinterpret_cast<std::uintptr_t>(handle);
  return address >= 4096 && address % alignof(Handle) == 0 && handle->magic == magic;
}

// To ask the system for the process takes as long as a small collective.
std::atomic<int> forks{0};

bool in_its_process(const heddle_comm& comm) {
  return comm.forks == forks.load(std::memory_order_relaxed);
}

[[gnu::cold, gnu::noinline]] Status parents() {
  return Status(Code::invalid_argument,
                "this communicator is the parent process's: after fork() the child can only destroy it, and "
                "makes one of its own");
}

}  // namespace

int forks_so_far() {
  static const int watched =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  (void)watched;  // without memory for it children are trusted
  return forks.load(std::memory_order_relaxed);
}

bool is_parents(const heddle_comm* comm) {
  return has_magic(comm, kCommMagic) && !in_its_process(*comm);
}

bool is_parents(const heddle_request* request) {
  return has_magic(request, kRequestMagic) && request->comm != nullptr && !in_its_process(*request->comm);
}

Status check(const heddle_comm* comm) {
  if (has_magic(comm, kCommMagic)) return in_its_process(*comm) ? Status() : parents();
  if (comm == nullptr) return Status(Code::invalid_argument, "the communicator is null");
  return Status(Code::invalid_argument, "this is not a communicator, or it has been destroyed");
}

Status check(const heddle_request* request) {
  if (!has_magic(request, kRequestMagic)) {
    return Status(Code::invalid_argument, "this is not a request, or it has been freed");
  }
  if (request->comm == nullptr) {
    return Status(
        Code::invalid_argument,
        "the communicator of this request has been destroyed; all that is left is heddle_request_free");
  }
  return in_its_process(*request->comm) ? Status() : parents();
}

Status check(const heddle_residual* residual) {
  if (has_magic(residual, kResidualMagic)) return {};
  if (residual == nullptr) return Status(Code::invalid_argument, "the residual is null");
  return Status(Code::invalid_argument, "this is not a residual, or it has been destroyed");
}

bool is_orphan(const heddle_request* request) {
  return has_magic(request, kRequestMagic) && request->comm == nullptr;
}

}  // namespace heddle::edge
