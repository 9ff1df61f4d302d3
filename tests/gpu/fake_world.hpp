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
#include <utility>
#include <vector>

#include "fake_cuda.h"

#define FAKE extern "C" __attribute__((visibility("default")))

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
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages();
  Address show(void* at, int protection) const;
  Shared& shared() const { return *reinterpret_cast<Shared*>(inside + bytes); }
  std::size_t bytes;
  int fd = -1;
  char* inside = nullptr;
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

// Work in the order in which it was given, which happens when somebody waits for it.
struct Queue {
  std::deque<std::function<void()>> work;
  unsigned long long given = 0;
  unsigned long long done = 0;
};

}  // namespace fake

struct CUctx_st {
  int device;
  bool primary;
  int retained = 0;
  bool dead = false;
  // Of the default stream and all that synchronise with it.
  std::shared_ptr<fake::Queue> queue = std::make_shared<fake::Queue>();
  std::set<CUcontext> peers;  // whose memory may be used in this one
};
struct CUstream_st {
  CUcontext context;
  std::shared_ptr<fake::Queue> queue;  // the context's, or its own
  bool captured = false;               // into a graph, which the double has not: it takes no work then
};
struct CUevent_st {
  std::shared_ptr<fake::Queue> queue;
  unsigned long long at = 0;
  std::shared_ptr<fake::Pages> pages;  // of one that processes share
  bool imported = false;               // from another process
  // How often it was recorded, and how many of these records its stream has come to.
  struct Counts {
    std::atomic<unsigned long long> recorded;
    std::atomic<unsigned long long> done;
  };
  Counts& counts() const { return *reinterpret_cast<Counts*>(pages->inside); }
};

namespace fake {

struct World {
  std::recursive_mutex mutex;
  int process = 0;  // in which cuInit was called
  int devices = 2;
  std::map<std::string, int> calls;
  std::map<std::string, std::pair<int, int>> failures;
  std::string lacking;
  std::map<Address, Memory> memory;
  std::map<Address, std::pair<std::size_t, char*>> reserved;  // bytes, and the double's face
  bool has_peers = true;
  std::map<CUmemGenericAllocationHandle, std::pair<std::shared_ptr<Pages>, int>> handles;
  std::vector<std::unique_ptr<CUctx_st>> contexts;
  std::map<int, CUcontext> primaries;
  unsigned long long next_id = 1;

  World();
  // Begins a call: an error that was asked for, or CUDA_SUCCESS.
  CUresult enter(const char* name, bool needs_init = true);
  Memory* find(Address at, Address* begin = nullptr);
  // The double's face of device memory, or the host's own; null where `bytes` bytes are not there, or not for `current`.
  char* inside(Address at, std::size_t bytes, CUcontext current, CUresult* error);
};

World& world();
std::vector<CUcontext>& stack();  // of the calling thread
CUcontext current();
bool alive(CUcontext context);
bool is_default(CUstream stream);
// Of a stream of the current context.
std::shared_ptr<Queue> queue_of(CUstream stream);
void give(Queue& queue, std::function<void()> work);
void drain(Queue& queue, unsigned long long until);
inline void drain(Queue& queue) {
  drain(queue, queue.given);
}
// Memory of the double, and its end.
Address add(Sort sort, std::size_t bytes, CUcontext context, int device);
CUresult drop(Address at);

#define ENTER(name)                                \
  const std::lock_guard lock(fake::world().mutex); \
  if (const CUresult entered = fake::world().enter(name); entered != CUDA_SUCCESS) return entered;

}  // namespace fake
