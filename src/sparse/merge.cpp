#include "sparse/merge.hpp"

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "engine/kernels/kernels.hpp"
#include "sparse/pair.hpp"
#include "sparse/sorted.hpp"
#include "sparse/stream_cursor.hpp"
#include "sparse/tile.hpp"

namespace heddle {
namespace {

// Entries in a tile from which on a tile is faster than the merge of two, and than sorting.
constexpr double kTileFromPair = kTile / 16.0;
constexpr double kTileFromSorted = kTile / 32.0;

// Goes through the streams from the least index on, with whatever suits the entries that come next.
template <typename Index, typename Bits>
class Folding {
 public:
  Folding(std::span<const SparseView> streams, Op op, Sink sink)
      : type_(streams[0].value_type),
        op_(op),
        sink_(sink),
        fold_(fold_kernel(type_, op)),
        sorted_(fold_, op, streams.size()) {
    for (const SparseView& view : streams) {
      cursors_.push_back({static_cast<const std::byte*>(view.indices),
                          static_cast<const std::byte*>(view.values), 0, view.count});
      sink_.room += view.count;
    }
    const bool tiles = op == Op::sum && streams.size() <= kTileStreams;
    if (tiles)
      tile_sum_ = tile_sum(type_, sizeof(Index) == sizeof(std::uint32_t) ? IndexType::u32 : IndexType::u64);
  }

  std::size_t all() {
    while (find_least()) {
      if (copy_lone()) continue;
      if (tile_sum_ != nullptr && is_dense()) {
        take_tile();
      } else if (op_ == Op::sum && cursors_.size() == 2 &&
                 PairMerge<Index, Bits>::fits(cursors_[0], cursors_[1])) {
        if (!pair_) pair_.emplace(fold_);
        wrote(pair_->take(cursors_[0], cursors_[1], sink_));
      } else {
        wrote(sorted_.take(cursors_, base_, sink_));
      }
    }
    return written_;
  }

 private:
  static constexpr std::size_t kLone = 64;   // entries that one stream alone must have to be copied
  static constexpr std::size_t kAhead = 64;  // entries of a stream that tell its density

  void wrote(std::size_t count) {
    written_ += count;
    sink_.advance(count, sizeof(Index), sizeof(Bits));
  }

  // The stream with the least index, that index, and the least index of the others. False at the end.
  bool find_least() {
    constexpr auto kNone = static_cast<Index>(~Index{0});
    first_ = nullptr;
    base_ = kNone;
    other_ = kNone;
    others_ = false;
    for (StreamCursor& c : cursors_) {
      if (c.done()) continue;
      const auto index = c.index<Index>(c.at);
      const bool less = first_ == nullptr || index < base_;
      others_ = first_ != nullptr;
      other_ = less ? base_ : std::min(other_, index);
      base_ = less ? index : base_;
      first_ = less ? &c : first_;
    }
    return first_ != nullptr;
  }

  // Long parts that one stream has for itself.
  bool copy_lone() {
    const StreamCursor& c = *first_;
    if (others_ && (c.end - c.at < kLone || c.index<Index>(c.at + kLone - 1) >= other_)) return false;
    const std::size_t end = others_ ? c.find<Index>(other_) : c.end;
    const std::size_t count = end - c.at;
    const std::byte* values = c.values + c.at * sizeof(Bits);
    std::memcpy(sink_.indices, c.indices + c.at * sizeof(Index), count * sizeof(Index));
    if (op_ == Op::sum) {
      static constexpr std::size_t kZeros = 512;
      static constexpr Bits kNothing[kZeros] = {};
      for (std::size_t i = 0; i < count; i += kZeros) {
        const void* inputs[] = {values + i * sizeof(Bits), kNothing};
        fold_(sink_.values + i * sizeof(Bits), nullptr, inputs, 2, std::min(kZeros, count - i));
      }
    } else {
      std::memcpy(sink_.values, values, count * sizeof(Bits));
    }
    first_->at = end;
    wrote(count);
    return true;
  }

  // How many entries a tile from here on would hold, if those that come next tell.
  bool is_dense() const {
    double expected = 0;
    for (const StreamCursor& c : cursors_) {
      const std::size_t ahead = std::min(kAhead, c.end - c.at);
      if (ahead == 0) continue;
      const auto span = static_cast<double>(static_cast<Index>(c.index<Index>(c.at + ahead - 1) - base_)) + 1;
      expected += static_cast<double>(ahead * kTile) / span;
    }
    return expected >= (cursors_.size() == 2 ? kTileFromPair : kTileFromSorted);
  }

  void take_tile() {
    if (!tile_) {
      tile_ = std::make_unique_for_overwrite<TileScratch>();
      clear_tile(*tile_, type_);
    }
    wrote(tile_sum_(*tile_, cursors_, base_, sink_));
  }

  DType type_;
  Op op_;
  Sink sink_;
  FoldFn fold_;
  std::vector<StreamCursor> cursors_;
  std::size_t written_ = 0;
  StreamCursor* first_ = nullptr;
  Index base_ = 0;
  Index other_ = 0;
  bool others_ = false;
  TileFn tile_sum_ = nullptr;
  std::unique_ptr<TileScratch> tile_;
  std::optional<PairMerge<Index, Bits>> pair_;
  SortedFold<Index, Bits> sorted_;
};

template <typename Index>
std::size_t fold_values(std::span<const SparseView> streams, Op op, const Sink& sink) {
  switch (dtype_size(streams[0].value_type)) {
    case 2:
      return Folding<Index, std::uint16_t>(streams, op, sink).all();
    case 4:
      return Folding<Index, std::uint32_t>(streams, op, sink).all();
    default:
      return Folding<Index, std::uint64_t>(streams, op, sink).all();
  }
}

}  // namespace

std::size_t fold_sparse(std::span<const SparseView> streams, Op op, void* indices, void* values) {
  if (streams.empty()) return 0;
  const SparseView& first = streams[0];
  if (streams.size() == 1) {
    if (first.count == 0) return 0;
    std::memcpy(indices, first.indices, first.count * index_size(first.index_type));
    std::memcpy(values, first.values, first.count * dtype_size(first.value_type));
    return first.count;
  }
  const Sink sink{static_cast<std::byte*>(indices), static_cast<std::byte*>(values), 0};
  return first.index_type == IndexType::u32 ? fold_values<std::uint32_t>(streams, op, sink)
                                            : fold_values<std::uint64_t>(streams, op, sink);
}

}  // namespace heddle
