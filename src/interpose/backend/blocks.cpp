#include "interpose/backend/blocks.hpp"

#include <algorithm>
#include <cstring>

namespace heddle::backend {
namespace {

// Mostly of single numbers, for which a call of memcpy() would take longer than the copy.
void copy_block(std::byte* to, const std::byte* from, std::size_t bytes) {
  switch (bytes) {
    case 4:
      std::memcpy(to, from, 4);
      break;
    case 8:
      std::memcpy(to, from, 8);
      break;
    default:
      std::memcpy(to, from, bytes);
  }
}

}  // namespace

std::size_t Blocks::bytes() const {
  if (one_length) return number * length(0);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < number; ++i)
    bytes += length(i);
  return bytes;
}

// Calls copy(where, length) for the next blocks, and parts of them.
template <typename Copy>
void BlocksView::visit(std::size_t bytes, Copy copy) {
  while (bytes > 0) {
    const std::size_t length = blocks_.length(block_);
    const std::size_t part = std::min(length - inside_, bytes);
    copy(element_ + blocks_.place(block_) + static_cast<std::ptrdiff_t>(inside_), part);
    bytes -= part;
    inside_ += part;
    if (inside_ < length) return;
    inside_ = 0;
    if (++block_ < blocks_.number) continue;
    block_ = 0;
    element_ += extent_;
  }
}

bool BlocksView::read(std::size_t /*first*/, std::size_t bytes, std::byte* to) {
  visit(bytes, [&to](const std::byte* from, std::size_t length) {
    copy_block(to, from, length);
    to += length;
  });
  return true;
}

bool BlocksView::write(std::size_t /*first*/, std::size_t bytes, const std::byte* from) {
  visit(bytes, [&from](std::byte* to, std::size_t length) {
    copy_block(to, from, length);
    from += length;
  });
  return true;
}

}  // namespace heddle::backend
