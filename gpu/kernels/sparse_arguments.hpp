// What the kernels of sparse vectors are told, and the memory in which their blocks meet.
#pragma once

#include <cstdint>

#include "gpu/kernels/arguments.hpp"

namespace heddle::gpu::kernels {

// ---- Selection

// Of one launch: what its blocks count takes 31 bits, and room for one word a tile. Longer vectors take
// several.
inline constexpr std::uint64_t kMostTiles = 32768;
inline constexpr unsigned kMostDigits = 2048;  // that a part of a key may have

// Of vectors that are selected from (batches.hpp): a batch is what a warp loads at once, and a tile has as
// many of them for each warp as leave each block that runs at once some tiles, but no more than these.
inline constexpr unsigned kBatchVectors = 32 * kInFlight;
inline constexpr unsigned kMostBatches = 4;
inline constexpr std::uint64_t kLineBytes = 128;  // that memory gives at once: tiles begin at whole ones

// What a search's keys are made of: bits of a magnitude, with one key for all NaNs.
inline constexpr std::uint32_t kMagnitudeBits = 0x7FFFFFFFU;
inline constexpr std::uint32_t kNanKey = 0x7F800001U;

// A part of a key of 31 bits.
struct Digit {
  std::uint32_t shift;
  std::uint32_t bits;
};
inline constexpr std::uint32_t kKeyBits = 31;
inline constexpr Digit kDigits[] = {{20, 11}, {10, 10}, {0, 10}};  // as they are found
inline constexpr unsigned kAllDigits = 3;
static_assert(1U << kDigits[0].bits == kMostDigits && sizeof kDigits == kAllDigits * sizeof(Digit));

// Where a search for the k largest stands, from launch to launch.
struct Search {
  std::uint64_t key;     // its upper bits, as far as they are known: what the k-th largest key begins with
  std::uint64_t wanted;  // how many of those that begin so belong to the k, from the largest
  std::uint64_t over;    // 1: fewer than k are not zero. All of them are taken, and key and wanted are 0
  std::uint64_t listed;  // how many the list has, or would have if it had room; kNoList where it is of no use
  std::uint64_t digits;  // how many of kDigits are known
};
inline constexpr std::uint64_t kNoList = ~std::uint64_t{0};

// Zero before the first launch that uses it, and left so by every one, but for `above`, `equal`, `search` and
// `found`.
struct Workspace {
  std::uint64_t ticket;  // of the next tile
  std::uint64_t done;    // blocks that have nothing left to do
  std::uint64_t above;   // entries that earlier launches of the same selection found
  std::uint64_t equal;
  Search search;
  // By a launch that goes on with the search (largest.hpp), with each digit: a block may be digits behind.
  Search found[kAllDigits];
  std::uint64_t digit_ticket;  // in it: of the next tile whose digits are to be counted
  std::uint64_t digit_tiles;   // that are counted
  std::uint64_t digits_found;
  std::uint64_t digits[kMostDigits];  // how often each occurs
  std::uint64_t tiles[kMostTiles];    // what is known of each: select.hpp
};

// A vector, or the list of those of its entries that matter, where the search has one: that is known on the
// device alone.
struct Source {
  const unsigned char* values;  // aligned as one is
  std::uint64_t count;
  const unsigned char* list_indices;  // null: there is no list
  const unsigned char* list_values;
  std::uint64_t list_capacity;  // it is complete where no more were wanted
};

// What a selection is for.
enum class Pass : std::uint8_t {
  plain,
  listing,  // for a search in what it takes
  found,    // the k largest: what is still to be found of the k-th is found first
};

// Which entries are taken, by their key: min(bits & mask, ceiling), as unsigned numbers. Those not below
// `threshold`; where a search has found the k-th largest those above its key, and the first `wanted` of those
// that equal it.
struct SelectArguments {
  Source source;
  std::uint64_t mask;
  std::uint64_t ceiling;
  std::uint64_t threshold;
  std::uint32_t from_search;  // 1: the threshold is the search's key, or 1 where that is less
  std::uint64_t wanted;       // in a list: for so many is searched in it
  std::uint32_t is_first;     // launch of this selection
  std::uint32_t all_tiles;    // of all launches: the source is cut into no more
  std::uint64_t first_tile;   // of the launch, which has kMostTiles at most
  std::uint64_t most_tiles;
  unsigned char* indices;  // both aligned as one is
  unsigned char* values;
  std::uint64_t capacity;  // what comes after it is counted alone
  std::uint64_t* needed;   // receives how many entries there are
  Workspace* workspace;
};

// Of a vector that is sampled: pieces of 32 bytes, one somewhere in each of as many equal parts.
inline constexpr unsigned kSampleBits = 13;
inline constexpr unsigned kSampledPieces = 1U << kSampleBits;
inline constexpr std::uint64_t kSampledValues = kSampledPieces * 8;
// Shorter ones have too few of them.
inline constexpr std::uint64_t kLeastSampledFrom = kSampledValues + 16;

// How often each value of the first digit occurs.
struct DigitArguments {
  Source source;
  std::uint64_t wanted;   // begins a search for so many
  std::uint32_t samples;  // 1: in a sample
  Workspace* workspace;
};

// ---- Scatter

struct ScatterArguments {
  const unsigned char* indices;  // sorted, each once; all three aligned as their elements are
  const unsigned char* values;
  std::uint64_t count;
  const std::uint64_t* counted;  // where it is not null: how many of these there are
  unsigned char* dense;
  std::uint64_t dimension;
};

// ---- Entries as dense vectors

inline constexpr unsigned kSpreadTile = kThreads * 4 * sizeof(Vector);  // bytes
inline constexpr unsigned kMostSpread = 8;                              // vectors

struct SpreadArguments {
  const unsigned char* indices;  // sorted, each once; all aligned as their elements are
  const unsigned char* values;
  std::uint64_t count;
  const std::uint64_t* counted;  // where it is not null: how many of these there are
  const std::uint64_t* broken;   // where it is not null, and that is not 0: nothing is done
  std::uint64_t cleared;         // a value, as bits, that becomes 0
  unsigned char* outputs[kMostSpread];
  std::uint32_t n_outputs;
  std::uint64_t dimension;
};

// ---- Merging

inline constexpr unsigned kMergedEach = 8;  // entries of both lists that a thread merges
inline constexpr unsigned kMergeTile = kThreads * kMergedEach;
inline constexpr unsigned kMostMerged = 8;  // places that receive the result

// A list of sorted entries. `counted`, where it is not null, says how many there are, and then `count` is not
// looked at.
struct EntryList {
  const unsigned char*
      indices;  // of 64 bits where `wide` is 1, else of 32; aligned as one is, and so are the values
  const unsigned char* values;
  std::uint64_t count;
  const std::uint64_t* counted;
  std::uint32_t wide;
};

// What becomes of two entries of equal index.
enum class MergeOperation : std::uint32_t { sum, min, max };

// Where the result goes.
struct MergeRoom {
  unsigned char* indices;  // both aligned as one is
  unsigned char* values;
  std::uint64_t capacity;  // what comes after it is left out
  std::uint32_t wide;
};

struct MergeArguments {
  EntryList first;
  EntryList second;
  MergeOperation operation;
  std::uint64_t dimension;
  MergeRoom rooms[kMostMerged];  // each receives all of it
  std::uint32_t n_rooms;
  std::uint32_t is_first;    // launch of this merge
  std::uint64_t first_tile;  // of the launch, which has kMostTiles at most
  std::uint64_t most_tiles;
  std::uint64_t* needed;  // receives how many entries there are
  std::uint64_t*
      broken;  // becomes 1 where indices of a list do not rise, or one is not less than the dimension
  std::uint64_t* told;  // words of the host's, which become those two; null: there are none
  std::uint64_t* told_broken;
  Workspace* workspace;
};

// ---- Of collectives

struct CheckArguments {
  const unsigned char* indices;  // aligned as one is
  std::uint64_t count;
  std::uint64_t dimension;
  std::uint64_t* broken;  // becomes 1 where indices do not rise, or one is not less than the dimension
};

struct ForgetArguments {
  const unsigned char* indices;  // of float entries, the largest of `vector`
  const unsigned char* values;
  const std::uint64_t* count;  // how many there are; of these the first `capacity`
  std::uint64_t capacity;
  float* vector;
  std::uint64_t dimension;
  std::uint64_t* some_finite;  // 0 before; becomes 1 where an entry is
};

// ---- Quantised vectors

struct QuantiseArguments {
  const float* gradient;
  const float* residual;  // added before; may be null
  float* left_out;        // what is left out; may be `residual`, or null
  std::uint64_t count;
  std::uint64_t bucket;    // values that share a scale; 1 at least
  std::uint64_t position;  // of the first value, for its random number
  std::uint64_t seed;
  unsigned char* codes;
};

struct DequantiseArguments {
  const unsigned char* codes[kMostInputs];  // each of a vector; these are added in their order
  std::uint32_t n_inputs;                   // 1 at least
  float* values;
  std::uint64_t count;
  std::uint64_t bucket;
  std::uint64_t* bad;  // becomes 1 where no encoder wrote such codes
};

// That take a bucket, of which each takes four values at a time: one for each four of up to 128 values. More
// values have no more threads until each has 32 of them, so that what is computed once for a bucket is soon
// made up for.
HEDDLE_HOST_DEVICE inline unsigned threads_of_bucket(std::uint64_t bucket) {
  constexpr unsigned kLeast = 32;
  const std::uint64_t groups = (bucket + 3) / 4;
  if (groups <= kLeast) return static_cast<unsigned>(groups);
  if (groups >= 8 * kThreads) return kThreads;
  const auto wanted = static_cast<unsigned>((groups + 7) / 8);
  return wanted < kLeast ? kLeast : wanted;
}
// That a block takes.
HEDDLE_HOST_DEVICE inline unsigned buckets_at_once(std::uint64_t bucket) {
  return kThreads / threads_of_bucket(bucket);
}

// ---- Codes of indices, which are sorted and lie in [first, first + span) of a vector

inline constexpr unsigned kPackedEach = 8;  // entries of which a thread makes bytes
inline constexpr unsigned kPackTile = kThreads * kPackedEach;
inline constexpr unsigned kBitmapBytes = 8;  // of a bitmap, that a thread reads
inline constexpr unsigned kBitmapTile = kThreads * kBitmapBytes;
inline constexpr unsigned kUnpackTile = kThreads * sizeof(Vector);  // bytes of deltas
inline constexpr std::uint64_t kMostDeltaTiles =
    kMostTiles / 2;  // of a launch that reads deltas: each has two words

struct PackBitmapArguments {
  const unsigned char* indices;  // aligned as one is
  std::uint64_t count;
  std::uint64_t first;
  std::uint64_t span;
  unsigned char* codes;  // zeros before; aligned to 4 bytes
};

struct PackDeltaArguments {
  const unsigned char* indices;  // aligned as one is
  std::uint64_t count;
  std::uint64_t first;
  std::uint32_t is_first;    // launch of these
  std::uint64_t first_tile;  // of the launch, which has kMostTiles at most
  std::uint64_t most_tiles;
  unsigned char* codes;
  std::uint64_t capacity;  // what comes after it is counted alone
  std::uint64_t* needed;   // receives how many bytes there are
  Workspace* workspace;
};

struct UnpackArguments {
  const unsigned char* codes;  // a bitmap's aligned to 8 bytes
  std::uint64_t bytes;         // of deltas
  std::uint64_t first;
  std::uint64_t span;
  std::uint32_t is_first;    // launch of these
  std::uint64_t first_tile;  // of the launch, which has kMostTiles at most, or kMostDeltaTiles
  std::uint64_t most_tiles;
  unsigned char* indices;  // aligned as one is
  std::uint64_t count;     // that there should be
  std::uint64_t* needed;   // receives how many there are
  std::uint64_t* bad;      // becomes 1 where no encoder wrote this
  Workspace* workspace;
};

}  // namespace heddle::gpu::kernels
