// A short vector of each rank's to all others, in one kernel: its threads wait for what the other GPUs write.
//
// A word of 64 bits carries four bytes of a vector and the number of the exchange, and is written at once:
// who sees the number has the bytes, and no other write has to be ordered with it (the idea of NCCL's LL
// protocol). Words lie in slots of the rank that reads them, one for each sender, twice: exchanges take
// turns. That is enough, because every block hears from every rank in every exchange: who is in the one after
// next knows that all have been in the next, and so have read what lay here.
//
// Numbers are counted on the GPU, by each block for itself: so a graph does the same at every launch. All
// ranks make the same exchanges with as many blocks, one after the other.
#pragma once

#include <cstdint>

#include "gpu/kernels/block.hpp"

namespace heddle::gpu::kernels {

inline constexpr std::uint32_t kNoRoot = 0xFFFFFFFF;
inline constexpr unsigned kWordsEach = 4;  // of a thread
inline constexpr std::uint64_t kBlockWords = std::uint64_t{kThreads} * kWordsEach;
inline constexpr std::uint64_t kWordBytes = 4;  // of a vector
// The turn of a block that has waited in vain. It does nothing any more: the others are not where it is.
inline constexpr std::uint64_t kLeft = ~std::uint64_t{0};
inline constexpr std::uint64_t kBlockBytes = kBlockWords * kWordBytes;

struct ExchangeArguments {
  std::uint64_t* slots[kMostInputs];  // of each rank, where this GPU reaches them
  const unsigned char* in;            // of this rank; at any address
  unsigned char* out;   // the others': that of rank r at r * apart; with a root, its alone, at 0
  std::uint64_t bytes;  // of a vector, at least 1
  std::uint64_t apart;
  std::uint64_t room;    // words of a slot, a multiple of kBlockWords
  std::uint64_t* turns;  // a word of each block's: the number of the last exchange, or kLeft
  std::uint64_t*
      stopped;  // memory of the host's: not 0 from when nobody waits any more; 1 + r: rank r did not come
  std::uint64_t patience;  // nanoseconds; 0: without end
  std::uint32_t rank;
  std::uint32_t ranks;
  std::uint32_t root;  // whose vector alone is sent, to all; kNoRoot: everybody's is
};

HEDDLE_DEVICE inline bool sends_vector(const ExchangeArguments& a, std::uint32_t rank) {
  return a.root == kNoRoot || a.root == rank;
}
// Numbers come again after 2^32 exchanges, some hours: words of a longer vector must not lie there from then.
// So now and then all of a slot is written, in both turns, and waited for.
HEDDLE_DEVICE inline bool fills_slots(std::uint32_t number) {
  return (number & 0x3FFFFFFFU) < 2;
}
// Words of `rank`'s that are of this block: one at least, so that it is heard of.
HEDDLE_DEVICE inline std::uint64_t words_of(const ExchangeArguments& a, std::uint32_t rank,
                                            std::uint64_t block, std::uint32_t number) {
  if (fills_slots(number)) return kBlockWords;
  if (!sends_vector(a, rank)) return 1;
  const std::uint64_t left = (a.bytes + kWordBytes - 1) / kWordBytes - block * kBlockWords;
  return left < kBlockWords ? left : kBlockWords;
}
// Of the vector of `rank`.
HEDDLE_DEVICE inline unsigned bytes_of_word(const ExchangeArguments& a, std::uint32_t rank,
                                            std::uint64_t word) {
  const std::uint64_t end = sends_vector(a, rank) ? a.bytes : 0;
  const std::uint64_t begin = word * kWordBytes;
  if (begin >= end) return 0;
  return static_cast<unsigned>(end - begin < kWordBytes ? end - begin : kWordBytes);
}
HEDDLE_DEVICE inline std::uint64_t* slot_of(const ExchangeArguments& a, std::uint32_t reader,
                                            std::uint32_t sender, std::uint32_t number) {
  return a.slots[reader] + (std::uint64_t{number % 2} * a.ranks + sender) * a.room;
}
HEDDLE_DEVICE inline std::uint32_t number_of(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> 32);
}

