#include "gpu/exchange.hpp"

#include <algorithm>
#include <atomic>

#include <fmt/format.h>

#include "base/round_up.hpp"
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
  return round_up(words * sizeof(std::uint64_t), kGrain);
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

Result<CUfunction> ExchangeKernel::function() {
  const std::lock_guard lock(mutex_);
  if (function_ != nullptr) return function_;
  const Result<CUfunction> found = library_.find("exchange");
  if (found.ok()) function_ = found.value();
  return found;
}

Status ExchangeKernel::load() {
  const Result<ContextInstance> context = current_instance(driver_);
  if (!context.ok()) return context.status();
  return ready_.once(context.value(), [this]() -> Status {
    const Result<CUfunction> found = function();
    return found.ok() ? library_.make_ready(found.value(), "exchange") : found.status();
  });
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
  pinned_ = pool.take(kSets * sizeof(std::uint64_t), context);
  if (pinned_.memory() == nullptr)
    return Status(Code::out_of_memory, "no pinned memory for two words (HEDDLE_PINNED_BYTES sets a limit)");
  auto* const words = static_cast<std::uint64_t*>(pinned_.memory());
  std::fill_n(words, kSets, 0);
  CUdeviceptr seen = 0;
  const CUdeviceptr own = areas[static_cast<std::size_t>(rank)];
  const std::size_t cleared = kSets * (layout.slot_bytes() + layout.turn_bytes());
  CUresult error = driver_.MemHostGetDevicePointer(&seen, words, 0);
  if (error == CUDA_SUCCESS) error = driver_.MemsetD8Async(own, 0, cleared, stream);
  if (error == CUDA_SUCCESS) error = wait_for(driver_, stream);
  if (error != CUDA_SUCCESS) return cuda_error(driver_, error, "clearing what GPUs exchange vectors by");
  for (std::size_t set = 0; set < kSets; ++set) {
    kernels::ExchangeArguments& a = arguments_[set];
    const std::size_t at = set * (layout.slot_bytes() + layout.turn_bytes());
    for (std::size_t r = 0; r < areas.size(); ++r)
      a.slots[r] = reinterpret_cast<std::uint64_t*>(areas[r] + at);
    a.turns = reinterpret_cast<std::uint64_t*>(own + at + layout.slot_bytes());
    a.apart = layout.vector;
    a.room = slot_words(layout);
    a.stopped = reinterpret_cast<std::uint64_t*>(seen) + set;
    a.rank = static_cast<std::uint32_t>(rank);
    a.ranks = static_cast<std::uint32_t>(areas.size());
  }
  arguments_[0].patience = static_cast<std::uint64_t>(patience.count());
  gathered_ = reinterpret_cast<std::byte*>(own + cleared);
  layout_ = layout;
  stopped_ = words;
  return {};
}

Status Exchange::gather(CUstream stream, const void* in, std::size_t bytes, bool in_graph) {
  kernels::ExchangeArguments arguments = arguments_[in_graph ? 1 : 0];
  arguments.in = static_cast<const unsigned char*>(in);
  arguments.out = reinterpret_cast<unsigned char*>(gathered_);
  arguments.bytes = bytes;
  arguments.root = kernels::kNoRoot;
  return kernel_.launch(stream, arguments);
}

Status Exchange::bcast(CUstream stream, void* buffer, std::size_t bytes, int root, bool in_graph) {
  kernels::ExchangeArguments arguments = arguments_[in_graph ? 1 : 0];
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

void Exchange::stop(bool also_in_graphs) const {
  if (stopped_ == nullptr) return;
  for (std::size_t set = 0; set < (also_in_graphs ? kSets : 1); ++set)
    std::atomic_ref(stopped_[set]).store(kStopped, std::memory_order_relaxed);
}

void Exchange::close() {
  stopped_ = nullptr;
}

}  // namespace heddle::gpu
