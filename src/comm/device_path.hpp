// Blocking allreduces and bcasts of buffers on GPUs, where all ranks are on one node: the GPUs do the work,
// and the host's memory is where the ranks meet.
//
// MPI lets each rank pass what it has, host or GPU memory, in every call: that a call goes by the GPUs must
// be agreed.
//
// 1. A rank that has seen GPU buffers in a number of calls in a row says so (Meeting::tell), with the number
//    of its next call. Others read that when they like. It counts from the first call on that is not before
//    that number and leaves no rank before all have come (an allreduce): what was told before that call is
//    seen by everybody after it. So all ranks find at the end of the same call that all want it, or that not
//    all do. A rank without CUDA never says so; it pays one addition a call, and nobody waits for it.
// 2. Then the mode is set up: links, and scratch that the others can reach (gpu/link.hpp). What goes wrong
//    there is told to all, and the communicator stays as it was.
// 3. The ways that there are for short and long vectors are tried, and the fastest ones taken; short ones may
//    well go by images still.
// 4. From then on each call begins with a meeting, in which the ranks tell whether they have their part on
//    their GPU. If one has not, this call is staged by images. After some such calls in a row, or a failure,
//    the mode ends.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "comm/device_ways.hpp"
#include "comm/device_work.hpp"
#include "comm/placed_residual.hpp"
#include "compress/codec.hpp"
#include "gpu/entries.hpp"
#include "gpu/link.hpp"
#include "gpu/sparse_link.hpp"
#include "transports/shm/shared_memory.hpp"

namespace heddle {

struct CodedJob;

// How the ranks tell each other what they must agree on, in the host's memory.
class Meeting {
 public:
  Meeting() = default;
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  virtual ~Meeting() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The communicator's number for one of them, for messages.
  virtual int number_of(int rank) const { return rank; }
  // Collective. Of each word the largest of all ranks'. A failure is the communicator's, and final.
  virtual Status largest(std::span<std::uint64_t> words) = 0;
  // A word of each rank's, 0 at first, which others may read at any time.
  virtual void tell(std::uint64_t word) = 0;
  virtual std::uint64_t told(int rank) const = 0;
  virtual bool is_gone(int rank) const = 0;
  // The blocking allreduces and bcasts so far that were not served by the GPUs, the same on all ranks.
  virtual std::uint64_t calls() const = 0;
  // Whether all ranks had come before any left the last of them, a bcast.
  virtual bool bcast_met() const = 0;
};

// A sum, minimum or maximum of sparse vectors.
struct DeviceEntries {
  gpu::Entries in;
  DType type;
  Op op;
  void* out;  // overlaps nothing of `in`
  std::size_t dimension;

  bool is_for_gpus() const { return dimension > 0; }
};
// One that is sparse itself.
struct DeviceMerge {
  gpu::Entries in;
  DType type;
  Op op;
  std::size_t dimension;
  gpu::Room out;  // the caller's arrays, wherever they are; with indices as wide as those of `in`

  bool is_for_gpus() const { return dimension > 0; }
};
// A sum of the `k` largest entries of each rank's vector of `n`.
struct DeviceLargest {
  const float* in;
  float* out;  // may be `in`
  std::size_t n;
  std::size_t k;             // 0: this is no work for the GPUs
  PlacedResidual* residual;  // of n values; may be null

  bool is_for_gpus() const { return k > 0 && n > 0; }
};
// A sum of dense vectors of `n` through a codec.
struct DeviceCoded {
  const float* in;
  float* out;  // may be `in`
  std::size_t n;
  CodecSettings how;         // with a seed of this rank's own
  PlacedResidual* residual;  // of n values; may be null

  bool is_for_gpus() const;
};
// What a sum took.
struct DeviceTraffic {
  std::uint64_t entries = 0;     // of all ranks
  std::uint64_t bytes_sent = 0;  // by this rank
};

// The result of a DeviceMerge: in the caller's arrays, or until the next call in memory that
// DevicePath::copy() reaches.
struct DeviceMerged {
  gpu::Entries entries;
  bool is_placed = false;
};

struct DeviceLimits {
  std::size_t scratch = 0;   // bytes on each rank's GPU; 0: everything is staged
  std::size_t exchange = 0;  // the longest vector that kernels exchange, where each rank has a GPU
  std::chrono::nanoseconds patience{0};  // of a kernel that waits for others; 0: as long as it takes
  bool shared_context = false;           // graphs may be captured where ranks share a context
  bool tries =
      false;  // ways of sums and bcasts, when the mode begins with a blocking call; else the GPUs serve all
  KnownWays* known = nullptr;  // what was found before, and where to keep it; borrowed, may be null
};

class DevicePath {
 public:
  // Of two with one meeting, which one lets go before the other on every rank: what is told by who has let go
  // of the others' scratch. No call has these numbers.
  enum class Ends : std::uint64_t { first = ~std::uint64_t{1}, last = ~std::uint64_t{0} };

