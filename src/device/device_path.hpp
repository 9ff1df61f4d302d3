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
// 2. Then the mode is set up: links, and scratch that the others can reach (node_links.hpp). What goes wrong
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
#include <span>

#include "base/dtype.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "compress/codec.hpp"
#include "device/device_ways.hpp"
#include "device/device_work.hpp"
#include "device/meeting.hpp"
#include "device/node_links.hpp"
#include "device/placed_residual.hpp"
#include "gpu/entries.hpp"
#include "gpu/link.hpp"

namespace heddle {

struct CodedJob;
struct EntriesWorker;

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
  LinkLimits links = {};
  bool tries =
      false;  // ways of sums and bcasts, when the mode begins with a blocking call; else the GPUs serve all
  KnownWays* known = nullptr;  // what was found before, and where to keep it; borrowed, may be null
};

class DevicePath {
 public:
  // `meeting` is borrowed.
  DevicePath(Meeting& meeting, const DeviceLimits& limits, const Log& log)
      : meeting_(meeting),
        limits_(limits),
        log_(log),
        mode_(limits.scratch > 0 ? Mode::idle : Mode::off),
        links_(meeting, limits.links, log) {}
  DevicePath(const DevicePath&) = delete;
  DevicePath& operator=(const DevicePath&) = delete;
  ~DevicePath() = default;

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
  void let_go() {
    mode_ = Mode::off;
    links_.let_go();
  }
  bool on() const { return mode_ == Mode::on; }

 private:
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
  Result<bool> holds_input(const gpu::Entries& in, DType type, std::size_t dimension);
  Result<bool> can_select(const DeviceLargest& job, float** left_out);
  Result<bool> can_code(const DeviceCoded& job, CodedJob* mine);
  Result<bool> holds_vectors(const float* in, const float* out, std::size_t n);
  Result<bool> place(PlacedResidual* residual, float** left_out);
  Result<bool> holds_aligned(const void* buffer, std::size_t bytes, std::size_t element);
  Result<bool> conclude(Result<bool> served);
  Worker worker() const { return links_.worker(ways_); }
  EntriesWorker entries_worker() const;

  // device_trials.cpp
  Result<bool> find_ways(gpu::Gpu& gpu);
  Result<DeviceWays> try_ways(gpu::Gpu& gpu);
  Result<double> time_way(gpu::Gpu& gpu, bool sum, DeviceWay way, std::size_t bytes);
  Status try_image(gpu::Gpu& gpu, bool sum, std::byte* buffer, std::size_t bytes);

  // On streams: device_streams.cpp.
  Status get_ready(gpu::Gpu& gpu, gpu::Stream stream, const void* buffer);
  Status find(gpu::Gpu& gpu, gpu::Stream stream, const void* buffer, gpu::Place* place);
  Status refuse(const Status& why);
  Status agree(const Status& mine, std::span<std::uint64_t> more, bool* refused);
  Status lies_here(const void* buffer, std::size_t bytes);
  Status serve_on(gpu::Stream stream, DeviceWork& work, Status mine);
  Status agree_on_call(const Status& mine, bool captured, DeviceWork& work, bool* in_graph, bool* refused);

  bool all_want_it(std::uint64_t call) const;
  Status set_up(gpu::Gpu& gpu);
  Result<bool> connect(gpu::Gpu& gpu);
  void begin();
  Status leave(Mode then);

  static constexpr unsigned kFirst = 8;     // calls in a row that a rank watches before it asks
  static constexpr unsigned kMost = 1024;   // twice as many each time that the mode ends, up to these
  static constexpr unsigned kMisses = 8;    // in a row, that end the mode
  static constexpr unsigned kRefusals = 2;  // in setting up for streams, in a row, that are final

  Meeting& meeting_;
  const DeviceLimits limits_;
  const Log log_;
  Mode mode_;
  unsigned needed_ = kFirst;
  unsigned seen_ = 0;        // calls in a row, all on the GPU, while idle
  unsigned misses_ = 0;      // calls in a row that one rank could not serve, while on
  gpu::Place place_;         // of a buffer that was seen
  bool marks_open_ = false;  // the ranks know each other's events
  // Why calls on streams cannot be had, once that is final; the same on all ranks whether it says so.
  Status refused_;
  unsigned refusals_ = 0;  // of those in a row
  DeviceWays ways_;
  NodeLinks links_;
};

}  // namespace heddle
