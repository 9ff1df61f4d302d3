#include "transports/shm/shared_heap.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <string>
#include <utility>

#include "base/round_up.hpp"

namespace heddle {
namespace {

// By this process, or by those that it comes from: each pair of parent and child shares the blocks that were
// there before.
std::atomic<std::uint64_t> forks{0};

// Four sizes between two powers of two, so that a block serves requests that are not quite the same. Pages
// that nobody touches do not exist.
std::size_t rounded_up(std::size_t bytes) {
  constexpr std::size_t kLeast = 16 * 1024;
  if (bytes <= kLeast) return kLeast;
  const std::size_t step =
      std::max(std::bit_floor(bytes - 1) / 4, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  return bytes > SIZE_MAX - step ? bytes : round_up(bytes, step);
}

}  // namespace

// What the child looks at, whatever other threads were doing: in a list that only grows, and of which places
// are used again.
struct SharedHeap::InChildren {
  std::atomic<bool> is_taken{true};
  std::atomic<std::byte*> start{nullptr};  // null: nothing to do
  std::size_t bytes = 0;
  int fd = -1;
  InChildren* next = nullptr;

  static std::atomic<InChildren*> first;
};

std::atomic<SharedHeap::InChildren*> SharedHeap::InChildren::first{nullptr};

SharedHeap::ForChildren SharedHeap::for_children(const SharedMemory& memory) {
  InChildren* block = InChildren::first.load(std::memory_order_acquire);
  while (block != nullptr && block->is_taken.exchange(true, std::memory_order_acq_rel))
    block = block->next;
  if (block == nullptr) {
    block = new InChildren;
    block->next = InChildren::first.load(std::memory_order_relaxed);
    while (!InChildren::first.compare_exchange_weak(block->next, block, std::memory_order_release)) {
    }
  }
  block->bytes = memory.size();
  block->fd = memory.handle().fd;
  block->start.store(memory.data(), std::memory_order_release);
  return ForChildren(block);
}

void SharedHeap::EndInChildren::operator()(InChildren* block) const {
  block->start.store(nullptr, std::memory_order_release);
  block->is_taken.store(false, std::memory_order_release);
}

// Between fork() and its return: system calls alone. What is a copy already the children of this child
// inherit as one.
void SharedHeap::copy_in_child() {
  for (InChildren* block = InChildren::first.load(std::memory_order_acquire); block != nullptr;
       block = block->next) {
    std::byte* const start = block->start.exchange(nullptr, std::memory_order_acq_rel);
    // A child whose memory the kernel refuses to copy goes on with the shared one: most call exec() at once.
    if (start != nullptr)
      (void)mmap(start, block->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, block->fd, 0);
  }
}

std::uint64_t SharedHeap::forks_so_far() {
  static const int watched = pthread_atfork(
      nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); },
      [] {
        forks.fetch_add(1, std::memory_order_relaxed);
        copy_in_child();
      });
  (void)watched;
  return forks.load(std::memory_order_relaxed);
}

Result<void*> SharedHeap::allocate(std::size_t bytes) {
  // Pages are not reserved: more than there can ever be would only show when it is touched.
  const std::size_t physical =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (bytes > physical) {
    return Status(Code::out_of_memory, std::to_string(bytes) +
                                           " bytes are more than this machine's memory (" +
                                           std::to_string(physical) + ")");
  }
  Result<SharedMemory> memory = SharedMemory::create(bytes > 0 ? bytes : 1, SharedMemory::Backing::memfd);
  if (!memory.ok()) return memory.status();
  std::byte* const start = memory->data();
  const std::uint64_t forks_before = forks_so_far();
  ForChildren copied = for_children(memory.value());
  const std::lock_guard lock(mutex_);
  blocks_.emplace(start, Block{++last_number_, std::move(memory).value(), forks_before, std::move(copied)});
  return static_cast<void*>(start);
}

// A child that was forked since may still look at the pages.
SharedHeap::Gone::~Gone() {
  for (const Block& block : blocks) {
    if (block.forks == forks_so_far()) (void)madvise(block.memory.data(), block.memory.size(), MADV_REMOVE);
  }
}

