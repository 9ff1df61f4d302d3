// Notices that the process has loaded a library, also long after it started, at the price of one load and one
// branch that is never taken.
//
// The dynamic linker appends what it loads to a list. The watch holds the list's last entry, and something
// new has been loaded where that has a successor. An entry that is watched must not go away: the library
// behind it is kept loaded, which nobody notices but a program that unloads it in order to load another file
// of the same name. So at most kMostKept libraries are kept; a process that loads more of them, each just
// before a call, pays about 100 ns for every further call.
#pragma once

#include <link.h>

#include <atomic>
#include <mutex>

namespace heddle::gpu {

class LibraryWatch {
 public:
  // Watches for libraries whose file is called `library` or begins with it; null: for none.
  explicit LibraryWatch(const char* library);
  LibraryWatch(const LibraryWatch&) = delete;
  LibraryWatch& operator=(const LibraryWatch&) = delete;

  // Whether the process has it by now. Any thread.
  bool loaded() {
    // The linker writes the pointer under locks of its own; all that is asked of it here is whether it is
    // null.
    if (__atomic_load_n(&last_.load(std::memory_order_acquire)->l_next, __ATOMIC_RELAXED) == nullptr)
        [[likely]]
      return false;
    return look();
  }
  // dlopen's handle, once loaded() was true; the library stays loaded from then on.
  void* handle() const { return handle_.load(std::memory_order_acquire); }
  // Watches for nothing any more.
  void stop() { last_.store(&end_, std::memory_order_relaxed); }

  static constexpr int kMostKept = 64;

 private:
  struct List;  // what the linker's list says at one moment
  bool look();
  bool follow(List* list);

  const char* library_;
  link_map* const own_;  // entry of the library that this code is in
  link_map end_{};       // has no successor
  link_map more_{};      // has one
  std::atomic<link_map*> last_;
  std::atomic<void*> handle_{nullptr};
  std::mutex mutex_;  // for what is below
  int kept_ = 0;
  unsigned long long loads_ =
      0;  // of the process, when the list was last read; compared where nothing more may be kept
};

}  // namespace heddle::gpu
