// What one rank does on its GPU for a collective among the ranks of a node: work on a stream of its own, and
// memory that the other ranks' GPUs reach. The ranks meet elsewhere (src/device/device_path.hpp); a link
// waits for nobody.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/descriptors.hpp"
#include "base/dtype.hpp"
#include "base/status.hpp"
#include "gpu/gpu.hpp"

struct CUstream_st;

namespace heddle::gpu {

// A stream of the caller's: CUDA's CUstream, which its run-time library calls cudaStream_t.
using Stream = CUstream_st*;

// Ranks that are served: a kernel takes as many inputs.
inline constexpr int kMostRanks = 64;

// Where a rank's link lives. Equal origins: pointers of the one are pointers of the other.
struct Origin {
  std::uint64_t process = 0;  // its number
  std::uint64_t space = 0;    // in which it has that number
  std::uint64_t context = 0;
  std::uint64_t instance = 0;   // of those that this has stood for
  std::uint64_t device = 0;     // as that process counts them
  std::uint64_t board[2] = {};  // its PCI bus ID, as text; 0: the driver does not say

  bool same_process(const Origin& other) const { return process == other.process && space == other.space; }
  bool operator==(const Origin&) const = default;
};

// A rank's scratch, as others need to know it. Words alone: it is sent to them as it is.
struct Export {
  Origin origin;
  std::uint64_t address = 0;  // in that process
  std::uint64_t bytes = 0;
  std::uint64_t handle[8] = {};  // CUipcMemHandle
  std::uint64_t exchange = 0;    // the longest vector that the rank would exchange
};

// Memory of each rank's for vectors that kernels exchange.
struct ExchangeLayout {
  std::size_t most = 0;    // bytes of the longest vector; 0: there is none
  std::size_t vector = 0;  // room for one, at least as much
  int ranks = 0;

  // What the others write and what this rank counts, each for calls and for graphs, and what it has received.
  std::size_t slot_bytes() const;
  std::size_t turn_bytes() const;
  std::size_t bytes() const {
    return 2 * (slot_bytes() + turn_bytes()) + static_cast<std::size_t>(ranks) * vector;
  }
  // In `room` bytes, for vectors of up to `most` bytes where there is so much room.
  static ExchangeLayout of(std::size_t room, int ranks, std::size_t most);
};

// A rank's events, as others need to know them. Words alone.
struct Marks {
  Origin origin;
  std::uint64_t address[2] = {};    // in that process
  std::uint64_t handle[2][8] = {};  // CUipcEventHandle, where they are for other processes
  std::uint64_t end = 0;            // the address of the one that mark_end() records
};

// One thread at a time. A failure leaves nothing under way once wait() has returned.
class Link {
 public:
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  // Closes what is open, and frees the scratch. No other process has it open any more: what a peer sees of
  // memory that is freed is undefined (CUDA's documentation of cuIpcOpenMemHandle).
  virtual ~Link() = default;

  virtual Origin origin() const = 0;
  // Whether its context is still there: what a link has in one that was destroyed or reset is gone.
  virtual bool is_there() const = 0;
  // Whether its GPU's kernels may wait for another GPU's: not where a kernel that takes seconds is ended, and
  // with it all that the process has there (a GPU that drives a screen).
  virtual bool may_wait_in_kernels() const = 0;
  // Scratch of this rank's, once. `for_processes`: others are to open it.
  virtual Result<Export> allocate(std::size_t bytes, bool for_processes) = 0;
  // That of all, in the order of ranks; this one is `rank`.
  virtual Status open(std::span<const Export> all, int rank) = 0;
  // Waits for what end_on() ended, and for the graphs with such work that were launched.
  virtual void finish() = 0;
  // Whether finish() would return at once. A failure: the link's GPU, or its context, does nothing more.
  virtual Result<bool> finished() = 0;
  // Gives up the others', and their events and flags, after finish(); nothing else is under way, and no graph
  // is launched any more.
  virtual void close() = 0;
  // Somebody may have this rank's scratch or events open when the link ends: they stay.
  virtual void abandon() = 0;
  // The link is never ended, since a stream that it was given waits for ever: nor is anything that it
  // borrows.
  virtual void stay() = 0;
  // Where a rank's scratch lies for this rank's GPU.
  virtual std::byte* scratch(int rank) const = 0;

