// A communicator as one rank sees it: topology, transports, team, the choice of algorithms, and the
// collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/config.hpp"
#include "base/dtype.hpp"
#include "base/packed_view.hpp"
#include "base/status.hpp"
#include "comm/call_table.hpp"
#include "compress/compression.hpp"
#include "compress/residual.hpp"
#include "device/host_collectives.hpp"
#include "schedule/schedule.hpp"
#include "schedule/topology_view.hpp"
#include "setup/bootstrap.hpp"
#include "sparse/stream.hpp"

namespace heddle {

class Communicator;
class DevicePath;        // device/device_path.hpp
class LocalCodes;        // device/local_codes.hpp
class LocalGpu;          // device/local_gpu.hpp
class LocalLargest;      // there
class LocalVector;       // there
class NodesPath;         // device/nodes_path.hpp
class StreamRelay;       // device/stream_relay.hpp
struct CodedPlan;        // compress/coded_run.hpp
struct MeasuredChoices;  // comm/measured_choices.hpp
struct SearchPlan;

// A non-blocking or persistent collective on one communicator. Destroying an active one abandons it.
class Request {
 public:
  virtual ~Request() = default;
  virtual Status start() = 0;           // again, when inactive (persistent)
  virtual Status test(bool* done) = 0;  // an inactive request is done
  virtual Status wait() = 0;
  virtual bool active() const = 0;
};

// Where a result may be written straight.
struct SparseRoom {
  void* indices = nullptr;  // null: nowhere
  void* values = nullptr;
};

// An allreduce of sparse streams.
struct SparseJob {
  SparseView in;  // its arrays are borrowed until the collective is complete
  Op op = Op::sum;
  // Takes the result, once for each run: the entries in order of index, in parts, borrowed for the call. What
  // it returns becomes the collective's status on this rank; it must not call the communicator.
  std::function<Status(std::span<const SparseView> parts)> deliver;
  // Room for a result of so many entries, which overlaps no array of `in`, if there is any: `deliver` may
  // find the result there already. Asked once at most in a run, before `deliver`; must not call the
  // communicator. May be null.
  std::function<SparseRoom(std::size_t entries)> room;
  // Room for a vector of the dimension, which takes the result instead of `deliver`: 0 where no rank has an
  // entry. May be null.
  void* dense = nullptr;
  // Instead of `dense`: the same on this rank's GPU, which says what became of it. May be null.
  LocalVector* there = nullptr;
  // `dense` is this rank's vector, and `in` its elements that are not zero.
  bool in_place = false;
  // `in` are elements of a vector that are not zero, on all ranks, `dense` being that vector or another one.
  bool of_vectors = false;
  // What kept this rank from making its entries: all ranks are told so.
  Status trouble;

  bool has_vector() const { return dense != nullptr || there != nullptr; }
  // Of requests that sum: from the second start on the indices, and those of the other ranks, are what they
  // were at the first; values alone are exchanged.
  bool keeps_pattern = false;
};

// An allreduce (sum) of vectors that may be mostly zeros.
struct MostlyZeroJob {
  const void* in = nullptr;
  void* out = nullptr;  // may be `in`: in place
  std::size_t count = 0;
  DType type = DType::f32;
  // Instead of `in`, and instead of `out`, each by itself: on this rank's GPU, which says what became of the
  // result. In place where they are the same one.
  LocalVector* from = nullptr;
  LocalVector* there = nullptr;
  // What kept this rank from having these: all ranks are told so, where nobody asks by a failure.
  Status trouble = {};

