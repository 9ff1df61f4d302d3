// Where a team's members keep what they tell each other, in the memory they share.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/round_up.hpp"
#include "transports/shm/shared_heap.hpp"
#include "transports/shm/shm_team.hpp"

namespace heddle::team_layout {

inline constexpr std::size_t kLine = 64;
inline constexpr std::size_t kPage = 4096;
// Small operations a bcast root may be ahead of its readers.
inline constexpr std::uint64_t kSmallDepth = 8;
// Slots in turn. More than the pipeline needs: a slot whose last readers have dropped its lines meanwhile is
// cheaper to write again (measured: 64 KiB through 16 slots takes three quarters of the time through 4).
inline constexpr std::uint64_t kDepth = kSlotsOfAMember / 2;

// Smaller pieces cost more in flags than their overlap hides (measured: 32 KiB by two members in one piece
// takes four fifths of the time in two).
inline constexpr std::size_t kLeastPieceBytes = std::size_t{32} << 10;
// There is nothing but copying to overlap in a bcast (measured, two members: 32 KiB in two pieces takes four
// fifths of the time in one, 64 KiB in four pieces nine tenths of that in two; pieces of 8 KiB gain nothing
// more).
inline constexpr std::size_t kLeastBcastPieceBytes = std::size_t{16} << 10;
// Small results from this size on are worth fetching into the cache while the others' payloads are awaited.
inline constexpr std::size_t kPrefetchBytes = 4096;

// Bcasts up to this size are fetched before they are asked for (measured, two members, many in a row from one
// root: 4 B take 0.15 us instead of 0.19, 64 and 128 B 0.16 instead of 0.21, 256 B 0.17 instead of 0.19).
inline constexpr std::size_t kAheadBytes = 256;

// What must be the same on all members, in a number: the bytes, of an allreduce what it does, else the root
// (of more than 256 members, the last digits of it), and the verb.
inline constexpr int kVerbBits = 2;
inline constexpr int kDetailBits = 8;
inline std::uint64_t call_number(const TeamCall& call) {
  // One of the two is 0.
  const std::uint64_t detail = static_cast<std::uint64_t>(call.kind | call.root) % (1 << kDetailBits);
  return call.bytes << (kVerbBits + kDetailBits) | detail << kVerbBits |
         static_cast<std::uint64_t>(call.verb);
}
inline std::uint64_t call_number(const TeamOp& op) {
  return call_number(heddle::call_of(op));
}
inline TeamCall call_of(std::uint64_t number) {
  TeamCall call;
  call.verb = static_cast<TeamVerb>(number % (1 << kVerbBits));
  call.bytes = number >> (kVerbBits + kDetailBits);
  const auto detail = static_cast<std::uint8_t>(number >> kVerbBits);
  if (call.verb == TeamVerb::allreduce) {
    call.kind = detail;
  } else {
    call.root = detail;
  }
  return call;
}
// The flag of a small operation: its number, and what it is.
inline constexpr int kSmallCallBits = 25;
static_assert(kSmallBytes << (kVerbBits + kDetailBits) < std::size_t{1} << kSmallCallBits);
inline std::uint64_t flag_of(const TeamOp& op) {
  return op.operation << kSmallCallBits | op.call;
}
inline bool is_of(std::uint64_t flag, std::uint64_t operation) {
  return flag >> kSmallCallBits == operation << kSmallCallBits >> kSmallCallBits;
}

// Whether the flag has its value, looking a few times: the way back to the caller and here again takes as
// long as a good part of the hop that is awaited.
inline bool arrives(const std::atomic<std::uint64_t>& flag, std::uint64_t value) {
  constexpr int kGlances = 8;
  for (int i = 0; i < kGlances; ++i) {
    if (flag.load(std::memory_order_acquire) == value) return true;
  }
  return false;
}

// Payloads up to this share the flag's line.
inline constexpr std::size_t kInlineBytes = kLine - sizeof(std::uint64_t);

struct alignas(kLine) SmallSlot {
  std::atomic<std::uint64_t> flag;  // of the operation whose payload this is
  std::byte inline_payload[kInlineBytes];
  std::byte payload[kSmallBytes];

