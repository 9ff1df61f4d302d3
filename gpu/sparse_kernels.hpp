// Sparse vectors on GPUs: which entries of a dense vector matter, and entries back into a dense vector. For
// gpu/ alone.
//
// All is given to a stream of the calling thread's current context, and is complete when the stream is;
// nothing waits for it on the host. Every address is one that the context's device can reach, and aligned as
// its elements are: `unsupported` where one is not, and where this build, driver or device has no kernel.
// Then nothing was started, and the host can do it. Any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "gpu/driver.hpp"
#include "gpu/entries.hpp"
#include "gpu/kernel_library.hpp"
#include "gpu/kernels/sparse_arguments.hpp"
#include "gpu/quantiser.hpp"

namespace heddle::gpu {

// Where a selection goes: `capacity` sorted indices of 32 or 64 bits and their values, both borrowed. *count
// receives how many entries there are; those that there is no room for are counted alone.
struct Selected {
  void* indices = nullptr;
  void* values = nullptr;
  std::size_t capacity = 0;
  std::uint64_t* count = nullptr;
  bool wide = false;  // indices of 64 bits; those of 32 serve up to 2^32 values
};

// `counted`, borrowed, on the device: how many of the entries there are, which the host does not know yet;
// `entries.count` is the most that it can be.
struct CountedEntries {
  Entries entries;
  const std::uint64_t* counted = nullptr;
};

// What a merge tells, in words on the device: how many entries there are, and whether a list is broken. And
// where it tells the host likewise, in words of the host's that the device reaches; null: nowhere.
struct MergeWords {
  std::uint64_t* count = nullptr;
  std::uint64_t* broken = nullptr;
  std::uint64_t* told_count = nullptr;
  std::uint64_t* told_broken = nullptr;
};

class SparseKernels {
 public:
  // From here on a sample is faster than a pass over the vector.
  static constexpr std::size_t kSampledFrom = std::size_t{1} << 22;
  // `driver` outlives this. A launch selects from `tiles` tiles at most, and top_k() samples vectors of
  // `sampled_from` values, kernels::kLeastSampledFrom at least: tests make both few.
  explicit SparseKernels(const Driver& driver, std::uint64_t tiles = kernels::kMostTiles,
                         std::size_t sampled_from = kSampledFrom)
      : driver_(driver),
        tiles_(tiles),
        sampled_from_(std::max<std::size_t>(sampled_from, kernels::kLeastSampledFrom)),
        multiprocessors_(driver),
        library_(driver, kernels::Family::sparse) {}

  // Whether there are kernels, which are loaded into the current context now, all of them, so that nothing
  // below need load any: at a launch the driver may wait for all that the context has been given, as for a
  // stream of another thread's that waits for this one.
  Status load();

  // ---- Selection. Its temporary memory is the caller's, on the device, aligned to 16 bytes, and serves one
  // selection after another, of any kind, without being prepared again.

  static std::size_t workspace_bytes();
  // For top_k of `n` values, `k` of them, or fewer of both.
  static std::size_t top_k_workspace_bytes(std::size_t n, std::size_t k, bool wide);
  // Once, before the first use.
  Status prepare(CUstream stream, void* workspace);

  // The values of which any bit is set, as take_nonzero (src/sparse/convert.hpp) finds them: types of 2, 4
  // and 8 bytes. Reads each value once.
  Status select_nonzero(CUstream stream, DType type, const void* values, std::size_t n, const Selected& to,
                        void* workspace);
  // Those whose magnitude is at least that of `threshold`; a NaN counts as larger than infinity. Reads each
  // once.
  Status select_magnitudes(CUstream stream, const float* values, std::size_t n, float threshold,
                           const Selected& to, void* workspace);
  // The k of largest magnitude, exactly, the same ones as top_k (src/compress/select.hpp) takes: of equal
  // ones those with lower indices, all NaNs are equal and the largest, and zeros are never taken. Reads each
  // value once and a little, twice where there are less than kSampledFrom or more than an eighth is wanted;
  // five times where more than n/16 others are as large as the k-th but for an eighth, or what is large lies
  // where a sample misses it. `bytes`: of the workspace.
  Status top_k(CUstream stream, const float* values, std::size_t n, std::size_t k, const Selected& to,
               void* workspace, std::size_t bytes);

  // ---- Scatter. Types of sparse vectors: f16, bf16, f32, f64, and integers of 32 and 64 bits. An index that
  // is not less than `dimension` is passed over.

  // dense[index] = value, for each entry; the others stay.
  Status scatter(CUstream stream, DType type, const CountedEntries& entries, void* dense,
                 std::size_t dimension);
  // dense[index] += value, with the bits of the host's sums; one after the other they add several vectors in
  // that order. (f16 and bf16 are rounded after each.)
  Status scatter_add(CUstream stream, DType type, const Entries& entries, void* dense, std::size_t dimension);

  // Each of `dense`, 1 to kMostSpread vectors of `dimension` := zeros, and the entries' values, of which
  // `from_zero` makes a -0 +0, as a sum has it that begins with +0. Where *broken is not 0 nothing is done;
  // it may be null.
  static constexpr std::size_t kMostSpread = kernels::kMostSpread;
  Status spread(CUstream stream, DType type, const CountedEntries& entries, bool from_zero,
                const std::uint64_t* broken, std::span<void* const> dense, std::size_t dimension);

