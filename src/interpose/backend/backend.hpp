// A backend, for the ABI of the mpi.h that it is compiled against (abi.hpp): decides, for each call, who
// serves it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "interpose/backend/comm_state.hpp"
#include "interpose/backend/datatype_map.hpp"
#include "interpose/backend/device_buffers.hpp"
#include "interpose/backend/host_mpi.hpp"
#include "interpose/backend/host_self.hpp"
#include "interpose/backend/packing.hpp"
#include "interpose/backend/set_up.hpp"
#include "interpose/backend/staged_views.hpp"
#include "setup/bootstrap.hpp"

namespace heddle::backend {

// The arguments of MPI_Allgather, or, `large`, MPI_Allgather_c.
struct Allgather {
  const void* in;
  MPI_Count in_count;
  MPI_Datatype in_type;
  void* out;
  MPI_Count out_count;
  MPI_Datatype out_type;
  MPI_Comm comm;
  bool large;
};

class Backend {
 public:
  explicit Backend(const HostMpi& mpi)
      : mpi_(mpi), self_(mpi_), packing_(mpi_, self_), device_buffers_(mpi_, packing_) {}
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // As MPI_Allreduce, MPI_Bcast, MPI_Reduce, MPI_Allgather and MPI_Barrier, with Count int or MPI_Count. What
  // is not served goes to the host with the arguments untouched. Any thread.
  template <typename Count>
  int allreduce(const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
  template <typename Count>
  int bcast(void* buffer, Count count, MPI_Datatype type, int root, MPI_Comm comm);
  template <typename Count>
  int reduce(const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm);
  int allgather(const Allgather& call);
  int barrier(MPI_Comm comm);

  // As MPI_Alloc_mem and MPI_Free_mem: large pieces come from memory that the ranks of the node can reach.
  int alloc_mem(MPI_Aint bytes, MPI_Info info, void* out);
  int free_mem(void* memory);

  // Before MPI_Finalize: the host serves from now on. What callbacks in there call must go one way on all
  // ranks, and each rank runs them, and the one in which heddle ends, in an order of its own.
  void end(bool last);
  // As `next`, which frees a communicator: likewise for what callbacks of its attributes call on it.
  int free_comm(int (*next)(void*), MPI_Comm* comm);

  const char* algorithm(Collective collective, std::size_t bytes, MPI_Comm comm);

  // For calls in which heddle does nothing but look for buffers on GPUs (staged_calls.hpp).
  const HostMpi& host_mpi() const { return mpi_; }
  const Packing& packing() const { return packing_; }
  DeviceBuffers& device_buffers() { return device_buffers_; }
  // True once MPI is initialised, until it ends, and everything is there that heddle needs. Never with
  // HEDDLE_ENABLE=0.
  bool make_ready();
  // True from then on.
  bool is_ready() const { return ready_.load(std::memory_order_acquire); }
  // A buffer that cannot be used, of which no other rank knows; or what all ranks know of. The user's error
  // handler decides, which aborts the job unless the user chose otherwise.
  int refuse(const Status& status, const char* call, MPI_Comm comm);
  int refuse(const Status& status, const char* call, MPI_Comm comm, int error_class);

 private:
  enum class Reason : std::uint8_t { arguments, datatype_or_op, nothing_to_do, too_large, none };

  // What an allgather moves, packed, and how that lies in memory.
  struct GatheredBytes {
    std::size_t each = 0;   // of a rank
    std::size_t given = 0;  // by this one
    std::size_t all = 0;
    Packing::Layout in;  // not in place
    Packing::Layout out;
  };
  // Why the host is to serve it.
  Reason inspect(const Allgather& call, const CommState& state, GatheredBytes* found) const;
  bool is_own_place(const Allgather& call, const CommState& state, std::size_t each) const;
  // As of the others below.
  int allgather_on_host(const Allgather& call);
  int allgather_packed(const Allgather& call, const GatheredBytes& bytes, CommState& state);
  bool pack_own(const Allgather& call, const GatheredBytes& bytes, const CommState& state,
                std::byte* all) const;
  int allgather_anywhere(const Allgather& call);
  int allgather_unchecked(const Allgather& call);
  [[gnu::cold]] int allgather_checked(const Allgather& call);
  CollectiveCall described(const Allgather& call, const CommState& state);
  int host_allgather(const Allgather& call);

  // What is known of a call whose buffers may lie anywhere.
  struct Staged {
    const void* key;     // stands for the input from call to call
    bool asked = false;  // the savings, whether to look at it
  };
  // The same with buffers that the host can use. `staged`: null where they were given so. Inline, since they
  // are most of a small call.
  template <typename Count>
  [[gnu::always_inline]] int allreduce_on_host(const void* in, void* out, Count count, MPI_Datatype type,
                                               MPI_Op op, MPI_Comm comm, const Staged* staged);
  template <typename Count>
  [[gnu::always_inline]] int bcast_on_host(void* buffer, Count count, MPI_Datatype type, int root,
                                           MPI_Comm comm);
  template <typename Count>
  [[gnu::always_inline]] int reduce_on_host(const void* in, void* out, Count count, MPI_Datatype type,
                                            MPI_Op op, int root, MPI_Comm comm);
  // And with buffers anywhere.
  template <typename Count>
  int allreduce_anywhere(const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
  template <typename Count>
  int bcast_anywhere(void* buffer, Count count, MPI_Datatype type, int root, MPI_Comm comm);
  template <typename Count>
  int reduce_anywhere(const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op, int root,
                      MPI_Comm comm);
  // By the entries of vectors that are mostly zeros, which this rank's GPU takes and puts where they lie
  // there; false: the call goes on.
  Result<bool> allreduce_by_entries(StagedSum& sum, MPI_Op op, MPI_Comm comm, bool* asked);
  Result<bool> sum_entries(StagedSum& sum, DType type, CommState& state);
  // By what HEDDLE_COMPRESS says, of float32, where this rank's GPU does its part; false: the call goes on.
  Result<bool> allreduce_losing(const StagedSum& sum, MPI_Op op, MPI_Comm comm);
  // By the ranks' GPUs, where they have agreed on that; false: the call goes on.
  Result<bool> allreduce_on_gpus(const void* in, void* out, std::size_t count, MPI_Datatype type, MPI_Op op,
                                 MPI_Comm comm);
  Result<bool> bcast_on_gpus(void* buffer, std::size_t count, MPI_Datatype type, int root, MPI_Comm comm);
  // What it takes to agree; after calls that went on. `on_gpu`: with all of this rank's buffers on a GPU.
  Status after_allreduce(const void* in, void* out, std::size_t count, bool on_gpu, MPI_Datatype type,
                         MPI_Op op, MPI_Comm comm);
  Status after_bcast(void* buffer, bool on_gpu, std::size_t count, MPI_Datatype type, int root,
                     MPI_Comm comm);
  // With HEDDLE_CHECK, on communicators that heddle serves: the call, once all ranks are known to make it,
  // and a look at what has come of it.
  [[gnu::cold]] int allreduce_checked(const void* in, void* out, std::int64_t count, MPI_Datatype type,
                                      MPI_Op op, MPI_Comm comm, const std::function<int()>& serve);
  [[gnu::cold]] int bcast_checked(void* buffer, std::int64_t count, MPI_Datatype type, int root,
                                  MPI_Comm comm, const std::function<int()>& serve);
  [[gnu::cold]] int reduce_checked(const void* in, void* out, std::int64_t count, MPI_Datatype type,
                                   MPI_Op op, int root, MPI_Comm comm, const std::function<int()>& serve);
  template <typename Count>
  [[gnu::always_inline]] int reduce_unchecked(const void* in, void* out, Count count, MPI_Datatype type,
                                              MPI_Op op, int root, MPI_Comm comm);
  template <typename Count>
  [[gnu::always_inline]] int allreduce_unchecked(const void* in, void* out, Count count, MPI_Datatype type,
                                                 MPI_Op op, MPI_Comm comm);
  template <typename Count>
  [[gnu::always_inline]] int bcast_unchecked(void* buffer, Count count, MPI_Datatype type, int root,
                                             MPI_Comm comm);
  [[gnu::cold]] int barrier_checked(MPI_Comm comm);
  int barrier_unchecked(MPI_Comm comm);
  CollectiveCall described(const void* in, const void* out, std::int64_t count, MPI_Datatype type, MPI_Op op,
                           const CommState& state);
  CollectiveCall described(const void* buffer, std::int64_t count, MPI_Datatype type, int root,
                           const CommState& state);
  CollectiveCall described(const void* in, const void* out, std::int64_t count, MPI_Datatype type, MPI_Op op,
                           int root, const CommState& state);
  static bool compares(const CommState& state);
  CommState* comparing(MPI_Comm comm);
  int compare(const CollectiveCall& call, const char* name, MPI_Comm comm, CommState& state);
  // Whether the host can repeat the call for its result (HEDDLE_CHECK=2), which then is compared with what
  // lies in `out`: `in` is what the call has read.
  bool repeats(const CollectiveCall& call, MPI_Datatype type, MPI_Op op, const CommState& state);
  template <typename Compare>
  int repeat(const char* name, MPI_Comm comm, CommState& state, const Compare& compare);
  // What the elements are in order, wherever they lie.
  Result<std::vector<std::byte>> bytes_of(const void* buffer, std::size_t count, MPI_Datatype type);
  CommState* served_anywhere(MPI_Comm comm);
  DevicePath* device_path(MPI_Comm comm);
  NodesPath* nodes_path(MPI_Comm comm);
  bool is_served(const void* in, const void* out, MPI_Datatype type, MPI_Op op, DType* mapped_type,
                 Op* mapped_op);
  bool is_served(const void* buffer, std::size_t count, MPI_Datatype type, int root, const CommState& state,
                 void** piece, std::size_t* bytes) const;

  template <typename Count>
  int host_allreduce(const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
  template <typename Count>
  int host_bcast(void* buffer, Count count, MPI_Datatype type, int root, MPI_Comm comm);
  template <typename Count>
  int host_reduce(const void* in, void* out, Count count, MPI_Datatype type, MPI_Op op, int root,
                  MPI_Comm comm);

  // The state of what heddle serves already, else null.
  CommState* served(MPI_Comm comm) {
    CommState* state = registry_.find_fast(comm);
    return state != nullptr && state->mode == Mode::heddle ? state : nullptr;
  }
  template <typename Count>
  struct AllreduceCall;
  template <typename Count>
  struct BcastCall;
  template <typename Count>
  struct ReduceCall;
  struct AllgatherCall;
  struct BarrierCall;
  // The state when heddle serves `comm`, else null, and then *rc holds the final return code of the call,
  // which the host has served or which has failed.
  template <typename Call>
  CommState* enter(MPI_Comm comm, const Call& call, int* rc);
  template <typename Call>
  CommState* meet(MPI_Comm comm, const Call& call, int* rc);
  // `state`: not published, which this does; false: it has not.
  bool attach(MPI_Comm comm, CommState* state);
  void stay_out(const Log& log, int world_rank);
  void prepare(ParsedConfig parsed, const Log& log, int world_rank);
  // What serves the job, before there is anything to serve; and what came of it.
  void introduce(const Log& log, int world_size) const;
  void sum_up();
  bool watch_end();
  // Whether this thread is in a callback of the communicator's end: what is set on it now would stay, for
  // whoever gets its handle.
  static bool is_ending(MPI_Comm comm);
  // Buffers of an allreduce that the host is to report: none, in place where that is not allowed, one as both
  // where it reports that. Where it adds up there, some ranks may pass such, and heddle does the same.
  bool is_mistake(const void* in, const void* out, std::int64_t count) const {
    return is_mistake(in, out, count, most_aliased_.allreduce);
  }
  // The same of a reduce, of which others than the root have no output.
  bool is_mistake(const void* in, const void* out, std::int64_t count, int root,
                  const CommState& state) const {
    if (root < 0 || root >= state.size) return true;
    return root == state.rank ? is_mistake(in, out, count, most_aliased_.reduce)
                              : in == nullptr || in == MPI_IN_PLACE;
  }
  static bool is_mistake(const void* in, const void* out, std::int64_t count, std::int64_t most_aliased) {
    return in == nullptr || out == nullptr || out == MPI_IN_PLACE || (in == out && count > most_aliased);
  }
  // The bytes of a call that counts towards the take-over; 0: it does not.
  template <typename Count>
  std::size_t counted(const void* in, const void* out, Count count, MPI_Datatype type, MPI_Op op) const;
  template <typename Count>
  std::size_t counted(const void* buffer, Count count, MPI_Datatype type, int root,
                      const CommState& state) const;
  // Whether it is due, after one more call.
  static bool is_due(CommState& state, std::size_t counted);
  // The same of calls that are none of the first few which set MPI_COMM_WORLD up: there too when they would
  // have saved what that costs.
  static bool is_due_by_worth(CommState& state, std::size_t counted);
  bool is_due_in_time(CommState& state, std::size_t counted) const {
    return reproducible_ ? is_due(state, counted) : is_due_by_worth(state, counted);
  }
  void take_over(MPI_Comm comm, CommState& state);
  int allreduce_saving(const void* in, void* out, std::size_t count, DType type, Op op, MPI_Comm comm,
                       CommState& state, const Staged* staged);
  static Status bcast_view(PackedView& view, bool in_parts, std::size_t bytes, int root, CommState& state);
  int bcast_packed(void* buffer, std::size_t count, MPI_Datatype type, std::size_t bytes, int root,
                   MPI_Comm comm, CommState& state);

  int finish(const Status& status, MPI_Comm comm, CommState& state) {
    if (status.ok()) [[likely]]
      return MPI_SUCCESS;
    return fail(status, comm, state);
  }
  int fail(const Status& status, MPI_Comm comm, CommState& state);
  // A buffer of which this rank cannot have an image.
  int refuse_image(const Status& status, const char* call, MPI_Comm comm);
  [[gnu::cold]] int out_of_memory(const char* call, MPI_Comm comm);
  void explain_host(Collective collective, Reason reason, CommState& state);

  class Ending;  // of a communicator
  void stop_serving();
  void let_go(CommState& state);
  void shut_down();
  void finalize_with_others();  // see finalize_together.hpp
  static int on_comm_delete(MPI_Comm comm, int keyval, void* attribute, void* extra);
  static int on_finalize(MPI_Comm comm, int keyval, void* attribute, void* extra);

  const HostMpi mpi_;
  Registry registry_;
  HostSelf self_;
  Packing packing_;
  DeviceBuffers device_buffers_;

  std::mutex ready_mutex_;  // while becoming ready; MPI never calls back into what takes it
  std::atomic<bool> ready_{false};
  std::atomic<bool> closed_{false};  // to new calls
  std::atomic<bool> has_shut_down_{false};
  std::atomic<bool> checks_{false};  // HEDDLE_CHECK
  int comm_keyval_ = MPI_KEYVAL_INVALID;
  bool reproducible_ = false;  // HEDDLE_REPRODUCIBLE
  HostSelf::Aliased most_aliased_;
  int world_rank_ = 0;
  std::atomic<std::uint64_t> served_calls_{0};  // on communicators that have ended
  std::atomic<std::uint64_t> served_comms_{0};  // which had some
  bool alone_ = false;                          // one rank in MPI_COMM_WORLD, whose memory nobody else needs
  std::optional<DatatypeMap> map_;
  std::shared_ptr<ProcessState> process_ = std::make_shared<ProcessState>();
  std::optional<SetUp> set_up_;
};

}  // namespace heddle::backend
