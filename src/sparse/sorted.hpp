// Folding of any streams by any operation: a few thousand entries at a time are sorted by their indices, by
// digits and hence without branches on them, and those of equal index folded by the dense kernel.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "sparse/stream_cursor.hpp"

namespace heddle {

// Bits: an unsigned number as large as a value.
template <typename Index, typename Bits>
class SortedFold {
 public:
  // `streams`: how many there are in all.
  SortedFold(FoldFn fold, Op op, std::size_t streams)
      : fold_(fold), op_(op), streams_(streams), inputs_(streams + 1) {}

  // Folds the next entries from `base` on, some thousands, and passes over them; returns how many came out.
  // No stream has an entry before `base`.
  std::size_t take(std::span<StreamCursor> cursors, Index base, Sink sink) {
    gather(cursors, base);
    sort();
    return write(base, sink);
  }

 private:
  static constexpr std::size_t kEntries = 4096;
  static constexpr std::size_t kLeast = 16;  // of a stream, however many there are
  static constexpr unsigned kDigitBits = 10;
  static constexpr Bits kZero = 0;

  struct Entry {
    Index key;  // distance from the base
    Bits value;
  };
  struct Run {  // entries of equal index, more than one
    std::size_t first;
    std::size_t count;
    std::size_t to;
  };

  void gather(std::span<StreamCursor> cursors, Index base) {
    const std::size_t each = std::max(kLeast, kEntries / cursors.size());
    auto last = static_cast<Index>(~Index{0});  // the last index of this block
    for (const StreamCursor& c : cursors)
      if (c.end - c.at > each) last = std::min(last, static_cast<Index>(c.index<Index>(c.at + each) - 1));
    if (entries_.empty()) {
      entries_.resize(each * cursors.size());
      other_.resize(entries_.size());
    }
    count_ = 0;
    range_ = 0;
    for (StreamCursor& c : cursors) {
      std::size_t at = c.at;
      const std::size_t most = std::min(c.end, at + each);
      for (; at < most; ++at) {
        const auto index = c.index<Index>(at);
        if (index > last) break;
        entries_[count_++] = {static_cast<Index>(index - base), load_at<Bits>(c.values, at)};
      }
      if (at > c.at) range_ = std::max(range_, static_cast<Index>(c.index<Index>(at - 1) - base));
      c.at = at;
    }
  }

  // By digits, the lowest first; entries of equal key keep their order, which is that of the streams.
  void sort() {
    const auto bits = static_cast<unsigned>(std::bit_width(range_));
    const unsigned passes = (bits + kDigitBits - 1) / kDigitBits;
    if (passes == 0) return;
    const unsigned digit = (bits + passes - 1) / passes;
    const Index mask = (Index{1} << digit) - 1;
    for (unsigned pass = 0; pass < passes; ++pass) {
      const unsigned shift = pass * digit;
      std::array<std::uint32_t, std::size_t{1} << kDigitBits> starts{};
      for (std::size_t i = 0; i < count_; ++i)
        ++starts[(entries_[i].key >> shift) & mask];
      std::uint32_t next = 0;
      for (std::size_t k = 0; k <= mask; ++k) {
        const std::uint32_t number = starts[k];
        starts[k] = next;
        next += number;
      }
      for (std::size_t i = 0; i < count_; ++i)
        other_[starts[(entries_[i].key >> shift) & mask]++] = entries_[i];
      std::swap(entries_, other_);
    }
  }

  std::size_t write(Index base, const Sink& sink) {
    runs_.clear();
    first_values_.resize(entries_.size());
    if (zeros_.empty()) zeros_.resize(entries_.size());
    std::size_t to = 0;
    for (std::size_t i = 0; i < count_; ++to) {
      const Index key = entries_[i].key;
      store_at<Index>(sink.indices, to, static_cast<Index>(base + key));
      first_values_[to] = entries_[i].value;
      const std::size_t first = i++;
      if (i == count_ || entries_[i].key != key) continue;
      while (i < count_ && entries_[i].key == key)
        ++i;
      runs_.push_back({first, i - first, to});
    }
    // What one stream alone has: beside all others' zeros in a sum, else as it is.
    if (op_ == Op::sum) {
      const void* inputs[] = {first_values_.data(), zeros_.data()};
      fold_(sink.values, nullptr, inputs, 2, to);
    } else {
      std::memcpy(sink.values, first_values_.data(), to * sizeof(Bits));
    }
    for (const Run& run : runs_)
      fold_run(run, sink);
    return to;
  }

  void fold_run(const Run& run, const Sink& sink) {
    std::size_t count = run.count;
    for (std::size_t k = 0; k < count; ++k)
      inputs_[k] = &entries_[run.first + k].value;
    if (op_ == Op::sum && count < streams_) inputs_[count++] = &kZero;
    fold_(sink.values + run.to * sizeof(Bits), nullptr, inputs_.data(), static_cast<unsigned>(count), 1);
  }

  FoldFn fold_;
  Op op_;
  std::size_t streams_;
  std::size_t count_ = 0;
  Index range_ = 0;
  std::vector<const void*> inputs_;
  std::vector<Entry> entries_;
  std::vector<Entry> other_;
  std::vector<Bits> first_values_;
  std::vector<Bits> zeros_;
  std::vector<Run> runs_;
};

}  // namespace heddle
