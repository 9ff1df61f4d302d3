#include "gpu/sparse_link.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "gpu/address.hpp"
#include "gpu/cuda.hpp"

namespace heddle::gpu {
namespace {

CUcontext context_of(const Link& link) {
  return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(link.origin().context));
}

// Of the memory that is there now; 0: none is.
unsigned long long buffer_at(const Driver& driver, CUdeviceptr at) {
  unsigned long long number = 0;
  CUpointer_attribute name = CU_POINTER_ATTRIBUTE_BUFFER_ID;
  void* value = &number;
  return driver.PointerGetAttributes(1, &name, &value, at) == CUDA_SUCCESS ? number : 0;
}

// With a driver's table of its own: the Gpu may go before it. And with it who keeps the context: what the
// driver says of one that is gone is undefined, so that it is the memory that it is asked about.
class CudaKeptMemory final : public KeptMemory {
 public:
  CudaKeptMemory(const Driver& driver, const Link& link, CUdeviceptr at, std::size_t bytes)
      : driver_(driver),
        origin_(link.origin()),
        context_(context_of(link)),
        at_(at),
        bytes_(bytes),
        buffer_(buffer_at(driver, at)) {}
  CudaKeptMemory(const CudaKeptMemory&) = delete;
  CudaKeptMemory& operator=(const CudaKeptMemory&) = delete;
  ~CudaKeptMemory() override {
    if (!is_there()) return;
    const Current current(driver_, context_);
    const Aside aside(driver_);
    if (current.error() == CUDA_SUCCESS) driver_.MemFree(at_);
  }

  void* at() const override { return reinterpret_cast<void*>(at_); }
  bool is_for(const Link& link) const override { return link.origin() == origin_; }
  Status put(const void* from) override {
    return copy("to", [&] { return driver_.MemcpyHtoDAsync(at_, from, bytes_, default_stream()); });
  }
  Status get(void* to) override {
    return copy("from", [&] { return driver_.MemcpyDtoHAsync(to, at_, bytes_, default_stream()); });
  }

 private:
  bool is_there() const { return buffer_ != 0 && buffer_at(driver_, at_) == buffer_; }
  template <typename Start>
  Status copy(const char* direction, const Start& start) {
    const std::string what =
        fmt::format("copying a residual of {} bytes {} GPU {}", bytes_, direction, origin_.device);
    if (!is_there()) return cuda_error(driver_, CUDA_ERROR_CONTEXT_IS_DESTROYED, what);
    const Current current(driver_, context_);
    CUresult error = current.error();
    if (error == CUDA_SUCCESS) error = start();
    if (error == CUDA_SUCCESS) error = wait_for(driver_, default_stream());
    return error == CUDA_SUCCESS ? Status() : cuda_error(driver_, error, what);
  }

  const Driver driver_;
  const Origin origin_;
  const CUcontext context_;
  const CUdeviceptr at_;
  const std::size_t bytes_;
  const unsigned long long buffer_;
};

// Words that kernels write and the host reads, in a piece of memory of their own.
struct Words {
  std::uint64_t broken;
  std::uint64_t taken;
  std::uint64_t some_finite;
  std::uint64_t merged[2];  // by turns: a merge that goes on reads one while it writes the other
  std::uint64_t bad_codes;
};

class CudaSparseLink final : public SparseLink {
 public:
  explicit CudaSparseLink(Link& link) : link_(link) {}
  ~CudaSparseLink() override;
  Status prepare();