  // `meeting` is borrowed.
  DevicePath(Meeting& meeting, const DeviceLimits& limits, const Log& log, Ends ends = Ends::last)
      : meeting_(meeting),
        limits_(limits),
        log_(log),
        let_go_(static_cast<std::uint64_t>(ends)),
        mode_(limits.scratch > 0 ? Mode::idle : Mode::off) {}
  DevicePath(const DevicePath&) = delete;
  DevicePath& operator=(const DevicePath&) = delete;
  // Where other processes have this rank's scratch open it waits for them to close it, a second at most, and
  // then leaves it allocated.
  ~DevicePath();

  // Every call on a communicator begins with one of these in a process that has CUDA: whether the GPUs have
  // served it, the same on all ranks. If not, nothing has happened, and it goes on with images. A failure,
  // here or there, ends the call on all ranks. `in == out`: in place.
  Result<bool> allreduce(const void* in, void* out, std::size_t count, DType type, Op op) {
    return on() ? serve_allreduce(in, out, count, type, op) : Result<bool>(false);
  }
  // A null buffer: not one piece of memory on this rank.
  Result<bool> bcast(void* buffer, std::size_t bytes, int root) {
    return on() ? serve_bcast(buffer, bytes, root) : Result<bool>(false);
  }
  // Sums of sparse vectors, and of the largest entries of dense ones, into a dense vector: device_sparse.cpp.
  // In these too nothing has happened where the answer is no. `asked` is a number of all that is equal on the
  // ranks, or should be: where it is not, the answer is no on all of them. What is not for GPUs is asked
  // about as well, since another rank may want something else by mistake. After a failure the residual is
  // what it was, or has the vector in it, without the entries that were sent.
  Result<bool> sparse_sum(const DeviceEntries& job, std::uint64_t asked, DeviceTraffic* traffic) {
    return on() ? serve_entries(job, asked, traffic) : Result<bool>(false);
  }
  Result<bool> largest_sum(const DeviceLargest& job, std::uint64_t asked, DeviceTraffic* traffic) {
    return on() ? serve_largest(job, asked, traffic) : Result<bool>(false);
  }
  // Into a dense vector as well, of all values. Where codes are none that an encoder writes the call fails on
  // all ranks. After a failure the residual is what it was, or from its front on what coding has left out.
  Result<bool> coded_sum(const DeviceCoded& job, std::uint64_t asked, DeviceTraffic* traffic) {
    return on() ? serve_coded(job, asked, traffic) : Result<bool>(false);
  }
  // The same as sparse_sum, into a sparse vector. Where lists break their contract the answer is no, and the
  // caller's arrays have anything in them.
  Result<bool> sparse_merge(const DeviceMerge& job, std::uint64_t asked, DeviceTraffic* traffic,
                            DeviceMerged* merged) {
    return on() ? serve_merge(job, asked, traffic, merged) : Result<bool>(false);
  }
  // Of what a call that was served has left on the GPU, to where the rank's GPU reaches; complete on return.
  // False: it does not reach there.
  Result<bool> copy(void* to, const void* from, std::size_t bytes);
  // And ends with this where it was staged. `on_gpu`: all that this rank gave lies on a GPU, `buffer` is some
  // of it.
  Status after_sum(gpu::Gpu& gpu, const void* buffer, bool on_gpu) {
    return after_staged(gpu, buffer, on_gpu, true);
  }
  Status after_bcast(gpu::Gpu& gpu, const void* buffer, bool on_gpu) {
    return after_staged(gpu, buffer, on_gpu, meeting_.bcast_met());
  }

