#include "sparse/entries.hpp"

#include <algorithm>
#include <random>

namespace heddle::bench {
namespace {

using Random = std::mt19937_64;
using Indices = std::vector<std::uint32_t>;

// The finish of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// Every index is taken with the probability that makes all subsets equally likely (Knuth, The Art of Computer
// Programming 2, 3.4.2, algorithm S).
void select(Random& random, std::uint64_t first, std::uint64_t dimension, std::size_t count, Indices& out) {
  std::uniform_real_distribution<double> unit;
  for (std::uint64_t i = 0; i < dimension && count > 0; ++i) {
    if (unit(random) * static_cast<double>(dimension - i) >= static_cast<double>(count)) continue;
    out.push_back(static_cast<std::uint32_t>(first + i));
    --count;
  }
}

// `count` of the `dimension` indices from `first` on, all subsets equally likely, appended to `out`.
void draw_uniform(Random& random, std::uint64_t first, std::uint64_t dimension, std::size_t count,
                  Indices& out) {
  if (count > dimension / 16) return select(random, first, dimension, count, out);
  std::uniform_int_distribution<std::uint64_t> any(first, first + dimension - 1);
  Indices drawn;
  while (drawn.size() < count) {
    while (drawn.size() < count)
      drawn.push_back(static_cast<std::uint32_t>(any(random)));
    std::sort(drawn.begin(), drawn.end());
    drawn.erase(std::unique(drawn.begin(), drawn.end()), drawn.end());
  }
  out.insert(out.end(), drawn.begin(), drawn.end());
}

// Runs, and the elements between them cut at random.
void draw_runs(Random& random, std::uint64_t dimension, std::size_t count, Indices& out) {
  std::uniform_int_distribution<std::size_t> length(64, 256);
  std::vector<std::size_t> runs;
  for (std::size_t left = count; left > 0; left -= runs.back())
    runs.push_back(std::min(left, length(random)));
  std::uniform_int_distribution<std::uint64_t> any(0, dimension - count);
  std::vector<std::uint64_t> gaps(runs.size());
  std::generate(gaps.begin(), gaps.end(), [&] { return any(random); });
  std::sort(gaps.begin(), gaps.end());
  for (std::size_t run = 0; run < runs.size(); ++run) {
    for (std::size_t i = 0; i < runs[run]; ++i)
      out.push_back(static_cast<std::uint32_t>(gaps[run] + out.size()));
  }
}

void draw_skewed(Random& random, std::uint64_t dimension, std::size_t count, Indices& out) {
  const std::uint64_t hot = std::max<std::uint64_t>(dimension / 1000, 1);
  const std::uint64_t cold = dimension - hot;
  std::size_t often = std::min<std::size_t>(count - count / 10, hot);
  often = std::max(often, count - std::min<std::size_t>(count, cold));
  if (often > 0) draw_uniform(random, 0, hot, often, out);
  if (count > often) draw_uniform(random, hot, cold, count - often, out);
}

}  // namespace

Indices draw_indices(Pattern pattern, std::uint64_t dimension, std::size_t count, int rank) {
  const auto whose = pattern == Pattern::identical ? 0U : static_cast<unsigned>(rank);
  Random random(mixed(dimension ^ mixed(count) ^ mixed(whose + 1)));
  Indices out;
  out.reserve(count);
  switch (pattern) {
    case Pattern::uniform:
    case Pattern::identical:
      draw_uniform(random, 0, dimension, count, out);
      break;
    case Pattern::clustered:
      draw_runs(random, dimension, count, out);
      break;
    case Pattern::skewed:
      draw_skewed(random, dimension, count, out);
      break;
  }
  return out;
}

double value_at(std::uint32_t index, int rank) {
  const std::uint64_t bits = mixed(index * 0x9e3779b97f4a7c15U + static_cast<unsigned>(rank));
  return static_cast<double>(bits % 4095 + 1) / 64;
}

}  // namespace heddle::bench
