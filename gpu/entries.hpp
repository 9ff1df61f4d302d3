// Entries of a sparse vector that lie on a GPU.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::gpu {

// Of an index.
constexpr std::size_t index_bytes(bool wide) {
  return wide ? 8 : 4;
}

// Sorted entries, each index once.
struct Entries {
  const void* indices = nullptr;
  const void* values = nullptr;
  std::size_t count = 0;
  bool wide = false;  // indices of 64 bits, not 32
};

// Arrays there, for so many entries.
struct Room {
  void* indices = nullptr;
  void* values = nullptr;
  std::size_t capacity = 0;
  bool wide = false;
};

// Indices [first, first + span) of a vector.
struct IndexRange {
  std::uint64_t first = 0;
  std::uint64_t span = 0;
};

}  // namespace heddle::gpu
