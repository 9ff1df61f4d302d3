// GPUDirect RDMA: memory on this rank's GPU in which the network's device reads and writes messages itself,
// so that vectors between nodes never come to the host. What is to be done between messages, folds and
// copies, the GPU does.
//
// The schedules are those of the host's memory, and so are the bits.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "device/device_shares.hpp"
#include "engine/engine.hpp"
#include "gpu/gpu.hpp"
#include "gpu/link.hpp"
#include "transports/transport.hpp"

namespace heddle {

class GpuDirect final : public SharesHost, private DeviceAccess {
 public:
  // In bytes.
  struct Room {
    std::size_t share;    // at most
    std::size_t scratch;  // of a schedule's, at most
  };
  // Local. `unsupported`: the GPU or the network cannot, and why. `network` outlives it.
  static Result<std::unique_ptr<GpuDirect>> make(gpu::Gpu& gpu, const gpu::Place& place, Transport& network,
                                                 const Room& room);
  // No message uses the memory any more.
  ~GpuDirect() override;

  // What the network's device takes for a byte.
  const DeviceReach& reach() const { return reach_; }
  // Not of networks that find ways of their own, as UCX.
  bool is_measured() const { return reach_.host > 0; }
  // Whether the memory of the GPU is known to cost it so little more than the host's that nothing is to be
  // gained there.
  bool pays() const;

  std::byte* at(std::size_t k) const override;
  bool on_gpu() const override { return true; }
  LocalWork* work_on(std::size_t k, DType type, Op op) override;
  Status release(std::size_t /*k*/) override { return {}; }
  Status await(std::size_t /*k*/) override { return {}; }

  // From any thread: what has failed since the last time, of the GPU's part in messages and between them:
  // contents are undefined then.
  Status failure();

 private:
  // Of one share.
  class Work final : public LocalWork {
   public:
    std::byte* scratch(std::size_t bytes) override;
    void copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
    void fold(std::byte* to, const std::byte* first, const std::byte* second, std::size_t count) override;
    bool done() override { return direct->done(); }

    GpuDirect* direct = nullptr;
    std::byte* scratch_begin = nullptr;
    DType type = DType::u8;
    Op op = Op::sum;
  };

  GpuDirect(Transport& network, const Room& room) : network_(network), room_(room) {}
  Status prepare(gpu::Gpu& gpu, const gpu::Place& place);
  void read(void* to, const std::byte* from, std::size_t bytes) override;
  void write(std::byte* to, const void* from, std::size_t bytes) override;
  void give(const Status& given);
  void keep(const Status& status);
  bool done();

  Transport& network_;
  const Room room_;
  std::unique_ptr<gpu::Link> link_;  // a stream of its own: what a node's GPUs do meanwhile is nothing to it
  std::byte* memory_ = nullptr;
  std::byte* bounce_ = nullptr;  // pinned, for short messages
  DeviceReach reach_;
  bool added_ = false;
  // Messages may be moved by a thread of the communicator's, whose turn does not keep the caller from asking
  // for failures.
  std::mutex mutex_;   // of the link, and of what follows
  bool busy_ = false;  // the stream, as far as is known
  Status failure_;
  std::array<Work, SharesLayout::kSlots> works_;
};

}  // namespace heddle