  // ---- Merging. Types as for scatters.

  // Each of `to`, 1 to kMostMerged of them := the entries that either has, in order; of an index that both
  // have their sum, minimum or maximum, as `op` says. With the bits of the host's folds of two, where an
  // entry that is missing is +0 in a sum, and does not count else: so several lists are merged one after the
  // other, in the order in which they are to be folded. (Sums of f16 and bf16 are rounded after each.) Widths
  // of indices may differ; indices of 32 bits in `to` serve a `dimension` up to 2^32. *words.count receives
  // how many there are; those that there is no room for are left out. *words.broken becomes 1, and is left
  // alone else, where the entries of either do not keep the contract that check_contract() looks for: then
  // `to` has anything, as far as there is room. The workspace is that of selections.
  static constexpr std::size_t kMostMerged = kernels::kMostMerged;
  Status merge(CUstream stream, DType type, Op op, const CountedEntries& first, const CountedEntries& second,
               std::size_t dimension, std::span<const Room> to, const MergeWords& words, void* workspace);

  // ---- Of collectives.

  // *broken becomes 1, and is left alone else, where the indices of `entries` do not rise strictly, or one is
  // not less than `dimension`.
  Status check_contract(CUstream stream, const Entries& entries, std::size_t dimension,
                        std::uint64_t* broken);
  // After a step that sent the entries of `vector` that top_k() has put to `sent`: these become 0, and so
  // does what is not finite, as Residual::keep() (src/compress/residual.hpp) has it. *some_finite is written.
  Status forget(CUstream stream, const Selected& sent, float* vector, std::size_t n,
                std::uint64_t* some_finite);

  // ---- Codes of indices that keep the contract and lie in `range` of a vector, in the host's bytes
  // (src/sparse/index_codec.hpp): a bit for each that there may be, or how many lie between each and the one
  // before it, in as few bytes as that takes. Values of entries are not looked at. The workspace is that of
  // selections.

  // Writes bitmap_bytes(), aligned to 8 bytes.
  static std::size_t bitmap_bytes(const IndexRange& range) { return range.span / 8 + (range.span % 8 != 0); }
  Status pack_bitmap(CUstream stream, const Entries& entries, const IndexRange& range, void* codes);
  // *bytes receives how many there are; those that there is no room for are counted alone.
  Status pack_delta(CUstream stream, const Entries& entries, const IndexRange& range, void* codes,
                    std::size_t capacity, std::uint64_t* bytes, void* workspace);
  // The `to.capacity` indices that such codes were made of. *bad becomes 1, and is left alone else, where the
  // host's unpack_indices() takes them for damaged: then indices are anything.
  Status unpack_bitmap(CUstream stream, const void* codes, const IndexRange& range, const Room& to,
                       std::uint64_t* bad, void* workspace);
  Status unpack_delta(CUstream stream, const void* codes, std::size_t bytes, const IndexRange& range,
                      const Room& to, std::uint64_t* bad, void* workspace);

  // ---- Quantised vectors, in the host's bytes. Codes need no alignment.

  // codes := what the host's encode() makes of gradient + residual, for values at `position` and on; left_out
  // := what that leaves out, 0 where a value or its bucket is not finite, as Residual::keep() does.
  // `residual` may be null, and so may `left_out`, which may be the residual; each is read once, and what is
  // left out written once, where a bucket has 1,024 values at most.
  Status quantise(CUstream stream, const Quantiser& how, const float* gradient, const float* residual,
                  float* left_out, std::size_t n, std::uint64_t position, void* codes);
  // values := the sum of what the host's decode() makes of each of `codes`, 1 to 64 of them, in that order
  // and with the bits of the host's sums; of one alone that itself. *bad becomes 1, and is left alone else,
  // where any are no codes that quantise() writes: then values are anything.
  Status dequantise(CUstream stream, const Quantiser& how, std::span<const void* const> codes, std::size_t n,
                    float* values, std::uint64_t* bad);

 private:
  Status select(CUstream stream, const std::string& name, const kernels::SelectArguments& arguments,
                std::size_t value_bytes);
  // `all` tiles, `most` of them or less at once.
  template <class Arguments>
  Status launch_tiles(CUstream stream, const std::string& name, Arguments arguments, std::uint64_t all,
                      unsigned of_each, std::uint64_t most = kernels::kMostTiles);
  Status count_digits(CUstream stream, const kernels::DigitArguments& arguments);
  Status scatter_by(CUstream stream, const std::string& name, std::size_t value_bytes,
                    const CountedEntries& counted, void* dense, std::size_t dimension);
  // `blocks` for the work, or those of `of_each` multiprocessor where these are fewer.
  Status launch(CUstream stream, const std::string& name, std::uint64_t blocks, unsigned of_each,
                void* arguments);
  Result<CUfunction> function(const std::string& name);

  const Driver& driver_;
  std::uint64_t tiles_;
  std::size_t sampled_from_;
  Multiprocessors multiprocessors_;
  ReadyContexts ready_;
  std::mutex mutex_;  // for what is below
  KernelLibrary library_;
  std::map<std::string, CUfunction> functions_;
};

}  // namespace heddle::gpu
