// The double's state. There is one for a process, as there is of a driver.
#include "fake_world.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace fake {

Pages::Pages(std::size_t wanted) : bytes((wanted + kPage - 1) / kPage * kPage) {
  const int file = memfd_create("fake GPU memory", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) std::abort();
  fd = file;
  inside = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
}

Pages::~Pages() {
  munmap(inside, bytes);
  close(fd);
}

Address Pages::show(void* at, int protection) const {
  return reinterpret_cast<Address>(
      mmap(at, bytes, protection, MAP_SHARED | (at != nullptr ? MAP_FIXED : 0), fd, 0));
}

World::World() {
  if (const char* n = std::getenv("FAKE_CUDA_DEVICES")) devices = std::atoi(n);
  if (const char* name = std::getenv("FAKE_CUDA_LACKS")) lacking = name;
  const char* text = std::getenv("FAKE_CUDA_FAIL");
  std::istringstream list(text != nullptr ? text : "");
  for (std::string entry; std::getline(list, entry, ',');) {
    const std::size_t first = entry.find(':');
    const std::size_t second = entry.find(':', first + 1);
    failures[entry.substr(0, first)] = {std::atoi(entry.c_str() + first + 1),
                                        std::atoi(entry.c_str() + second + 1)};
  }
}

CUresult World::enter(const char* name, bool needs_init) {
  ++calls[name];
  const auto failure = failures.find(name);
  if (failure != failures.end() && failure->second.second > 0) {
    --failure->second.second;
    return static_cast<CUresult>(failure->second.first);
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
  if (at + bytes > begin + found->bytes && found->sort != Sort::mapped) {
    *error = CUDA_ERROR_INVALID_VALUE;
    return nullptr;
  }
  if (found->sort == Sort::device && found->context != current) {
    *error = CUDA_ERROR_INVALID_CONTEXT;
    return nullptr;
  }
  return found->pages->inside + (at - begin);
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

void drain(CUcontext context, unsigned long long until) {
  while (context->done < until) {
    const auto work = std::move(context->queue.front());
    context->queue.pop_front();
    ++context->done;
    work();
  }
}

void queue(CUcontext context, std::function<void()> work) {
  context->queue.push_back(std::move(work));
  ++context->queued;
}

Address add(Sort sort, std::size_t bytes, CUcontext context, int device) {
  auto pages = std::make_shared<Pages>(bytes);
  const bool shown = sort == Sort::managed || sort == Sort::host;
  const Address at = pages->show(nullptr, shown ? PROT_READ | PROT_WRITE : PROT_NONE);
  world().memory[at] = {sort, pages, bytes, context, device, world().next_id++, 0};
  return at;
}

CUresult drop(Address at) {
  const auto found = world().memory.find(at);
  if (found == world().memory.end()) return CUDA_ERROR_INVALID_VALUE;
  if (found->second.pages) munmap(reinterpret_cast<void*>(at), found->second.pages->bytes);
  world().memory.erase(found);
  return CUDA_SUCCESS;
}

}  // namespace fake
