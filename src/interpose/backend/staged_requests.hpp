// Requests whose buffers have images: the images stay until the request has ended, and what it has written is stored then.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "interpose/backend/device_buffers.hpp"
#include "interpose/backend/host_mpi.hpp"
#include "interpose/backend/packing.hpp"

namespace heddle::backend {

// Elements that begin so many bytes after a buffer.
struct StagedPart {
  std::ptrdiff_t begin = 0;
  std::size_t count = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
};

// A datatype of one's own that is like another, which the program may free meanwhile.
class KeptType {
 public:
  KeptType(const HostMpi& mpi, MPI_Datatype type);
  KeptType(KeptType&& other) noexcept;
  KeptType& operator=(KeptType&&) = delete;
  ~KeptType();
  MPI_Datatype get() const { return type_; }

 private:
  const HostMpi* mpi_;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;  // null: there was no more room for one
};

// What one call reads and writes, with images where that lies on a GPU.
class StagedViews {
 public:
  HostView read;
  HostView written;
  bool is_message = false;  // what is written may be less

  bool beside() const { return read.beside() || written.beside(); }
  // What `written` consists of, once that is made.
  Status set_written(const HostMpi& mpi, const Span& span, const std::vector<StagedPart>& parts);
  // What the host has written: these elements, and nothing between them. `status` is a message's.
  Status store(const HostMpi& mpi, const Packing& packing, const MPI_Status& status);

 private:
  struct Part {
    std::ptrdiff_t begin;
    std::size_t count;
    KeptType type;
  };
  Status store_elements(const HostMpi& mpi, const Packing& packing, std::size_t most_bytes);
  Status add_rows(const Part& part, const HostMpi& mpi, const Packing& packing, std::size_t* most_bytes,
                  std::vector<gpu::Rows>* rows) const;

  Span span_;
  std::vector<Part> parts_;  // where there are gaps
};

// Those of a process. Any thread.
class StagedRequests {
 public:
  StagedRequests(const HostMpi& mpi, const Packing& packing) : mpi_(mpi), packing_(packing) {}
  StagedRequests(const StagedRequests&) = delete;
  StagedRequests& operator=(const StagedRequests&) = delete;

  // One load where there are none.
  bool any() const { return count_.load(std::memory_order_relaxed) != 0; }

  // A place for one, which is made before the host is asked: once a message may be on its way nothing can fail.
  using Held = std::map<MPI_Request, StagedViews>;
  static Held::node_type hold(StagedViews views);
  // What the host has given out. One that is complete ends here: hosts have one handle for all of these.
  Status add(Held::node_type held, MPI_Request request);

  // Takes those of some requests away, in the order of these, before the host is asked whether they have ended: it may give the handle of
  // one that has to another thread. What has not ended is put back.
  std::vector<Held::node_type> take(const std::vector<MPI_Request>& requests);
  void put_back(Held::node_type held);

  // With that status.
  Status end(Held::node_type held, const MPI_Status& status);
  // The caller wants to hear no more of it: it is kept, until it has ended.
  void leave(Held::node_type held);

 private:
  void end_left();

  const HostMpi& mpi_;
  const Packing& packing_;
  std::atomic<std::size_t> count_{0};
  std::mutex mutex_;
  Held held_;
  Held left_;
};

class StagedCalls;

// A call that may end some of `count` requests, of which the host takes away those that have ended. What it did is told after it; then comes
// the call's return code.
class StagedEnd {
 public:
  StagedEnd(StagedCalls& calls, const char* name, int count, const void* requests, void* statuses);
  StagedEnd(const StagedEnd&) = delete;
  StagedEnd& operator=(const StagedEnd&) = delete;
  // What has not ended goes on.
  ~StagedEnd();

  // Where the host is to put statuses: where the caller wants them, or elsewhere.
  MPI_Status* statuses() { return statuses_; }

  // All of them or none.
  int all(int rc, bool done);
  // One at most: MPI_UNDEFINED is none.
  int one(int rc, bool done, const int* place);
  int some(int rc, const int* ended, const int* places);
  // MPI_Request_free: the host keeps it as well, and the caller's handle becomes null. False where it is the host's to free.
  bool leave(void* request);

 private:
  void end(int place, int status);
  int finish(int rc, int count, const int* places);

  StagedCalls& calls_;
  const char* const name_;
  const MPI_Request* const requests_;
  std::vector<StagedRequests::Held::node_type> held_;  // empty: not one of those with images
  std::vector<MPI_Status> own_;
  MPI_Status* statuses_;
  Status status_;
};

}  // namespace heddle::backend
