#include "interpose/residuals.hpp"

#include <fmt/format.h>

#include <iterator>

#include "base/hash.hpp"

namespace heddle {

PlacedResidual* Residuals::of(const void* key, std::size_t count) {
  const auto known = residuals_.find({key, count});
  if (known != residuals_.end()) return &known->second;
  const std::size_t bytes = count * sizeof(float);
  if (bytes > most_bytes_) {
    warn();
    return nullptr;
  }
  make_room(bytes);
  bytes_ += bytes;
  return &residuals_.try_emplace({key, count}, Residual(count)).first->second;
}

void Residuals::make_room(std::size_t bytes) {
  while (bytes_ + bytes > most_bytes_) {
    warn();
    const std::uint64_t place = mix64(++forgotten_) % residuals_.size();
    const auto forgotten = std::next(residuals_.begin(), static_cast<std::ptrdiff_t>(place));
    bytes_ -= forgotten->second.size() * sizeof(float);
    residuals_.erase(forgotten);
  }
}

void Residuals::warn() {
  if (warned_) return;
  warned_ = true;
  log_.warn(fmt::format(
      "what HEDDLE_COMPRESS leaves out of {} vectors takes the {} MiB that it may, so that some of it is "
      "lost from now on. "
      "HEDDLE_COMPRESS_MEMORY gives it more; a program that sums from the same buffers again needs less",
      residuals_.size() + 1, most_bytes_ >> 20));
}

}  // namespace heddle
