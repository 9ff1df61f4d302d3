// What the files of the double share (fake_cuda.h): its memory, its contexts, and what each call begins with.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fake_cuda.h"

#define FAKE extern "C" __attribute__((visibility("default")))

// Of CUDA 11.3; in later headers the name stands for another.
FAKE CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                        CUgraph* graph, const CUgraphNode** dependencies, size_t* count);

namespace fake {

using Address = std::uintptr_t;
inline constexpr std::size_t kPage = 4096;
inline constexpr std::size_t kMapped = std::size_t{2} << 20;  // granularity of mapped memory

// What processes that share memory tell each other about it; in a page behind it.
struct Shared {
  std::atomic<int> open;  // by how many processes
};

// Memory that has a face for the host and one for the double.
struct Pages {
  explicit Pages(std::size_t wanted);
  // That of another process, `fd` being its file there.
  Pages(int process, int fd, std::size_t wanted);
  // What was there at that time, for this process alone; or anything.
  std::shared_ptr<Pages> copy(bool as_it_was) const;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages();
  Address show(void* at, int protection) const;
  Shared& shared() const { return *reinterpret_cast<Shared*>(inside + bytes); }
  std::size_t bytes;
  int fd = -1;
  char* inside = nullptr;
  int kernels = 0;  // of this process that were launched and have yet to use it
};

enum class Sort { device, managed, pool, mapped, host, registered, imported };

struct Memory {
  Sort sort;
  std::shared_ptr<Pages> pages;  // null: the host's own
  std::size_t bytes;
  CUcontext context;
  int device;
  unsigned long long id;
  CUmemGenericAllocationHandle handle;
  char* inside;  // the double's face
};

// Work in the order in which it was given, which happens when somebody waits for it. What says false waits
// for other work, and is asked again.
using Work = std::function<bool()>;
// One of the GPU's queues, which streams share: what one is given comes after all that the others were given
// before.
struct Channel {
  unsigned long long given = 0;
  unsigned long long done = 0;
};
struct Queue {
  std::shared_ptr<Channel> channel;  // null: no other stream holds it up
  std::deque<Work> work;
  unsigned long long given = 0;
  unsigned long long done = 0;
  bool busy = false;  // its first piece of work is looked at
};
// One that those who wait for another may find.
std::shared_ptr<Queue> make_queue();
// As many as CUDA_DEVICE_MAX_CONNECTIONS says, or 8; none where FAKE_CUDA_QUEUES does not ask for them.
std::vector<std::shared_ptr<Channel>> make_channels();

// What a graph does at every launch, in the order in which it was captured: each node gives its work to the
// queue of the launch.
using Node = std::function<void(const std::shared_ptr<Queue>&)>;
struct Capture {
  unsigned long long id;
  CUstreamCaptureMode mode;
  std::thread::id thread;
  CUstream origin;
  std::vector<Node> nodes;
  CUgraph graph = nullptr;  // that it becomes; without nodes until then
  bool invalid = false;
  Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture();
};

}  // namespace fake

struct CUctx_st {
  int device;
  bool primary;
  unsigned long long id = 0;  // a new one after each reset
  int retained = 0;
  bool dead = false;
  // Of the default stream and all that synchronise with it.
  std::shared_ptr<fake::Queue> queue = fake::make_queue();
  std::set<CUcontext> peers;  // whose memory may be used in this one
  std::vector<std::shared_ptr<fake::Channel>> channels =
      fake::make_channels();  // which streams take by turns
  std::size_t streams = 0;    // that were made
};
struct CUstream_st {
  CUcontext context;
  std::shared_ptr<fake::Queue> queue;  // the context's, or its own
  std::shared_ptr<fake::Capture> capture;
};
struct CUevent_st {
  std::shared_ptr<fake::Queue> queue;
  unsigned long long at = 0;
  std::shared_ptr<fake::Pages> pages;      // of one that processes share
  bool imported = false;                   // from another process
  std::shared_ptr<fake::Capture> capture;  // in which it was recorded last
  // How often it was recorded, and how many of these records its stream has come to.
  struct Counts {
    std::atomic<unsigned long long> recorded;
    std::atomic<unsigned long long> done;
  };
  Counts& counts() const { return *reinterpret_cast<Counts*>(pages->inside); }
};

