// Sums of streams whose entries lie densely, among ranks that reach each other's memory: streams are read
// once, values go from rank to rank through pieces of memory that stay in the cache, and the result is
// written once.
//
// Each rank shows which indices have an entry as a bitmap. So all know from the beginning where each value of
// the result goes, and indices need not travel. The indices are dealt out in rounds of as many blocks as
// there are ranks. In each round a rank copies its values for the others' blocks to its window, folds its own
// block from what the others have there, and takes the sums of all blocks. The order is that of the ranks,
// and the bits those of fold_sparse().
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "engine/engine.hpp"
#include "sparse/bitmap.hpp"
#include "sparse/node_memory.hpp"
#include "sparse/storage.hpp"
#include "sparse/stream.hpp"

namespace heddle {

class BitmapExchange {
 public:
  // What a rank shows the others of itself: plain bytes.
  struct Shown {
    std::uint64_t is_there;  // 0: there was no memory for it
    NodePlace window;
    NodePlace bitmap;
  };

  BitmapExchange(NodeMemory& memory, int rank, int ranks);
  BitmapExchange(const BitmapExchange&) = delete;
  BitmapExchange& operator=(const BitmapExchange&) = delete;

  // First, by itself: looks through the stream, and keeps its bitmap. False where it breaks its contract.
  // Takes an eighth of a byte for each index of the dimension.
  bool mark(const SparseView& input);
  // Whether that has been done, for this run, and there was memory.
  bool is_marked() const { return marked_; }
  Shown show();

  // Once all have shown: all are marked. From here to the end of poll() `input` stays.
  Status open(const SparseView& input, std::span<const Shown> all);
  // Entries of the result.
  std::size_t count() const { return count_; }
  // Room for count() of them.
  void start(void* indices, void* values);
  // Moves as far as it goes. *done: the result is there, and all ranks have folded: nobody looks at this
  // rank's bitmap any more, and at its window only until all show again.
  Status poll(bool* done);
  void abandon() { marked_ = false; }
  Waiting waiting_for() const;

 private:
  // In shared memory: rounds that this rank is through with, counted over all runs.
  struct Progress {
    alignas(64) std::atomic<std::uint64_t> gave{0};
    alignas(64) std::atomic<std::uint64_t> folded{0};
    alignas(64) std::atomic<std::uint64_t> took{0};
  };
  using Count = std::atomic<std::uint64_t> Progress::*;

  static constexpr std::size_t kSlots = 4;  // rounds that may be under way
  static constexpr std::size_t kRoundBytes = std::size_t{128}
                                             << 10;  // of values in a round, if none is missing
  static constexpr std::size_t kPiece = 16;          // words that are folded at a time
  static constexpr std::size_t kStage = 64;          // words whose indices are written at a time

  void set_geometry(const SparseView& like);
  std::span<const std::uint64_t> words_of(const std::uint64_t* bitmap, std::uint64_t block) const;
  std::size_t given_at(std::uint64_t round, std::size_t owner) const;
  std::size_t sums_at(std::uint64_t round) const;
  std::size_t window_bytes() const;
  Progress& own() { return *reinterpret_cast<Progress*>(window_.data()); }
  // The first rank that is not through with the first `rounds` rounds of this run; -1: all are.
  int behind(Count count, std::uint64_t rounds) const;
  // Who keeps this rank from its next step of each kind; -1: nobody, and there is one.
  int keeps_from_giving() const;
  int keeps_from_folding() const;
  int keeps_from_taking() const;
  void give();
  void fold();
  std::size_t fold_piece(std::uint64_t block, std::size_t first, std::size_t n, std::byte* to);
  void take();
  void take_indices();
  void put(std::byte* to, const std::byte* from, std::size_t bytes) const;

  NodeMemory& memory_;
  std::size_t rank_;
  std::size_t ranks_;
  std::size_t block_bytes_;  // of values, if none is missing
  Buffer window_;            // progress, slots of given values, slots of sums
  Buffer bitmap_;
  bool marked_ = false;
  std::uint64_t before_ = 0;  // rounds of earlier runs

  SparseView input_;
  BitmapKernels kernels_{};
  FoldFn fold_ = nullptr;
  std::size_t width_ = 0;
  std::size_t index_bytes_ = 0;
  std::size_t block_words_ = 0;
  std::uint64_t words_ = 0;
  std::uint64_t rounds_ = 0;
  std::size_t count_ = 0;
  std::vector<const std::byte*> windows_;      // by rank
  std::vector<const std::uint64_t*> bitmaps_;  // by rank
  std::vector<std::uint64_t> union_;
  std::vector<std::byte> tiles_;  // a piece of each rank's values, in their places, and of sums
  std::vector<std::byte> stage_;
  std::vector<const std::byte*> from_;  // where each rank's next values for the own block are
  std::vector<const void*> inputs_;
  std::byte* indices_ = nullptr;
  std::byte* values_ = nullptr;
  bool streamed_ = false;  // the result is written past the cache
  // This run: rounds that were given, folded and taken, and how far each has come.
  std::uint64_t gave_ = 0;
  std::uint64_t folded_ = 0;
  std::uint64_t took_ = 0;
  std::size_t given_entries_ = 0;
  std::array<std::size_t, kSlots> own_block_{};  // the entry with which the own block of a round begins
  std::size_t taken_entries_ = 0;
  std::size_t taken_indices_ = 0;
};

}  // namespace heddle
