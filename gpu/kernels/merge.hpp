// Two lists of sorted entries, each index once in each, into one: entries of equal index become one, the
// first list's and the second's folded. What one list alone has is added to 0 in a sum, as in one of dense
// vectors: -0 becomes +0. Minimum and maximum take it as it is.
//
// All entries of both lists in order, where of equal ones the first list's comes first, are cut into tiles of
// as many entries. Where a tile begins in each list is found by searches along a diagonal (merge path: S.
// Odeh, O. Green, Z. Mwassi, O. Shmueli, Y. Birk, "Merge Path - Parallel Merging Made Simple", IPDPS
// Workshops 2012), and so is each thread's part in a tile. An entry of the second list whose equal comes just
// before it belongs to that one, whose thread folds it; a tile has the entries next to it for that. How many
// entries are left is known tile by tile (tiles.hpp).
//
// The lists are looked through on the way. Where one does not keep its contract the result is anything, but
// nothing beside it is touched.
//
// Short lists are one tile for each block, and take as long as its loads that wait for each other: so all
// threads search, and what a tile needs is loaded at once.
#pragma once

#include <cstdint>

#include "gpu/kernels/elements.hpp"
#include "gpu/kernels/operations.hpp"
#include "gpu/kernels/search.hpp"
#include "gpu/kernels/tiles.hpp"

namespace heddle::gpu::kernels {

// A tile's entries, the one before it in the first list, and the one after it in the second.
inline constexpr unsigned kMergeRoom = kMergeTile + 2;

HEDDLE_DEVICE inline std::uint64_t count_of(const EntryList& list) {
  return list.counted != nullptr ? *list.counted : list.count;
}

HEDDLE_DEVICE inline std::uint64_t index_in(const EntryList& list, std::uint64_t i) {
  if (list.wide != 0) return load_element<std::uint64_t>(list.indices + i * sizeof(std::uint64_t));
  return load_element<std::uint32_t>(list.indices + i * sizeof(std::uint32_t));
}

// ---- One entry

// `other`: what the other list has, or zeros where it has nothing. The operation is the same for all, so that
// one kernel has them.
template <class Element>
HEDDLE_DEVICE typename Element::Stored fold_entries(MergeOperation operation, typename Element::Stored own,
                                                    typename Element::Stored other, bool has_other) {
  const typename Element::Value a = Element::decode(own);
  const typename Element::Value b = Element::decode(other);
  if (operation == MergeOperation::sum) return Element::encode(AnySum::apply(a, b));
  if (!has_other) return own;
  return Element::encode(operation == MergeOperation::min ? Min::apply(a, b) : Max::apply(a, b));
}

// ---- Where tiles begin

// The first `diagonal` entries of both lists: how many of them are the first list's.
HEDDLE_DEVICE inline Bounds split_at(std::uint64_t diagonal, std::uint64_t first, std::uint64_t second) {
  return {diagonal > second ? diagonal - second : 0, diagonal < first ? diagonal : first};
}

// ---- A tile

struct MergePart {
  std::uint64_t first;  // where it begins in each list
  std::uint64_t second;
  std::uint32_t of_first;  // entries
  std::uint32_t of_second;
  std::uint32_t has_before;  // 1: one of the first list's comes before it
  std::uint32_t has_after;   // 1: one of the second's comes after it