namespace fake {

// Of a function's calls: after so many others.
struct Failure {
  int error = 0;
  int times = 0;
  int after = 0;
};

struct World {
  std::recursive_mutex mutex;
  int process = 0;  // in which cuInit was called
  int devices = 2;
  std::map<std::string, int> slow;  // microseconds of functions
  int multiprocessors = 2;          // of each
  std::map<std::string, int> calls;
  std::map<std::string, std::size_t> copied;  // bytes, by those that copy
  std::map<std::string, Failure> failures;
  std::string lacking;
  std::map<Address, Memory> memory;
  std::multimap<std::size_t, Address>
      vacated;  // by bytes: of contexts that are gone, for the next who wants as much
  std::map<Address, std::pair<std::size_t, char*>> reserved;  // bytes, and the double's face
  bool has_peers = true;
  bool drops_peer_writes = false;
  bool drops_peer_reads = false;
  bool drops_exchanges = false;
  unsigned long long depth = 0;  // of streams; 0: without end
  std::map<CUmemGenericAllocationHandle, std::pair<std::shared_ptr<Pages>, int>> handles;
  std::vector<std::weak_ptr<Queue>> queues;
  std::set<CUstream> streams;
  std::map<CUevent, CUcontext> events;  // with which they go
  std::vector<std::unique_ptr<CUctx_st>> contexts;
  std::map<int, CUcontext> primaries;
  unsigned long long next_id = 1;

  World();
  // Begins a call: an error that was asked for, or CUDA_SUCCESS.
  CUresult enter(const char* name, bool needs_init = true);
  Memory* find(Address at, Address* begin = nullptr);
  // The double's face of device memory, or the host's own; null where `bytes` bytes are not there, or not for
  // `current`.
  char* inside(Address at, std::size_t bytes, CUcontext current, CUresult* error);
};

World& world();
std::vector<CUcontext>& stack();  // of the calling thread
CUcontext current();
bool alive(CUcontext context);
bool is_default(CUstream stream);
// Ends the process where it is none any more: what the driver would do is undefined.
void check_exists(CUstream stream);
void check_exists(CUevent event);
// Of a stream of the current context.
std::shared_ptr<Queue> queue_of(CUstream stream);
void give(Queue& queue, Work work);
// Whether it has come there; if not, it waits for other work.
bool drain(Queue& queue, unsigned long long until);
// A GPU does all of its streams' work at the same time.
void drain_all();
// Comes there, whatever that takes. The world must not be locked: another thread may have to give what is
// waited for.
void come_to(const std::shared_ptr<Queue>& queue, unsigned long long until);
// All that the current context's streams were given: so long may the driver take to free memory, or to forget
// memory of the host's. The world must not be locked.
void come_to_context();
// A stream takes so much work and no more until some of it is done. The world must not be locked.
void come_to_room(CUstream stream);

// ---- Captures (fake_graphs.cpp)

// Gives a node to the graph that a stream is captured into, or to its queue.
CUresult submit(CUstream stream, const Node& node);
inline CUresult submit(CUstream stream, const Work& work) {
  return submit(stream, Node([work](const std::shared_ptr<Queue>& queue) { give(*queue, work); }));
}
// For calls that would wait, and those of which the driver says that they are potentially unsafe during a
// capture.
CUresult check_unsafe();
// For work of the default stream, which would have to wait for a stream that is being captured.
CUresult check_implicit(CUstream stream);
// A call that makes a capture fail.
CUresult invalidate(Capture& capture, CUresult error);

// Memory of the double, and its end, after which its place is the system's, or the double's, for memory of
// the same size.
enum class Place { freed, kept };
Address add(Sort sort, std::size_t bytes, CUcontext context, int device);
CUresult drop(Address at, Place place = Place::freed);

#define ENTER(name)                                \
  const std::lock_guard lock(fake::world().mutex); \
  if (const CUresult entered = fake::world().enter(name); entered != CUDA_SUCCESS) return entered;
#define ENTER_UNSAFE(name) \
  ENTER(name)              \
  if (const CUresult unsafe = fake::check_unsafe(); unsafe != CUDA_SUCCESS) return unsafe;

}  // namespace fake
