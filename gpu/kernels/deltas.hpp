// Indices as the numbers of those that lie between each and the one before it, in the host's bytes
// (src/sparse/index_codec.hpp): base-128 numbers, seven bits a byte, lowest first, with the high bit set on
// all bytes but the last, and no more bytes than a number needs.
//
// Into bytes: how many a tile of entries takes is known when they are counted, and where they go tile by tile
// (tiles.hpp). Back: a number is the thread's that has its last byte. How many numbers come before a tile,
// and what they sum up to, is found in the same way, by two words of each tile: sums have 64 bits, and lie in
// both.
#pragma once

#include <cstdint>

#include "gpu/kernels/sparse_arguments.hpp"
#include "gpu/kernels/tiles.hpp"

namespace heddle::gpu::kernels {

inline constexpr unsigned kMore = 0x80;  // set where a number goes on with the next byte

// ---- Into bytes

template <class Index>
inline constexpr unsigned kMostBytes = (8 * sizeof(Index) + 6) / 7;  // of a number

template <class Index>
struct PackShared : TileShared {
  std::uint64_t totals[kWarps];
  // As far behind 16 bytes as they will be where they go.
  alignas(sizeof(Vector)) unsigned char bytes[kPackTile * kMostBytes<Index> + sizeof(Vector)];
};

// Of kPackedEach entries.
template <class Index>
struct Gaps {
  Index gaps[kPackedEach];
  unsigned count;
};

template <class Index>
HEDDLE_DEVICE void load_gaps(const PackDeltaArguments& a, std::uint64_t from, Gaps<Index>& own) {
  const std::uint64_t left = from < a.count ? a.count - from : 0;
  own.count = left < kPackedEach ? static_cast<unsigned>(left) : kPackedEach;
  if (own.count == 0) return;
  // The first entry's distance from the range's first index comes out like all others.
  auto before = static_cast<Index>(a.first - 1);
  if (from > 0) before = load_element<Index>(a.indices + (from - 1) * sizeof(Index));
  HEDDLE_UNROLLED
  for (unsigned e = 0; e < kPackedEach; ++e) {
    if (e >= own.count) continue;
    const auto index = load_element<Index>(a.indices + (from + e) * sizeof(Index));
    own.gaps[e] = static_cast<Index>(index - before - 1);
    before = index;
  }
}

template <class Index>
HEDDLE_DEVICE std::uint64_t bytes_of(const Gaps<Index>& own) {
  std::uint64_t bytes = 0;
  HEDDLE_UNROLLED
  for (unsigned e = 0; e < kPackedEach; ++e) {
    if (e >= own.count) continue;
    ++bytes;
    HEDDLE_NOT_UNROLLED
    for (Index rest = own.gaps[e] >> 7; rest != 0; rest >>= 7)
      ++bytes;
  }
  return bytes;
}

template <class Index>
HEDDLE_DEVICE void write_gaps(const Gaps<Index>& own, unsigned char* to) {
  HEDDLE_UNROLLED
  for (unsigned e = 0; e < kPackedEach; ++e) {
    if (e >= own.count) continue;
    Index rest = own.gaps[e];
    HEDDLE_NOT_UNROLLED
    for (; rest >= kMore; rest >>= 7)
      *to++ = static_cast<unsigned char>(rest | kMore);
    *to++ = static_cast<unsigned char>(rest);
  }
}

// Bytes [begin, end) of the codes, of which those from 16 bytes to 16 bytes lie so in the block's memory.
HEDDLE_DEVICE inline void write_codes(unsigned char* codes, std::uint64_t begin, std::uint64_t end,
                                      const unsigned char* staged, unsigned thread) {
  const std::uint64_t shift = reinterpret_cast<std::uintptr_t>(codes + begin) % sizeof(Vector);
  const std::uint64_t all = shift + (end > begin ? end - begin : 0);
  unsigned char* const to = codes + begin - shift;
  for (std::uint64_t at = thread * sizeof(Vector); at < all; at += kThreads * sizeof(Vector)) {
    if (at >= shift && at + sizeof(Vector) <= all) {
      store_vector(to + at, load_vector(staged + at));
      continue;
    }
    HEDDLE_NOT_UNROLLED
    for (std::uint64_t k = at < shift ? shift : at; k < all && k < at + sizeof(Vector); ++k)
      to[k] = staged[k];
  }
}

template <class Index>
HEDDLE_DEVICE void pack_delta(const Block& block, const PackDeltaArguments& a, PackShared<Index>& shared) {
  Workspace& work = *a.workspace;
  const std::uint64_t tiles = tiles_here(a, (a.count + kPackTile - 1) / kPackTile);
  const std::uint64_t so_far = a.is_first != 0 ? 0 : work.above;

  take_first_tile(block, work, shared);
  for (std::uint64_t tile = shared.tile; tile < tiles; tile = shared.tile) {
    Each<Gaps<Index>> own;
    Each<std::uint64_t> before;
    std::uint64_t next = 0;  // the first thread's alone
    block.alone([&](unsigned thread) {
      load_gaps(a, (a.first_tile + tile) * kPackTile + thread * kPackedEach, own[thread]);
      if (thread == 0) next = add_to_word(&work.ticket, 1);
      before[thread] = bytes_of(own[thread]);
    });
    block.scan_warps(before, shared.totals);
    place_tile(block, work, tile, next, shared,
               [&](const Warp& /*warp*/) { return Tile::counts(sum_of(shared.totals, kWarps), 0); });
    block.each([&](unsigned thread) {
      const auto start = reinterpret_cast<std::uintptr_t>(a.codes) + so_far + Tile::above(shared.before);
      write_gaps(own[thread], shared.bytes + start % sizeof(Vector) + sum_of(shared.totals, thread / kWarp) +
                                  before[thread]);
    });
    block.each([&](unsigned thread) {
      const std::uint64_t begin = so_far + Tile::above(shared.before);
      const std::uint64_t end = begin + sum_of(shared.totals, kWarps);
      write_codes(a.codes, begin, end < a.capacity ? end : a.capacity, shared.bytes, thread);
    });
  }
  finish_tiles(block, a, tiles, 0, shared);
}

// ---- And back

inline constexpr unsigned kLongest = 10;  // bytes of a number

template <class Index>
struct UnpackShared : TileShared {
  std::uint64_t totals[kWarps];  // numbers
  std::uint64_t sums[kWarps];    // of these and one for each
  std::uint64_t sum_before;
  alignas(sizeof(Vector)) unsigned char bytes[sizeof(Vector) + kUnpackTile];  // from 16 before the tile on
  Index indices[kUnpackTile];
};

// The codes by 16 bytes: the first of them begin `shift` bytes before the codes.
struct CodeGrid {
  const unsigned char* begin;
  std::uint64_t shift;
  std::uint64_t end;
  std::uint64_t tiles;

