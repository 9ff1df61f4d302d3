// Large blocking allreduces and bcasts of buffers on GPUs, where the ranks are on several nodes: the GPUs of
// each node fold first, the host sums that over the nodes, and the GPUs of each node spread the result; piece
// by piece, so that GPUs, copies, the network and the host's sums work at the same time. In a bcast there is
// nothing to fold.
//
// It takes one word of every rank to agree, as within a node (device_path.hpp), but words between nodes are
// messages. So they are rare, or large enough calls pay for them:
//
// 1. After the 8th, 32nd, 128th, ... large call that went by the host all ranks meet, those without CUDA too,
//    and say whether they have seen GPU buffers in the last seven. Where all have, each node sets up its
//    links.
// 2. From then on each large call begins with a meeting of all ranks, in which they tell whether they have
//    their part on their GPU. If one has not, the call goes by images. After some such calls in a row, or a
//    failure, the mode ends.
// 3. When the last share has left the GPUs all ranks meet again, while it is on the network, so that a
//    failure on one is told to all. What fails after that, in fetching the result, fails on that node alone,
//    since the others have theirs; they learn of it when the next call begins.
//
// Where the network's device reads and writes the memory of every rank's GPU (gpu_direct.hpp), shares stay
// there, and the GPUs sum them over the nodes as well. Then the second meeting comes after that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/dtype.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "device/across.hpp"
#include "device/device_shares.hpp"
#include "device/gpu_direct.hpp"
#include "device/meeting.hpp"
#include "device/node_links.hpp"

namespace heddle {

class NodesPath {
 public:
  // In bytes: shorter vectors go by images, since the meetings of all ranks would be much of what they take.
  // Not measured.
  static constexpr std::size_t kFrom = std::size_t{1} << 20;

  // `bytes`: of scratch on each GPU; 0: everything goes by images. `node`, the meeting of this node's ranks,
  // and `across` are borrowed. `direct`: HEDDLE_GPUDIRECT; without a value GPUDirect RDMA is used where it
  // pays.
  NodesPath(Meeting& node, Across& across, std::size_t bytes, std::optional<bool> direct, const Log& log)
      : node_(node, {}, log), across_(across), bytes_(bytes), wanted_(direct), log_(log) {}
  NodesPath(const NodesPath&) = delete;
  NodesPath& operator=(const NodesPath&) = delete;
  ~NodesPath() = default;

  // Every allreduce and bcast on a communicator begins with these in a process that has CUDA: whether the
  // GPUs have served it, the same on all ranks. If not, nothing has happened, and it goes on with images. A
  // failure ends the call. `in == out`: in place.
  Result<bool> allreduce(const void* in, void* out, std::size_t count, DType type, Op op) {
    return on_ && count * dtype_size(type) >= kFrom ? serve_sum(in, out, count, type, op)
                                                    : Result<bool>(false);
  }
  Result<bool> bcast(void* buffer, std::size_t bytes, int root) {
    return on_ && bytes >= kFrom ? serve_bcast(buffer, bytes, root) : Result<bool>(false);
  }
  // And ends with this where it was staged. `on_gpu`: all that this rank gave lies on a GPU, `buffer` is some
  // of it.
  Status after_staged(gpu::Gpu& gpu, const void* buffer, std::size_t bytes, bool on_gpu);
  // In each allreduce and bcast of kFrom bytes or more that the host does, on every rank, also where there is
  // no CUDA.
  Status count_staged();

  // Local: nothing is called any more. As DevicePath::let_go().
  void let_go() { node_.let_go(); }
  bool on() const { return on_; }
  // Messages between nodes begin and end on the GPUs; the same on all ranks.
  bool is_direct() const { return all_direct_; }
  std::uint64_t served() const { return served_; }  // calls so far

 private:
  Status set_up(gpu::Gpu& gpu, const void* buffer);
  Result<bool> connect(gpu::Gpu& gpu, const gpu::Place& place);
  Status connect_directly(gpu::Gpu& gpu);
  Result<std::unique_ptr<GpuDirect>> try_directly(gpu::Gpu& gpu);
  void tell();
  bool has_share() const { return node_.rank() < layout_.lanes; }
  Result<bool> serve_sum(const void* in, void* out, std::size_t count, DType type, Op op);
  Result<bool> serve_bcast(void* buffer, std::size_t bytes, int root);
  Result<bool> serve(SharesWork& work, const Result<bool>& here, std::uint64_t asked);
  Result<bool> can_sum(const DeviceSum& sum);
  Status run(SharesWork& work);
  Status run_tick(SharesWork& work, std::size_t t, Status* mine);
  Status wait_for_gpu();
  Result<bool> meet(const Status& mine, bool can, std::span<std::uint64_t> more = {});
  Result<bool> conclude(Result<bool> served);
  Status leave();

  static constexpr std::uint64_t kFirst = 8;  // large calls until all ranks meet
  static constexpr unsigned kMisses = 8;      // in a row, that end the mode
  static constexpr std::size_t kMore = 3;     // words that a meeting carries beside its own

  NodeLinks node_;
  Across& across_;
  const std::size_t bytes_;
  const std::optional<bool> wanted_;
  const Log log_;
  std::uint64_t calls_ = 0;  // large, by the host; the same on all ranks
  std::uint64_t meets_at_ = kFirst;
  std::uint64_t agreed_at_ = 0;  // the call at whose end all were for it
  std::uint64_t seen_ = 0;       // large calls in a row, all on the GPU
  std::uint64_t served_ = 0;
  unsigned misses_ = 0;  // calls in a row that one rank could not serve
  bool on_ = false;
  bool off_ = false;       // for good; this and on_ are the same on all ranks
  bool lost_ = false;      // the ranks cannot meet any more
  bool leaves_ = false;    // this node's links failed when the others had their results
  bool all_know_ = false;  // of the failure of the call
  bool all_direct_ = false;
  SharesLayout layout_;
  std::byte* host_ = nullptr;
  std::unique_ptr<GpuDirect> direct_;  // on ranks that have shares
};

}  // namespace heddle
