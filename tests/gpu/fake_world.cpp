// The double's state. There is one for a process, as there is of a driver.
#include "fake_world.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace fake {

namespace {

std::size_t in_pages(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}
char* map(int fd, std::size_t bytes) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at != MAP_FAILED ? static_cast<char*>(at) : nullptr;
}

}  // namespace

Pages::Pages(std::size_t wanted) : bytes(in_pages(wanted)) {
  const int file = memfd_create("fake GPU memory", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes + kPage)) != 0) std::abort();
  fd = file;
  inside = map(fd, bytes + kPage);
}

Pages::Pages(int process, int its_fd, std::size_t wanted) : bytes(in_pages(wanted)) {
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(its_fd);
  fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd >= 0) inside = map(fd, bytes + kPage);
}

std::shared_ptr<Pages> Pages::copy(bool as_it_was) const {
  auto made = std::make_shared<Pages>(bytes);
  if (as_it_was) std::memcpy(made->inside, inside, bytes);
  return made;
}

Pages::~Pages() {
  if (inside != nullptr) munmap(inside, bytes + kPage);
  if (fd >= 0) close(fd);
}

Address Pages::show(void* at, int protection) const {
  return reinterpret_cast<Address>(
      mmap(at, bytes, protection, MAP_SHARED | (at != nullptr ? MAP_FIXED : 0), fd, 0));
}

World::World() {
  if (const char* n = std::getenv("FAKE_CUDA_DEVICES")) devices = std::atoi(n);
  if (const char* n = std::getenv("FAKE_CUDA_MULTIPROCESSORS")) multiprocessors = std::atoi(n);
  if (const char* name = std::getenv("FAKE_CUDA_LACKS")) lacking = name;
  has_peers = std::getenv("FAKE_CUDA_NO_PEERS") == nullptr;
  drops_peer_writes = std::getenv("FAKE_CUDA_DROPS_PEER_WRITES") != nullptr;
  drops_peer_reads = std::getenv("FAKE_CUDA_DROPS_PEER_READS") != nullptr;
  drops_exchanges = std::getenv("FAKE_CUDA_DROPS_EXCHANGES") != nullptr;
  if (const char* n = std::getenv("FAKE_CUDA_DEPTH")) depth = std::strtoull(n, nullptr, 10);
  const char* const times = std::getenv("FAKE_CUDA_SLOW");
  std::istringstream slow_ones(times != nullptr ? times : "");
  for (std::string entry; std::getline(slow_ones, entry, ',');)
    slow[entry.substr(0, entry.find(':'))] = std::atoi(entry.c_str() + entry.find(':') + 1);
  const char* text = std::getenv("FAKE_CUDA_FAIL");
  std::istringstream list(text != nullptr ? text : "");
  for (std::string entry; std::getline(list, entry, ',');) {
    const std::size_t first = entry.find(':');
    const std::size_t second = entry.find(':', first + 1);
    failures[entry.substr(0, first)] = {std::atoi(entry.c_str() + first + 1),
                                        std::atoi(entry.c_str() + second + 1), 0};
  }
}

