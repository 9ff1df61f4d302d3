// Calls that the host MPI serves, with buffers that may lie on a GPU: the host, which may know nothing of
// GPUs, gets images of them (device_buffers.hpp).
//
// In a process without CUDA a call is passed on as it came, after one load and one branch. Each rank does its
// part by itself: others may pass host memory in the same call. What is looked at here decides nothing but
// where the host finds the data; mistakes in arguments are the host's to report.
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>
#include <vector>

#include "interpose/backend/abi.hpp"
#include "interpose/backend/device_buffers.hpp"
#include "interpose/backend/host_mpi.hpp"
#include "interpose/backend/staged_requests.hpp"

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

  // Those under way whose buffers have images.
  StagedRequests& requests() { return requests_; }
  const HostMpi& host_mpi() const { return mpi_; }
  const Packing& packing() const;
  // As Backend's.
  int refuse(const Status& status, const char* call, MPI_Comm comm);

 private:
  friend class StagedCall;
  bool wanted();

  Backend& backend_;
  const HostMpi& mpi_;
  DeviceBuffers& buffers_;
  const HeddleStagedCalls next_;
  StagedRequests requests_;
  int (*const ask_host_)();           // MPIX_Query_cuda_support, or null
  std::atomic<int> host_serves_{-1};  // GPU memory by itself; -1: not asked yet
};

// The ranks of a communicator, as far as they decide how much data a call has.
struct Ranks {
  // Of which nobody knows whether it is one; none where it is not, after the user's error handler has heard
  // of it.
  static Ranks of(const HostMpi& mpi, MPI_Comm comm);

  int size = 0;
  int rank = -1;
  int others = 0;  // whom data comes from or goes to: all, or those of the other group
  bool is_inter = false;

  bool is_root(int root) const { return is_inter ? root == MPI_ROOT : root == rank; }
  // Whether this rank has a part beside the root's.
  bool is_served_by(int root) const { return !is_inter || root >= 0; }
};

// The memory of a buffer, and the elements that are there.
struct Area {
  Span span;
  std::vector<StagedPart> parts;
};

// The ranks of a communicator with a topology that this rank has data from, and those that it has some for.
struct Neighbours {
  int sources = 0;
  int destinations = 0;
  bool keeps = false;  // what is in the output counts: at the ends of a grid nothing comes to where a
                       // neighbour's would
};

// One call: what it reads and what it writes, and then the rest, which the host does. After a failure all of
// it does nothing, and finish() says why.
class StagedCall {
 public:
  StagedCall(StagedCalls& calls, const char* name, heddle_word comm)
      : calls_(calls), name_(name), comm_(abi::handle_of<MPI_Comm>(comm)) {}
  // Of one whose communicator does not show.
  StagedCall(StagedCalls& calls, const char* name) : calls_(calls), name_(name), comm_(MPI_COMM_SELF) {}
  StagedCall(const StagedCall&) = delete;
  StagedCall& operator=(const StagedCall&) = delete;

  // Of a call with these buffers, which need not be any. Nothing is known of the ranks, and nobody asks the
  // host, where no buffer lies on a GPU; or where the communicator is none, which the host is to say.
  Ranks ranks(const void* in, const void* out);
  // Likewise.
  Neighbours neighbours(const void* in, const void* out);

  // The memory of a buffer; none where there is no data, or the host is to judge.
  Area span(const void* buffer, std::size_t count, heddle_word type) const {
    return span_of(buffer, count, abi::handle_of<MPI_Datatype>(type));
  }
  // Of one part for each of `ranks` ranks, which begin at multiples of the type's extent.
  template <typename C, typename D>
  Area parts(const void* buffer, int ranks, const C* counts, const D* places, heddle_word type) const;
  // Each of a type of its own, and so many bytes further on.
  template <typename C, typename D>
  Area parts(const void* buffer, int ranks, const C* counts, const D* bytes, const void* types) const;

  // The buffers as the host is to see them; one of each kind at most. `keeps`: what is in it counts too. Data
  // comes there in finish().
  const void* read(const void* buffer, const Area& area);
  void* write(void* buffer, const Area& area, bool keeps);

