// What of UCX is owned: a context (the devices, and what is registered with them) and a worker (queues,
// connections).
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "base/status.hpp"

namespace heddle {

// "1.13.1", of the library that is loaded.
std::string ucx_version();

class UcxContext {
 public:
  static Result<std::shared_ptr<UcxContext>> create();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;
  ~UcxContext() { ucp_cleanup(handle_); }

  ucp_context_h handle() const { return handle_; }
  // UCX tells by itself where a buffer lies, and has ways to move it.
  bool device_memory() const;

 private:
  explicit UcxContext(ucp_context_h handle) : handle_(handle) {}
  ucp_context_h handle_;
};

// Used by one thread at a time, though not always by the same one.
class UcxWorker {
 public:
  static Result<std::unique_ptr<UcxWorker>> create(std::shared_ptr<UcxContext> context);
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;
  ~UcxWorker() { destroy(); }

  // Null after destroy().
  ucp_worker_h handle() const { return handle_; }
  const UcxContext& context() const { return *context_; }
  // Of the devices that lead to other hosts.
  const std::string& address() const { return address_; }
  // Becomes readable when an armed worker has something to do; -1: UCX has none here.
  int wake_descriptor() const { return wake_descriptor_; }
  // With all its connections and whatever is still open on them: no buffer is touched after it.
  void destroy();

 private:
  UcxWorker(std::shared_ptr<UcxContext> context, ucp_worker_h handle)
      : context_(std::move(context)), handle_(handle) {}
  Status find_address();

  std::shared_ptr<UcxContext> context_;
  ucp_worker_h handle_;
  std::string address_;
  int wake_descriptor_ = -1;
};

}  // namespace heddle
