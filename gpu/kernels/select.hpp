// A vector's entries that matter, in their order: one pass that reads each value once. Blocks take tiles by tickets, so a tile that is waited for has been taken by a
// block that runs: no order of blocks, and no number of them that run at once, is relied upon. What a warp finds in its part of a tile it puts into the block's memory. The block
// tells how much that was, in the tile's word (tiles.hpp), and adds up what all tiles tell that come after its last one: that many blocks run at once, or fewer, so all of
// these words are looked at together, and nobody waits for what others have added up. Meanwhile the first values of the next tile are on their way. Then it writes.
//
// A warp that finds more than there is room for reads its part once more, mostly from the cache, when its place is known, and writes at once.
#pragma once

#include <cstdint>

#include "gpu/kernels/rows.hpp"
#include "gpu/kernels/tiles.hpp"

namespace heddle::gpu::kernels {

// ---- What is taken

template <typename Bits>
HEDDLE_DEVICE Bits key_of(Bits bits, Bits mask, Bits ceiling) {
  const Bits magnitude = bits & mask;
  return magnitude < ceiling ? magnitude : ceiling;
}

template <typename Bits, bool kBySearch>
struct Criterion {
  Bits mask;
  Bits ceiling;
  Bits threshold;
  std::uint64_t wanted;  // of those that equal it