  template <typename Host>
  int finish(const Host& host) {
    if (!load()) return fail();
    const int rc = host();
    if (rc != MPI_SUCCESS) return rc;
    status_ = views_.store(calls_.mpi_, calls_.packing(), {});
    return status_.ok() ? rc : fail();
  }
  // Where what is written may be less: a message. The host gets a status, the caller's or another one.
  template <typename Host>
  int finish_message(void* status, const Host& host) {
    if (!load()) return fail();
    views_.is_message = true;
    MPI_Status own{};
    auto* const seen = status == MPI_STATUS_IGNORE ? &own : static_cast<MPI_Status*>(status);
    const int rc = host(seen);
    if (rc != MPI_SUCCESS) return rc;
    status_ = views_.store(calls_.mpi_, calls_.packing(), *seen);
    return status_.ok() ? rc : fail();
  }
  // Where the host gives out a request, and the rest comes when that has ended.
  template <typename Host>
  int finish(const Host& host, void* request) {
    if (!load()) return fail();
    if (!views_.beside()) return host();
    auto held = StagedRequests::hold(std::move(views_));
    const int rc = host();
    if (rc != MPI_SUCCESS) return rc;
    status_ = calls_.requests().add(std::move(held), *static_cast<MPI_Request*>(request));
    return status_.ok() ? rc : fail();
  }
  template <typename Host>
  int start_message(const Host& host, void* request) {
    views_.is_message = true;
    return finish(host, request);
  }
  // Where that request is persistent: what the call reads is looked at whenever it is started. And here, for
  // hosts that do some of the work at once (MPICH 4.0.2 copies a rank's own part in MPI_Gather_init).
  template <typename Host>
  int finish_persistent(const Host& host, void* request) {
    if (!load()) return fail();
    if (!views_.beside()) return host();
    auto held = StagedRequests::hold(std::move(views_));
    const int rc = host();
    if (rc == MPI_SUCCESS)
      calls_.requests().add_persistent(std::move(held), *static_cast<MPI_Request*>(request));
    return rc;
  }
  template <typename Host>
  int finish(const Host& host, heddle_word /*info*/, void* request) {
    return finish_persistent(host, request);
  }
  template <typename Host>
  int init_message(const Host& host, void* request) {
    views_.is_message = true;
    return finish_persistent(host, request);
  }

 private:
  Area span_of(const void* buffer, std::size_t count, MPI_Datatype type) const;
  void with_front(const void* buffer, Area& area) const;
  bool load();
  static void add_part(Area& all, Area part, std::ptrdiff_t bytes);
  int fail();

  StagedCalls& calls_;
  const char* const name_;
  const MPI_Comm comm_;
  Status status_;
  const void* read_buffer_ = nullptr;
  Span read_span_;
  StagedViews views_;
};

template <typename C, typename D>
Area StagedCall::parts(const void* buffer, int ranks, const C* counts, const D* places,
                       heddle_word type) const {
  Area all;
  MPI_Aint unused = 0;
  MPI_Aint extent = 0;
  if (counts == nullptr || places == nullptr || !abi::is_datatype(abi::handle_of<MPI_Datatype>(type)) ||
      calls_.mpi_.Type_get_extent(abi::handle_of<MPI_Datatype>(type), &unused, &extent) != MPI_SUCCESS)
    return all;
  for (int i = 0; i < ranks; ++i) {
    if (counts[i] > 0)
      add_part(all, span(buffer, static_cast<std::size_t>(counts[i]), type), places[i] * extent);
  }
  with_front(buffer, all);
  return all;
}

template <typename C, typename D>
Area StagedCall::parts(const void* buffer, int ranks, const C* counts, const D* bytes,
                       const void* types) const {
  Area all;
  if (counts == nullptr || bytes == nullptr || types == nullptr) return all;
  const auto* const each = static_cast<const MPI_Datatype*>(types);
  for (int i = 0; i < ranks; ++i) {
    if (counts[i] > 0) add_part(all, span_of(buffer, static_cast<std::size_t>(counts[i]), each[i]), bytes[i]);
  }
  with_front(buffer, all);
  return all;
}

// Functions for the calls of `calls`, which are as MPI's, where the host has them.
HeddleStagedCalls staged_functions(StagedCalls& calls);

}  // namespace heddle::backend
