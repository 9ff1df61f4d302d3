// Blocking calls that the host MPI serves, with buffers that may lie on a GPU: the host, which may know nothing of GPUs, gets images of them
// (device_buffers.hpp).
//
// In a process without CUDA a call is passed on as it came, after one load and one branch. Each rank does its part by itself: others may pass
// host memory in the same call. What is looked at here decides nothing but where the host finds the data; mistakes in arguments are the
// host's to report.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "interpose/backend/abi.hpp"
#include "interpose/backend/device_buffers.hpp"
#include "interpose/backend/host_mpi.hpp"

namespace heddle::backend {

class Backend;

// What calls have in common; one for a process.
class StagedCalls {
 public:
  StagedCalls(Backend& backend, const HeddleHostSymbols& host);
  StagedCalls(const StagedCalls&) = delete;
  StagedCalls& operator=(const StagedCalls&) = delete;

  // What calls are passed on to.
  const HeddleStagedCalls& next() const { return next_; }
  // Whether buffers may need images. Any thread.
  bool possible() { return buffers_.possible() && wanted(); }

 private:
  friend class StagedCall;
  bool wanted();

  Backend& backend_;
  const HostMpi& mpi_;
  DeviceBuffers& buffers_;
  const HeddleStagedCalls next_;
  int (*const ask_host_)();           // MPIX_Query_cuda_support, or null
  std::atomic<int> host_serves_{-1};  // GPU memory by itself; -1: not asked yet
};

// The ranks of a communicator, as far as they decide how much data a call has.
struct Ranks {
  int size = 0;
  int rank = -1;
  int others = 0;  // whom data comes from or goes to: all, or those of the other group
  bool is_inter = false;

  bool is_root(int root) const { return is_inter ? root == MPI_ROOT : root == rank; }
  // Whether this rank has a part beside the root's.
  bool is_served_by(int root) const { return !is_inter || root >= 0; }
};

// One call: what it reads and what it writes, and then the rest, which the host does. After a failure all of it does nothing, and finish() says why.
class StagedCall {
 public:
  StagedCall(StagedCalls& calls, const char* name, heddle_word comm)
      : calls_(calls), name_(name), comm_(abi::handle_of<MPI_Comm>(comm)) {}
  StagedCall(const StagedCall&) = delete;
  StagedCall& operator=(const StagedCall&) = delete;

  // No others where the communicator is none, which the host is to say: then no buffer is looked at.
  Ranks ranks();

  // The memory of a buffer; none where there is no data, or the host is to judge.
  Span span(const void* buffer, std::size_t count, heddle_word type) const {
    return span_of(buffer, count, abi::handle_of<MPI_Datatype>(type));
  }
  // Of one part for each of `ranks` ranks, which begin at multiples of the type's extent.
  template <typename C, typename D>
  Span parts(const void* buffer, int ranks, const C* counts, const D* places, heddle_word type) const;
  // Each of a type of its own, and so many bytes further on.
  template <typename C, typename D>
  Span parts(const void* buffer, int ranks, const C* counts, const D* bytes, const void* types) const;

  // The buffers as the host is to see them; one of each kind at most. `keeps`: what is in it counts too.
  const void* read(const void* buffer, const Span& span);
  void* write(void* buffer, const Span& span, bool keeps);

  template <typename Host>
  int finish(const Host& host) {
    if (!status_.ok()) return fail();
    const int rc = host();
    if (rc != MPI_SUCCESS) return rc;
    status_ = written_.store();
    return status_.ok() ? rc : fail();
  }
  // Where what is written may be less: a message. The host gets a status, the caller's or another one.
  template <typename Host>
  int finish_message(void* status, const Host& host) {
    if (!status_.ok()) return fail();
    MPI_Status own;
    auto* const seen = status == MPI_STATUS_IGNORE ? &own : static_cast<MPI_Status*>(status);
    const int rc = host(seen);
    if (rc != MPI_SUCCESS) return rc;
    status_ = store_message(*seen);
    return status_.ok() ? rc : fail();
  }

 private:
  Span span_of(const void* buffer, std::size_t count, MPI_Datatype type) const;
  Span with_front(const void* buffer, Span parts) const;
  static void add_part(Span& all, Span part, std::ptrdiff_t bytes);
  Status store_message(const MPI_Status& status);
  int fail();

  StagedCalls& calls_;
  const char* const name_;
  const MPI_Comm comm_;
  Status status_;
  const void* read_buffer_ = nullptr;
  std::size_t written_bytes_ = 0;
  HostView read_;
  HostView written_;
};

template <typename C, typename D>
Span StagedCall::parts(const void* buffer, int ranks, const C* counts, const D* places,
                       heddle_word type) const {
  Span all;
  MPI_Aint unused = 0;
  MPI_Aint extent = 0;
  if (counts == nullptr || places == nullptr || !abi::is_datatype(abi::handle_of<MPI_Datatype>(type)) ||
      calls_.mpi_.Type_get_extent(abi::handle_of<MPI_Datatype>(type), &unused, &extent) != MPI_SUCCESS)
    return all;
  for (int i = 0; i < ranks; ++i) {
    if (counts[i] > 0)
      add_part(all, span(buffer, static_cast<std::size_t>(counts[i]), type), places[i] * extent);
  }
  return with_front(buffer, all);
}

template <typename C, typename D>
Span StagedCall::parts(const void* buffer, int ranks, const C* counts, const D* bytes,
                       const void* types) const {
  Span all;
  if (counts == nullptr || bytes == nullptr || types == nullptr) return all;
  const auto* const each = static_cast<const MPI_Datatype*>(types);
  for (int i = 0; i < ranks; ++i) {
    if (counts[i] > 0) add_part(all, span_of(buffer, static_cast<std::size_t>(counts[i]), each[i]), bytes[i]);
  }
  return with_front(buffer, all);
}

// Functions for the calls of `calls`, which are as MPI's, where the host has them.
HeddleStagedCalls staged_functions(StagedCalls& calls);

}  // namespace heddle::backend
