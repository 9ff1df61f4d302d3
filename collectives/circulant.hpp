// Round-optimal broadcast of many pieces on a circulant graph: who receives which piece in which round.
// J. L. Traeff, "Optimal broadcast schedules in logarithmic time", 2025 (doi 10.1145/3735139).
#pragma once

#include <cstdint>
#include <vector>

namespace heddle {

// Places 0 (the root) to p - 1 on a circle, p at least 2. In round k of a phase, 0 <= k < rounds(), place r
// sends to r + skip(k) and receives from r - skip(k). From one phase to the next all pieces count rounds()
// higher; a negative number is a piece of the phases before, or none.
class Circulant {
 public:
  explicit Circulant(std::int32_t p);

  std::int32_t rounds() const { return static_cast<std::int32_t>(skips_.size()) - 1; }  // log2(p), rounded up
  std::int32_t skip(std::int32_t k) const { return skips_[static_cast<std::size_t>(k)]; }

  // The piece that comes to `place` in each round of a phase: one is base(place), the others are -1 to
  // -rounds(), but for base(place) - rounds(), which came in the phase before. Not for the root. Takes time
  // in proportion to the square of rounds() at most.
  std::vector<std::int32_t> received(std::int32_t place) const;
  // The last of the skips, from the largest to the smallest, that lead from the root to `place`; rounds() for
  // the root itself.
  std::int32_t base(std::int32_t place) const;

 private:
  std::vector<std::int32_t> skips_;  // rounds() of them, and p
};

}  // namespace heddle
