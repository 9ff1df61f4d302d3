// Short vectors from each GPU of a node to all others, by a kernel that waits for the others'
// (kernels/exchange.hpp). For gpu/ alone.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "gpu/driver.hpp"
#include "gpu/kernel_library.hpp"
#include "gpu/kernels/exchange.hpp"
#include "gpu/link.hpp"
#include "gpu/pinned_pool.hpp"

namespace heddle::gpu {

// For all contexts of the process. Any thread.
class ExchangeKernel {
 public:
  // `driver` outlives this.
  explicit ExchangeKernel(const Driver& driver)
      : driver_(driver), library_(driver, kernels::Family::exchange) {}

  // Into the current context, once.
  Status load();
  // `arguments` have a vector of a byte at least, and fit into their slots. After load().
  Status launch(CUstream stream, kernels::ExchangeArguments arguments) const;

 private:
  Result<CUfunction> function();

  const Driver& driver_;
  ReadyContexts ready_;
  std::mutex mutex_;  // for what is below, which is written before the first load() is over
  KernelLibrary library_;
  CUfunction function_ = nullptr;
};

// What a link has of it.
class Exchange {
 public:
  Exchange(const Driver& driver, ExchangeKernel& kernel) : driver_(driver), kernel_(kernel) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // `areas`: of each rank, layout.bytes() bytes where this GPU reaches them, a multiple of 256. This rank's
  // own is cleared on `stream`, and has been on return. In the context that is current, as in what follows.
  // `out_of_memory`: no pinned memory for a word.
  Status open(const ExchangeLayout& layout, std::span<const CUdeviceptr> areas, int rank,
              std::chrono::nanoseconds patience, PinnedPool& pool, CUcontext context, CUstream stream);
  // In a graph with slots and turns of their own, and without patience: calls that were let go, or have
  // waited in vain, leave graphs as they are.
  Status gather(CUstream stream, const void* in, std::size_t bytes, bool in_graph);
  Status bcast(CUstream stream, void* buffer, std::size_t bytes, int root, bool in_graph);
  const std::byte* gathered(int rank) const {
    return gathered_ + static_cast<std::size_t>(rank) * layout_.vector;
  }
  Status state() const;  // of calls
  void stop(bool also_in_graphs) const;
  void close();

 private:
  const Driver& driver_;
  ExchangeKernel& kernel_;
  ExchangeLayout layout_;
  static constexpr std::size_t kSets = 2;             // for calls and for graphs
  kernels::ExchangeArguments arguments_[kSets] = {};  // but for what is a call's
  std::byte* gathered_ = nullptr;
  std::uint64_t* stopped_ = nullptr;  // a word of each set's
  PinnedPool::Piece pinned_;
};

}  // namespace heddle::gpu
