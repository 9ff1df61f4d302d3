// Memory for entries: taken from a pool, so that a collective that runs again and again does not pay for fresh pages each time.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "sparse/stream.hpp"

namespace heddle {

// Bytes without a value of their own; grows only.
class Buffer {
 public:
  std::byte* data() const { return bytes_.get(); }
  std::size_t size() const { return size_; }
  // Room for `bytes`; of what was there the first `keep` bytes stay. False when there is no memory.
  bool grow(std::size_t bytes, std::size_t keep = 0) {
    if (bytes <= size_) return true;
    std::unique_ptr<std::byte[]> larger(new (std::nothrow) std::byte[bytes]);
    if (!larger) return false;
    if (keep > 0) std::memcpy(larger.get(), bytes_.get(), keep);
    bytes_ = std::move(larger);
    size_ = bytes;
    return true;
  }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_ = 0;
};

// Arrays of indices and values.
struct Storage {
  Buffer indices;
  Buffer values;
};

// Gives out what nobody holds any more. The memory it keeps is that of the most entries that were held at once.
class StoragePool {
 public:
  // Room for `entries`; null when there is no memory.
  std::shared_ptr<Storage> take(std::size_t entries, IndexType index_type, DType value_type) {
    const std::size_t index_bytes = entries * index_size(index_type);
    const std::size_t value_bytes = entries * dtype_size(value_type);
    std::shared_ptr<Storage>* best = nullptr;
    for (std::shared_ptr<Storage>& storage : all_) {
      if (storage.use_count() != 1) continue;
      // The smallest that is large enough, or else the largest.
      const auto fits = [&](const Storage& s) {
        return s.indices.size() >= index_bytes && s.values.size() >= value_bytes;
      };
      const bool better = best == nullptr || (fits(*storage) && !fits(**best)) ||
                          (fits(*storage) == fits(**best) &&
                           (storage->values.size() < (*best)->values.size()) == fits(*storage));
      if (better) best = &storage;
    }
    if (best == nullptr) best = &all_.emplace_back(std::make_shared<Storage>());
    if (!(*best)->indices.grow(index_bytes) || !(*best)->values.grow(value_bytes)) return nullptr;
    return *best;
  }

  // Gives back to the system what nobody holds.
  void trim() {
    std::erase_if(all_, [](const std::shared_ptr<Storage>& s) { return s.use_count() == 1; });
  }

 private:
  std::vector<std::shared_ptr<Storage>> all_;
};

}  // namespace heddle