  std::byte* at(std::size_t bytes) { return bytes <= kInlineBytes ? inline_payload : payload; }
};

// What one member tells the others; written by it alone. Piece numbers run on across operations.
struct alignas(2 * kLine) Progress {
  std::atomic<std::uint64_t> completed;  // operations finished
  std::atomic<std::uint64_t> copied;     // pieces whose foreign parts are in my slot
  std::atomic<std::uint64_t> folded;     // pieces whose part of mine is folded
  std::atomic<std::uint64_t> drained;    // pieces whose results I have copied out
};

// What one member tells about its buffers before a large allreduce, and what it found of the others'.
struct alignas(2 * kLine) Offer {
  std::atomic<std::uint64_t> operation;  // that the rest is about
  bool made;                             // both buffers can be reached by the others
  HeapPlace in;
  HeapPlace out;
  std::uint64_t releases;  // of the member's heap so far
};
struct alignas(2 * kLine) Verdict {
  std::atomic<std::uint64_t> value;  // 2 * operation, plus 1 if all offers can be reached from here
};
// Pieces of the operation in `verdict`, when it is done in the members' own buffers.
struct alignas(2 * kLine) DirectProgress {
  std::atomic<std::uint64_t> folded;
  std::atomic<std::uint64_t> drained;
};

// Where others may read this process's memory, and that it is this process's: what `place` points to has the
// value `number`. Written once, before any operation.
struct Identity {
  std::int64_t pid;
  std::uint64_t place;
  std::uint64_t number;
};
// A root's buffer, for the others to read.
struct alignas(2 * kLine) Lent {
  std::atomic<std::uint64_t> offer;  // 2 * operation, plus 1 if it is lent
  std::uint64_t place;               // of the last that was lent
};

// What a large operation is, for members to compare. A root is ahead of its readers by no more operations
// than there are slots of either kind.
inline constexpr std::uint64_t kStarted = 32;
static_assert(kStarted > kSmallDepth + kDepth);
struct Started {
  std::atomic<std::uint64_t> operation;
  std::atomic<std::uint64_t> call;
};

// What one member has waited in, team operation or not. The call is that of the number where this is the same
// before and after.
struct alignas(2 * kLine) Waited {
  std::atomic<std::uint64_t> number;
  std::atomic<std::uint64_t> call;
};

// What large allgathers have taken this member, at least, by size class and way (gather_once.hpp).
inline constexpr std::size_t kGatherClasses = 8;
struct alignas(2 * kLine) Gathered {
  std::atomic<std::uint64_t> ns[kGatherClasses][2];  // for a KiB of what it gives
};

// What one member tells whoever wants to know.
struct alignas(2 * kLine) Word {
  std::atomic<std::uint64_t> value;
};

// The start of each member's part of the region.
struct Board {
  Progress progress;
  Offer offer;
  Verdict verdict;
  DirectProgress direct;
  Word word;
  Identity identity;
  Lent lent;
  Verdict taken;   // of what a root, or all others, lent: plus 1 if it has been read
  Word withdrawn;  // 1: what this member lent is its caller's again, for good
  Waited waited;
  Gathered gathered;
  alignas(2 * kLine) Started started[kStarted];  // at the number of the operation
};

// A seqlock's order, for one who writes once (Boehm, "Can Seqlocks Get Along with Programming Language Memory
// Models?", MSPC 2012): whoever has read anything that the caller stored after withdraw() finds it withdrawn.
inline void withdraw(Board& mine) {
  mine.withdrawn.value.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
}
// To be asked after reading.
inline bool has_withdrawn(const Board& theirs) {
  std::atomic_thread_fence(std::memory_order_acquire);
  return theirs.withdrawn.value.load(std::memory_order_relaxed) != 0;
}

// One member's part of the region: its board, small slots, then kDepth input slots and kDepth result slots.
struct MemberLayout {
  std::size_t small;
  std::size_t input;
  std::size_t result;
  std::size_t total;
  std::size_t slot;

  explicit MemberLayout(std::size_t slot_bytes) : slot(round_up(slot_bytes, kPage)) {
    small = round_up(sizeof(Board), kPage);
    input = round_up(small + kSmallDepth * sizeof(SmallSlot), kPage);
    result = input + kDepth * slot;
    total = result + kDepth * slot;
  }
};

// Elements [first, first+count) of the vector.
struct Extent {
  std::size_t first;
  std::size_t count;
};
inline std::size_t pieces(const TeamOp& op) {
  return div_up(op.count, op.piece);
}
inline Extent piece_extent(const TeamOp& op, std::size_t i) {
  return {i * op.piece, std::min(op.piece, op.count - i * op.piece)};
}
// The part of a piece that member m of `members` folds.
inline Extent part_of(const Extent& piece, int m, int members) {
  const auto k = static_cast<std::size_t>(m);
  const auto n = static_cast<std::size_t>(members);
  const std::size_t begin = piece.count * k / n;
  return {begin, piece.count * (k + 1) / n - begin};
}

}  // namespace heddle::team_layout