  // On a stream of the caller's (null: the default stream of the buffers' context): after the work that it
  // was given, and before what it is given later. Collective; returns once all ranks have given theirs, and
  // waits for no GPU but in setting up and after a failure. All buffers lie on the ranks' GPUs: `unsupported`
  // where one does not, and then nothing has happened on any rank. Another failure is told to all ranks; the
  // buffers' contents are undefined then, and nothing uses them any more.
  //
  // Where the stream is being captured into a CUDA graph the call does all of this but run; all ranks
  // capture, or none. Each launch does it again, without the host. A graph that was captured stays usable
  // until let_go(), also where the mode ended in between.
  Status allreduce_on(gpu::Gpu& gpu, gpu::Stream stream, const void* in, void* out, std::size_t count,
                      DType type, Op op);
  Status bcast_on(gpu::Gpu& gpu, gpu::Stream stream, void* buffer, std::size_t bytes, int root);

  // Local: nothing is called any more. Before a thread that ends several communicators, which other ranks may
  // end in another order, ends the first of them, it does this on all.
  void let_go();
  bool on() const { return mode_ == Mode::on; }

 private:
  // Of several nodes, each of which has links like these.
  friend class NodesPath;
  friend class StreamShares;
  enum class Mode : std::uint8_t {
    idle,   // calls are watched
    asked,  // this rank would like the GPUs to do it
    on,
    off,  // for good
  };
  Status after_staged(gpu::Gpu& gpu, const void* buffer, bool on_gpu, bool met);
  Result<bool> serve_allreduce(const void* in, void* out, std::size_t count, DType type, Op op);
  Result<bool> serve_bcast(void* buffer, std::size_t bytes, int root);
  Result<bool> serve_entries(const DeviceEntries& job, std::uint64_t asked, DeviceTraffic* traffic);
  Result<bool> serve_largest(const DeviceLargest& job, std::uint64_t asked, DeviceTraffic* traffic);
  Result<bool> serve_coded(const DeviceCoded& job, std::uint64_t asked, DeviceTraffic* traffic);
  Result<bool> serve_merge(const DeviceMerge& job, std::uint64_t asked, DeviceTraffic* traffic,
                           DeviceMerged* merged);
  Result<bool> can_add(const DeviceEntries& job);
  Result<bool> can_merge(const DeviceMerge& job);
  gpu::Room room_here(const DeviceMerge& job);
  Result<bool> holds_entries(const gpu::Entries& entries, DType type);
  Result<bool> can_select(const DeviceLargest& job, float** left_out);
  Result<bool> can_code(const DeviceCoded& job, CodedJob* mine);
  Result<bool> holds_vectors(const float* in, const float* out, std::size_t n);
  Result<bool> place(PlacedResidual* residual, float** left_out);
  Result<bool> holds_aligned(const void* buffer, std::size_t bytes, std::size_t element);
  bool has_sparse();
  Result<bool> run(DeviceWork& work, const Result<bool>& here);
  Result<bool> conclude(Result<bool> served);
  Result<bool> run_on_gpus(DeviceWork& work, const Result<bool>& here);
  Status after_streams();
  Result<bool> after_streams(const Result<bool>& here);
  Status wait_for_gpus();
  Status give_to_gpus(DeviceWork& work);
  Worker worker() const { return {link_.get(), meeting_.rank(), meeting_.size(), layout_, ways_}; }
  Result<bool> meet(const Status& mine, bool can, std::span<std::uint64_t> more = {});
  template <typename T>
  Result<bool> gather(const Status& mine, const T& one, std::vector<T>* all);

  // device_trials.cpp
  Result<bool> find_ways(gpu::Gpu& gpu);
  Result<DeviceWays> try_ways(gpu::Gpu& gpu);
  Result<double> time_way(gpu::Gpu& gpu, bool sum, DeviceWay way, std::size_t bytes);
  Status try_image(gpu::Gpu& gpu, bool sum, std::byte* buffer, std::size_t bytes);

  // On streams: device_streams.cpp.
  Status get_ready(gpu::Gpu& gpu, gpu::Stream stream, const void* buffer);
  Status find(gpu::Gpu& gpu, gpu::Stream stream, const void* buffer, gpu::Place* place);
  Result<bool> share_marks();
  Status refuse(const Status& why);
  Status agree(const Status& mine, std::span<std::uint64_t> more, bool* refused);
  Status lies_here(const void* buffer, std::size_t bytes);
  Status serve_on(gpu::Stream stream, DeviceWork& work, Status mine);
  Status follow(DeviceWork& work, unsigned turn);
  Status follow_leader(DeviceWork& work, unsigned turn);
  Status agree_on_call(const Status& mine, bool captured, DeviceWork& work, bool* in_graph, bool* refused);

