// Reading streams side by side: where in each the next entry is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace heddle {

// Elements of arrays that need no alignment.
template <typename T>
T load_at(const void* from, std::size_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(from) + i * sizeof value, sizeof value);
  return value;
}
template <typename T>
void store_at(void* to, std::size_t i, T value) {
  std::memcpy(static_cast<std::byte*>(to) + i * sizeof value, &value, sizeof value);
}

// One stream and its entries [at, end), which are still to be folded.
struct StreamCursor {
  const std::byte* indices = nullptr;
  const std::byte* values = nullptr;
  std::size_t at = 0;
  std::size_t end = 0;

  bool done() const { return at == end; }

  template <typename Index>
  Index index(std::size_t i) const {
    return load_at<Index>(indices, i);
  }

  // The first entry in [at, end) whose index is not less than `limit`, or `end`. Near ones are found soonest.
  template <typename Index>
  std::size_t find(Index limit) const {
    std::size_t low = at;
    std::size_t step = 1;
    while (step < end - low && index<Index>(low + step - 1) < limit) {
      low += step;
      step *= 2;
    }
    std::size_t left = std::min(step, end - low);
    while (left > 0) {
      const std::size_t half = left / 2;
      const bool less = index<Index>(low + half) < limit;
      low = less ? low + half + 1 : low;
      left = less ? left - half - 1 : half;
    }
    return low;
  }
};

// Where the next entries go. `room`: how many more may be written, which is more than there will be.
struct Sink {
  std::byte* indices = nullptr;
  std::byte* values = nullptr;
  std::size_t room = 0;

  void advance(std::size_t count, std::size_t index_bytes, std::size_t value_bytes) {
    indices += count * index_bytes;
    values += count * value_bytes;
    room -= count;
  }
};

}  // namespace heddle