  // Once: pinned memory of the host, until the link ends. `out_of_memory`: neither the pool
  // (HEDDLE_PINNED_BYTES) nor the system has so much.
  virtual Result<std::byte*> pin(std::size_t bytes) = 0;

  // Whether all of these bytes, at least one, lie in the link's context, for kernels and copies.
  // `invalid_argument`: they are not there. Another failure: !is_there().
  virtual Result<bool> holds(const void* buffer, std::size_t bytes) = 0;
  // Whether fold() has a kernel for it, which is loaded.
  virtual bool folds(DType type, Op op) = 0;

  // Work, in the order in which it was given. Complete once wait() returns.
  //
  // What comes now waits for the work that the context's default stream was given so far, as a blocking call
  // must, and for what end_on() ended. On a caller's stream: nothing.
  virtual Status after_earlier_work() = 0;
  virtual Status copy(void* to, const void* from, std::size_t bytes) = 0;
  // Between a GPU and pin()'s memory.
  virtual Status to_host(void* to, const void* from, std::size_t bytes) = 0;
  virtual Status to_device(void* to, const void* from, std::size_t bytes) = 0;
  // So many pieces of `bytes` bytes, each `apart` bytes behind the one before it, to pin()'s memory, where
  // nothing is between them.
  virtual Status pieces_to_host(void* to, const void* from, std::size_t bytes, std::size_t apart,
                                std::size_t pieces) = 0;
  // As Kernels::fold.
  virtual Status fold(DType type, Op op, std::span<const void* const> inputs, std::span<void* const> outputs,
                      std::size_t count) = 0;
  virtual Status wait() = 0;
  // Whether wait() would return at once; what has failed is done, and wait() says so. For those who have
  // something else to do meanwhile.
  virtual bool done() = 0;
  // Other work, for gpu/ alone: `body`, with the link's context current, gives it to that stream.
  virtual Status give(const std::function<Status(Cuda& cuda, Stream stream)>& body) = 0;

  // On a stream of the caller's no host waits: the streams wait for events, which the ranks exchange before.
  // Of each rank's two, which take turns, the others' streams may wait for what mark() recorded last; that it
  // has been recorded is theirs to find out.
  //
  // Once, and again where that or open_marks() has failed on a rank: they are the same ones. `for_processes`:
  // others are to wait for them.
  virtual Result<Marks> make_marks(bool for_processes) = 0;
  // Those of all, in the order of ranks; this one is `rank`.
  virtual Status open_marks(std::span<const Marks> all, int rank) = 0;
  // What comes now goes to `stream` (null: the default stream), behind what that was given and what the last
  // end_on() ended. `unsupported`: it is not of the link's context, or takes no work; nothing has changed
  // then. True: it is being captured into a graph, and so is what comes now.
  virtual Result<bool> begin_on(Stream stream) = 0;
  // Records this rank's event `turn`, 0 or 1.
  virtual Status mark(unsigned turn) = 0;
  // What comes now comes after the event `turn` of all others.
  virtual Status after_others(unsigned turn) = 0;
  // Records the end of what the stream was given; for ranks of this process, which wait for it by
  // after_end(), `rank` being the one that records it.
  virtual Status mark_end() = 0;
  virtual Status after_end(int rank) = 0;
  // What comes now goes to the link's own stream. Nothing to do but between begin_on() and this.
  virtual void end_on() = 0;

