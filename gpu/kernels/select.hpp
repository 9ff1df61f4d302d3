// A vector's entries that matter, in their order: one pass that reads each value once. Blocks take tiles by
// tickets, so a tile that is waited for has been taken by a block that runs: no order of blocks, and no
// number of them that run at once, is relied upon. A warp notes in the block's memory where in its part of a
// tile it has found something. The block tells how much that was, in the tile's word (tiles.hpp), and adds up
// what all tiles tell that come after its last one: that many blocks run at once, or fewer, so all of these
// words are looked at together, and nobody waits for what others have added up. Then it writes. What comes
// next is on its way all the while: a batch to the threads, two more to the cache.
//
// A warp that finds more than there is room for, or not all of whose finds are taken, reads its part once
// more when its place is known, mostly from the cache.
#pragma once

#include <cstdint>

#include "gpu/kernels/digits.hpp"
#include "gpu/kernels/places.hpp"
#include "gpu/kernels/tiles.hpp"

namespace heddle::gpu::kernels {

// ---- What is taken

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

// What a lane has found in its vectors of a batch: above the threshold, and equal to it where that counts.
struct Found {
  Places above = 0;
  Places equal = 0;
};

template <typename Bits, bool kBySearch>
HEDDLE_DEVICE Found find(const Share<Bits>& share, const Criterion<Bits, kBySearch>& criterion) {
  Found found;
  HEDDLE_UNROLLED
  for (unsigned v = 0; v < kInFlight; ++v) {
    HEDDLE_UNROLLED
    for (unsigned e = 0; e < Share<Bits>::kEach; ++e) {
      const Bits bits = share.bits(v, e);
      found.above |= Places{criterion.is_above(bits)} << (kSpan * v + e);
      if constexpr (kBySearch) found.equal |= Places{criterion.is_equal(bits)} << (kSpan * v + e);
    }
  }
  found.above &= share.present;
  found.equal &= share.present;
  return found;
}

// ---- Places in the output

// As many as fit into 32 bits, of which a tile needs less.
HEDDLE_DEVICE inline std::uint32_t left_of(std::uint64_t all, std::uint64_t taken) {
  const std::uint64_t left = all > taken ? all - taken : 0;
  return left < 0xFFFFFFFFU ? static_cast<std::uint32_t>(left) : 0xFFFFFFFFU;
}

// Writes the entries of a warp's part behind those before it. Within it 32 bits number places and entries.
// `counts`, of a list: of its keys' first digits.
template <typename Bits, typename Index, bool kCounts>
struct Writer {
  const unsigned char* list;  // of the values' indices; null: they are in their places
  std::uint64_t first;        // the value in the part's first place, which may be before the values
  unsigned char* indices;     // of the part's first entry
  unsigned char* values;
  std::uint32_t room;    // for so many entries
  std::uint32_t wanted;  // of those that equal the threshold
  std::uint32_t* counts;

  HEDDLE_DEVICE Writer(const SelectArguments& a, const Values& from, std::uint64_t begin, std::uint64_t above,
                       std::uint64_t equal, std::uint64_t all_wanted, std::uint32_t* digits)
      : list(from.indices), first(begin), wanted(left_of(all_wanted, equal)), counts(digits) {
    const std::uint64_t start = above + (equal < all_wanted ? equal : all_wanted);
    indices = a.indices + start * sizeof(Index);
    values = a.values + start * sizeof(Bits);
    room = left_of(a.capacity, start);
  }

