// A link by CUDA's driver: link.cpp, link_streams.cpp for the streams of callers, and link_networks.cpp,
// link_exchange.cpp. For gpu/ alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include <fmt/format.h>

#include "gpu/cuda.hpp"
#include "gpu/handshake.hpp"
#include "gpu/link.hpp"

namespace heddle::gpu {

class CudaLink final : public Link {
 public:
  CudaLink(Cuda& cuda, CUcontext context, int device)
      : cuda_(cuda),
        context_(context),
        instance_(instance_of(cuda.driver, context)),
        device_(device),
        handshake_(cuda.driver),
        words_(cuda.driver),
        exchange_(cuda.driver, cuda.exchange_kernel) {}
  ~CudaLink() override;
  Status prepare();

  Origin origin() const override;
  bool may_wait_in_kernels() const override { return may_wait_; }
  bool is_there() const override { return instance_of(cuda_.driver, context_) == instance_; }
  Result<Export> allocate(std::size_t bytes, bool for_processes) override;
  Status open(std::span<const Export> all, int rank) override;
  void finish() override;
  Result<bool> finished() override;
  void close() override;
  void abandon() override {
    own_ = 0;
    marks_[0] = marks_[1] = nullptr;
  }
  void stay() override { cuda_.stays = true; }
  std::byte* scratch(int rank) const override {
    return reinterpret_cast<std::byte*>(scratch_[static_cast<std::size_t>(rank)]);
  }

  Result<std::byte*> pin(std::size_t bytes) override;
  Result<bool> holds(const void* buffer, std::size_t bytes) override;
  bool folds(DType type, Op op) override { return load(type, op).ok(); }

  Status after_earlier_work() override;
  Status copy(void* to, const void* from, std::size_t bytes) override;
  Status to_host(void* to, const void* from, std::size_t bytes) override;
  Status to_device(void* to, const void* from, std::size_t bytes) override;
  Status pieces_to_host(void* to, const void* from, std::size_t bytes, std::size_t apart,
                        std::size_t pieces) override;
  Status fold(DType type, Op op, std::span<const void* const> inputs, std::span<void* const> outputs,
              std::size_t count) override;
  Status wait() override;
  bool done() override;
  Status give(const std::function<Status(Cuda& cuda, Stream stream)>& body) override;

  Result<Marks> make_marks(bool for_processes) override;
  Status open_marks(std::span<const Marks> all, int rank) override;
  Result<bool> begin_on(Stream stream) override;
  Status mark(unsigned turn) override;
  Status after_others(unsigned turn) override;
  Status mark_end() override;
  Status after_end(int rank) override;
  void end_on() override;

  Status open_exchange(const ExchangeLayout& layout, std::size_t offset, int rank,
                       std::chrono::nanoseconds patience) override;
  Status gather(const void* in, std::size_t bytes) override;
  const std::byte* gathered(int rank) const override { return exchange_.gathered(rank); }
  Status bcast(void* buffer, std::size_t bytes, int root) override;
  Status exchanged() const override { return exchange_.state(); }
  void stop_exchange(bool also_in_graphs) override { exchange_.stop(also_in_graphs); }

  Status open_words(std::span<std::byte> memory) override;
  Status write_word(const std::uint32_t* word, std::uint32_t value) override;
  Status take_word(const std::uint32_t* word, std::uint32_t value) override;
  Status wait_for_word(const std::uint32_t* word, std::uint32_t value) override;
  Result<Descriptor> share_with_networks() override;
  Status after_networks() override;
  Status open_flags(std::span<std::byte> flags, int rank, int size) override;
  Status meet_in_graph() override;
  Status hear_in_graph() override;
  Status release_in_graph() override;
  Status follow_in_graph(int leader) override;
  void when_graph_goes(std::function<void()> gone) override;

 private:
  // What `call` says in the link's context, which was there when the call of the link's user began.
  template <typename Call>
  Status in_context(const char* what, const Call& call) const {
    const Current current(cuda_.driver, context_);
    const CUresult error = current.error() != CUDA_SUCCESS ? current.error() : call(cuda_.driver);
    if (error == CUDA_SUCCESS) return {};
    return cuda_error(cuda_.driver, error, fmt::format("{} on GPU {}", what, device_));
  }
  Status check_there() const;
  // The stream, for work that is given to it now.
  CUstream next() {
    if (at_ == stream_) waits_ = true;
    end_marked_ = false;
    return at_;
  }
  Status load(DType type, Op op);
  Status reach(const Export& other, CUdeviceptr* at);
  struct Events;
  Status reach(const Marks& other, Events* events);
  CUresult make_mark(const Driver& driver, bool for_processes, unsigned turn, Marks* mine);
  CUresult belongs(const Driver& driver, CUstream stream, CUstreamCaptureStatus status, bool* here) const;
  Result<cuuint64_t> takes(CUstream stream) const;
  bool is_in_graph() const { return at_ != stream_ && capture_ != 0; }

  Cuda& cuda_;
  const CUcontext context_;
  const std::uint64_t instance_;
  const int device_;
  std::uint64_t board_[2] = {};  // as in Origin
  bool may_wait_ = true;         // in kernels
  CUstream stream_ = nullptr;
  CUstream at_ = nullptr;    // what work goes to: stream_, or a caller's
  bool waits_ = false;       // stream_ was given something since the last wait()
  CUevent event_ = nullptr;  // in the default stream; and in one that is looked at while it is captured
  CUevent end_ = nullptr;    // in the caller's stream that was used last
  bool ended_ = false;       // end_ was recorded, or is at the launch of a graph
  bool end_marked_ = false;  // after all that the caller's stream was given
  CUevent chain_ = nullptr;  // in the stream that was captured last
  cuuint64_t capture_ = 0;   // that of at_
  cuuint64_t chained_ = 0;   // in which chain_ was recorded
  CUevent marks_[2] = {nullptr, nullptr};
  CUdeviceptr own_ = 0;
  std::size_t own_bytes_ = 0;
  bool flushes_ = false;  // after a network's writes
  PinnedPool::Piece pinned_;
  std::vector<CUdeviceptr> scratch_;   // by rank
  std::vector<CUdeviceptr> imported_;  // of other processes
  struct Events {
    CUevent of[2] = {nullptr, nullptr};
    CUevent end = nullptr;  // of a rank of this process
  };
  std::vector<Events> others_;           // by rank; none of its own
  std::vector<CUevent> imported_marks_;  // of other processes
  Handshake handshake_;
  HostWords words_;
  Exchange exchange_;
};

}  // namespace heddle::gpu