  // Short vectors go from each rank's GPU to all others in one kernel, which waits there for what the others'
  // write (gpu/exchange.hpp): so the host need not meet between the parts of a call, nor in graphs. Only
  // where each rank has a GPU of its own, since kernels of several processes take turns on one.
  //
  // Once, by all ranks: layout.bytes() bytes of everybody's scratch from `offset` on, a multiple of 256.
  // Nobody waits longer than `patience`, 0: as long as it takes; but in graphs, of which each launch would
  // have to tell somebody, as long as it takes in any case.
  virtual Status open_exchange(const ExchangeLayout& layout, std::size_t offset, int rank,
                               std::chrono::nanoseconds patience) = 0;
  // Work. All ranks make the same such calls, of the same length, in the same order: `bytes` bytes, 1 to
  // layout.most. Then that of rank r, another one, is at gathered(r), until the next call.
  virtual Status gather(const void* in, std::size_t bytes) = 0;
  virtual const std::byte* gathered(int rank) const = 0;
  // The root's to all.
  virtual Status bcast(void* buffer, std::size_t bytes, int root) = 0;
  // `timeout`: one of these has waited in vain, and nothing of them is defined since. `peer_failed`:
  // stop_exchange() was called.
  virtual Status exchanged() const = 0;
  // Lets all go that wait there, now and later; in calls, and in graphs where `also_in_graphs`, which are of
  // no use any more then.
  virtual void stop_exchange(bool also_in_graphs) = 0;

  // Between a stream and a thread of the host's, which writes and reads words itself; in a graph as well, at
  // every launch. Once: `memory`, all 0, holds the words, and stays until close(). `unsupported`: the driver
  // is too old.
  virtual Status open_words(std::span<std::byte> memory) = 0;
  // When all work that was given before is done, `word` is `value`, for the host as well.
  virtual Status write_word(const std::uint32_t* word, std::uint32_t value) = 0;
  // The same, once `word` is 0: what comes now waits for that.
  virtual Status take_word(const std::uint32_t* word, std::uint32_t value) = 0;
  // What comes now waits until `word` is `value`.
  virtual Status wait_for_word(const std::uint32_t* word, std::uint32_t value) = 0;

  // For the network's devices (GPUDirect RDMA), this rank's scratch, from its beginning on. Its dmabuf; none:
  // the driver has none to give. `unsupported`: what such a device writes there cannot be made visible to the
  // GPU.
  virtual Result<Descriptor> share_with_networks() = 0;
  // What comes now finds what such a device has written by now.
  virtual Status after_networks() = 0;

  // In a graph, where no event of another rank's may be waited for, streams wait for flags
  // (gpu/handshake.hpp). Once, by all ranks: `flags` has flag_bytes(), all 0, is shared by all, and stays
  // until close().
  virtual Status open_flags(std::span<std::byte> flags, int rank, int size) = 0;
  // What comes now comes after what each other rank's link was given before its call of this, at every
  // launch. A launch also comes after the work of the link that ended before it, and what the link is given
  // later comes after that launch.
  virtual Status meet_in_graph() = 0;
  // The same in two halves, where one rank has all the work: that one hears the others before it and lets
  // them go after it. They come to it, and wait for that.
  virtual Status hear_in_graph() = 0;
  virtual Status release_in_graph() = 0;
  virtual Status follow_in_graph(int leader) = 0;
  // Between begin_on() of a stream that is being captured and end_on(): `gone` is called once when that graph
  // is gone, all that was made of it, and what was launched of that is done, by a thread of CUDA's perhaps.
  // It calls nothing of CUDA's, and does not throw. Never, where the driver cannot tell.
  virtual void when_graph_goes(std::function<void()> gone) = 0;
};

// Of flags for so many ranks.
std::size_t flag_bytes(int size);

// Whether a stream, of the context that work on `place` needs, is being captured into a graph. `gpu` is
// present.
Result<bool> is_captured(Gpu& gpu, const Place& place, Stream stream);

// In the context that work on `place` needs. `gpu` is present, and outlives the link.
Result<std::unique_ptr<Link>> make_link(Gpu& gpu, const Place& place);

}  // namespace heddle::gpu
