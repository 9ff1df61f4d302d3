// Large blocking allreduces of buffers on GPUs, where the ranks are on several nodes: the GPUs of each node fold first, the host sums that over
// the nodes, and the GPUs of each node spread the result; piece by piece, so that GPUs, copies, the network and the host's sums work at the same time.
//
// It takes one word of every rank to agree, as within a node (device_path.hpp), but words between nodes are messages. So they are rare, or large enough
// calls pay for them:
//
// 1. After the 8th, 32nd, 128th, ... large allreduce that went by the host all ranks meet, those without CUDA too, and say whether they have
//    seen GPU buffers in the last seven. Where all have, each node sets up its links.
// 2. From then on each large call begins with a meeting of all ranks, in which they tell whether they have their part on their GPU. If one has not,
//    the call goes by images. After some such calls in a row, or a failure, the mode ends.
// 3. When the last share has left the GPUs all ranks meet again, while it is on the network, so that a failure on one is told to all.
//    What fails after that, in fetching the result, fails on that node alone, since the others have theirs; they learn of it when the next call begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "comm/device_path.hpp"
#include "comm/device_shares.hpp"

namespace heddle {

// What ranks of all nodes do together, in the host's memory. A failure is the communicator's, and final.
class Across {
 public:
  Across() = default;
  Across(const Across&) = delete;
  Across& operator=(const Across&) = delete;
  virtual ~Across() = default;

  virtual int rank() const = 0;   // in the communicator
  virtual int lanes() const = 0;  // ranks of the smallest node
  // Collective. Of each word the largest of all ranks'.
  virtual Status largest(std::span<std::uint64_t> words) = 0;
  // Starts a sum, in place, among the ranks that have this one's place on their nodes: `count` elements, the same on all of these. All ranks make
  // the same calls, also those with 0 elements. `slot` is one that is not in use.
  virtual Status start(std::size_t slot, void* data, std::size_t count, DType type, Op op) = 0;
  virtual Status finish(std::size_t slot) = 0;
  // Moves what was started.
  virtual Status progress() = 0;
};

class NodesPath {
 public:
  // In bytes: shorter vectors go by images, since the meetings of all ranks would be much of what they take. Not measured.
  static constexpr std::size_t kFrom = std::size_t{1} << 20;

  // `bytes`: of scratch on each GPU; 0: everything goes by images. `node`, the meeting of this node's ranks, and `across` are borrowed.
  NodesPath(Meeting& node, Across& across, std::size_t bytes, const Log& log)
      : node_(node, bytes, log), across_(across), bytes_(bytes), log_(log) {}
  NodesPath(const NodesPath&) = delete;
  NodesPath& operator=(const NodesPath&) = delete;
  ~NodesPath() = default;

  // Every allreduce on a communicator begins with this in a process that has CUDA: whether the GPUs have served it, the same on all ranks. If
  // not, nothing has happened, and it goes on with images. A failure ends the call. `in == out`: in place.
  Result<bool> allreduce(const void* in, void* out, std::size_t count, DType type, Op op) {
    return on_ && count * dtype_size(type) >= kFrom ? serve(in, out, count, type, op) : Result<bool>(false);
  }
  // And ends with this where it was staged. `on_gpu`: all that this rank gave lies on a GPU, `buffer` is some of it.
  Status after_allreduce(gpu::Gpu& gpu, const void* buffer, std::size_t bytes, bool on_gpu);
  // In each allreduce of kFrom bytes or more that the host does, on every rank, also where there is no CUDA.
  Status count_staged();

  // Local: nothing is called any more. As DevicePath::let_go().
  void let_go() { node_.let_go(); }
  bool on() const { return on_; }
  std::uint64_t served() const { return served_; }  // calls so far

 private:
  Status set_up(gpu::Gpu& gpu, const void* buffer);
  Result<bool> connect(gpu::Gpu& gpu);
  Result<bool> serve(const void* in, void* out, std::size_t count, DType type, Op op);
  Result<bool> can_serve(const DeviceSum& sum);
  Status run(SharesSum& work);
  Status run_tick(SharesSum& work, std::size_t t, Status* mine);
  Status wait_for_gpu();
  Result<bool> meet(const Status& mine, bool can, std::span<std::uint64_t> more = {});
  Result<bool> conclude(Result<bool> served);
  Status leave();

  static constexpr std::uint64_t kFirst = 8;  // large calls until all ranks meet
  static constexpr unsigned kMisses = 8;      // in a row, that end the mode

  DevicePath node_;  // the links of this node's ranks; it is never on
  Across& across_;
  const std::size_t bytes_;
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
  SharesLayout layout_;
  std::byte* host_ = nullptr;
};

}  // namespace heddle