  // In graphs: device_graphs.cpp.
  Result<bool> share_memory();
  Result<bool> share_flags();
  Status follow_in_graph(DeviceWork& work, Status mine);
  Status capture_steps(DeviceWork& work);
  Status follow_leader_in_graph(DeviceWork& work);
  // Which of its two events a rank records next; the same on all.
  unsigned next_turn() { return turns_++ % 2; }

  bool all_want_it(std::uint64_t call) const;
  Status set_up(gpu::Gpu& gpu);
  Result<bool> connect(gpu::Gpu& gpu);
  // device_links.cpp
  Result<bool> make_links(gpu::Gpu& gpu);
  Result<bool> share_scratch(std::size_t bytes, std::size_t exchange = 0);
  Result<bool> open_exchange(const gpu::ExchangeLayout& layout, std::size_t offset);
  Result<bool> agree_on_reach(const Result<std::string>& wrong);
  void begin();
  int member_of(int number) const;
  int awaited_in_vain() const;  // a rank whose GPU does nothing more, or which is gone; -1: none
  std::string awaited_name() const;
  int deciding_rank() const;  // in the last meeting, of those who cannot or have failed
  Status leave(Mode then);
  bool finish(gpu::Link& link);
  bool is_finished(gpu::Link& link);

  static constexpr unsigned kFirst = 8;     // calls in a row that a rank watches before it asks
  static constexpr unsigned kMost = 1024;   // twice as many each time that the mode ends, up to these
  static constexpr unsigned kMisses = 8;    // in a row, that end the mode
  static constexpr unsigned kRefusals = 2;  // in setting up for streams, in a row, that are final

  Meeting& meeting_;
  const DeviceLimits limits_;
  const Log log_;
  const std::uint64_t let_go_;
  Mode mode_;
  unsigned needed_ = kFirst;
  unsigned seen_ = 0;    // calls in a row, all on the GPU, while idle
  unsigned misses_ = 0;  // calls in a row that one rank could not serve, while on
  gpu::Place place_;     // of a buffer that was seen
  // Links whose mode has ended and that graphs use, or streams that wait in vain: until nobody does any more.
  // What is below another one goes before it.
  struct Kept {
    SharedMemory flags;
    std::unique_ptr<gpu::Link> link;
    std::unique_ptr<gpu::SparseLink> sparse;
  };
  void keep_for_ever(Kept kept);
  std::vector<Kept> kept_;
  SharedMemory flags_;  // for graphs; goes after the link
  std::unique_ptr<gpu::Link> link_;
  std::unique_ptr<gpu::SparseLink> sparse_;  // made when first wanted
  bool apart_ = false;                       // each rank has a GPU of its own
  bool direct_ = false;             // all ranks share one context: buffers are reached where they lie
  std::pair<int, int> neighbours_;  // two ranks that do, if any; known when marks are open
  bool exported_ = false;           // other processes have this rank's scratch open, or its events
  bool marks_open_ = false;         // the ranks know each other's events
  unsigned turns_ = 0;              // events that each rank recorded
  Status graphs_;                   // why there can be none; the same on all ranks whether it says so
  bool captured_ = false;           // a graph uses the link
  bool lost_ = false;               // the ranks cannot meet any more
  bool stuck_ = false;              // something is kept for ever
  std::uint64_t key_ = 0;           // of the ranks, and where their links are; the same on all
  // How long exchanges are waited for while they are tried.
  std::chrono::steady_clock::time_point wait_until_ = std::chrono::steady_clock::time_point::max();
  // Why calls on streams cannot be had, once that is final; the same on all ranks whether it says so.
  Status refused_;
  unsigned refusals_ = 0;  // of those in a row
  ScratchLayout layout_;
  gpu::ExchangeLayout exchange_;
  DeviceWays ways_;
  std::vector<std::uint64_t> words_;  // for meetings
};

// Everybody's `one`, in the order of ranks.
template <typename T>
Result<bool> DevicePath::gather(const Status& mine, const T& one, std::vector<T>* all) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(std::uint64_t) == 0);
  constexpr std::size_t kWords = sizeof(T) / sizeof(std::uint64_t);
  std::vector<std::uint64_t> words(kWords * static_cast<std::size_t>(meeting_.size()));
  std::memcpy(words.data() + kWords * static_cast<std::size_t>(meeting_.rank()), &one, sizeof one);
  Result<bool> met = meet(mine, true, words);
  all->resize(static_cast<std::size_t>(meeting_.size()));
  std::memcpy(static_cast<void*>(all->data()), words.data(), words.size() * sizeof words[0]);
  return met;
}

}  // namespace heddle
