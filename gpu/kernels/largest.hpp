// The k largest: those that are likely to be among them are listed, and the k-th is found in the list, digit
// by digit (digits.hpp), by the launch that then takes the k. As tiles are when they are selected, tiles are
// taken by tickets where digits are counted, those of all digits behind each other: who waits for a digit
// waits for blocks that run and count.
#pragma once

#include <cstdint>

#include "gpu/kernels/select.hpp"

namespace heddle::gpu::kernels {

struct ListShared : SelectShared {
  DigitShared digits;
};

// Lists, and when all is listed begins the search in it; or in the vector again, where the list does not have
// what it should.
template <typename Index>
HEDDLE_DEVICE void list_entries(const Block& block, const SelectArguments& a, ListShared& shared) {
  Workspace& work = *a.workspace;
  const Search begun = work.search;
  select_entries<std::uint32_t, Index, Pass::listing>(block, a, begun, shared, &shared.digits);
  const Cut<std::uint32_t> cut(Grid<std::uint32_t>(values_of(a.source, begun), kLineBytes), a.all_tiles);
  if (shared.is_last == 0 || a.first_tile + tiles_here(a, cut.tiles) != cut.tiles) return;
  const std::uint64_t listed = *a.needed;
  // From key 0 on all are listed that are not zero, be they fewer.
  const bool is_complete = listed <= a.capacity && (listed >= a.wanted || begun.key == 0);
  if (is_complete) return find_digit(block, work, 0, {0, a.wanted, 0, listed, 0}, work.search, shared.digits);
  block.each([&](unsigned thread) {
    for (unsigned digit = thread; digit < kMostDigits; digit += kThreads)
      work.digits[digit] = 0;
    if (thread == 0) work.search = {0, a.wanted, 0, kNoList, 0};
  });
}

struct FoundShared : SelectShared {
  DigitShared digits;
  // By turns: a thread may be one behind.
  std::uint64_t tickets[2];
  Search found[2];
};

// Counts digit number `number` in a tile, and gives the block's next ticket, which comes with the values.
HEDDLE_DEVICE inline std::uint64_t count_tile(const Block& block, Workspace& work,
                                              const Grid<std::uint32_t>& grid, std::uint64_t tile,
                                              unsigned number, const Search& search, std::uint64_t& ticket,
                                              FoundShared& shared) {
  const auto key = static_cast<std::uint32_t>(search.key);
  block.each([&](unsigned thread) {
    Share<std::uint32_t> share;
    share.load(grid, tile * kTileVectors, kTileVectors, thread, kThreads);
    if (thread == 0) ticket = add_to_word(&work.digit_ticket, 1);
    // One text for each digit: shifts that are constants save instructions for every value.
    if (number == 0)
      count_share<kDigits[0]>(share, 0, shared.digits.counts);
    else if (number == 1)
      count_share<kDigits[1]>(share, key >> kDigits[0].shift, shared.digits.counts);
    else
      count_share<kDigits[2]>(share, key >> kDigits[1].shift, shared.digits.counts);
  });
  return ticket;
}

// The k-th largest, or as much of it as is not known.
HEDDLE_DEVICE inline Search find_digits(const Block& block, const SelectArguments& a, FoundShared& shared) {
  Workspace& work = *a.workspace;
  Search search = work.search;
  const Grid<std::uint32_t> grid(values_of(a.source, search));
  const auto first = static_cast<unsigned>(search.digits);
  if (first == kAllDigits || grid.tiles == 0) return search;
  block.each([&](unsigned thread) {
    if (thread == 0) shared.tickets[1] = add_to_word(&work.digit_ticket, 1);
  });
  std::uint64_t ticket = shared.tickets[1];
  unsigned turn = 0;
  for (unsigned number = first; search.digits < kAllDigits; ++number) {
    const std::uint64_t end = (number - first + 1) * grid.tiles;
    std::uint64_t counted = 0;
    if (ticket < end) clear_counts(block, shared.digits);
    // From the end, as ever.
    for (; ticket < end; ++counted, turn ^= 1U)
      ticket = count_tile(block, work, grid, end - 1 - ticket, number, search, shared.tickets[turn], shared);
    if (counted > 0) {
      tell_counts(block, work, shared.digits);
      block.each([&](unsigned thread) {
        if (thread == 0) shared.digits.is_last = meet(&work.digit_tiles, counted) + counted == end ? 1 : 0;
      });
      if (shared.digits.is_last != 0) {
        find_digit(block, work, number, search, work.found[number], shared.digits);
        block.alone([&](unsigned thread) {
          if (thread == 0) release_word(&work.digits_found, number - first + 1);
        });
      }
    }
    block.each([&](unsigned thread) {
      if (thread != 0) return;
      while (load_shared_word(&work.digits_found) < number - first + 1)
        pause();
      acquire_word(&work.digits_found);
      shared.found[number % 2] = work.found[number];
    });
    search = shared.found[number % 2];
  }
  return search;
}

template <typename Index>
HEDDLE_DEVICE void find_entries(const Block& block, const SelectArguments& a, FoundShared& shared) {
  Workspace& work = *a.workspace;
  const Search search = find_digits(block, a, shared);
  select_entries<std::uint32_t, Index, Pass::found>(block, a, search, shared, nullptr);
  if (shared.is_last == 0) return;
  block.alone([&](unsigned thread) {
    if (thread != 0) return;
    work.digit_ticket = 0;
    work.digit_tiles = 0;
    work.digits_found = 0;
    work.search = search;
  });
}

// ---- As kernels are made of them

template <Pass kPass>
struct PassShared {
  using Type = SelectShared;
};
template <>
struct PassShared<Pass::listing> {
  using Type = ListShared;
};
template <>
struct PassShared<Pass::found> {
  using Type = FoundShared;
};

template <typename Bits, typename Index, Pass kPass>
HEDDLE_DEVICE void select_by(const Block& block, const SelectArguments& a,
                             typename PassShared<kPass>::Type& shared) {
  if constexpr (kPass == Pass::listing)
    list_entries<Index>(block, a, shared);
  else if constexpr (kPass == Pass::found)
    find_entries<Index>(block, a, shared);
  else
    select_entries<Bits, Index, kPass>(block, a, a.workspace->search, shared, nullptr);
}

}  // namespace heddle::gpu::kernels
