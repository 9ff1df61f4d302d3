// Collectives on the callers' streams where the GPUs cannot serve them together (device_path.hpp), on several
// nodes above all: the host does them, while the stream's own copies bring each piece of a vector to pinned
// memory and its result back.
//
//   the stream:  copies piece j into its slot, says so ... waits for the result of piece j - 3, copies it to
//                its place ...
//   the thread:  waits for piece j, does the collective on it, says so (relay_thread.hpp)
//
// So copies, the network and the host's sums work at the same time, and no thread of the caller's waits. The
// thread has a communicator of its own: what the caller does with the other one meanwhile is nothing to it.
//
// A CUDA graph that captures a call does the stream's part at every launch. The thread, which hears of no
// launch, finds in memory what the stream has come to.
//
// That moves every rank's vector to the host and back. Where a node has several ranks, their GPUs fold large
// vectors before and spread the results, and the host has each rank's share alone (stream_shares.hpp); in the
// same slots, and by the same thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "device/host_collectives.hpp"
#include "device/relay_thread.hpp"
#include "device/stream_shares.hpp"
#include "gpu/gpu.hpp"
#include "gpu/link.hpp"

namespace heddle {

class StreamRelay {
 public:
  // Another set of collectives of the same ranks, for the thread. Collective; the same outcome on all ranks.
  using Twin = std::function<Result<std::unique_ptr<HostCollectives>>()>;

  // `ranks` is borrowed, and used in calls alone, as is `twin`. `shares`: null, on all ranks, where no node
  // has two. `shared_context`: also for ranks that share a context.
  StreamRelay(HostCollectives& ranks, Twin twin, const Log& log,
              std::unique_ptr<StreamShares> shares = nullptr, bool shared_context = false)
      : ranks_(ranks),
        twin_(std::move(twin)),
        log_(log),
        shared_context_(shared_context),
        shares_(std::move(shares)) {}
  StreamRelay(const StreamRelay&) = delete;
  StreamRelay& operator=(const StreamRelay&) = delete;
  // Waits for what the streams were given, and for the graphs that were launched; for ranks of the node that
  // do nothing more a few seconds at most.
  ~StreamRelay();

  // On a stream of the caller's (null: the default stream of the buffers' context): after the work that it
  // was given, and before what it is given later. Collective; returns once all ranks have given theirs, and
  // waits for no GPU but in setting up and after a failure. All buffers lie on the ranks' GPUs: `unsupported`
  // where one does not, and then nothing has happened on any rank. Another failure before that is told to all
  // ranks as well. What fails later, in giving a stream its work or in the collective itself, leaves no
  // stream waiting: the buffers' contents are undefined, the rank whose stream it was gets the error, and the
  // next call fails on all and says it.
  //
  // Where the stream is being captured into a CUDA graph the call does all of this but run; all ranks
  // capture, or none, and a failure is told to all in the same call and ends nothing. A graph that was
  // captured stays usable as long as this lives, unless its collectives fail: then it goes on without
  // results, and the next call says it.
  Status allreduce_on(gpu::Gpu& gpu, gpu::Stream stream, const void* in, void* out, std::size_t count,
                      DType type, Op op);
  Status bcast_on(gpu::Gpu& gpu, gpu::Stream stream, void* buffer, std::size_t bytes, int root);
  // Calls that graphs have which may be launched yet, as far as the driver tells.
  std::size_t in_graphs() const { return gear_.thread != nullptr ? gear_.thread->in_graphs() : 0; }
  std::uint64_t shared() const { return shared_; }  // calls so far that the GPUs of each node shared out

 private:
  // What this rank's stream copies; null: nothing in this direction.
  struct Buffers {
    const std::byte* in;
    std::byte* out;
  };

  // What calls go by until all begin anew.
  struct Gear {
    std::unique_ptr<RelayWords> words;
    RelayRing ring;
    std::unique_ptr<gpu::Link> own_link;
    gpu::Link* link = nullptr;  // own_link, or shares_'s; has the ring's memory, and uses the words
    std::unique_ptr<RelayThread> thread;
  };

  Status serve(gpu::Gpu& gpu, gpu::Stream stream, const Buffers& buffers, RelayCall call);
  Status give(const Buffers& buffers, const RelayCall& call, SharesWork* work, StreamSlots& slots);
  Status capture(const Buffers& buffers, const RelayCall& call, SharesWork* work, StreamSlots& slots);
  std::unique_ptr<SharesWork> work_of(const Buffers& buffers, const RelayCall& call, SharesHost& slots) const;
  Status get_ready(gpu::Gpu& gpu, gpu::Stream stream, const Buffers& buffers);
  Status refuse(const Status& why);
  Status set_up(gpu::Gpu& gpu, const gpu::Place& place);
  Status connect_nodes(gpu::Gpu& gpu, const gpu::Place& place);
  Status find_link(gpu::Gpu& gpu, const gpu::Place& place);
  Status look_for_neighbours(const Status& mine);
  Status make_ring();
  Status start_thread();
  Status check(const Buffers& buffers, std::size_t bytes);
  Status begin(bool captured, RelayCall* call);
  bool can_share(const RelayCall& call) const;
  Status lies_here(const void* buffer, std::size_t bytes);
  Status enqueue(const Buffers& buffers, const RelayCall& call, StreamSlots& slots);
  Status fill(const Buffers& buffers, const RelayPiece& piece);
  Status empty(const Buffers& buffers, const RelayPiece& piece);
  Status agree(const Status& mine, std::span<std::uint64_t> more = {});
  Status meet(const Status& mine, std::span<std::uint64_t> more);
  static std::uint64_t asked_by(const RelayCall& call);
  Status agree_on_call(const Status& mine, const RelayCall& call, bool captured, bool* shared);
  void reset();
  bool finish(Gear& gear);

  static constexpr unsigned kRefusals = 2;  // in setting up, in a row, that are final

  HostCollectives& ranks_;
  const Twin twin_;
  const Log log_;
  const bool shared_context_;
  Gear gear_;
  std::vector<Gear> kept_;                // that graphs use, of before
  std::unique_ptr<StreamShares> shares_;  // has links that use words of the above
  bool captured_ = false;                 // graphs use gear_
  bool shares_on_ = false;  // the ranks of each node reach each other's GPUs; the same on all ranks
  std::uint64_t shared_ = 0;
  bool apart_ = false;  // the ranks cannot meet any more
  // Why there is no setting up any more; on all ranks or on none.
  Status refused_;
  unsigned refusals_ = 0;  // of those in a row
};

}  // namespace heddle