  Result<std::unique_ptr<KeptMemory>> keep(std::size_t bytes) override;
  Status tell() override;
  Status clear(void* to, std::size_t bytes) override;
  Status set(DType type, const Entries& entries, void* dense, std::size_t dimension) override;
  Status add(DType type, const Entries& entries, void* dense, std::size_t dimension) override;
  Status check(const Entries& entries, std::size_t dimension) override;
  bool broken() const override { return seen_->broken != 0; }
  Status reserve(std::size_t n, std::size_t k) override;
  Status take_largest(const float* from, std::size_t n, std::size_t k) override;
  Status forget_largest(float* from, std::size_t n) override;
  Entries largest() const override {
    return {to_.indices, to_.values, std::min<std::size_t>(seen_->taken, to_.capacity), to_.wide};
  }
  Status reserve_merges() override { return reserve_workspace(SparseKernels::workspace_bytes()); }
  Status merge(DType type, Op op, const Entries& first, bool goes_on, const Entries& second,
               std::size_t dimension, std::span<const Room> to) override;
  std::size_t merged() const override { return seen_->merged[turn_]; }
  Status spread_merged(DType type, const Room& from, bool from_zero, std::span<void* const> dense,
                       std::size_t dimension) override;
  Status take_nonzero(DType type, const void* from, std::size_t n, const Room& to) override;
  std::size_t taken() const override { return seen_->taken; }
  Status quantise(const Quantiser& how, const float* gradient, const float* residual, float* left_out,
                  std::size_t n, std::uint64_t position, void* codes) override;
  Status dequantise(const Quantiser& how, std::span<const void* const> codes, std::size_t n,
                    float* values) override;
  bool bad_codes() const override { return seen_->bad_codes != 0; }
  Result<std::byte*> piece(std::size_t which, std::size_t bytes) override {
    HEDDLE_TRY(grow(pieces_[which], bytes));
    return reinterpret_cast<std::byte*>(pieces_[which].at);
  }

 private:
  // A piece of memory that grows.
  struct Piece {
    CUdeviceptr at = 0;
    std::size_t bytes = 0;
  };
  Status grow(Piece& piece, std::size_t bytes);
  Status reserve_workspace(std::size_t bytes);
  Status clear_word(Cuda& cuda, CUstream stream, std::uint64_t Words::*word);
  Words* words() const { return reinterpret_cast<Words*>(words_.at); }
  // Of a kernel that writes it and leaves it to tell() to say so.
  std::uint64_t* to_tell(std::uint64_t Words::*word) {
    untold_ = true;
    return &(words()->*word);
  }

