#include "interpose/backend/strided.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace heddle::backend {
namespace {

// As many blocks of `width` bytes, from and to places that lie so far apart. A width that the compiler knows
// is a load and a store.
template <typename Width>
void copy_blocks(const std::byte* from, std::ptrdiff_t from_stride, std::byte* to, std::ptrdiff_t to_stride,
                 std::size_t count, Width width) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto n = static_cast<std::ptrdiff_t>(i);
    std::memcpy(to + n * to_stride, from + n * from_stride, width);
  }
}

template <std::size_t kBytes>
using Known = std::integral_constant<std::size_t, kBytes>;

void copy_blocks_of(std::size_t width, const std::byte* from, std::ptrdiff_t from_stride, std::byte* to,
                    std::ptrdiff_t to_stride, std::size_t count) {
  switch (width) {
    case 1:
      return copy_blocks(from, from_stride, to, to_stride, count, Known<1>());
    case 2:
      return copy_blocks(from, from_stride, to, to_stride, count, Known<2>());
    case 4:
      return copy_blocks(from, from_stride, to, to_stride, count, Known<4>());
    case 8:
      return copy_blocks(from, from_stride, to, to_stride, count, Known<8>());
    case 12:
      return copy_blocks(from, from_stride, to, to_stride, count, Known<12>());
    case 16:
      return copy_blocks(from, from_stride, to, to_stride, count, Known<16>());
    default:
      return copy_blocks(from, from_stride, to, to_stride, count, width);
  }
}

}  // namespace

bool Strided::repeat(std::size_t count, std::ptrdiff_t stride) {
  if (count == 1) return true;
  if (loops_ == 0 && stride == static_cast<std::ptrdiff_t>(run_)) {
    run_ *= count;
    return true;
  }
  if (loops_ > 0) {
    Loop& outer = loop_[loops_ - 1];
    if (stride == outer.stride * static_cast<std::ptrdiff_t>(outer.count)) {
      outer.count *= count;
      return true;
    }
  }
  if (loops_ == kMostLoops) return false;
  loop_[loops_++] = {count, stride};
  return true;
}

std::size_t Strided::bytes() const {
  std::size_t bytes = run_;
  for (std::size_t i = 0; i < loops_; ++i)
    bytes *= loop_[i].count;
  return bytes;
}

// Calls copy(where, width, stride, count) for blocks of one row of the innermost loop at a time.
template <typename Copy>
void Strided::visit(std::size_t first, std::size_t bytes, Copy copy) const {
  if (bytes == 0) return;
  std::size_t skip = first % run_;
  std::size_t number = first / run_;
  std::size_t index[kMostLoops] = {};
  std::ptrdiff_t row = begin_;
  for (std::size_t i = 0; i < loops_; ++i) {
    index[i] = number % loop_[i].count;
    number /= loop_[i].count;
    if (i > 0) row += static_cast<std::ptrdiff_t>(index[i]) * loop_[i].stride;
  }
  const Loop inner = loop_[0];
  while (bytes > 0) {
    const std::ptrdiff_t at = row + static_cast<std::ptrdiff_t>(index[0]) * inner.stride;
    std::size_t runs = 1;
    std::size_t width = run_;
    if (skip > 0 || bytes < run_) {
      width = std::min(run_ - skip, bytes);
    } else {
      runs = std::min(inner.count - index[0], bytes / run_);
    }
    copy(at + static_cast<std::ptrdiff_t>(skip), width, inner.stride, runs);
    skip = 0;
    bytes -= width * runs;
    index[0] += runs;
    for (std::size_t i = 0; i + 1 < loops_ && index[i] == loop_[i].count; ++i) {
      index[i] = 0;
      row += loop_[i + 1].stride;
      if (++index[i + 1] == loop_[i + 1].count)
        row -= static_cast<std::ptrdiff_t>(loop_[i + 1].count) * loop_[i + 1].stride;
    }
  }
}

void Strided::gather(const std::byte* origin, std::size_t first, std::size_t bytes, std::byte* to) const {
  visit(first, bytes, [&](std::ptrdiff_t at, std::size_t width, std::ptrdiff_t stride, std::size_t count) {
    copy_blocks_of(width, origin + at, stride, to, static_cast<std::ptrdiff_t>(width), count);
    to += width * count;
  });
}

void Strided::scatter(std::byte* origin, std::size_t first, std::size_t bytes, const std::byte* from) const {
  visit(first, bytes, [&](std::ptrdiff_t at, std::size_t width, std::ptrdiff_t stride, std::size_t count) {
    copy_blocks_of(width, from, static_cast<std::ptrdiff_t>(width), origin + at, stride, count);
    from += width * count;
  });
}

}  // namespace heddle::backend
