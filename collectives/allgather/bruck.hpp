// Bruck's allgather of blocks, each of which is a run of chunks: of ranks, or of nodes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "schedule/builder.hpp"

namespace heddle {

// The steps of the owner of block `mine` of `blocks` that make one circle. `chunks_of(i, n)`: those of the n
// blocks from i on, none of them past the last; `rank_of(i)`: the owner of block i.
template <typename ChunksOf, typename RankOf>
void bruck_steps(Builder& b, std::int32_t blocks, std::int32_t mine, std::int32_t radix, ChunksOf chunks_of,
                 RankOf rank_of) {
  // In one message or, past the last block, two.
  const auto each_run = [&](std::int32_t first, std::int32_t count, auto open) {
    const std::int32_t before_end = std::min(count, blocks - first);
    open(chunks_of(first, before_end));
    if (count > before_end) open(chunks_of(0, count - before_end));
  };
  for (std::int64_t have = 1; have < blocks; have *= radix) {
    const auto step = static_cast<std::int32_t>(have);
    const auto each_distance = [&](auto visit) {
      std::int64_t distance = have;
      for (std::int32_t i = 1; i < radix && distance < blocks; ++i, distance += have)
        visit(static_cast<std::int32_t>(distance),
              std::min(step, blocks - static_cast<std::int32_t>(distance)));
    };
    each_distance([&](std::int32_t distance, std::int32_t count) {
      const std::int32_t from = (mine + distance) % blocks;
      each_run(from, count, [&](Chunks c) { b.recv(rank_of(from), c); });
    });
    each_distance([&](std::int32_t distance, std::int32_t count) {
      const std::int32_t to = (mine - distance + blocks) % blocks;
      each_run(mine, count, [&](Chunks c) { b.send(rank_of(to), c); });
    });
    b.wait();
  }
}

}  // namespace heddle
