#include "collectives/circulant.hpp"

#include <algorithm>

namespace heddle {
namespace {

// Finds, for each round k of a place, a place between skip(k) and skip(k + 1) before it to which a path of
// skips leads from the root whose last skip is none of those found before. The circle is gone around once, so
// that there is something before every place.
class Search {
 public:
  Search(const std::vector<std::int32_t>& skips, std::int32_t place, std::int32_t base)
      : skips_(skips),
        rounds_(static_cast<std::int32_t>(skips.size()) - 1),
        place_(std::int64_t{skips.back()} + place),
        nearest_(2 * std::int64_t{skips.back()}),
        next_(skips.size() + 1) {
    // From the largest skip to the smallest; behind the last one -1, and `first_` leads to the largest.
    for (std::int32_t e = 0; e <= rounds_; ++e)
      next(e) = e - 1;
    next(first_) = rounds_;
    unlink(base);
  }

  std::vector<std::int32_t> run() {
    extend(0, rounds_);
    return std::move(found_);
  }

 private:
  std::int32_t& next(std::int32_t e) { return next_[static_cast<std::size_t>(e)]; }
  std::int64_t skip(std::size_t k) const { return skips_[k]; }
  bool done() const { return static_cast<std::int32_t>(found_.size()) == rounds_; }

  void unlink(std::int32_t e) {
    std::int32_t before = first_;
    while (next(before) != e)
      before = next(before);
    next(before) = next(e);
  }

  // Longer paths from `from`, by skips no larger than `e`.
  void extend(std::int64_t from, std::int32_t e) {
    for (; e >= 0 && !done(); e = next(e)) {
      const std::int64_t to = from + skip(static_cast<std::size_t>(e));
      if (to > place_ - skip(found_.size()) || to >= nearest_) continue;
      if (to <= place_ - skip(found_.size() + 1)) {
        extend(to, e);
        if (done()) return;
      }
      if (from > place_ - skip(found_.size() + 1)) return;
      nearest_ = to;
      found_.push_back(e);
      unlink(e);
    }
  }

  const std::vector<std::int32_t>& skips_;
  const std::int32_t rounds_;
  const std::int64_t place_;
  std::int64_t nearest_;  // to the root, of those found
  const std::int32_t first_ = rounds_ + 1;
  std::vector<std::int32_t> next_;
  std::vector<std::int32_t> found_;  // by round: the last skip of the path
};

}  // namespace

Circulant::Circulant(std::int32_t p) : skips_{p} {
  while (skips_.back() > 1)
    skips_.push_back((skips_.back() + 1) / 2);
  std::ranges::reverse(skips_);
}

std::int32_t Circulant::base(std::int32_t place) const {
  if (place == 0) return rounds();
  std::int32_t k = rounds() - 1;
  for (; place != skip(k); --k) {
    if (place > skip(k)) place -= skip(k);
  }
  return k;
}

std::vector<std::int32_t> Circulant::received(std::int32_t place) const {
  const std::int32_t own = base(place);
  std::vector<std::int32_t> pieces = Search(skips_, place, own).run();
  for (std::int32_t& piece : pieces)
    piece = piece == rounds() ? own : piece - rounds();
  return pieces;
}

}  // namespace heddle