// One thread's words to all others, each of which begins with its neighbour.
HEDDLE_DEVICE inline void send_words(const ExchangeArguments& a, std::uint64_t block, unsigned thread,
                                     std::uint32_t number) {
  const std::uint64_t words = words_of(a, a.rank, block, number);
  for (std::uint64_t at = thread; at < words; at += kThreads) {
    const std::uint64_t word = block * kBlockWords + at;
    const unsigned bytes = bytes_of_word(a, a.rank, word);
    const std::uint32_t data = bytes > 0 ? load_bytes(a.in + word * kWordBytes, bytes) : 0;
    HEDDLE_NOT_UNROLLED
    for (std::uint32_t k = 1; k < a.ranks; ++k) {
      const std::uint32_t to = (a.rank + k) % a.ranks;
      store_system_word(slot_of(a, to, a.rank, number) + word, std::uint64_t{number} << 32 | data);
    }
  }
}

// A thread's waits in an exchange.
struct Patience {
  std::uint64_t begin;
  unsigned looks;
};
// Whether they have been in vain; after a look at what `sender` has not written yet.
HEDDLE_DEVICE inline bool is_over(const ExchangeArguments& a, std::uint32_t sender, Patience& patience) {
  // The clock and the host's memory are far away.
  constexpr unsigned kLooks = 256;
  let_others_run();
  if (++patience.looks % kLooks != 0) return false;
  if (patience.looks == kLooks) patience.begin = nanoseconds();
  if (load_system_word(a.stopped) != 0) return true;
  if (a.patience == 0 || nanoseconds() - patience.begin < a.patience) return false;
  store_system_word(a.stopped, std::uint64_t{sender} + 1);
  return true;
}

// One thread's words from all others, as they come; false: they do not.
HEDDLE_DEVICE inline bool take_words(const ExchangeArguments& a, std::uint64_t block, unsigned thread,
                                     std::uint32_t number) {
  Patience patience{};
  HEDDLE_NOT_UNROLLED
  for (std::uint32_t k = 1; k < a.ranks; ++k) {
    const std::uint32_t from = (a.rank + k) % a.ranks;
    const std::uint64_t words = words_of(a, from, block, number);
    const std::uint64_t* const slot = slot_of(a, a.rank, from, number);
    for (std::uint64_t at = thread; at < words; at += kThreads) {
      const std::uint64_t word = block * kBlockWords + at;
      std::uint64_t seen = load_system_word(slot + word);
      while (number_of(seen) != number) {
        if (is_over(a, from, patience)) return false;
        seen = load_system_word(slot + word);
      }
      const unsigned bytes = bytes_of_word(a, from, word);
      if (bytes == 0) continue;
      unsigned char* const to = a.out + (a.root == kNoRoot ? from * a.apart : 0) + word * kWordBytes;
      store_bytes(to, static_cast<std::uint32_t>(seen), bytes);
    }
  }
  return true;
}

struct ExchangeShared {
  std::uint32_t in_vain;
};

HEDDLE_DEVICE inline void exchange(const Block& block, const ExchangeArguments& a, ExchangeShared& shared) {
  const std::uint64_t turn = a.turns[block.number];
  if (turn == kLeft) return;
  const auto number = static_cast<std::uint32_t>(turn + 1);
  block.each([&](unsigned thread) {
    if (thread == 0) shared.in_vain = 0;
    send_words(a, block.number, thread, number);
  });
  block.each([&](unsigned thread) {
    if (!take_words(a, block.number, thread, number)) add_in_block(&shared.in_vain, 1);
  });
  block.alone([&](unsigned thread) {
    if (thread == 0) a.turns[block.number] = shared.in_vain != 0 ? kLeft : std::uint64_t{number};
  });
}

}  // namespace heddle::gpu::kernels