Status SharedHeap::release(void* memory, Readers readers) {
  Gone gone;
  std::vector<Block> read;
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<const std::byte*>(memory));
  if (found == blocks_.end()) {
    return Status(Code::invalid_argument,
                  "this memory is not from heddle_alloc on this communicator, or was freed before");
  }
  (readers == Readers::none ? gone.blocks : read).push_back(std::move(found->second));
  blocks_.erase(found);
  ++releases_;
  return {};
}

Result<void*> SharedHeap::allocate_again(std::size_t bytes, std::size_t most_blocks) {
  const std::size_t size = rounded_up(bytes);
  {
    Gone gone;
    const std::lock_guard lock(mutex_);
    const std::uint64_t now = forks_so_far();
    while (!kept_.empty() && kept_.front().forks != now)
      evict(gone);
    const auto found = std::find_if(kept_.rbegin(), kept_.rend(),
                                    [&](const Block& block) { return block.memory.size() == size; });
    if (found != kept_.rend()) {
      std::byte* const start = found->memory.data();
      kept_bytes_ -= size;
      blocks_.emplace(start, std::move(*found));
      kept_.erase(std::next(found).base());
      return static_cast<void*>(start);
    }
    while (!kept_.empty() && blocks_.size() + kept_.size() >= most_blocks)
      evict(gone);
    if (blocks_.size() >= most_blocks) {
      return Status(Code::out_of_memory,
                    "all " + std::to_string(most_blocks) + " pieces of memory are in use");
    }
  }
  return allocate(size);
}

bool SharedHeap::put_by(void* memory) {
  Gone gone;
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<const std::byte*>(memory));
  if (found == blocks_.end()) return false;
  Block block = std::move(found->second);
  blocks_.erase(found);
  const std::size_t bytes = block.memory.size();
  if (bytes > kMostKept || block.forks != forks_so_far()) {
    gone.blocks.push_back(std::move(block));
    ++releases_;
    return true;
  }
  kept_.push_back(std::move(block));
  kept_bytes_ += bytes;
  while (kept_bytes_ > kMostKept)
    evict(gone);
  return true;
}

void SharedHeap::evict(Gone& gone) {
  kept_bytes_ -= kept_.front().memory.size();
  gone.blocks.push_back(std::move(kept_.front()));
  kept_.erase(kept_.begin());
  ++releases_;
}

std::optional<HeapPlace> SharedHeap::find(const void* memory, std::size_t bytes) const {
  const auto* const start = static_cast<const std::byte*>(memory);
  const std::lock_guard lock(mutex_);
  auto after = blocks_.upper_bound(start);
  if (after == blocks_.begin()) return std::nullopt;
  const auto& [first, block] = *--after;
  const auto offset = static_cast<std::size_t>(start - first);
  if (offset > block.memory.size() || bytes > block.memory.size() - offset) return std::nullopt;
  return HeapPlace{block.number, offset, block.memory.handle()};
}

std::uint64_t SharedHeap::releases() const {
  const std::lock_guard lock(mutex_);
  return releases_;
}

std::size_t SharedHeap::blocks() const {
  const std::lock_guard lock(mutex_);
  return blocks_.size();
}

std::size_t SharedHeap::kept() const {
  const std::lock_guard lock(mutex_);
  return kept_.size();
}

std::byte* HeapViews::at(int member, const HeapPlace& place, std::uint64_t releases) {
  Owner& owner = of_[static_cast<std::size_t>(member)];
  if (owner.releases != releases) {
    owner.blocks.clear();
    owner.releases = releases;
  }
  auto found = owner.blocks.find(place.block);
  if (found == owner.blocks.end()) {
    Result<SharedMemory> memory = SharedMemory::attach(place.handle);
    if (!memory.ok()) return nullptr;
    memory->publish_done();
    found = owner.blocks.emplace(place.block, std::move(memory).value()).first;
  }
  return found->second.data() + place.offset;
}

}  // namespace heddle