  HEDDLE_DEVICE Criterion(const SelectArguments& a, const Search& search)
      : mask(static_cast<Bits>(a.mask)),
        ceiling(static_cast<Bits>(a.ceiling)),
        threshold(static_cast<Bits>(a.threshold)),
        wanted(kBySearch ? search.wanted : 0) {
    if (kBySearch || a.from_search != 0) threshold = static_cast<Bits>(search.key);
    if (!kBySearch && a.from_search != 0 && threshold == 0) threshold = 1;
  }
  HEDDLE_DEVICE bool is_above(Bits bits) const {
    if constexpr (kBySearch) return key_of<Bits>(bits, mask, ceiling) > threshold;
    // The threshold is no larger than the ceiling, so what is above that need not come down to it.
    return static_cast<Bits>(bits & mask) >= threshold;
  }
  HEDDLE_DEVICE bool is_equal(Bits bits) const {
    return kBySearch && key_of<Bits>(bits, mask, ceiling) == threshold;
  }
};

// Looks at a batch whose first place is `first`. `take(row, above, equal)`, with a bit for each lane, of rows in which there is any.
template <bool kIsFull, typename Bits, bool kBySearch, class Take>
HEDDLE_DEVICE void look_at_rows(const Warp& warp, const Cut<Bits>& cut, std::uint64_t first,
                                const OfLane<Rows<Bits>>& rows, const Criterion<Bits, kBySearch>& criterion,
                                Take take) {
  HEDDLE_UNROLLED
  for (unsigned r = 0; r < kRows<Bits>; ++r) {
    std::uint32_t above = warp.ballot([&](unsigned lane) { return criterion.is_above(rows[lane].bits[r]); });
    std::uint32_t equal = 0;
    if constexpr (kBySearch)
      equal = warp.ballot([&](unsigned lane) { return criterion.is_equal(rows[lane].bits[r]); });
    if constexpr (!kIsFull) {
      const std::uint32_t present = cut.present(first + r * kWarp);
      above &= present;
      equal &= present;
    }
    if ((above | equal) != 0) take(r, above, equal);
  }
}

template <typename Bits, bool kBySearch, class Take>
HEDDLE_DEVICE void look_at(const Warp& warp, const Cut<Bits>& cut, std::uint64_t first,
                           const OfLane<Rows<Bits>>& rows, const Criterion<Bits, kBySearch>& criterion,
                           Take take) {
  // All lanes say the same; that they do together spares them looking at each row whether all have come.
  if (warp.ballot([&](unsigned /*lane*/) { return cut.is_full(first); }) != 0)
    look_at_rows<true>(warp, cut, first, rows, criterion, take);
  else
    look_at_rows<false>(warp, cut, first, rows, criterion, take);
}

HEDDLE_DEVICE inline std::uint32_t ones_before(std::uint32_t bits, unsigned lane) {
  return ones(bits & ((1U << lane) - 1));
}

// ---- What a block keeps until it knows the place

inline constexpr unsigned kStaged = 512;  // entries of a warp's part: all of it in a tile of one batch

template <typename Bits>
struct Staged {
  std::uint16_t places[kStaged];  // in the warp's part
  Bits values[kStaged];
};
static_assert(kMostBatches * kBatch<std::uint16_t> <= 65536 && kBatch<std::uint16_t> <= kStaged);

template <typename Bits>
struct SelectShared : TileShared {
  std::uint64_t next;            // tile that the block has
  std::uint64_t totals[kWarps];  // of warps: as in tiles' words
  std::uint64_t sums[kWarps];
  Staged<Bits> staged[kWarps];
};

// Warp w's part of a tile, which begins at `first`, and whose first batch each thread has `ahead`: these go to its stage as far as there is room. Gives how
// many there are.
template <typename Bits, bool kBySearch>
HEDDLE_DEVICE std::uint64_t stage_part(const Warp& warp, unsigned w, const Cut<Bits>& cut,
                                       const Criterion<Bits, kBySearch>& criterion, std::uint64_t first,
                                       Each<Rows<Bits>>& ahead, Staged<Bits>& staged) {
  std::uint32_t found = 0;
  std::uint32_t equals = 0;
  HEDDLE_NOT_UNROLLED
  for (std::uint32_t batch = 0; batch < cut.batches; ++batch) {
    const std::uint32_t begin = batch * kBatch<Bits>;
    OfLane<Rows<Bits>> rows;
    warp.alone([&](unsigned lane) {
      Rows<Bits>& own = ahead[w * kWarp + lane];
      rows[lane] = own;
      if (batch + 1 < cut.batches) own.load(cut, first + begin + kBatch<Bits>, lane);
    });
    look_at(warp, cut, first + begin, rows, criterion,
            [&](unsigned r, std::uint32_t above, std::uint32_t equal) {
              const std::uint32_t taken = above | equal;
              if (found + ones(taken) <= kStaged)
                warp.alone([&](unsigned lane) {
                  if ((taken >> lane & 1U) == 0) return;
                  const std::uint32_t to = found + ones_before(taken, lane);
                  staged.places[to] = static_cast<std::uint16_t>(begin + r * kWarp + lane);
                  staged.values[to] = rows[lane].bits[r];
                });
              found += ones(taken);
              equals += ones(equal);
            });
  }
  return Tile::counts(found - equals, equals);
}

// ---- Places in the output

// As many as fit into 32 bits, of which a tile needs less.
HEDDLE_DEVICE inline std::uint32_t left_of(std::uint64_t all, std::uint64_t taken) {
  const std::uint64_t left = all > taken ? all - taken : 0;
  return left < 0xFFFFFFFFU ? static_cast<std::uint32_t>(left) : 0xFFFFFFFFU;
}

// Writes the entries of a warp's part behind those before it. Within it 32 bits number places and entries.
template <typename Bits, typename Index>
struct Writer {
  const unsigned char* list;  // of the values' indices; null: they are in their places
  std::uint64_t first;        // the value in the part's first place, which may be before the values
  unsigned char* indices;     // of the part's first entry
  unsigned char* values;
  std::uint32_t room;    // for so many entries
  std::uint32_t wanted;  // of those that equal the threshold

  HEDDLE_DEVICE Writer(const SelectArguments& a, const Values& from, std::uint64_t begin, std::uint64_t above,
                       std::uint64_t equal, std::uint64_t all_wanted)
      : list(from.indices), first(begin), wanted(left_of(all_wanted, equal)) {
    const std::uint64_t start = above + (equal < all_wanted ? equal : all_wanted);
    indices = a.indices + start * sizeof(Index);
    values = a.values + start * sizeof(Bits);
    room = left_of(a.capacity, start);
  }