  HEDDLE_DEVICE explicit CodeGrid(const UnpackArguments& a) {
    shift = reinterpret_cast<std::uintptr_t>(a.codes) % sizeof(Vector);
    begin = a.codes - shift;
    end = shift + a.bytes;
    tiles = a.bytes == 0 ? 0 : (end + kUnpackTile - 1) / kUnpackTile;
  }
  // What lies beside the codes is not the caller's, and ends no number.
  HEDDLE_DEVICE void load(std::uint64_t at, unsigned char* to) const {
    if (at >= shift && at + sizeof(Vector) <= end) return store_vector(to, load_vector(begin + at));
    HEDDLE_NOT_UNROLLED
    for (unsigned k = 0; k < sizeof(Vector); ++k)
      to[k] = at + k >= shift && at + k < end ? begin[at + k] : static_cast<unsigned char>(kMore);
  }
};

// The number whose last byte this is, with `before` bytes of the codes in front of that. False where an
// encoder would have written others.
HEDDLE_DEVICE inline bool number_at(const unsigned char* last, std::uint64_t before, std::uint64_t& number) {
  number = *last;
  unsigned length = 1;
  HEDDLE_NOT_UNROLLED
  for (; length <= before && length <= kLongest && (*(last - length) & kMore) != 0; ++length)
    number = number << 7 | (*(last - length) & (kMore - 1));
  const bool is_too_long = length > kLongest || (length == kLongest && *last > 1);
  const bool has_superfluous = length > 1 && *last == 0;
  return !is_too_long && !has_superfluous;
}

// Calls use(number) for those that end in the thread's bytes, of which the first is byte `at` of the grid.
// False where one is none.
template <class Index, class Use>
HEDDLE_DEVICE bool each_number(const UnpackShared<Index>& shared, const CodeGrid& grid, std::uint64_t at,
                               unsigned thread, Use use) {
  const unsigned char* const own = shared.bytes + sizeof(Vector) * (1 + thread);
  bool is_right = true;
  HEDDLE_NOT_UNROLLED
  for (unsigned k = 0; k < sizeof(Vector); ++k) {
    if ((own[k] & kMore) != 0) continue;
    std::uint64_t number = 0;
    if (!number_at(own + k, at + k - grid.shift, number)) is_right = false;
    use(number);
  }
  return is_right;
}

// A sum of 64 bits in two words that say by themselves whether they are known: 16 bits beside the count, and
// 48 (tiles.hpp). Of so many tiles as there are here neither runs over.
inline constexpr unsigned kLowBits = 16;
static_assert(kMostDeltaTiles <= std::uint64_t{1} << 14 && kLowBits + 14 <= Tile::kBits);
static_assert(kUnpackTile * kMostDeltaTiles < std::uint64_t{1} << Tile::kBits);

template <class Index>
HEDDLE_DEVICE void place_sums(const Block& block, const UnpackArguments& a, std::uint64_t tile,
                              const std::uint64_t& next, UnpackShared<Index>& shared) {
  std::uint64_t* const words[] = {a.workspace->tiles, a.workspace->tiles + a.most_tiles};
  block.first_warp([&](const Warp& warp) {
    const std::uint64_t sum = sum_of(shared.sums, kWarps);
    const std::uint64_t own[] = {Tile::counts(sum_of(shared.totals, kWarps), sum & ((1U << kLowBits) - 1)),
                                 sum >> kLowBits};
    warp.each([&](unsigned lane) {
      if (lane < 2) tell_counted(words[lane], tile, own[lane]);
    });
    const std::uint64_t before[] = {look_back(warp, words[0], tile), look_back(warp, words[1], tile)};
    warp.each([&](unsigned lane) {
      if (lane < 2) store_shared_word(&words[lane][tile], Tile::kKnown | (before[lane] + own[lane]));
      if (lane != 0) return;
      shared.before = before[0];
      shared.sum_before = Tile::equal(before[0]) + (before[1] << kLowBits);
      shared.tile = next;
    });
  });
}

// After finish_tiles(), which knows of the first words alone.
template <class Index>
HEDDLE_DEVICE void finish_sums(const Block& block, const UnpackArguments& a, std::uint64_t tiles,
                               UnpackShared<Index>& shared) {
  if (shared.is_last == 0) return;
  Workspace& work = *a.workspace;
  block.each([&](unsigned thread) {
    if (thread == 0 && tiles > 0)
      work.equal += Tile::counts_in(load_shared_word(&work.tiles[a.most_tiles + tiles - 1])) << kLowBits;
  });
  block.each([&](unsigned thread) {
    for (std::uint64_t tile = thread; tile < tiles; tile += kThreads)
      work.tiles[a.most_tiles + tile] = 0;
  });
}

template <class Index>
HEDDLE_DEVICE void unpack_delta(const Block& block, const UnpackArguments& a, UnpackShared<Index>& shared) {
  Workspace& work = *a.workspace;
  const CodeGrid grid(a);
  const std::uint64_t tiles = tiles_here(a, grid.tiles);
  const std::uint64_t so_far = a.is_first != 0 ? 0 : work.above;
  const std::uint64_t sum_so_far = a.is_first != 0 ? 0 : work.equal;

  take_first_tile(block, work, shared);
  for (std::uint64_t tile = shared.tile; tile < tiles; tile = shared.tile) {
    const std::uint64_t first = (a.first_tile + tile) * kUnpackTile;
    Each<std::uint64_t> before;
    Each<std::uint64_t> sum;
    std::uint64_t next = 0;  // the first thread's alone
    block.each([&](unsigned thread) {
      grid.load(first + thread * sizeof(Vector), shared.bytes + sizeof(Vector) * (1 + thread));
      if (thread == 0 && first > 0) grid.load(first - sizeof(Vector), shared.bytes);
      if (thread == 0) next = add_to_word(&work.ticket, 1);
    });
    block.alone([&](unsigned thread) {
      before[thread] = sum[thread] = 0;
      const bool is_right =
          each_number(shared, grid, first + thread * sizeof(Vector), thread, [&](std::uint64_t number) {
            ++before[thread];
            sum[thread] += number + 1;
          });
      if (!is_right) store_shared_word(a.bad, 1);
    });
    block.scan_warps(before, shared.totals);
    block.scan_warps(sum, shared.sums);
    place_sums(block, a, tile, next, shared);
    // The first index of all that is not in the range is found, since all before it is right; what comes
    // behind it may seem to be anywhere.
    block.each([&](unsigned thread) {
      std::uint64_t to = sum_of(shared.totals, thread / kWarp) + before[thread];
      std::uint64_t least =
          sum_so_far + shared.sum_before + sum_of(shared.sums, thread / kWarp) + sum[thread];
      each_number(shared, grid, first + thread * sizeof(Vector), thread, [&](std::uint64_t number) {
        if (number >= a.span - least) store_shared_word(a.bad, 1);
        shared.indices[to++] = static_cast<Index>(a.first + least + number);
        least += number + 1;
      });
    });
    block.each([&](unsigned thread) {
      const std::uint64_t count = sum_of(shared.totals, kWarps);
      const std::uint64_t start = so_far + Tile::above(shared.before);
      for (std::uint64_t k = thread; k < count && start + k < a.count; k += kThreads)
        store_element(a.indices + (start + k) * sizeof(Index), shared.indices[k]);
    });
  }
  finish_tiles(block, a, tiles, 0, shared);
  finish_sums(block, a, tiles, shared);
  finish_unpacking(block, a, grid.tiles, tiles, shared);
  if (block.number == 0 && a.bytes > 0)
    block.alone([&](unsigned thread) {
      if (thread == 0 && (a.codes[a.bytes - 1] & kMore) != 0) store_shared_word(a.bad, 1);
    });
}

}  // namespace heddle::gpu::kernels