CUresult World::enter(const char* name, bool needs_init) {
  ++calls[name];
  if (const auto found = slow.find(name); found != slow.end()) usleep(static_cast<useconds_t>(found->second));
  const auto asked = failures.find(name);
  if (asked != failures.end() && asked->second.times > 0 && asked->second.after-- <= 0) {
    --asked->second.times;
    return static_cast<CUresult>(asked->second.error);
  }
  return needs_init && process != getpid() ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

Memory* World::find(Address at, Address* begin) {
  auto next = memory.upper_bound(at);
  if (next == memory.begin()) return nullptr;
  --next;
  if (at >= next->first + next->second.bytes) return nullptr;
  if (begin != nullptr) *begin = next->first;
  return &next->second;
}

char* World::inside(Address at, std::size_t bytes, CUcontext current, CUresult* error) {
  Address begin = 0;
  Memory* found = find(at, &begin);
  if (found == nullptr || found->sort == Sort::registered) return reinterpret_cast<char*>(at);
  // Mappings that follow each other are one piece of memory.
  Address end = begin + found->bytes;
  for (const Memory* next = find(end);
       found->sort == Sort::mapped && next != nullptr && next->sort == Sort::mapped; next = find(end))
    end += next->bytes;
  if (at + bytes > end) {
    *error = CUDA_ERROR_INVALID_VALUE;
    return nullptr;
  }
  const bool of_context = found->sort == Sort::device || found->sort == Sort::imported;
  if (of_context && found->context != current && !current->peers.contains(found->context)) {
    *error = CUDA_ERROR_INVALID_CONTEXT;
    return nullptr;
  }
  return found->inside + (at - begin);
}

World& world() {
  static World* const one = new World;
  return *one;
}

std::vector<CUcontext>& stack() {
  thread_local std::vector<CUcontext> contexts;
  return contexts;
}

CUcontext current() {
  return stack().empty() ? nullptr : stack().back();
}

bool alive(CUcontext context) {
  return context != nullptr &&
         std::any_of(world().contexts.begin(), world().contexts.end(),
                     [&](const auto& one) { return one.get() == context && !one->dead; });
}

bool is_default(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

void check_exists(CUstream stream) {
  if (is_default(stream) || world().streams.contains(stream)) return;
  std::fprintf(stderr, "the double of CUDA: a stream is used that was destroyed, or went with its context\n");
  std::abort();
}
void check_exists(CUevent event) {
  if (world().events.contains(event)) return;
  std::fprintf(stderr, "the double of CUDA: an event is used that was destroyed, or went with its context\n");
  std::abort();
}

std::shared_ptr<Queue> queue_of(CUstream stream) {
  if (!is_default(stream)) return stream->queue;
  const CUcontext context = current();
  return context != nullptr ? context->queue : std::make_shared<Queue>();
}

std::shared_ptr<Queue> make_queue() {
  auto queue = std::make_shared<Queue>();
  std::erase_if(world().queues, [](const auto& one) { return one.expired(); });
  world().queues.push_back(queue);
  return queue;
}

std::vector<std::shared_ptr<Channel>> make_channels() {
  std::vector<std::shared_ptr<Channel>> channels;
  const char* const asked = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const int count = std::getenv("FAKE_CUDA_QUEUES") == nullptr ? 0 : asked != nullptr ? std::atoi(asked) : 8;
  for (int i = 0; i < count; ++i)
    channels.push_back(std::make_shared<Channel>());
  return channels;
}

constexpr std::size_t kDirt = std::size_t{1} << 20;  // more would take time

bool drain(Queue& queue, unsigned long long until) {
  while (queue.done < until) {
    if (queue.busy) return false;  // it waits for itself
    queue.busy = true;
    const bool done = queue.work.front()();
    queue.busy = false;
    if (!done) return false;
    queue.work.pop_front();
    ++queue.done;
  }
  return true;
}

void drain_all() {
  for (const auto& one : std::vector(world().queues)) {
    if (const std::shared_ptr<Queue> other = one.lock()) drain(*other, other->given);
  }
}

void come_to(const std::shared_ptr<Queue>& queue, unsigned long long until) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (;;) {
    {
      const std::lock_guard lock(world().mutex);
      if (drain(*queue, until)) return;
      drain_all();
    }
    if (std::chrono::steady_clock::now() > end) {
      std::fprintf(stderr, "the double of CUDA: nobody does what a stream waits for\n");
      std::abort();
    }
    sched_yield();
  }
}

void come_to_context() {
  std::vector<std::pair<std::shared_ptr<Queue>, unsigned long long>> all;
  {
    const std::lock_guard lock(world().mutex);
    if (!alive(current())) return;
    all.emplace_back(current()->queue, current()->queue->given);
    for (const CUstream stream : world().streams) {
      if (stream->context == current()) all.emplace_back(stream->queue, stream->queue->given);
    }
  }
  for (const auto& [queue, given] : all)
    come_to(queue, given);
}

void come_to_room(CUstream stream) {
  std::shared_ptr<Queue> queue;
  unsigned long long until = 0;
  {
    const std::lock_guard lock(world().mutex);
    if (world().depth == 0 || !alive(current())) return;
    check_exists(stream);
    if (!is_default(stream) && stream->capture != nullptr) return;
    queue = queue_of(stream);
    if (queue->given - queue->done < world().depth) return;
    until = queue->given - world().depth + 1;
  }
  come_to(queue, until);
}

void give(Queue& queue, Work work) {
  if (queue.channel != nullptr) {
    work = [channel = queue.channel, turn = queue.channel->given++, work = std::move(work)] {
      if (channel->done != turn || !work()) return false;
      ++channel->done;
      return true;
    };
  }
  queue.work.push_back(std::move(work));
  ++queue.given;
}

// A device's has anything in it at first.
Address add(Sort sort, std::size_t bytes, CUcontext context, int device) {
  auto pages = std::make_shared<Pages>(bytes);
  if (sort == Sort::device) std::memset(pages->inside, 0xA5, std::min(bytes, kDirt));
  const bool shown = sort == Sort::managed || sort == Sort::host;
  void* place = nullptr;
  const auto vacated = world().vacated.find(pages->bytes);
  if (sort == Sort::device && vacated != world().vacated.end()) {
    place = reinterpret_cast<void*>(vacated->second);
    world().vacated.erase(vacated);
  }
  const Address at = pages->show(place, shown ? PROT_READ | PROT_WRITE : PROT_NONE);
  world().memory[at] = {sort, pages, bytes, context, device, world().next_id++, 0, pages->inside};
  return at;
}

CUresult drop(Address at, Place place) {
  const auto found = world().memory.find(at);
  if (found == world().memory.end()) return CUDA_ERROR_INVALID_VALUE;
  const Memory& memory = found->second;
  // What the driver would do is undefined.
  if (memory.sort == Sort::device && memory.pages->shared().open != 0) {
    std::fprintf(stderr, "the double of CUDA: memory is freed that another process has open\n");
    std::abort();
  }
  void* const shown = reinterpret_cast<void*>(at);
  if (memory.pages && place == Place::kept) {
    // In one step: where it were free in between, another thread's memory might move in, and be lost.
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (mmap(shown, memory.pages->bytes, PROT_NONE, kFlags, -1, 0) == shown)
      world().vacated.emplace(memory.pages->bytes, at);
  } else if (memory.pages) {
    munmap(shown, memory.pages->bytes);
  }
  world().memory.erase(found);
  return CUDA_SUCCESS;
}

}  // namespace fake
