// A piece of memory that several processes of one machine map, and that vanishes with the last of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.hpp"

namespace heddle {

// How others find a SharedMemory: plain bytes, to be sent to them.
struct SharedMemoryHandle {
  std::int32_t pid = 0;  // the creator
  std::int32_t fd = -1;  // its descriptor (memfd)
  std::uint64_t bytes = 0;
  std::uint64_t device = 0;  // what nobody else's has: numbers of processes and descriptors
  std::uint64_t inode = 0;   // mean others in another PID namespace
  char name[40] = {};        // POSIX name, or "" for a memfd
};

// Two backings:
//  memfd  anonymous, opened by the others as /proc/<pid>/fd/<fd>. Leaves nothing behind however the processes
//  die and is
//         not limited by the size of /dev/shm. Needs one PID namespace and the same user.
//  posix  shm_open, unlinked by publish_done() as soon as all have attached. Pages are reserved at once,
//  because a full
//         /dev/shm would otherwise show as SIGBUS at the first touch.
class SharedMemory {
 public:
  enum class Backing : std::uint8_t { memfd, posix };

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // Zeroed memory of `bytes`, rounded up to pages.
  static Result<SharedMemory> create(std::size_t bytes, Backing backing);
  static Result<SharedMemory> attach(const SharedMemoryHandle& handle);

  // Valid until publish_done().
  const SharedMemoryHandle& handle() const { return handle_; }
  // All who should have attached; the memory can no longer be found, only used.
  void publish_done();

  // Who uses the memory as one of its members says so by a lock of the kernel's, which ends with this object
  // or its process, and which processes see whose numbers mean nothing to each other. (It lasts longer where
  // the process has forked: as long as the child runs the same program.) Before publish_done(), which then
  // leaves the descriptor open. False: there are no such locks here.
  bool claim(int member);
  // By another one.
  bool is_claimed(int member) const;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  Status map(int fd, std::size_t bytes);

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  SharedMemoryHandle handle_;
  int fd_ = -1;
  bool claims_ = false;
};

// Unlinks POSIX objects of heddle's whose creator is gone: what a process killed between shm_open and unlink
// left.
void sweep_stale_shared_memory();

}  // namespace heddle
