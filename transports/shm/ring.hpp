// What lies in shared memory for the messages of a node: rings of bytes, and what their owners tell of
// themselves.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transports/transport.hpp"

namespace heddle::rings {

struct alignas(128) Cursor {
  std::atomic<std::uint64_t> bytes;  // written or read so far
};

// The ring's bytes follow this header.
struct RingHeader {
  Cursor written;
  Cursor read;
};

// What a member tells all others: the header of the ring from it to itself, which carries no messages.
class Mark {
 public:
  explicit Mark(std::byte* memory) : header_(reinterpret_cast<RingHeader*>(memory)) {}

  // The first word stays: who leaves says why, and destroys its transport later.
  void leave(const Departure& why) {
    std::uint64_t none = 0;
    const std::uint64_t word =
        kLeft + static_cast<std::uint64_t>(why.culprit + 1) + (std::uint64_t{why.waited_ms} << kWaitedFrom);
    header_->written.bytes.compare_exchange_strong(none, word, std::memory_order_release,
                                                   std::memory_order_relaxed);
  }
  bool has_left() const { return header_->written.bytes.load(std::memory_order_acquire) != 0; }
  Departure why() const {
    const std::uint64_t word = header_->written.bytes.load(std::memory_order_acquire);
    const std::uint64_t rank = word & ((std::uint64_t{1} << kWaitedFrom) - 1);
    if (rank <= kLeft) return {};
    return {static_cast<int>(rank - kLeft) - 1, static_cast<std::uint32_t>(word >> kWaitedFrom)};
  }
  void tell_moved() { header_->read.bytes.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t moved() const { return header_->read.bytes.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint64_t kLeft = 1;
  static constexpr unsigned kWaitedFrom = 32;  // bits
  RingHeader* header_;
};

// One end's view of a ring: copies in or out as much as there is room or data for.
class Ring {
 public:
  Ring(std::byte* memory, std::size_t capacity)
      : header_(reinterpret_cast<RingHeader*>(memory)),
        data_(memory + sizeof(RingHeader)),
        capacity_(capacity) {}

  std::size_t room() const {
    return capacity_ - (position_ - header_->read.bytes.load(std::memory_order_acquire));
  }
  std::size_t available() const { return header_->written.bytes.load(std::memory_order_acquire) - position_; }

  // The caller has checked room() and available().
  void put(const void* from, std::size_t n) {
    const std::size_t at = position_ & (capacity_ - 1);
    const std::size_t first = std::min(n, capacity_ - at);
    std::memcpy(data_ + at, from, first);
    if (n > first) std::memcpy(data_, static_cast<const std::byte*>(from) + first, n - first);
    position_ += n;
  }
  void get(void* to, std::size_t n) {
    const std::size_t at = position_ & (capacity_ - 1);
    const std::size_t first = std::min(n, capacity_ - at);
    std::memcpy(to, data_ + at, first);
    if (n > first) std::memcpy(static_cast<std::byte*>(to) + first, data_, n - first);
    position_ += n;
  }
  void skip(std::size_t n) { position_ += n; }
  void publish_written() { header_->written.bytes.store(position_, std::memory_order_release); }
  std::uint64_t position() const { return position_; }
  void publish_read() { header_->read.bytes.store(position_, std::memory_order_release); }

 private:
  RingHeader* header_;
  std::byte* data_;
  std::size_t capacity_;
  std::uint64_t position_ = 0;
};

}  // namespace heddle::rings
