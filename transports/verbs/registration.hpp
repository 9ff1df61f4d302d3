// Users' memory that the device may reach while a message uses it.
//
// A registration pins the pages that are there when it is made. Where the user frees memory and gets the same
// address again, it still leads to the old pages, and nothing tells a library so without watching the
// process's memory calls, which a library loaded into other people's processes should not do. So a
// registration lives exactly as long as messages use it (their owners keep buffers in place until then), and
// messages that use the same memory at the same time share one. Where the device is to follow the page tables
// (on-demand paging, HEDDLE_VERBS_ODP) registrations cannot be stale, and are kept for the next message.
// Memory of a GPU's is registered by who owns it, who says when it goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.hpp"

namespace heddle::verbs {

struct MemoryKeys {
  std::uint32_t local = 0;
  std::uint32_t remote = 0;
};

// What pins memory: the device, or a test.
class MemoryPinner {
 public:
  MemoryPinner() = default;
  MemoryPinner(const MemoryPinner&) = delete;
  MemoryPinner& operator=(const MemoryPinner&) = delete;
  virtual ~MemoryPinner() = default;

  struct Pinned {
    void* handle = nullptr;
    MemoryKeys keys;
  };
  // `writable`: the other side writes to it, otherwise it is read from here alone, and may be memory that
  // cannot be written.
  virtual Result<Pinned> pin(const void* data, std::size_t bytes, bool writable) = 0;
  virtual void unpin(void* handle) = 0;
  // A registration stays right when the memory behind its addresses changes.
  virtual bool follows_page_tables() const = 0;
};

class Registrations {
 public:
  struct Lease {
    MemoryKeys keys;
    std::uint64_t number = 0;  // 0: none
  };

  explicit Registrations(MemoryPinner& pinner) : pinner_(pinner) {}
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;
  ~Registrations();

  // The memory is the caller's, and stays in place until give_back().
  Result<Lease> take(const void* data, std::size_t bytes, bool writable);
  void give_back(Lease& lease);
  // What was pinned by other means, for both directions: messages use it from now on, until it is let go of,
  // when none does any more.
  void add(const std::byte* data, std::size_t bytes, const MemoryPinner::Pinned& pinned);
  void remove(const std::byte* data);
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::uint64_t number = 0;
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    bool writable = false;
    unsigned leases = 0;
    std::uint64_t used = 0;  // when, in takes
    MemoryPinner::Pinned pinned;
  };
  void drop(std::size_t index);
  void drop_oldest_unused();

  MemoryPinner& pinner_;
  std::vector<Entry> entries_;
  std::uint64_t takes_ = 0;
};

}  // namespace heddle::verbs