  bool in_place() const { return in == out && from == there; }
};

// An allreduce (sum) of f32 vectors that may lose precision.
struct CompressedJob {
  const float* in = nullptr;
  float* out = nullptr;  // may be `in`
  std::size_t count = 0;
  Compression how;
  // Added to `in` before, and what was not sent kept in it after; of `count` values; may be null.
  Residual* residual = nullptr;
  // This rank's GPU takes the entries of a selection, or has coded the contributions, instead of the host
  // from `in` and `residual`; the result goes to a vector there, instead of `out`. May be null.
  LocalLargest* largest = nullptr;
  LocalCodes* codes = nullptr;
  LocalVector* there = nullptr;
  // What kept this rank from having these: all ranks are told so, who get `invalid_argument` where it is
  // that, else `peer_failed`. Not where nobody asks.
  Status trouble = {};
  bool agreed = false;  // that `how` and `count` are equal is known: nobody asks
};

// Entries that a selection is to take.
std::size_t entries_wanted(const CompressedJob& job);
// A number of all that is equal on the ranks of a job, or should be.
std::uint64_t agreement_number(const CompressedJob& job);
std::uint64_t agreement_number(const SparseJob& job);

// A sum of sparse streams of f32 into a dense vector, whose regions travel through a codec once each is
// complete.
struct CodedSparseJob {
  SparseView in;         // its arrays are borrowed until the collective is complete
  float* out = nullptr;  // room for a vector of the dimension, which overlaps no array of `in`; 0 where no
                         // rank has an entry, but for the codec
  Compression how;       // a codec
  // Of the dimension: what this rank's encoding of sums loses is added to it, nothing else is done with it;
  // may be null.
  Residual* residual = nullptr;
  // What kept this rank from having these: all ranks are told so.
  Status trouble = {};
};

// Of the sparse allreduce that was completed last.
struct SparseStats {
  const char* algorithm = "none";
  std::uint64_t entries = 0;  // of all ranks
  std::uint64_t result_entries = 0;
  std::uint64_t bytes_sent = 0;  // by this rank; 0 where the vector was dense
};

class Communicator : public HostCollectives {
 public:
  // Collective over the bootstrap's ranks; every rank gets the same outcome: a communicator, or a status that
  // says which rank could not take part and why ("rank 3: HEDDLE_ENABLE=0").
  static Result<std::unique_ptr<Communicator>> create(const Bootstrap& bootstrap, const Config& config);

  virtual const TopologyView& topology() const = 0;
  virtual const Config& config() const = 0;
  // Blocking allreduces, bcasts, reduces and allgathers so far.
  virtual std::uint64_t calls() const = 0;

  // The ranks of this one with the same `color` in a communicator of theirs, by `key`, and where keys are
  // equal by rank; null with a negative color. Collective over all of this one, and no call of it may be
  // under way. Messages that were lent to this one are not used.
  virtual Result<std::unique_ptr<Communicator>> split(int color, int key) = 0;

  // bcast() of so many bytes, which on this rank are not in one piece of memory; other ranks may call
  // bcast(). False: nothing has happened, and they are to be packed for bcast().
  virtual Result<bool> bcast_view(PackedView& view, std::size_t bytes, int root) = 0;

  // Blocking, as allreduce() and bcast() are. Only the root has an `out`, which may be `in` there.
  virtual Status reduce(const void* in, void* out, std::size_t count, DType type, Op op, int root) = 0;
  // `bytes` of each rank, at `in` or, where that is null, in their place of `out`, which has room for those
  // of all.
  virtual Status allgather(const void* in, void* out, std::size_t bytes) = 0;
  virtual Status barrier() = 0;
  virtual Status send(const void* data, std::size_t bytes, int peer) = 0;
  virtual Status recv(void* data, std::size_t bytes, int peer) = 0;

  // HEDDLE_CHECK=1. Requests compare at every start, without waiting for anybody, and the communicator fails
  // where the ranks differ. Before blocking collectives callers have their calls compared: every rank gets
  // the same `invalid_argument` where they differ, and nothing has happened.
  virtual bool compares() const = 0;
  virtual Status compare(const CollectiveCall& call) = 0;

  // Not started yet.
  virtual Result<std::unique_ptr<Request>> allreduce_request(const void* in, void* out, std::size_t count,
                                                             DType type, Op op) = 0;
  virtual Result<std::unique_ptr<Request>> bcast_request(void* buffer, std::size_t bytes, int root) = 0;
  virtual Result<std::unique_ptr<Request>> reduce_request(const void* in, void* out, std::size_t count,
                                                          DType type, Op op, int root) = 0;
  virtual Result<std::unique_ptr<Request>> allgather_request(const void* in, void* out,
                                                             std::size_t bytes) = 0;
  virtual Result<std::unique_ptr<Request>> barrier_request() = 0;