  Link& link_;
  Piece words_;
  Piece workspace_;
  Piece entries_;
  Piece pieces_[kPieces];
  Selected to_;           // the k largest
  std::size_t turn_ = 0;  // of the words for merges: the last merge's
  PinnedPool::Piece pinned_;
  Words unpinned_{};
  Words* seen_ = &unpinned_;     // by the host, since the last tell(): in pinned memory, if there is any
  Words* seen_there_ = nullptr;  // where that is for kernels, which may tell the host by themselves
  bool untold_ = false;          // there is something that none has told
};

CudaSparseLink::~CudaSparseLink() {
  (void)link_.give([&](Cuda& cuda, CUstream /*stream*/) {
    const Aside aside(cuda.driver);
    for (const Piece* piece : {&words_, &workspace_, &entries_, &pieces_[0], &pieces_[1], &pieces_[2]})
      if (piece->at != 0) cuda.driver.MemFree(piece->at);
    return Status();
  });
}

// By half, or as far as it must where that is more or there is no room: to free and to allocate memory may
// wait for all that the GPU does, and vectors that grow a little from call to call would do it in each.
Status CudaSparseLink::grow(Piece& piece, std::size_t bytes) {
  if (bytes <= piece.bytes) return {};
  return link_.give([&](Cuda& cuda, CUstream /*stream*/) -> Status {
    const Aside aside(cuda.driver);
    std::size_t wanted = std::max(bytes, piece.bytes + piece.bytes / 2);
    if (piece.at != 0) cuda.driver.MemFree(piece.at);
    piece = {};
    CUresult error = cuda.driver.MemAlloc(&piece.at, wanted);
    if (error == CUDA_ERROR_OUT_OF_MEMORY && wanted > bytes) {
      wanted = bytes;
      error = cuda.driver.MemAlloc(&piece.at, wanted);
    }
    if (error != CUDA_SUCCESS) {
      piece.at = 0;
      return cuda_error(cuda.driver, error, fmt::format("allocating {} bytes for sparse vectors", bytes));
    }
    piece.bytes = wanted;
    return {};
  });
}

Status CudaSparseLink::prepare() {
  HEDDLE_TRY(link_.give([](Cuda& cuda, CUstream /*stream*/) { return cuda.sparse_kernels.load(); }));
  HEDDLE_TRY(link_.give([this](Cuda& cuda, CUstream /*stream*/) {
    pinned_ = cuda.pool.take(sizeof(Words), context_of(link_));
    CUdeviceptr there = 0;
    if (pinned_.memory() == nullptr) return Status();
    seen_ = new (pinned_.memory()) Words{};
    if (cuda.driver.MemHostGetDevicePointer(&there, seen_, 0) == CUDA_SUCCESS)
      seen_there_ = reinterpret_cast<Words*>(there);
    return Status();
  }));
  HEDDLE_TRY(grow(words_, sizeof(Words)));
  return clear(reinterpret_cast<void*>(words_.at), sizeof(Words));
}

Result<std::unique_ptr<KeptMemory>> CudaSparseLink::keep(std::size_t bytes) {
  std::unique_ptr<KeptMemory> kept;
  HEDDLE_TRY(link_.give([&](Cuda& cuda, CUstream /*stream*/) -> Status {
    CUdeviceptr at = 0;
    const CUresult error = cuda.driver.MemAlloc(&at, bytes);
    if (error != CUDA_SUCCESS)
      return cuda_error(cuda.driver, error, fmt::format("allocating {} bytes for a residual", bytes));
    kept = std::make_unique<CudaKeptMemory>(cuda.driver, link_, at, bytes);
    return {};
  }));
  return kept;
}

// ---- Work

Status CudaSparseLink::clear(void* to, std::size_t bytes) {
  return link_.give([&](Cuda& cuda, CUstream stream) {
    const CUresult error = cuda.driver.MemsetD8Async(number(to), 0, bytes, stream);
    return error == CUDA_SUCCESS ? Status() : cuda_error(cuda.driver, error, "clearing a vector on a GPU");
  });
}

Status CudaSparseLink::set(DType type, const Entries& entries, void* dense, std::size_t dimension) {
  return link_.give([&](Cuda& cuda, CUstream stream) {
    return cuda.sparse_kernels.scatter(stream, type, {entries, nullptr}, dense, dimension);
  });
}

Status CudaSparseLink::add(DType type, const Entries& entries, void* dense, std::size_t dimension) {
  return link_.give([&](Cuda& cuda, CUstream stream) {
    return cuda.sparse_kernels.scatter_add(stream, type, entries, dense, dimension);
  });
}

Status CudaSparseLink::clear_word(Cuda& cuda, CUstream stream, std::uint64_t Words::*word) {
  const CUresult error =
      cuda.driver.MemsetD8Async(number(&(words()->*word)), 0, sizeof(std::uint64_t), stream);
  return error == CUDA_SUCCESS ? Status() : cuda_error(cuda.driver, error, "clearing a word on a GPU");
}

// To pinned memory the copy is one more piece of work for the stream. To any other the driver makes it
// itself: the host waits here already, and other threads of its with it.
Status CudaSparseLink::tell() {
  if (!std::exchange(untold_, false)) return {};
  return link_.give([&](Cuda& cuda, CUstream stream) {
    const CUresult error = cuda.driver.MemcpyDtoHAsync(seen_, words_.at, sizeof *seen_, stream);
    return error == CUDA_SUCCESS ? Status() : cuda_error(cuda.driver, error, "fetching words from a GPU");
  });
}

Status CudaSparseLink::check(const Entries& entries, std::size_t dimension) {
  return link_.give([&](Cuda& cuda, CUstream stream) -> Status {
    HEDDLE_TRY(clear_word(cuda, stream, &Words::broken));
    return cuda.sparse_kernels.check_contract(stream, entries, dimension, to_tell(&Words::broken));
  });
}

Status CudaSparseLink::reserve(std::size_t n, std::size_t k) {
  to_ = {};
  to_.wide = std::uint64_t{n} > std::uint64_t{1} << 32;
  to_.capacity = std::min(n, k);
  const std::size_t index_bytes = to_.capacity * (to_.wide ? 8 : 4);
  HEDDLE_TRY(grow(entries_, index_bytes + to_.capacity * sizeof(float)));
  to_.indices = reinterpret_cast<void*>(entries_.at);
  to_.values = reinterpret_cast<void*>(entries_.at + index_bytes);
  to_.count = &words()->taken;
  return reserve_workspace(SparseKernels::top_k_workspace_bytes(n, k, to_.wide));
}

Status CudaSparseLink::reserve_workspace(std::size_t bytes) {
  if (bytes <= workspace_.bytes) return {};
  HEDDLE_TRY(grow(workspace_, bytes));
  Status prepared = link_.give([&](Cuda& cuda, CUstream stream) {
    return cuda.sparse_kernels.prepare(stream, reinterpret_cast<void*>(workspace_.at));
  });
  if (!prepared.ok()) workspace_.bytes = 0;  // the next call begins anew
  return prepared;
}

Status CudaSparseLink::take_largest(const float* from, std::size_t n, std::size_t k) {
  return link_.give([&](Cuda& cuda, CUstream stream) {
    untold_ = true;
    return cuda.sparse_kernels.top_k(stream, from, n, k, to_, reinterpret_cast<void*>(workspace_.at),
                                     workspace_.bytes);
  });
}

Status CudaSparseLink::forget_largest(float* from, std::size_t n) {
  return link_.give([&](Cuda& cuda, CUstream stream) {
    return cuda.sparse_kernels.forget(stream, to_, from, n, to_tell(&Words::some_finite));
  });
}

// The mark of broken lists is 0 as a rule, and is cleared where the host knows that it is not.
Status CudaSparseLink::merge(DType type, Op op, const Entries& first, bool goes_on, const Entries& second,
                             std::size_t dimension, std::span<const Room> to) {
  return link_.give([&](Cuda& cuda, CUstream stream) -> Status {
    if (!goes_on && seen_->broken != 0) HEDDLE_TRY(clear_word(cuda, stream, &Words::broken));
    const std::uint64_t* const counted = goes_on ? &words()->merged[turn_] : nullptr;
    turn_ = 1 - turn_;
    MergeWords told = {&words()->merged[turn_], &words()->broken};
    if (seen_there_ != nullptr) {
      told.told_count = &seen_there_->merged[turn_];
      told.told_broken = &seen_there_->broken;
    }
    untold_ = untold_ || seen_there_ == nullptr;
    constexpr std::size_t kMost = SparseKernels::kMostMerged;
    for (; !to.empty(); to = to.subspan(std::min(to.size(), kMost)))
      HEDDLE_TRY(cuda.sparse_kernels.merge(stream, type, op, {first, counted}, {second}, dimension,
                                           to.first(std::min(to.size(), kMost)), told,
                                           reinterpret_cast<void*>(workspace_.at)));
    return {};
  });
}

Status CudaSparseLink::spread_merged(DType type, const Room& from, bool from_zero,
                                     std::span<void* const> dense, std::size_t dimension) {
  return link_.give([&](Cuda& cuda, CUstream stream) -> Status {
    const Entries most{from.indices, from.values, from.capacity, from.wide};
    constexpr std::size_t kMost = SparseKernels::kMostSpread;
    for (; !dense.empty(); dense = dense.subspan(std::min(dense.size(), kMost)))
      HEDDLE_TRY(cuda.sparse_kernels.spread(stream, type, {most, &words()->merged[turn_]}, from_zero,
                                            &words()->broken, dense.first(std::min(dense.size(), kMost)),
                                            dimension));
    return {};
  });
}

Status CudaSparseLink::take_nonzero(DType type, const void* from, std::size_t n, const Room& to) {
  return link_.give([&](Cuda& cuda, CUstream stream) {
    return cuda.sparse_kernels.select_nonzero(
        stream, type, from, n, {to.indices, to.values, to.capacity, to_tell(&Words::taken), to.wide},
        reinterpret_cast<void*>(workspace_.at));
  });
}

Status CudaSparseLink::quantise(const Quantiser& how, const float* gradient, const float* residual,
                                float* left_out, std::size_t n, std::uint64_t position, void* codes) {
  return link_.give([&](Cuda& cuda, CUstream stream) {
    return cuda.sparse_kernels.quantise(stream, how, gradient, residual, left_out, n, position, codes);
  });
}

Status CudaSparseLink::dequantise(const Quantiser& how, std::span<const void* const> codes, std::size_t n,
                                  float* values) {
  return link_.give([&](Cuda& cuda, CUstream stream) {
    return cuda.sparse_kernels.dequantise(stream, how, codes, n, values, to_tell(&Words::bad_codes));
  });
}

}  // namespace

Result<std::unique_ptr<SparseLink>> make_sparse_link(Link& link) {
  auto made = std::make_unique<CudaSparseLink>(link);
  HEDDLE_TRY(made->prepare());
  return std::unique_ptr<SparseLink>(std::move(made));
}

}  // namespace heddle::gpu
