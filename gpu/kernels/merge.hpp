// Two lists of sorted entries, each index once in each, into one: entries of equal index become one, the first list's and the second's folded. What
// one list alone has is added to 0 in a sum, as in one of dense vectors: -0 becomes +0. Minimum and maximum take it as it is.
//
// All entries of both lists in order, where of equal ones the first list's comes first, are cut into tiles of as many entries. Where a tile begins in
// each list is found by searches along a diagonal (merge path: S. Odeh, O. Green, Z. Mwassi, O. Shmueli, Y. Birk, "Merge Path - Parallel Merging Made
// Simple", IPDPS Workshops 2012), and so is each thread's part in a tile. An entry of the second list whose equal comes just before it belongs to that one, whose
// thread folds it; a tile has the entries next to it for that. How many entries are left is known tile by tile (tiles.hpp).
//
// The lists are looked through on the way. Where one does not keep its contract the result is anything, but nothing beside it is touched.
#pragma once

#include <cstdint>

#include "gpu/kernels/elements.hpp"
#include "gpu/kernels/operations.hpp"
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

// `other`: what the other list has, or zeros where it has nothing. The operation is the same for all, so that one kernel has them.
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

// The first `diagonal` entries of both lists: how many of them are the first list's. It is at least `least`, and at most `most`.
struct Split {
  std::uint64_t diagonal;
  std::uint64_t least;
  std::uint64_t most;

  // Places to look at, in order: number 0 is the least, and number kProbes would be the most.
  static constexpr unsigned kProbes = kWarp / 2;
  HEDDLE_DEVICE std::uint64_t probe(unsigned k) const { return least + (most - least) * k / kProbes; }
  // At the first `before` of them the first list's entry comes before the second's, at the next one it does not.
  HEDDLE_DEVICE Split narrowed(unsigned before) const {
    if (least == most) return *this;
    return {diagonal, before > 0 ? probe(before - 1) + 1 : least, before < kProbes ? probe(before) : most};
  }
};

HEDDLE_DEVICE inline Split split_at(std::uint64_t diagonal, std::uint64_t first, std::uint64_t second) {
  return {diagonal, diagonal > second ? diagonal - second : 0, diagonal < first ? diagonal : first};
}

// Narrows both, each by a half of the warp, to one number. In lists that are not sorted it is some number in the same bounds.
HEDDLE_DEVICE inline void find_splits(const Warp& warp, const MergeArguments& a, Split& begin, Split& end) {
  while (begin.least < begin.most || end.least < end.most) {
    const std::uint32_t less = warp.ballot([&](unsigned lane) {
      const Split split = lane < Split::kProbes ? begin : end;
      const std::uint64_t i = split.probe(lane % Split::kProbes);
      return split.least < split.most && index_in(a.first, i) <= index_in(a.second, split.diagonal - 1 - i);
    });
    const auto before = [less](unsigned shift) {
      const std::uint32_t own = less >> shift & ((1U << Split::kProbes) - 1);
      return ones(own & ~(own + 1));
    };
    begin = begin.narrowed(before(0));
    end = end.narrowed(before(Split::kProbes));
  }
}

// ---- A tile

struct MergePart {
  std::uint64_t first;  // where it begins in each list
  std::uint64_t second;
  std::uint32_t of_first;  // entries
  std::uint32_t of_second;
  std::uint32_t has_before;  // 1: one of the first list's comes before it
  std::uint32_t has_after;   // 1: one of the second's comes after it
};

template <typename Index, typename Stored>
struct MergeShared : TileShared {
  std::uint64_t totals[kWarps];
  MergePart part;
  // The first list's, from the one before the tile on, and the second's, to the one after it; and then the result.
  Index indices[kMergeRoom];
  Stored values[kMergeRoom];
};

// False where the searches found what they cannot find in sorted lists; the part lies within the lists all the same.
HEDDLE_DEVICE inline bool set_part(MergePart& part, const Split& begin, const Split& end,
                                   std::uint64_t second_count) {
  const std::uint64_t all = end.diagonal - begin.diagonal;
  std::uint64_t of_first = end.least > begin.least ? end.least - begin.least : 0;
  if (of_first > all) of_first = all;
  part.first = begin.least;
  part.second = begin.diagonal - begin.least;
  part.of_first = static_cast<std::uint32_t>(of_first);
  part.of_second = static_cast<std::uint32_t>(all - of_first);
  part.has_before = part.first > 0 ? 1 : 0;
  part.has_after = part.second + part.of_second < second_count ? 1 : 0;
  return part.first + of_first == end.least;
}

