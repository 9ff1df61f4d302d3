#include "gpu/exchange.hpp"

#include <algorithm>
#include <atomic>

#include <fmt/format.h>

#include "gpu/contexts.hpp"

namespace heddle::gpu {
namespace {

constexpr std::size_t kGrain = 256;
// Nobody is waited for any more, and nobody was waited for in vain.
constexpr std::uint64_t kStopped = ~std::uint64_t{0};

std::size_t slot_words(const ExchangeLayout& layout) {
  return layout.vector / kernels::kWordBytes;
}

}  // namespace

// ---- The layout

std::size_t ExchangeLayout::slot_bytes() const {
  return 2 * static_cast<std::size_t>(ranks) * slot_words(*this) * sizeof(std::uint64_t);
}

std::size_t ExchangeLayout::turn_bytes() const {
  const std::size_t words = vector / kernels::kBlockBytes;
  return (words * sizeof(std::uint64_t) + kGrain - 1) / kGrain * kGrain;
}

ExchangeLayout ExchangeLayout::of(std::size_t room, int ranks, std::size_t most) {
  ExchangeLayout layout;
  layout.ranks = ranks;
  const std::size_t wanted = (most + kernels::kBlockBytes - 1) / kernels::kBlockBytes * kernels::kBlockBytes;
  for (layout.vector = wanted; layout.vector > 0 && layout.bytes() > room;)
    layout.vector = layout.vector / 2 / kernels::kBlockBytes * kernels::kBlockBytes;
  layout.most = std::min(layout.vector, most);
  return layout;
}

// ---- The kernel

Status ExchangeKernel::load() {
  const std::lock_guard lock(mutex_);
  if (function_ == nullptr) {
    const Result<CUfunction> found = library_.find("exchange");
    if (!found.ok()) return found.status();
    function_ = found.value();
  }
  return library_.make_ready(function_, "exchange");
}

Status ExchangeKernel::launch(CUstream stream, kernels::ExchangeArguments arguments) const {
  const auto blocks =
      static_cast<unsigned>((arguments.bytes + kernels::kBlockBytes - 1) / kernels::kBlockBytes);
  void* parameters[] = {&arguments};
  const CUresult error =
      driver_.LaunchKernel(function_, blocks, 1, 1, kernels::kThreads, 1, 1, 0, stream, parameters, nullptr);
  if (error == CUDA_SUCCESS) return {};
  return kernel_failure(driver_, error, "starting the kernel heddle_exchange");
}

// ---- A link's

Status Exchange::open(const ExchangeLayout& layout, std::span<const CUdeviceptr> areas, int rank,
                      std::chrono::nanoseconds patience, PinnedPool& pool, CUcontext context,
                      CUstream stream) {
  HEDDLE_TRY(kernel_.load());
  pinned_ = pool.take(sizeof(std::uint64_t), context);
  if (pinned_.memory() == nullptr)
    return Status(Code::out_of_memory, "no pinned memory for a word (HEDDLE_PINNED_BYTES sets a limit)");
  auto* const word = static_cast<std::uint64_t*>(pinned_.memory());
  *word = 0;
  CUdeviceptr seen = 0;
  const CUdeviceptr own = areas[static_cast<std::size_t>(rank)];
  CUresult error = driver_.MemHostGetDevicePointer(&seen, word, 0);
  if (error == CUDA_SUCCESS)
    error = driver_.MemsetD8Async(own, 0, layout.slot_bytes() + layout.turn_bytes(), stream);
  if (error == CUDA_SUCCESS) error = driver_.StreamSynchronize(stream);
  if (error != CUDA_SUCCESS) return cuda_error(driver_, error, "clearing what GPUs exchange vectors by");
  for (std::size_t r = 0; r < areas.size(); ++r)
    arguments_.slots[r] = reinterpret_cast<std::uint64_t*>(areas[r]);
  arguments_.turns = reinterpret_cast<std::uint64_t*>(own + layout.slot_bytes());
  gathered_ = reinterpret_cast<std::byte*>(own + layout.slot_bytes() + layout.turn_bytes());
  arguments_.apart = layout.vector;
  arguments_.room = slot_words(layout);
  arguments_.stopped = reinterpret_cast<std::uint64_t*>(seen);
  arguments_.patience = static_cast<std::uint64_t>(patience.count());
  arguments_.rank = static_cast<std::uint32_t>(rank);
  arguments_.ranks = static_cast<std::uint32_t>(areas.size());
  layout_ = layout;
  stopped_ = word;
  return {};
}

Status Exchange::gather(CUstream stream, const void* in, std::size_t bytes) {
  kernels::ExchangeArguments arguments = arguments_;
  arguments.in = static_cast<const unsigned char*>(in);
  arguments.out = reinterpret_cast<unsigned char*>(gathered_);
  arguments.bytes = bytes;
  arguments.root = kernels::kNoRoot;
  return kernel_.launch(stream, arguments);
}

Status Exchange::bcast(CUstream stream, void* buffer, std::size_t bytes, int root) {
  kernels::ExchangeArguments arguments = arguments_;
  arguments.in = static_cast<const unsigned char*>(buffer);
  arguments.out = static_cast<unsigned char*>(buffer);
  arguments.bytes = bytes;
  arguments.root = static_cast<std::uint32_t>(root);
  return kernel_.launch(stream, arguments);
}

Status Exchange::state() const {
  const std::uint64_t word =
      stopped_ != nullptr ? std::atomic_ref(*stopped_).load(std::memory_order_relaxed) : 0;
  if (word == 0) return {};
  if (word == kStopped) return Status(Code::peer_failed, "the GPUs were not to wait for each other any more");
  return Status(Code::timeout,
                fmt::format("the GPU of rank {} of this node has not come to a collective that "
                            "this rank's GPU has waited for as long as HEDDLE_TIMEOUT says",
                            word - 1));
}

void Exchange::stop() const {
  if (stopped_ != nullptr) std::atomic_ref(*stopped_).store(kStopped, std::memory_order_relaxed);
}

void Exchange::close() {
  stopped_ = nullptr;
}

}  // namespace heddle::gpu