  // Ranks may differ in the type of their indices, but agree on all else; where they do not, or a stream
  // breaks its contract, every rank gets the same `invalid_argument` and nothing has happened. Where one is
  // in trouble, the others get `peer_failed`, or `invalid_argument` where it is that.
  virtual Status sparse_allreduce(const SparseJob& job) = 0;
  // By their entries where samples of all ranks' vectors say that it pays, and then true; false: nothing has
  // happened. sparse_stats() says what was done: it may have been a dense sum all the same. What keeps a rank
  // from its vector, samples or entries is told to all, who get `peer_failed`.
  virtual Result<bool> sum_by_entries(const MostlyZeroJob& job) = 0;
  // The same, or else as they are.
  virtual Status mostly_zero_allreduce(const MostlyZeroJob& job) = 0;
  // The same bits on all ranks. `job.how` and `count` are equal on all ranks; where they are not, every rank
  // gets the same `invalid_argument`.
  virtual Status compressed_allreduce(const CompressedJob& job) = 0;
  // The seed of what this rank's codec draws in the next of these and of the coded sums; and one that the
  // GPUs served, which counts as well.
  virtual std::uint64_t codec_seed(std::uint64_t seed) const = 0;
  // What this rank has to do with the chunks of a vector in one through a codec. Local.
  virtual CodedPlan coded_plan(std::size_t count, const CodecSettings& settings) = 0;
  virtual void note_compressed() = 0;
  // The same bits on all ranks. Where ranks disagree on the dimension or on `how`, or one passes what is not
  // to be summed like this, every rank gets `invalid_argument`, and nothing has happened.
  virtual Status coded_sparse_allreduce(const CodedSparseJob& job) = 0;
  virtual Result<std::unique_ptr<Request>> sparse_allreduce_request(SparseJob job) = 0;
  virtual const SparseStats& sparse_stats() const = 0;
  // Of one that was served elsewhere: by the GPUs.
  virtual void note_sparse_stats(const SparseStats& stats) = 0;

  // For allreduces and bcasts of buffers on GPUs; null where ranks are on several nodes, or there is but one.
  virtual DevicePath* device_path() = 0;
  // For those on streams, which one rank alone has as well.
  virtual DevicePath* stream_path() = 0;
  // For large allreduces of them where ranks are on several nodes; else null.
  virtual NodesPath* nodes_path() = 0;

  // For those on streams where stream_path() is null.
  virtual StreamRelay* stream_relay() = 0;

  // For sums of entries of vectors on this rank's GPU.
  virtual LocalGpu& local_gpu() = 0;

  // Memory that the other ranks of the node can reach, so that large allreduces on it are not staged; until
  // release() or the communicator's end. Local.
  virtual Result<void*> allocate(std::size_t bytes) = 0;
  virtual Status release(void* memory) = 0;

  // Moves every active request; no-op when there is none.
  virtual Status progress() = 0;

  // A collective has failed in flight, whatever the reason: there will be no other, and test and wait of
  // requests that were active say so.
  virtual bool failed() = 0;
  // This rank cannot do its part of a collective that the others may be in: it fails, and they are told.
  virtual void give_up(const Status& why) = 0;

  // The catalog name of what serves a blocking collective of this many bytes (an allgather: of each rank).
  virtual const char* algorithm(Collective collective, std::size_t bytes) = 0;
  // Runs what could serve each collective and size of `plan`, whose numbers of ranks and nodes are set here,
  // and says which was fastest, and what the price was; the first candidate is the cheapest, which the others
  // must beat. Blocking, collective; the same plan and the same answer on all ranks. After a failure the
  // communicator can only be destroyed, but for `invalid_argument` (one rank has nothing to choose) and
  // `out_of_memory` (two vectors of the largest size, on the rank that lacks them and all others).
  virtual Result<MeasuredChoices> try_all(SearchPlan plan) = 0;
  // Each rank of this node may have a core to itself. Where it has not, times depend on whose turn it is more
  // than on algorithms.
  virtual bool has_own_core() const = 0;
  // One line on ranks, nodes, transports: for the log and heddle-info.
  virtual std::string describe() = 0;
};

}  // namespace heddle
