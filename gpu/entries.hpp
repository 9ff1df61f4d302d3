// Entries of a sparse vector that lie on a GPU.
#pragma once

#include <cstddef>

namespace heddle::gpu {

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

}  // namespace heddle::gpu
