// What compression leaves out of the vectors of a program that knows nothing of it, for each of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "base/log.hpp"
#include "device/placed_residual.hpp"

namespace heddle {

// Residuals by what the caller calls a vector (an address) and its length. Together they take `most_bytes` at
// most: a program that sums from ever new buffers must not collect them for ever. Where there is no room one
// at random is forgotten, and what it held is lost: of vectors that are summed by turns, and of which there
// are too many, some keep theirs, where the oldest would be the very one that is wanted next.
class Residuals {
 public:
  Residuals(std::size_t most_bytes, const Log& log) : most_bytes_(most_bytes), log_(log) {}

  // Zeros where it is new; null where it alone has no room. Until the next call.
  PlacedResidual* of(const void* key, std::size_t count);
  std::size_t size() const { return residuals_.size(); }

 private:
  void make_room(std::size_t bytes);
  void warn();

  const std::size_t most_bytes_;
  const Log log_;
  bool warned_ = false;
  std::size_t bytes_ = 0;
  std::uint64_t forgotten_ = 0;
  std::map<std::pair<const void*, std::size_t>, PlacedResidual> residuals_;
};

}  // namespace heddle
