// Message buffers: a fresh one for each call, so that what a call finds in the caches is what a program would
// find that works on other data in between.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "common/job.hpp"
#include "common/options.hpp"

namespace heddle::bench {

class BufferPool {
 public:
  static constexpr std::size_t kLeastBuffers = 2;
  // Where buffers lie; by default in the program's own memory.
  struct Source {
    // Gives memory of a size in bytes that it goes on owning; null: use the program's own.
    std::function<void*(std::size_t)> allocate;
    // Copy `bytes` bytes of the host's memory there, and from there, where the host cannot.
    std::function<void(void* to, const void* from, std::size_t bytes)> put;
    std::function<void(void* to, const void* from, std::size_t bytes)> get;
  };

  // What a pool takes of `limit` bytes where messages have up to `largest`: least_size() of them at least.
  static std::size_t size(std::size_t limit, std::size_t largest, std::size_t most = kMostBuffers);
  static std::size_t least_size(std::size_t largest) { return size(0, largest); }

  // How many buffers of `bytes` bytes there are in so much memory: 2, or an odd number up to `most`.
  static std::size_t count_in(std::size_t memory, std::size_t bytes, std::size_t most = kMostBuffers);

  // Takes size(limit, largest, most) bytes. All elements start as 1 of `dtype`.
  BufferPool(std::size_t limit, std::size_t largest, Dtype dtype, Source source = {},
             std::size_t most = kMostBuffers);

  // Cuts the memory into buffers of `bytes` each: count_in() of them, or one if `warm`. Buffers start on
  // cache lines of their own. `bytes` <= largest.
  void cut(std::size_t bytes, bool warm);

  void* next() {
    std::byte* buffer = memory_ + stride_ * at_;
    at_ = at_ + 1 == count_ ? 0 : at_ + 1;
    return buffer;
  }
  std::size_t count() const { return count_; }
  // What a buffer holds, from and to the host's memory.
  void put(void* buffer, const void* from, std::size_t bytes) const;
  void get(void* to, const void* buffer, std::size_t bytes) const;

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  Source source_;
  std::unique_ptr<std::byte, Free> own_;  // where there is no source
  std::byte* memory_ = nullptr;
  std::size_t most_;
  std::size_t capacity_ = 0;
  std::size_t stride_ = 0;
  std::size_t count_ = 1;
  std::size_t at_ = 0;
};

// What of `memory` bytes, which are least_memory(options, ranks) or more, is for buffers to send and for
// those to receive: in proportion to their lengths, so that there are about as many of each.
struct MemoryShares {
  std::size_t send = 0;
  std::size_t receive = 0;  // 0 where there are none
};
MemoryShares share_memory(const Options& options, std::size_t memory, int ranks);
// What pools of these shares take.
std::size_t pooled_memory(const Options& options, std::size_t memory, int ranks);

// How many bytes of buffers this rank may have, if `ranks` ranks on this machine want them as well: `wanted`,
// or what half of the available memory allows.
std::size_t affordable_memory(std::size_t wanted, int ranks);

// The same number on all ranks, which must agree on the buffer that is next to be fresh: the least of them.
// Collective.
std::size_t affordable_memory(const Job& job, std::size_t wanted);

// As options take it, "8K" or "4097M", rounded up.
std::string size_text(std::size_t bytes);

}  // namespace heddle::bench
