#include "api/handles.hpp"

#include <algorithm>

heddle_comm::~heddle_comm() {
  for (heddle_request* request : requests) {
    request->request.reset();
    request->comm = nullptr;
  }
  // The lent messages go last: the communicator's transports use them.
  communicator.reset();
  if (lent.release != nullptr) lent.release(lent.context);
  magic = heddle::edge::kDeadMagic;
}

heddle_request::~heddle_request() {
  if (comm != nullptr) std::erase(comm->requests, this);
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

}  // namespace

Status check(const heddle_comm* comm) {
  if (has_magic(comm, kCommMagic)) return {};
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
  return {};
}

bool is_orphan(const heddle_request* request) {
  return has_magic(request, kRequestMagic) && request->comm == nullptr;
}

}  // namespace heddle::edge
