#include "collectives/trees.hpp"

#include <algorithm>
#include <numeric>

namespace heddle {
namespace {

// The best way to write `left` as a product of numbers up to `most` that do not rise, behind those of
// `begun`; `best` stays as it is where there is none that is better.
void divide(std::int32_t left, std::int32_t most, std::vector<std::int32_t>& begun,
            std::vector<std::int32_t>& best) {
  const auto messages = [](const std::vector<std::int32_t>& widths) {
    return std::accumulate(widths.begin(), widths.end(), std::int32_t{0}) -
           static_cast<std::int32_t>(widths.size());
  };
  if (left == 1) {
    const bool is_better = best.empty() || begun.size() < best.size() ||
                           (begun.size() == best.size() && messages(begun) < messages(best));
    if (is_better) best = begun;
    return;
  }
  if (!best.empty() && begun.size() >= best.size()) return;
  for (std::int32_t width = std::min(left, most); width >= 2; --width) {
    if (left % width != 0) continue;
    begun.push_back(width);
    divide(left / width, width, begun, best);
    begun.pop_back();
  }
}

}  // namespace

Participants::Participants(std::int32_t size, std::int32_t radix) {
  std::vector<std::int32_t> begun;
  divide(size, radix, begun, widths);
  if (!widths.empty() || size == 1) {
    count = size;
    return;
  }
  while (size / radix >= count) {
    count *= radix;
    widths.push_back(radix);
  }
  if (size / count > 1) widths.push_back(size / count);
  count *= size / count;
  extra = size - count;
}

KnomialPlace knomial_place(std::int32_t size, std::int32_t v, std::int32_t radix) {
  KnomialPlace place;
  std::int64_t weight = 1;
  for (; weight < size && v / weight % radix == 0; weight *= radix) {
    std::vector<std::int32_t> level;
    for (std::int64_t child = v + weight; child < std::min<std::int64_t>(size, v + weight * radix);
         child += weight) {
      level.push_back(static_cast<std::int32_t>(child));
    }
    if (!level.empty()) place.children.push_back(std::move(level));
  }
  if (v != 0) place.parent = static_cast<std::int32_t>(v - v / weight % radix * weight);
  place.subtree = static_cast<std::int32_t>(std::min<std::int64_t>(weight, size - v));
  return place;
}

PostalPlace postal_place(std::int32_t size, std::int32_t v, std::int32_t delay) {
  delay = std::min(delay, std::max(1, size - 1));  // beyond that the root sends to all
  // How many can have it after so many units.
  std::vector<std::int64_t> reached(static_cast<std::size_t>(delay), 1);
  while (reached.back() < size)
    reached.push_back(reached.back() + reached[reached.size() - static_cast<std::size_t>(delay)]);
  PostalPlace place;
  std::int32_t first = 0;
  std::int64_t count = size;  // who get it from `first`, and itself
  std::size_t units = reached.size() - 1;
  while (count > 1) {
    const std::int64_t most = std::min(reached[units - static_cast<std::size_t>(delay)], count - 1);
    const std::int64_t least = std::max<std::int64_t>(1, count - reached[units - 1]);
    // Those from the roundest number on, which is likely to be the first of some switch.
    auto child = static_cast<std::int32_t>(first + count - least);
    while ((child & (child - 1)) >= first + count - most)
      child &= child - 1;
    const std::int64_t given = first + count - child;
    if (v < child) {
      if (v == first) place.children.push_back(child);
      count -= given;
      --units;
    } else {
      place.parent = first;
      first = child;
      count = given;
      units -= static_cast<std::size_t>(delay);
    }
  }
  return place;
}

InOrderPlace in_order_place(std::int32_t size, std::int32_t position) {
  const auto parent_of = [&](std::int32_t node) {
    const std::int32_t bit = node & -node;
    const std::int32_t above = (node ^ bit) | (bit << 1);
    return above <= size ? above : node ^ bit;
  };
  InOrderPlace place;
  const std::int32_t root = in_order_root(size);
  for (std::int32_t node = position; node != root; node = parent_of(node)) {
    if (node == position) place.parent = parent_of(node);
    ++place.depth;
  }
  const std::int32_t half = (position & -position) / 2;
  if (half > 0) place.left = position - half;
  for (std::int32_t step = half; step > 0 && place.right < 0; step /= 2) {
    if (position + step <= size) place.right = position + step;
  }
  return place;
}

std::array<InOrderPlace, 2> two_trees_place(std::int32_t others, std::int32_t place) {
  const auto in_tree = [&](bool second) -> InOrderPlace {
    const auto position_of = [&](std::int32_t at) { return !second ? at : at == 1 ? others : at - 1; };
    const auto place_of = [&](std::int32_t position) {
      return !second ? position : position == others ? 1 : position + 1;
    };
    if (place == 0) return {-1, place_of(in_order_root(others)), -1, 0};
    InOrderPlace at = in_order_place(others, position_of(place));
    at.parent = at.parent < 0 ? 0 : place_of(at.parent);
    if (at.left >= 0) at.left = place_of(at.left);
    if (at.right >= 0) at.right = place_of(at.right);
    ++at.depth;
    return at;
  };
  return {in_tree(false), in_tree(true)};
}

bool nodes_are_runs(const TopologyView& topology) {
  for (std::int32_t rank = 1; rank < topology.size(); ++rank) {
    if (topology.node_of(rank) < topology.node_of(rank - 1)) return false;
  }
  return true;
}

bool places_are_ranks(const TopologyView& topology, std::int32_t root) {
  return root == 0 && nodes_are_runs(topology);
}

}  // namespace heddle