  HEDDLE_DEVICE void put(std::uint32_t place, Bits bits, std::uint32_t to) const {
    if (to >= room) return;
    const Index index = list != nullptr ? load_element<Index>(list + (first + place) * sizeof(Index))
                                        : static_cast<Index>(first) + static_cast<Index>(place);
    store_element(indices + std::uint64_t{to} * sizeof(Index), index);
    store_element(values + std::uint64_t{to} * sizeof(Bits), bits);
  }
};

template <typename Bits, typename Index>
HEDDLE_DEVICE void write_staged(const Warp& warp, const Staged<Bits>& staged, std::uint32_t count,
                                const Writer<Bits, Index>& writer) {
  warp.alone([&](unsigned lane) {
    for (std::uint32_t k = lane; k < count; k += kWarp)
      writer.put(staged.places[k], staged.values[k], k);
  });
}

// The part that begins at `first`, once more.
template <typename Bits, bool kBySearch, typename Index>
HEDDLE_DEVICE void write_part(const Warp& warp, const Cut<Bits>& cut,
                              const Criterion<Bits, kBySearch>& criterion, std::uint64_t first,
                              const Writer<Bits, Index>& writer) {
  std::uint32_t larger = 0;
  std::uint32_t equals = 0;
  HEDDLE_NOT_UNROLLED
  for (std::uint32_t batch = 0; batch < cut.batches; ++batch) {
    const std::uint32_t begin = batch * kBatch<Bits>;
    OfLane<Rows<Bits>> rows;
    warp.alone([&](unsigned lane) { rows[lane].load(cut, first + begin, lane); });
    look_at(warp, cut, first + begin, rows, criterion,
            [&](unsigned r, std::uint32_t above, std::uint32_t equal) {
              warp.alone([&](unsigned lane) {
                const std::uint32_t before = equals + ones_before(equal, lane);
                const bool is_above = (above >> lane & 1U) != 0;
                const bool is_equal = (equal >> lane & 1U) != 0 && before < writer.wanted;
                if (is_above || is_equal)
                  writer.put(
                      begin + r * kWarp + lane, rows[lane].bits[r],
                      larger + ones_before(above, lane) + (before < writer.wanted ? before : writer.wanted));
              });
              larger += ones(above);
              equals += ones(equal);
            });
  }
}

// ---- The kernel

// Of the tiles from `begin` to `end`, which are taken, a thread's share of what they tell.
HEDDLE_DEVICE inline std::uint64_t wait_for_counts(const std::uint64_t* tiles, std::uint64_t begin,
                                                   std::uint64_t end, unsigned thread) {
  constexpr unsigned kAtOnce = 4;
  std::uint64_t sum = 0;
  for (std::uint64_t first = begin + thread; first < end; first += kAtOnce * kThreads) {
    std::uint64_t words[kAtOnce];
    HEDDLE_UNROLLED
    for (unsigned k = 0; k < kAtOnce; ++k)
      words[k] = first + k * kThreads < end ? load_shared_word(tiles + first + k * kThreads) : Tile::kCounted;
    HEDDLE_UNROLLED
    for (unsigned k = 0; k < kAtOnce; ++k) {
      while (!Tile::is_counted(words[k])) {
        pause();
        words[k] = load_shared_word(tiles + first + k * kThreads);
      }
      sum += Tile::counts_in(words[k]);
    }
  }
  return sum;
}

template <typename Bits, typename Index, bool kBySearch>
HEDDLE_DEVICE void select_entries(const Block& block, const SelectArguments& a, SelectShared<Bits>& shared) {
  Workspace& work = *a.workspace;
  Each<std::uint64_t> ticket;
  block.alone([&](unsigned thread) { ticket[thread] = thread == 0 ? add_to_word(&work.ticket, 1) : 0; });
  const Values from = values_of(a.source, work.search);
  const Cut<Bits> cut(from, a.all_tiles);
  const Criterion<Bits, kBySearch> criterion(a, work.search);
  const std::uint64_t tiles = tiles_here(a, cut.tiles);
  // Whoever comes to the tile of this block's number, its first two batches are on their way.
  block.each([&](unsigned thread) {
    if (block.number < tiles)
      cut.prefetch(cut.first_of(a.first_tile + block.number, thread / kWarp), thread % kWarp);
    if (thread != 0) return;
    shared.tile = ticket[thread];
    shared.is_last = 0;
  });
  const std::uint64_t above_so_far = a.is_first != 0 ? 0 : work.above;
  const std::uint64_t equal_so_far = a.is_first != 0 ? 0 : work.equal;

  Each<Rows<Bits>> ahead;
  const auto load_ahead = [&](std::uint64_t tile, unsigned thread) {
    if (tile < tiles)
      ahead[thread].load(cut, cut.first_of(a.first_tile + tile, thread / kWarp), thread % kWarp);
  };
  std::uint64_t tile = shared.tile;
  std::uint64_t before = 0;  // entries in the tiles before `summed`
  std::uint64_t summed = 0;
  block.alone([&](unsigned thread) { load_ahead(tile, thread); });
  if (tile >= tiles) finish_tiles(block, a, tiles, criterion.wanted, shared);
  while (tile < tiles) {
    block.each_warp([&](const Warp& warp, unsigned w) {
      std::uint64_t next = 0;
      // It comes while the values do.
      warp.alone([&](unsigned lane) {
        if (w == 0 && lane == 0) next = add_to_word(&work.ticket, 1);
      });
      const std::uint64_t first = cut.first_of(a.first_tile + tile, w);
      const std::uint64_t total = stage_part(warp, w, cut, criterion, first, ahead, shared.staged[w]);
      warp.alone([&](unsigned lane) {
        if (lane == 0) shared.totals[w] = total;
        if (w == 0 && lane == 0) shared.next = next;
      });
    });
    const std::uint64_t next = shared.next;
    const std::uint64_t own = sum_of(shared.totals, kWarps);
    Each<std::uint64_t> counts;
    block.alone([&](unsigned thread) {
      if (thread == 0) tell_counted(work.tiles, tile, own);
      load_ahead(next, thread);
    });
    block.alone([&](unsigned thread) { counts[thread] = wait_for_counts(work.tiles, summed, tile, thread); });
    block.scan_warps(counts, shared.sums);
    before += sum_of(shared.sums, kWarps);
    summed = tile;
    block.alone([&](unsigned thread) {
      // Of the last tile that is what the launch has found.
      if (thread == 0 && tile + 1 == tiles)
        store_shared_word(&work.tiles[tile], Tile::kKnown | (before + own));
    });
    // What this one has yet to write is its own affair.
    if (next >= tiles) leave_tiles(block, work, tiles, shared);
    block.each_warp([&](const Warp& warp, unsigned w) {
      const std::uint64_t total = shared.totals[w];
      const auto found = static_cast<std::uint32_t>(Tile::above(total) + Tile::equal(total));
      const std::uint64_t until = before + sum_of(shared.totals, w);
      const std::uint64_t first = cut.first_of(a.first_tile + tile, w);
      const Writer<Bits, Index> writer(a, from, first - cut.shift, above_so_far + Tile::above(until),
                                       equal_so_far + Tile::equal(until), criterion.wanted);
      if (writer.room == 0 || Tile::above(total) + (writer.wanted > 0 ? Tile::equal(total) : 0) == 0) return;
      if (found <= kStaged && Tile::equal(total) <= writer.wanted)
        write_staged(warp, shared.staged[w], found, writer);
      else
        write_part(warp, cut, criterion, first, writer);
    });
    clear_tiles(block, a, tiles, criterion.wanted, shared);
    tile = next;
  }
}

}  // namespace heddle::gpu::kernels