  // From `values`, the part's first place.
  HEDDLE_DEVICE void put(const unsigned char* from, std::uint32_t place, std::uint32_t to) const {
    if (to >= room) return;
    const Index index = list != nullptr ? load_element<Index>(list + (first + place) * sizeof(Index))
                                        : static_cast<Index>(first) + static_cast<Index>(place);
    store_element(indices + std::uint64_t{to} * sizeof(Index), index);
    const Bits bits = load_element<Bits>(from + std::uint64_t{place} * sizeof(Bits));
    store_element(values + std::uint64_t{to} * sizeof(Bits), bits);
    if constexpr (kCounts)
      add_in_block(&counts[key_of<Bits>(bits, kMagnitudeBits, kNanKey) >> kDigits[0].shift], 1);
  }
};

// `count` entries whose places are noted, behind `written` others.
template <typename Bits, typename Index, bool kCounts>
HEDDLE_DEVICE void write_staged(const Warp& warp, const std::uint16_t* staged, std::uint32_t count,
                                const unsigned char* from, std::uint32_t written,
                                const Writer<Bits, Index, kCounts>& writer) {
  warp.each([&](unsigned lane) {
    for (std::uint32_t k = lane; k < count; k += kWarp)
      writer.put(from, staged[k], written + k);
  });
}

// The part that begins with vector `first`, once more.
template <typename Bits, bool kBySearch, typename Index, bool kCounts>
HEDDLE_DEVICE void write_part(const Warp& warp, const Cut<Bits>& cut,
                              const Criterion<Bits, kBySearch>& criterion, std::uint64_t first,
                              std::uint16_t* staged, const Writer<Bits, Index, kCounts>& writer) {
  constexpr unsigned kEach = Share<Bits>::kEach;
  const unsigned char* const from = cut.grid.begin + first * sizeof(Vector);
  std::uint32_t written = 0;
  std::uint32_t equals = 0;
  HEDDLE_NOT_UNROLLED
  for (std::uint32_t batch = 0; batch < cut.batches; ++batch) {
    OfLane<Places> taken;
    OfLane<Places> equal;
    warp.alone([&](unsigned lane) {
      Share<Bits> share;
      cut.load(share, first + batch * kBatchVectors, lane);
      const Found found = find(share, criterion);
      taken[lane] = found.above;
      equal[lane] = found.equal;
    });
    if constexpr (kBySearch)
      equals =
          number_places<kEach>(warp, equal, equals, [&](unsigned lane, unsigned bit, std::uint32_t number) {
            if (number < writer.wanted) taken[lane] |= Places{1} << bit;
          });
    const std::uint32_t count = note_places<Bits>(warp, taken, batch, 0, staged);
    warp.each([](unsigned /*lane*/) {});
    write_staged(warp, staged, count, from, written, writer);
    written += count;
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

struct SelectShared : TileShared {
  std::uint64_t next;            // tile that the block has
  std::uint64_t totals[kWarps];  // of warps: as in tiles' words
  std::uint64_t sums[kWarps];
  std::uint16_t staged[kWarps][kStaged];
};

// What a thread has of the vector, and of what its warp has found so far in its part of a tile.
template <typename Bits>
struct Progress {
  Share<Bits> ahead;    // the batch that comes next
  std::uint32_t found;  // the warp's
  std::uint32_t equal;  // the thread's own, of these
};

// One launch's.
template <typename Bits, typename Index, Pass kPass>
struct Selection {
  static constexpr bool kBySearch = kPass == Pass::found;
  const SelectArguments& a;
  Workspace& work;
  const Values from;
  const Cut<Bits> cut;
  const Criterion<Bits, kBySearch> criterion;
  const std::uint64_t tiles;
  const std::uint64_t above_so_far;
  const std::uint64_t equal_so_far;

  HEDDLE_DEVICE Selection(const SelectArguments& arguments, const Search& search)
      : a(arguments),
        work(*a.workspace),
        from(values_of(a.source, search)),
        cut(Grid<Bits>(from, kLineBytes), a.all_tiles),
        criterion(a, search),
        tiles(tiles_here(a, cut.tiles)),
        above_so_far(a.is_first != 0 ? 0 : work.above),
        equal_so_far(a.is_first != 0 ? 0 : work.equal) {}

  // Of warp w: its first vector.
  HEDDLE_DEVICE std::uint64_t part_of(std::uint64_t tile, unsigned w) const {
    return cut.first_of(a.first_tile + tile, w);
  }
  HEDDLE_DEVICE void begin_part(Progress<Bits>& own, std::uint64_t tile, unsigned w, unsigned lane) const {
    if (tile < tiles) cut.begin_part(own.ahead, part_of(tile, w), lane);
  }

  // Looks at the batch that warp w has ahead, number `batch` of its part. `load_next(own progress, lane)`
  // loads what comes next.
  template <class LoadNext>
  HEDDLE_DEVICE void look_at(const Warp& warp, unsigned w, std::uint32_t batch,
                             Each<Progress<Bits>>& progress, std::uint16_t* staged,
                             LoadNext load_next) const {
    OfLane<Places> taken;
    warp.alone([&](unsigned lane) {
      Progress<Bits>& own = progress[w * kWarp + lane];
      const Found found = find(own.ahead, criterion);
      load_next(own, lane);
      taken[lane] = found.above | found.equal;
      own.equal += ones(found.equal);
    });
    const std::uint32_t found = note_places<Bits>(warp, taken, batch, progress[w * kWarp].found, staged);
    warp.alone([&](unsigned lane) { progress[w * kWarp + lane].found = found; });
  }

  // The first batch of a part, with which comes the number of the block's next tile.
  HEDDLE_DEVICE void look_at_first(const Warp& warp, unsigned w, std::uint64_t tile,
                                   Each<Progress<Bits>>& progress, SelectShared& shared) const {
    std::uint64_t next = 0;
    warp.alone([&](unsigned lane) {
      if (w == 0 && lane == 0) next = add_to_word(&work.ticket, 1);
      progress[w * kWarp + lane].found = 0;
      progress[w * kWarp + lane].equal = 0;
    });
    look_at(warp, w, 0, progress, shared.staged[w], [&](Progress<Bits>& own, unsigned lane) {
      if (cut.batches > 1) cut.load(own.ahead, part_of(tile, w) + kBatchVectors, lane);
    });
    warp.alone([&](unsigned lane) {
      if (w == 0 && lane == 0) shared.next = next;
    });
  }

  // The others, behind which the next tile's first batch is ahead.
  HEDDLE_DEVICE void look_at_others(const Warp& warp, unsigned w, std::uint64_t tile, std::uint64_t next,
                                    Each<Progress<Bits>>& progress, SelectShared& shared) const {
    HEDDLE_NOT_UNROLLED
    for (std::uint32_t batch = 1; batch < cut.batches; ++batch)
      look_at(warp, w, batch, progress, shared.staged[w], [&](Progress<Bits>& own, unsigned lane) {
        const std::uint64_t upcoming = part_of(tile, w) + (batch + 1) * kBatchVectors;
        if (batch + 1 == cut.batches) return begin_part(own, next, w, lane);
        cut.load(own.ahead, upcoming, lane);
        if (batch % 2 != 0) cut.prefetch(upcoming + kBatchVectors, lane);
      });
    if (cut.batches == 1)
      warp.alone([&](unsigned lane) { begin_part(progress[w * kWarp + lane], next, w, lane); });
    std::uint64_t equal = 0;
    if constexpr (kBySearch)
      equal = warp.sum([&](unsigned lane) { return std::uint64_t{progress[w * kWarp + lane].equal}; });
    warp.alone([&](unsigned lane) {
      if (lane == 0) shared.totals[w] = Tile::counts(progress[w * kWarp].found - equal, equal);
    });
  }

  // Tells what a tile has, and gives what those have that come before it, from tile `summed` on.
  HEDDLE_DEVICE std::uint64_t count_before(const Block& block, std::uint64_t tile, std::uint64_t summed,
                                           SelectShared& shared) const {
    const std::uint64_t own = sum_of(shared.totals, kWarps);
    Each<std::uint64_t> counts;
    block.alone([&](unsigned thread) {
      if (thread == 0) tell_counted(work.tiles, tile, own);
    });
    block.alone([&](unsigned thread) { counts[thread] = wait_for_counts(work.tiles, summed, tile, thread); });
    block.scan_warps(counts, shared.sums);
    return sum_of(shared.sums, kWarps);
  }

  // What warp w has of a tile, which has `before` others before it.
  HEDDLE_DEVICE void write(const Warp& warp, unsigned w, std::uint64_t tile, std::uint64_t before,
                           SelectShared& shared, std::uint32_t* counts) const {
    const std::uint64_t total = shared.totals[w];
    const std::uint64_t until = before + sum_of(shared.totals, w);
    const std::uint64_t first = part_of(tile, w);
    const Writer<Bits, Index, kPass == Pass::listing> writer(
        a, from, first * Share<Bits>::kEach - cut.grid.shift, above_so_far + Tile::above(until),
        equal_so_far + Tile::equal(until), criterion.wanted, counts);
    const std::uint64_t equal = Tile::equal(total);
    if (writer.room == 0 || Tile::above(total) + (writer.wanted > 0 ? equal : 0) == 0) return;
    const auto found = static_cast<std::uint32_t>(Tile::above(total) + equal);
    if (found <= kStaged && equal <= writer.wanted)
      write_staged(warp, shared.staged[w], found, cut.grid.begin + first * sizeof(Vector), 0, writer);
    else
      write_part(warp, cut, criterion, first, shared.staged[w], writer);
  }
};

// `digits`: of a list, whose keys' first digits are counted in it.
template <typename Bits, typename Index, Pass kPass>
HEDDLE_DEVICE void select_entries(const Block& block, const SelectArguments& a, const Search& search,
                                  SelectShared& shared, DigitShared* digits) {
  Workspace& work = *a.workspace;
  Each<std::uint64_t> ticket;
  block.alone([&](unsigned thread) { ticket[thread] = thread == 0 ? add_to_word(&work.ticket, 1) : 0; });
  const Selection<Bits, Index, kPass> selection(a, search);
  const std::uint64_t tiles = selection.tiles;
  const std::uint64_t wanted = selection.criterion.wanted;
  // Whoever comes to the tile of this block's number, its first two batches are on their way.
  block.each([&](unsigned thread) {
    if (block.number < tiles)
      selection.cut.prefetch(selection.part_of(block.number, thread / kWarp), thread % kWarp);
    if (thread != 0) return;
    shared.tile = ticket[thread];
    shared.is_last = 0;
  });
  if constexpr (kPass == Pass::listing) clear_counts(block, *digits);

  Each<Progress<Bits>> progress;
  std::uint64_t tile = shared.tile;
  std::uint64_t before = 0;  // entries in the tiles before `summed`
  std::uint64_t summed = 0;
  if (tile >= tiles) finish_tiles(block, a, tiles, wanted, shared);
  block.alone(
      [&](unsigned thread) { selection.begin_part(progress[thread], tile, thread / kWarp, thread % kWarp); });
  while (tile < tiles) {
    block.each_warp(
        [&](const Warp& warp, unsigned w) { selection.look_at_first(warp, w, tile, progress, shared); });
    const std::uint64_t next = shared.next;
    block.each_warp([&](const Warp& warp, unsigned w) {
      selection.look_at_others(warp, w, tile, next, progress, shared);
    });
    before += selection.count_before(block, tile, summed, shared);
    summed = tile;
    block.alone([&](unsigned thread) {
      // Of the last tile that is what the launch has found.
      if (thread == 0 && tile + 1 == tiles)
        store_shared_word(&work.tiles[tile], Tile::kKnown | (before + sum_of(shared.totals, kWarps)));
    });
    // What this one has yet to write is its own affair, but for what is counted then.
    if (kPass != Pass::listing && next >= tiles) leave_tiles(block, work, tiles, shared);
    block.each_warp([&](const Warp& warp, unsigned w) {
      selection.write(warp, w, tile, before, shared, kPass == Pass::listing ? digits->counts : nullptr);
    });
    if constexpr (kPass == Pass::listing) {
      if (next >= tiles) {
        tell_counts(block, work, *digits);
        leave_tiles(block, work, tiles, shared);
        block.each([](unsigned /*thread*/) {});
      }
    }
    clear_tiles(block, a, tiles, wanted, shared);
    tile = next;
  }
}

}  // namespace heddle::gpu::kernels
