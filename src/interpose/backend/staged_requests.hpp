// Requests whose buffers have images: the images stay until the request has ended, and what it has written is
// stored then.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "interpose/backend/host_mpi.hpp"
#include "interpose/backend/packing.hpp"
#include "interpose/backend/staged_views.hpp"

namespace heddle::backend {

// What one has.
struct StagedRequest {
  StagedViews views;
  bool is_persistent = false;
  bool is_started = true;
};

// Those of a process. Any thread.
class StagedRequests {
 public:
  StagedRequests(const HostMpi& mpi, const Packing& packing) : mpi_(mpi), packing_(packing) {}
  StagedRequests(const StagedRequests&) = delete;
  StagedRequests& operator=(const StagedRequests&) = delete;

  // One load where there are none.
  bool any() const { return count_.load(std::memory_order_relaxed) != 0; }

  // A place for one, which is made before the host is asked: once a message may be on its way nothing can
  // fail.
  using Held = std::map<MPI_Request, StagedRequest>;
  static Held::node_type hold(StagedViews views);
  // What the host has given out. One that is complete ends here: hosts have one handle for all of these.
  Status add(Held::node_type held, MPI_Request request);
  // One that is to be started, again and again.
  void add_persistent(Held::node_type held, MPI_Request request);

  // Takes those of some requests away, in the order of these, before the host is asked whether they have
  // ended: it may give the handle of one that has to another thread. What has not ended is put back.
  std::vector<Held::node_type> take(const std::vector<MPI_Request>& requests);
  void put_back(Held::node_type held);

  // With that status. A persistent one is still held, and may be started again.
  Status end(Held::node_type& held, const MPI_Status& status);
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

// Those among an array of requests, as they were found. What is still there at the end is put back.
class TakenRequests {
 public:
  // What is no array the host reports.
  TakenRequests(StagedRequests& requests, int count, const void* array);
  TakenRequests(const TakenRequests&) = delete;
  TakenRequests& operator=(const TakenRequests&) = delete;
  ~TakenRequests();

  // Empty where it is none of these. `i` may be any.
  StagedRequests::Held::node_type& operator[](int i);
  // As many as the array has.
  int size() const { return static_cast<int>(held_.size()); }

  // Before the host starts persistent ones among them: what they read comes to their images. After it: they
  // have begun.
  Status load();
  void start();

 private:
  StagedRequests& requests_;
  std::vector<StagedRequests::Held::node_type> held_;
  StagedRequests::Held::node_type none_;
};

// A call that may end some of `count` requests, of which the host takes away those that have ended. What it
// did is told after it; then comes the call's return code.
class StagedEnd {
 public:
  StagedEnd(StagedCalls& calls, const char* name, int count, const void* requests, void* statuses);
  StagedEnd(const StagedEnd&) = delete;
  StagedEnd& operator=(const StagedEnd&) = delete;

  // Where the host is to put statuses: where the caller wants them, or elsewhere.
  MPI_Status* statuses() { return statuses_; }

  // All of them or none.
  int all(int rc, bool done);
  // One at most: MPI_UNDEFINED is none.
  int one(int rc, bool done, const int* place);
  int some(int rc, const int* ended, const int* places);
  // MPI_Request_free: the host keeps it as well, and the caller's handle becomes null. False where it is the
  // host's to free: nothing of it is under way.
  bool leave(void* request);

 private:
  void end(int place, int status);
  int finish(int rc, int count, const int* places);

  StagedCalls& calls_;
  const char* const name_;
  const MPI_Request* const requests_;
  TakenRequests held_;
  std::vector<MPI_Status> own_;
  MPI_Status* statuses_;
  Status status_;
};

}  // namespace heddle::backend
