// Memory for entries: taken from a pool, so that a collective that runs again and again does not pay for
// fresh pages each time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "sparse/node_memory.hpp"
#include "sparse/stream.hpp"

namespace heddle {

// Bytes without a value of their own; grows only.
class Buffer {
 public:
  // From `shared`, where that is given, else from this process's own memory.
  explicit Buffer(NodeMemory* shared = nullptr) : bytes_(nullptr, Release{shared}) {}

  std::byte* data() const { return bytes_.get(); }
  std::size_t size() const { return size_; }
  bool is_shared() const { return bytes_.get_deleter().shared != nullptr; }
  // Room for `bytes`; of what was there the first `keep` bytes stay. False when there is no memory.
  bool grow(std::size_t bytes, std::size_t keep = 0) {
    if (bytes <= size_) return true;
    NodeMemory* shared = bytes_.get_deleter().shared;
    // The others keep what they have mapped: all of that together is no more than the last.
    if (shared != nullptr) bytes = std::max(bytes, 2 * size_);
    Bytes larger(shared != nullptr ? shared->allocate(bytes) : new (std::nothrow) std::byte[bytes],
                 Release{shared});
    if (!larger) return false;
    if (keep > 0) std::memcpy(larger.get(), bytes_.get(), keep);
    bytes_ = std::move(larger);
    size_ = bytes;
    return true;
  }

 private:
  struct Release {
    NodeMemory* shared = nullptr;
    void operator()(std::byte* bytes) const {
      if (shared != nullptr) {
        shared->release(bytes);
      } else {
        delete[] bytes;
      }
    }
  };
  using Bytes = std::unique_ptr<std::byte[], Release>;

  Bytes bytes_;
  std::size_t size_ = 0;
};

// Arrays of indices and values.
struct Storage {
  explicit Storage(NodeMemory* shared = nullptr) : indices(shared), values(shared) {}
  bool is_shared() const { return indices.is_shared() && values.is_shared(); }
  Buffer indices;
  Buffer values;
};

// Gives out what nobody holds any more. The memory it keeps is that of the most entries that were held at
// once.
class StoragePool {
 public:
  // What is given out from now on lies there, as long as it has some to give; borrowed; may be null.
  void use(NodeMemory* shared) { shared_ = shared; }

  // Room for `entries`; null when there is no memory.
  std::shared_ptr<Storage> take(std::size_t entries, IndexType index_type, DType value_type) {
    const std::size_t index_bytes = entries * index_size(index_type);
    const std::size_t value_bytes = entries * dtype_size(value_type);
    if (shared_ != nullptr) {
      if (auto storage = take_from(shared_, index_bytes, value_bytes)) return storage;
      // The others do not reach its own: what lies there is sent instead of handed over.
    }
    return take_from(nullptr, index_bytes, value_bytes);
  }

 private:
  std::shared_ptr<Storage> take_from(NodeMemory* shared, std::size_t index_bytes, std::size_t value_bytes) {
    std::shared_ptr<Storage>* best = nullptr;
    for (std::shared_ptr<Storage>& storage : all_) {
      if (storage.use_count() != 1 || storage->is_shared() != (shared != nullptr)) continue;
      // The smallest that is large enough, or else the largest.
      const auto fits = [&](const Storage& s) {
        return s.indices.size() >= index_bytes && s.values.size() >= value_bytes;
      };
      const bool better = best == nullptr || (fits(*storage) && !fits(**best)) ||
                          (fits(*storage) == fits(**best) &&
                           (storage->values.size() < (*best)->values.size()) == fits(*storage));
      if (better) best = &storage;
    }
    if (best == nullptr) best = &all_.emplace_back(std::make_shared<Storage>(shared));
    if (!(*best)->indices.grow(index_bytes) || !(*best)->values.grow(value_bytes)) return nullptr;
    return *best;
  }

  NodeMemory* shared_ = nullptr;
  std::vector<std::shared_ptr<Storage>> all_;
};

}  // namespace heddle
