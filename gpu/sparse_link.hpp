// What one rank does on its GPU for a collective of sparse vectors: work on the stream of a link (link.hpp),
// and memory of its own for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "gpu/entries.hpp"
#include "gpu/link.hpp"
#include "gpu/quantiser.hpp"

namespace heddle::gpu {

// Memory in the context of a link, which may outlive the link and its Gpu. One thread at a time.
class KeptMemory {
 public:
  KeptMemory() = default;
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;
  // Frees it; nothing uses it any more. Where CUDA or the context went first, it went with them.
  virtual ~KeptMemory() = default;

  virtual void* at() const = 0;
  // Whether kernels of the link may use it where it lies.
  virtual bool is_for(const Link& link) const = 0;
  // All of it, from and to the host's memory; complete on return.
  virtual Status put(const void* from) = 0;
  virtual Status get(void* to) = 0;
};

// One thread at a time. What is given to it is work of the link: in the order in which it was given, and
// complete once Link::wait() returns.
class SparseLink {
 public:
  SparseLink() = default;
  SparseLink(const SparseLink&) = delete;
  SparseLink& operator=(const SparseLink&) = delete;
  // Frees its memory; nothing is under way.
  virtual ~SparseLink() = default;

  virtual Result<std::unique_ptr<KeptMemory>> keep(std::size_t bytes) = 0;

  // ---- Work

  // Tells the host what broken(), largest(), taken(), merged() and bad_codes() say; after the wait. The last
  // work before it: the host may wait for it here already.
  virtual Status tell() = 0;

  // Zeros.
  virtual Status clear(void* to, std::size_t bytes) = 0;
  // As SparseKernels::scatter, and scatter_add.
  virtual Status set(DType type, const Entries& entries, void* dense, std::size_t dimension) = 0;
  virtual Status add(DType type, const Entries& entries, void* dense, std::size_t dimension) = 0;
  // Whether the entries keep the contract of sparse vectors: broken(), once it is told.
  virtual Status check(const Entries& entries, std::size_t dimension) = 0;
  virtual bool broken() const = 0;

  // Memory for what follows; nothing is under way.
  virtual Status reserve(std::size_t n, std::size_t k) = 0;
  // The k largest of n values, or fewer, the same ones as top_k (src/compress/select.hpp) takes, to memory of
  // the link's. Reserved before.
  virtual Status take_largest(const float* from, std::size_t n, std::size_t k) = 0;
  // Takes these out of the vector that they are from, and all that is not finite.
  virtual Status forget_largest(float* from, std::size_t n) = 0;
  // Those that were taken last; how many is known once it is told. Until the next ones, or reserve().
  virtual Entries largest() const = 0;

  // Memory for what follows, which asks for none.
  virtual Status reserve_merges() = 0;
  // Each of `to` := two lists in one, as SparseKernels::merge. `goes_on`: the first one is what the merge
  // before this made, and has `first.count` entries at most. Also whether lists keep the contract is found:
  // broken(), of all merges since one that did not go on. Reserved before.
  virtual Status merge(DType type, Op op, const Entries& first, bool goes_on, const Entries& second,
                       std::size_t dimension, std::span<const Room> to) = 0;
  // How many entries the last of them has, once it is told; more than there was room for, maybe.
  virtual std::size_t merged() const = 0;
  // Each of `dense` := zeros, and the values of these, which lie in `from`; as SparseKernels::spread, where
  // no list is broken.
  virtual Status spread_merged(DType type, const Room& from, bool from_zero, std::span<void* const> dense,
                               std::size_t dimension) = 0;
  // to := the values of which any bit is set, as SparseKernels::select_nonzero. Reserved as for merges.
  virtual Status take_nonzero(DType type, const void* from, std::size_t n, const Room& to) = 0;
  // How many there were, once it is told; more than there was room for, maybe.
  virtual std::size_t taken() const = 0;

  // As SparseKernels::quantise.
  virtual Status quantise(const Quantiser& how, const float* gradient, const float* residual, float* left_out,
                          std::size_t n, std::uint64_t position, void* codes) = 0;
  // As SparseKernels::dequantise.
  virtual Status dequantise(const Quantiser& how, std::span<const void* const> codes, std::size_t n,
                            float* values) = 0;
  // Whether any were no codes, once it is told; from then on for good.
  virtual bool bad_codes() const = 0;

  // Pieces of memory, for work like that: number `which` of kPieces, of `bytes` bytes at least, until more is
  // asked of the same one. Nothing that is under way uses that one. `out_of_memory`.
  static constexpr std::size_t kPieces = 3;
  virtual Result<std::byte*> piece(std::size_t which, std::size_t bytes) = 0;
};

// `link` outlives it. `unsupported`: there are no kernels for it.
Result<std::unique_ptr<SparseLink>> make_sparse_link(Link& link);

}  // namespace heddle::gpu
