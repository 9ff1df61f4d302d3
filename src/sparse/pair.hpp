// Sums of two streams whose entries lie far apart. Which of the two the next entry comes from is then a
// coin's toss, so nothing here branches on it; and as every step waits for the one before it, several merges
// go side by side.
#pragma once

#include <array>
#include <vector>

#include "base/dtype.hpp"
#include "sparse/stream_cursor.hpp"

namespace heddle {

// Bits: an unsigned number as large as a value.
template <typename Index, typename Bits>
class PairMerge {
 public:
  explicit PairMerge(FoldFn fold) : fold_(fold), indices_(kRoom), left_(kRoom), right_(kRoom) {}

  // Whether the streams are long enough for take().
  static bool fits(const StreamCursor& a, const StreamCursor& b) {
    return a.end - a.at >= kReach && b.end - b.at >= kReach;
  }

  // Folds the next entries, kBlock of the two together, and passes over them; returns how many came out.
  std::size_t take(StreamCursor& a, StreamCursor& b, Sink sink) {
    std::array<Split, kLanes + 1> splits;
    for (std::size_t k = 0; k <= kLanes; ++k)
      splits[k] = split(a, b, k * kEach);
    merge(a, b, splits);
    std::size_t written = 0;
    for (std::size_t k = 0; k < kLanes; ++k) {
      // A merge that was done before the others went on into the next one's entries.
      const Index* begin = indices_.data() + k * kStride;
      const auto count =
          static_cast<std::size_t>(std::lower_bound(begin, begin + steps_, splits[k + 1].limit) - begin);
      std::memcpy(sink.indices, begin, count * sizeof(Index));
      const void* inputs[] = {left_.data() + k * kStride, right_.data() + k * kStride};
      fold_(sink.values, nullptr, inputs, 2, count);
      sink.advance(count, sizeof(Index), sizeof(Bits));
      written += count;
    }
    a.at = splits[kLanes].a;
    b.at = splits[kLanes].b;
    return written;
  }

 private:
  static constexpr std::size_t kLanes = 3;
  static constexpr std::size_t kEach = 512;  // entries of a merge
  static constexpr std::size_t kBatch = 32;  // steps between looks at whether all are done
  static constexpr std::size_t kStride = kEach + kBatch + 16;
  static constexpr std::size_t kRoom = kLanes * kStride;
  // All of the entries may come from one stream, and the last merge may go as many steps too far.
  static constexpr std::size_t kReach = kLanes * kEach + kStride + 2;

  // A place in both streams: all entries before it are less than `limit`, all others are not.
  struct Split {
    std::size_t a;
    std::size_t b;
    Index limit;
  };

  // After the first `count` entries of the two together, or one more, so that two of equal index stay
  // together.
  static Split split(const StreamCursor& a, const StreamCursor& b, std::size_t count) {
    std::size_t low = 0;
    std::size_t left = count;
    while (left > 0) {
      const std::size_t half = left / 2;
      const bool before = a.index<Index>(a.at + low + half) <= b.index<Index>(b.at + count - 1 - low - half);
      low = before ? low + half + 1 : low;
      left = before ? left - half - 1 : half;
    }
    Split at{a.at + low, b.at + count - low, 0};
    if (low > 0 && a.index<Index>(at.a - 1) == b.index<Index>(at.b)) ++at.b;
    at.limit = std::min(a.index<Index>(at.a), b.index<Index>(at.b));
    return at;
  }

  // Compilers make branches of comparisons that they see to depend on each other; this one they cannot see
  // through.
  static std::size_t not_greater(Index x, Index y) {
    __asm__("" : "+r"(x));
    std::size_t result = x <= y ? 1 : 0;
    __asm__("" : "+r"(result));
    return result;
  }

  // A value, or +0 for none.
  static Bits masked(Bits value, std::size_t present) {
    return static_cast<Bits>(value & static_cast<Bits>(0 - present));
  }

  void merge(const StreamCursor& from_a, const StreamCursor& from_b,
             const std::array<Split, kLanes + 1>& splits) {
    const StreamCursor a = from_a;  // copies: stores below might otherwise be to the fields themselves
    const StreamCursor b = from_b;
    Index* const indices = indices_.data();
    Bits* const left = left_.data();
    Bits* const right = right_.data();
    std::size_t i[kLanes];
    std::size_t j[kLanes];
    for (std::size_t k = 0; k < kLanes; ++k) {
      i[k] = splits[k].a;
      j[k] = splits[k].b;
    }
    std::size_t step = 0;
    bool done = false;
    while (!done) {
      for (const std::size_t stop = step + kBatch; step < stop; ++step) {
#pragma GCC unroll 3
        for (std::size_t k = 0; k < kLanes; ++k) {
          const auto x = a.index<Index>(i[k]);
          const auto y = b.index<Index>(j[k]);
          const std::size_t from_left = not_greater(x, y);
          const std::size_t from_right = not_greater(y, x);
          indices[k * kStride + step] = static_cast<Index>(y ^ ((x ^ y) & static_cast<Index>(0 - from_left)));
          left[k * kStride + step] = masked(load_at<Bits>(a.values, i[k]), from_left);
          right[k * kStride + step] = masked(load_at<Bits>(b.values, j[k]), from_right);
          i[k] += from_left;
          j[k] += from_right;
        }
      }
      done = true;
      for (std::size_t k = 0; k < kLanes; ++k)
        done = done && i[k] >= splits[k + 1].a && j[k] >= splits[k + 1].b;
    }
    steps_ = step;
  }

  FoldFn fold_;
  std::size_t steps_ = 0;
  std::vector<Index> indices_;
  std::vector<Bits> left_;   // values of the first stream, +0 where it has none
  std::vector<Bits> right_;  // of the second
};

}  // namespace heddle