  // What is loaded: the first list's, from the one before the tile on, and then the second's, to the one
  // after it.
  HEDDLE_DEVICE std::uint32_t loaded_first() const { return has_before + of_first; }
  HEDDLE_DEVICE std::uint32_t loaded() const { return loaded_first() + of_second + has_after; }
};

template <typename Index, typename Stored>
struct MergeShared : TileShared {
  std::uint64_t totals[kWarps];
  SearchBits bits;
  // What is loaded, and then the result.
  Index indices[kMergeRoom];
  Stored values[kMergeRoom];
};

// Of `all` entries from `diagonal` on. False where the searches found what they cannot find in sorted lists;
// the part lies within the lists all the same.
HEDDLE_DEVICE inline bool set_part(MergePart& part, std::uint64_t diagonal, std::uint64_t all,
                                   std::uint64_t begin, std::uint64_t end, std::uint64_t second_count) {
  std::uint64_t of_first = end > begin ? end - begin : 0;
  if (of_first > all) of_first = all;
  part.first = begin;
  part.second = diagonal - begin;
  part.of_first = static_cast<std::uint32_t>(of_first);
  part.of_second = static_cast<std::uint32_t>(all - of_first);
  part.has_before = part.first > 0 ? 1 : 0;
  part.has_after = part.second + part.of_second < second_count ? 1 : 0;
  return part.first + of_first == end;
}

// A thread's share of what is loaded. False where an index is not less than the dimension. All loads are on
// their way before the first is looked at, whatever there is: indices of 64 bits come in two halves, and
// threads that have nothing left load the last entry once more.
template <typename Index, typename Stored>
HEDDLE_DEVICE bool load_part(const MergeArguments& a, const MergePart& part,
                             MergeShared<Index, Stored>& shared, unsigned thread) {
  constexpr unsigned kEach = (kMergeRoom + kThreads - 1) / kThreads;
  const std::uint32_t all = part.loaded();
  if (all == 0) return true;
  const std::uint32_t second = part.loaded_first();
  const std::uint64_t from_first = part.first - part.has_before;
  const unsigned char* const first_indices = a.first.indices + (from_first << (2 + a.first.wide));
  const unsigned char* const first_values = a.first.values + from_first * sizeof(Stored);
  const unsigned char* const second_indices = a.second.indices + (part.second << (2 + a.second.wide));
  const unsigned char* const second_values = a.second.values + part.second * sizeof(Stored);
  struct From {
    const unsigned char* index;
    const unsigned char* value;
    bool wide;
  };
  const auto source = [&](unsigned k) {
    const std::uint32_t wanted = k * kThreads + thread;
    const std::uint32_t place = wanted < all ? wanted : all - 1;
    const bool is_first = place < second;
    const std::uint32_t i = is_first ? place : place - second;
    const std::uint32_t wide = is_first ? a.first.wide : a.second.wide;
    return From{(is_first ? first_indices : second_indices) + (i << (2 + wide)),
                (is_first ? first_values : second_values) + i * std::uint32_t{sizeof(Stored)}, wide != 0};
  };
  std::uint64_t indices[kEach];
  Stored values[kEach];
  HEDDLE_UNROLLED
  for (unsigned k = 0; k < kEach; ++k) {
    indices[k] = load_element<std::uint32_t>(source(k).index);
    values[k] = load_element<Stored>(source(k).value);
  }
  if ((a.first.wide | a.second.wide) != 0) {
    HEDDLE_UNROLLED
    for (unsigned k = 0; k < kEach; ++k) {
      if (source(k).wide) indices[k] |= std::uint64_t{load_element<std::uint32_t>(source(k).index + 4)} << 32;
    }
  }
  bool is_right = true;
  HEDDLE_UNROLLED
  for (unsigned k = 0; k < kEach; ++k) {
    is_right &= indices[k] < a.dimension;
    const std::uint32_t place = k * kThreads + thread;
    if (place >= all) continue;
    shared.indices[place] = static_cast<Index>(indices[k]);
    shared.values[place] = values[k];
  }
  return is_right;
}

// Whether the indices of a thread's share rise: each is compared with the one before it in its list. A tile's
// first entry of a list is another one's last: of the second list the one after that tile, of the first the
// one before this.
template <typename Index, typename Stored>
HEDDLE_DEVICE bool rises(const MergePart& part, const MergeShared<Index, Stored>& shared, unsigned thread) {
  bool is_right = true;
  for (std::uint32_t place = thread + 1; place < part.loaded(); place += kThreads)
    is_right &= place == part.loaded_first() || shared.indices[place - 1] < shared.indices[place];
  return is_right;
}

// What a thread makes of kMergedEach entries: bit e is set where entry e is one of the result.
template <typename Index, typename Stored>
struct Merged {
  Index indices[kMergedEach];
  Stored values[kMergedEach];
  std::uint32_t present;
};

// How many of the first `diagonal` entries of the tile are the first list's.
template <typename Index>
HEDDLE_DEVICE std::uint32_t split_in_tile(const Index* first, const Index* second, const MergePart& part,
                                          std::uint32_t diagonal) {
  std::uint32_t least = diagonal > part.of_second ? diagonal - part.of_second : 0;
  std::uint32_t most = diagonal < part.of_first ? diagonal : part.of_first;
  while (least < most) {
    const std::uint32_t middle = (least + most) / 2;
    if (first[middle] <= second[diagonal - 1 - middle]) {
      least = middle + 1;
    } else {
      most = middle;
    }
  }
  return least;
}

template <class Element, typename Index>
HEDDLE_DEVICE void merge_share(const MergePart& part,
                               const MergeShared<Index, typename Element::Stored>& shared, unsigned thread,
                               MergeOperation operation, Merged<Index, typename Element::Stored>& merged) {
  using Stored = typename Element::Stored;
  const Index* const first = shared.indices + part.has_before;
  const Index* const second = shared.indices + part.loaded_first();
  const auto* const first_values = shared.values + part.has_before;
  const auto* const second_values = shared.values + part.loaded_first();
  const std::uint32_t all = part.of_first + part.of_second;
  const std::uint32_t begin = thread * kMergedEach < all ? thread * kMergedEach : all;
  std::uint32_t i = split_in_tile(first, second, part, begin);
  std::uint32_t j = begin - i;
  // The first list's before the next one.
  bool has_last = i + part.has_before > 0;
  Index last = has_last ? shared.indices[part.has_before + i - 1] : Index{};
  merged.present = 0;
  HEDDLE_UNROLLED
  for (unsigned e = 0; e < kMergedEach; ++e) {
    if (i + j >= all) continue;
    const bool has_first = i < part.of_first;
    const bool has_second = j < part.of_second + part.has_after;
    const Index x = has_first ? first[i] : Index{};
    const Index y = has_second ? second[j] : Index{};
    const bool is_first = has_first & ((j >= part.of_second) | (x <= y));
    const bool has_equal = is_first & has_second & (x == y);
    const bool is_equal = !is_first & has_last & (last == y);
    const Stored of_second = has_second ? second_values[j] : Stored{};
    merged.indices[e] = is_first ? x : y;
    merged.values[e] = fold_entries<Element>(operation, is_first ? first_values[i] : of_second,
                                             has_equal ? of_second : Stored{}, has_equal);
    merged.present |= (is_equal ? 0U : 1U) << e;
    last = is_first ? x : last;
    has_last |= is_first;
    i += is_first ? 1 : 0;
    j += is_first ? 0 : 1;
  }
}

// Behind what the `before` entries of the tile's other threads take.
template <typename Index, typename Stored>
HEDDLE_DEVICE void stage(MergeShared<Index, Stored>& shared, const Merged<Index, Stored>& merged,
                         std::uint64_t before) {
  HEDDLE_UNROLLED
  for (unsigned e = 0; e < kMergedEach; ++e) {
    if ((merged.present >> e & 1U) == 0) continue;
    shared.indices[before] = merged.indices[e];
    shared.values[before] = merged.values[e];
    ++before;
  }
}

template <typename Index, typename Stored>
HEDDLE_DEVICE void write_part(const MergeArguments& a, const MergeShared<Index, Stored>& shared,
                              std::uint64_t start, std::uint64_t count, unsigned thread) {
  for (std::uint32_t r = 0; r < a.n_rooms; ++r) {
    const MergeRoom& room = a.rooms[r];
    for (std::uint64_t k = thread; k < count && start + k < room.capacity; k += kThreads) {
      const std::uint64_t to = start + k;
      if (room.wide != 0)
        store_element(room.indices + to * sizeof(std::uint64_t), std::uint64_t{shared.indices[k]});
      if (room.wide == 0)
        store_element(room.indices + to * sizeof(std::uint32_t),
                      static_cast<std::uint32_t>(shared.indices[k]));
      store_element(room.values + to * sizeof(Stored), shared.values[k]);
    }
  }
}

// By the last block, when all others have nothing left to do.
HEDDLE_DEVICE inline void tell_host(const Block& block, const MergeArguments& a) {
  block.each([&](unsigned thread) {
    if (thread != 0) return;
    store_system_word(a.told, load_shared_word(a.needed));
    store_system_word(a.told_broken, load_shared_word(a.broken));
  });
}

// ---- The kernel

template <class Element, typename Index>
HEDDLE_DEVICE void merge_entries(const Block& block, const MergeArguments& a,
                                 MergeShared<Index, typename Element::Stored>& shared) {
  using Stored = typename Element::Stored;
  Workspace& work = *a.workspace;
  const std::uint64_t first = count_of(a.first);
  const std::uint64_t second = count_of(a.second);
  const std::uint64_t all_tiles = (first + second + kMergeTile - 1) / kMergeTile;
  const std::uint64_t tiles = tiles_here(a, all_tiles);
  const std::uint64_t so_far = a.is_first != 0 ? 0 : work.above;

  take_first_tile(block, work, shared);
  for (std::uint64_t tile = shared.tile; tile < tiles; tile = shared.tile) {
    Each<Merged<Index, Stored>> merged;
    Each<std::uint64_t> before;
    std::uint64_t next = 0;  // the first thread's alone
    const std::uint64_t diagonal = (a.first_tile + tile) * kMergeTile;
    const std::uint64_t left = first + second - diagonal;
    const std::uint64_t behind = diagonal + (left < kMergeTile ? left : kMergeTile);
    Bounds begin = split_at(diagonal, first, second);
    Bounds end = split_at(behind, first, second);
    find_both(block, shared.bits, begin, end, [&](bool is_begin, std::uint64_t i) {
      return index_in(a.first, i) <= index_in(a.second, (is_begin ? diagonal : behind) - 1 - i);
    });
    MergePart part;
    const bool is_right = set_part(part, diagonal, behind - diagonal, begin.least, end.least, second);
    block.each([&](unsigned thread) {
      if (!load_part(a, part, shared, thread) || !is_right) store_shared_word(a.broken, 1);
      if (thread == 0) next = add_to_word(&work.ticket, 1);
    });
    block.alone([&](unsigned thread) {
      if (!rises(part, shared, thread)) store_shared_word(a.broken, 1);
      merge_share<Element, Index>(part, shared, thread, a.operation, merged[thread]);
      before[thread] = ones(merged[thread].present);
    });
    block.scan_warps(before, shared.totals);
    place_tile(block, work, tile, next, shared,
               [&](const Warp& /*warp*/) { return Tile::counts(sum_of(shared.totals, kWarps), 0); });
    block.each([&](unsigned thread) {
      stage(shared, merged[thread], sum_of(shared.totals, thread / kWarp) + before[thread]);
    });
    block.each([&](unsigned thread) {
      write_part(a, shared, so_far + Tile::above(shared.before), sum_of(shared.totals, kWarps), thread);
    });
  }
  finish_tiles(block, a, tiles, 0, shared);
  if (shared.is_last != 0 && a.told != nullptr) tell_host(block, a);
}

}  // namespace heddle::gpu::kernels