// A thread's share of what is loaded. False where a list does not keep its contract: each entry is compared with the one before it.
template <typename Index, typename Stored>
HEDDLE_DEVICE bool load_part(const MergeArguments& a, MergeShared<Index, Stored>& shared, unsigned thread) {
  constexpr unsigned kEach = (kMergeRoom + kThreads - 1) / kThreads;
  const MergePart part = shared.part;
  const std::uint32_t second = part.has_before + part.of_first;
  const std::uint32_t all = second + part.of_second + part.has_after;
  Index indices[kEach];
  Stored values[kEach];
  bool is_right = true;
  HEDDLE_UNROLLED
  for (unsigned k = 0; k < kEach; ++k) {
    const std::uint32_t place = k * kThreads + thread;
    if (place >= all) continue;
    const auto load = [&](const EntryList& list, std::uint64_t i) {
      const std::uint64_t index = index_in(list, i);
      if (index >= a.dimension || (i > 0 && index_in(list, i - 1) >= index)) is_right = false;
      indices[k] = static_cast<Index>(index);
      values[k] = load_element<Stored>(list.values + i * sizeof(Stored));
    };
    if (place < second) load(a.first, part.first - part.has_before + place);
    if (place >= second) load(a.second, part.second + (place - second));
  }
  HEDDLE_UNROLLED
  for (unsigned k = 0; k < kEach; ++k) {
    const std::uint32_t place = k * kThreads + thread;
    if (place >= all) continue;
    shared.indices[place] = indices[k];
    shared.values[place] = values[k];
  }
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
HEDDLE_DEVICE void merge_share(const MergeShared<Index, typename Element::Stored>& shared, unsigned thread,
                               MergeOperation operation, Merged<Index, typename Element::Stored>& merged) {
  using Stored = typename Element::Stored;
  const MergePart part = shared.part;
  const Index* const first = shared.indices + part.has_before;
  const Index* const second = first + part.of_first;
  const auto* const first_values = shared.values + part.has_before;
  const auto* const second_values = first_values + part.of_first;
  const std::uint32_t all = part.of_first + part.of_second;
  const std::uint32_t begin = thread * kMergedEach < all ? thread * kMergedEach : all;
  std::uint32_t i = split_in_tile(first, second, part, begin);
  std::uint32_t j = begin - i;
  merged.present = 0;
  HEDDLE_UNROLLED
  for (unsigned e = 0; e < kMergedEach; ++e) {
    if (i + j >= all) continue;
    const bool is_first = i < part.of_first && (j >= part.of_second || first[i] <= second[j]);
    const Index index = is_first ? first[i] : second[j];
    const bool has_equal = is_first && j < part.of_second + part.has_after && second[j] == index;
    const bool is_equal =
        !is_first && i + part.has_before > 0 && shared.indices[part.has_before + i - 1] == index;
    const Stored own = is_first ? first_values[i] : second_values[j];
    const Stored other = has_equal ? second_values[j] : Stored{};
    merged.indices[e] = index;
    merged.values[e] = fold_entries<Element>(operation, own, other, has_equal);
    merged.present |= (is_equal ? 0U : 1U) << e;
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
  for (std::uint64_t k = thread; k < count && start + k < a.capacity; k += kThreads) {
    const std::uint64_t to = start + k;
    if (a.wide != 0) store_element(a.indices + to * sizeof(std::uint64_t), std::uint64_t{shared.indices[k]});
    if (a.wide == 0)
      store_element(a.indices + to * sizeof(std::uint32_t), static_cast<std::uint32_t>(shared.indices[k]));
    store_element(a.values + to * sizeof(Stored), shared.values[k]);
  }
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
    block.first_warp([&](const Warp& warp) {
      const std::uint64_t diagonal = (a.first_tile + tile) * kMergeTile;
      const std::uint64_t behind = diagonal + kMergeTile;
      Split begin = split_at(diagonal, first, second);
      Split end = split_at(behind < first + second ? behind : first + second, first, second);
      find_splits(warp, a, begin, end);
      warp.each([&](unsigned lane) {
        if (lane == 0 && !set_part(shared.part, begin, end, second)) store_shared_word(a.broken, 1);
      });
    });
    block.each([&](unsigned thread) {
      if (!load_part(a, shared, thread)) store_shared_word(a.broken, 1);
      if (thread == 0) next = add_to_word(&work.ticket, 1);
    });
    block.alone([&](unsigned thread) {
      merge_share<Element, Index>(shared, thread, a.operation, merged[thread]);
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
}

}  // namespace heddle::gpu::kernels
