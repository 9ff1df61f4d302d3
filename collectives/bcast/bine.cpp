// Bine tree bcast: D. De Sensi et al., SC'25.

#include "collectives/collectives.hpp"
#include "collectives/hierarchy.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {
namespace {

// Negabinary numbers, whose digits weigh 1, -2, 4, -8, ...: of as many digits they stand for all remainders
// by a power of two.
constexpr std::uint32_t kOddDigits = 0xaaaaaaaa;
std::uint32_t negabinary(std::int32_t value, std::int32_t digits) {
  return ((static_cast<std::uint32_t>(value) + kOddDigits) ^ kOddDigits) & ((1U << digits) - 1);
}
std::int32_t value_of(std::uint32_t code, std::int32_t digits) {
  return static_cast<std::int32_t>(((code ^ kOddDigits) - kOddDigits) & ((1U << digits) - 1));
}

// How many of the lowest digits are equal.
std::int32_t equal_digits(std::uint32_t code, std::int32_t digits) {
  std::int32_t equal = 1;
  while (equal < digits && (code >> equal & 1) == (code & 1))
    ++equal;
  return equal;
}

}  // namespace

// Who has the vector hands it to who differs in all of the w lowest digits, in falling order of w: a number
// of alternating weights, hence the short way. One has it, and takes part, from the round on in which its
// lowest digits are equal.
Schedule bcast::bine(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const Chunks all{0, 1};
  Builder b(Collective::bcast, 1);
  b.root(shape.root);
  const Places places(topology, shape.root);
  const std::int32_t place = places.place_of(rank);
  const Participants fold(topology.size());
  if (!fold.participates(place)) {
    return std::move(b.recv(places.rank_at(place - 1), all)).finish();
  }
  const std::int32_t digits = floor_log2(fold.count);
  const std::uint32_t code = negabinary(fold.index_of(place), digits);
  const auto rank_of = [&](std::uint32_t other) {
    return places.rank_at(fold.rank_of(value_of(other, digits)));
  };
  const auto differing = [&](std::int32_t width) { return code ^ ((1U << width) - 1); };
  std::int32_t width = digits;
  if (place != 0) {
    width = equal_digits(code, digits);
    b.recv(rank_of(differing(width)), all).wait();
    --width;
  }
  for (; width > 0; --width)
    b.send(rank_of(differing(width)), all);
  if (fold.paired(place)) b.send(places.rank_at(place + 1), all);
  return std::move(b).finish();
}

}  // namespace heddle
