// The one implementation of Communicator: for the sources that it is spread over, and nobody else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "base/fifo.hpp"
#include "base/log.hpp"
#include "base/no_memory.hpp"
#include "base/recently_used.hpp"
#include "comm/communicator.hpp"
#include "comm/compressed_sums.hpp"
#include "comm/measured_choices.hpp"
#include "comm/peer_watch.hpp"
#include "comm/plan_cache.hpp"
#include "comm/progress_thread.hpp"
#include "comm/request_impl.hpp"
#include "comm/sparse_sums.hpp"
#include "device/device_path.hpp"
#include "device/local_gpu.hpp"
#include "device/nodes_path.hpp"
#include "device/stream_relay.hpp"
#include "engine/engine.hpp"
#include "engine/fold_table.hpp"
#include "engine/waiter.hpp"
#include "select/selector.hpp"
#include "setup/setup.hpp"

namespace heddle {

class CommunicatorImpl final : public Communicator {
 public:
  CommunicatorImpl(const Bootstrap& bootstrap, const Config& config,
                   std::unique_ptr<Connections> connections);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const TopologyView& topology() const override { return connections_->topology; }
  const Config& config() const override { return config_; }
  std::uint64_t calls() const override { return calls_; }
  Result<std::unique_ptr<Communicator>> split(int color, int key) override;

  Status allreduce(const void* in, void* out, std::size_t count, DType type, Op op) override;
  Status bcast(void* buffer, std::size_t bytes, int root) override;
  Result<bool> bcast_view(PackedView& view, std::size_t bytes, int root) override;
  Status reduce(const void* in, void* out, std::size_t count, DType type, Op op, int root) override;
  Status allgather(const void* in, void* out, std::size_t bytes) override;
  Status barrier() override;
  bool compares() const override { return config_.check != CheckSetting::off; }
  Status compare(const CollectiveCall& call) override;
  Status send(const void* data, std::size_t bytes, int peer) override;
  Status recv(void* data, std::size_t bytes, int peer) override;

  Result<std::unique_ptr<Request>> allreduce_request(const void* in, void* out, std::size_t count, DType type,
                                                     Op op) override;
  Result<std::unique_ptr<Request>> bcast_request(void* buffer, std::size_t bytes, int root) override;
  Result<std::unique_ptr<Request>> reduce_request(const void* in, void* out, std::size_t count, DType type,
                                                  Op op, int root) override;
  Result<std::unique_ptr<Request>> allgather_request(const void* in, void* out, std::size_t bytes) override;
  Result<std::unique_ptr<Request>> barrier_request() override;

  DevicePath* device_path() override { return size_ > 1 ? device_path_.get() : nullptr; }
  DevicePath* stream_path() override { return device_path_.get(); }
  NodesPath* nodes_path() override { return nodes_path_.get(); }
  StreamRelay* stream_relay() override { return stream_relay_.get(); }
  Across* across() override { return nodes_network_.get(); }
  LocalGpu& local_gpu() override { return local_gpu_; }

  Result<void*> allocate(std::size_t bytes) override { return connections_->process->heap.allocate(bytes); }
  Status release(void* memory) override { return connections_->process->heap.release(memory); }

  // The last of setting up.
  void plan_thread(ProgressThreadSetting setting);
  bool needs_thread() const;
  bool settle();
  void start_thread();
  // After the plan of that thread.
  void find_fold_cores() { sparse_.find_fold_cores(); }
  void report_passed_over(const Config& config) const;

  Status sparse_allreduce(const SparseJob& job) override;
  Result<bool> sum_by_entries(const MostlyZeroJob& job) override;
  Status mostly_zero_allreduce(const MostlyZeroJob& job) override;
  Status compressed_allreduce(const CompressedJob& job) override;
  std::uint64_t codec_seed(std::uint64_t seed) const override { return compressed_.codec_seed(seed); }
  CodedPlan coded_plan(std::size_t count, const CodecSettings& settings) override;
  void note_compressed() override { compressed_.note(); }
  Status coded_sparse_allreduce(const CodedSparseJob& job) override;
  Result<std::unique_ptr<Request>> sparse_allreduce_request(SparseJob job) override;
  const SparseStats& sparse_stats() const override { return sparse_stats_; }
  void note_sparse_stats(const SparseStats& stats) override { sparse_stats_ = stats; }

  Status progress() override;
  bool failed() override;
  void give_up(const Status& why) override;
  const char* algorithm(Collective collective, std::size_t bytes) override;
  Result<MeasuredChoices> try_all(SearchPlan plan) override;
  bool has_own_core() const override { return connections_->own_core; }
  std::string describe() override;

  // ---- From here on for the sources that include this header: one object, whose parts (requests, sums, what
  // it learns) are files of their own

  // Collective: another communicator of the same ranks, by connections of its own, never by lent messages, so
  // that another thread may use it. Every rank gets the same outcome. Few bytes of each rank's, on all of
  // them; and of some ranks', on those.
  Status gather(const void* mine, void* all, std::size_t bytes,
                FoldKind kind = fold_kind(DType::u64, Op::sum));
  Status gather_among(const std::vector<int>& members, std::size_t place, const void* mine, void* all,
                      std::size_t bytes);
  Bootstrap bootstrap_of_others() const;
  Result<std::unique_ptr<HostCollectives>> twin();

  // Whether `calls_` has counted a call: one that does not begin, for want of memory, is taken back.
  enum class Counted : std::uint8_t { no, yes };
  // What every blocking collective goes through, part of each.
  [[gnu::always_inline]] inline Status run(const Job& job, Counted counted);
  [[gnu::always_inline]] inline Status run_team(const Job& job, PackedView* view = nullptr);
  // run(), for those who do not count nanoseconds
  Status run_job(const Job& job, Counted counted = Counted::no);
  [[gnu::always_inline]] inline Status run_on(Team& team, TeamOp& op);
  Status run_schedule(const Job& job, const Choice& choice, Counted counted);
  Status run_over_nodes(const Job& job, const Choice& choice, Counted counted);
  Status run_choice(const Job& job, const Choice& choice);
  Status run_on_team(TeamOp& op);  // of the node
  // Collective, among the ranks of this node: all have come before any of them leaves.
  Status meet(std::span<std::uint64_t> words);
  Status meet_after_bcast(const Status& bcast);
  Result<std::unique_ptr<RequestImpl>> request(const Job& job);
  // With HEDDLE_CHECK what it is of is compared at every start.
  Result<std::unique_ptr<RequestImpl>> request(const Job& job, const CollectiveCall& call);
  Result<const Selection*> selection_of_request(const Job& job);
  bool is_request_by_team(const Choice& choice) const;
  static TeamOp team_op(const Job& job);
  Status move_requests();
  Status move_active();
  void progress_team();
  [[gnu::cold, gnu::noinline]] bool may_begin(const Comparison& comparison);
  void lose_requests();
  Status finish_team_requests();
  Status transfer(bool sends, void* data, std::size_t bytes, int peer);
  Status free_sequence();
  void leave_to_thread();
  std::uint32_t upcoming_sequence() const { return static_cast<std::uint32_t>(sequence_ % kSequences); }
  std::uint32_t next_sequence() { return static_cast<std::uint32_t>(sequence_++ % kSequences); }
  // Memory that is missing in the middle of a collective leaves the others waiting: the communicator is of no
  // use after that. `body` has nothing open that fail() does not know of (else: without_throwing()).
  template <typename Body>
  auto with_memory(Body body) -> decltype(body()) {
    try {
      return body();
    } catch (const std::bad_alloc&) {
      return fail(no_memory());
    }
  }
  // Of a collective that is a part of another one. For want of memory it may not have begun: then nothing was
  // sent, but who made the whole call again would meet the others, who wait in the part, in its first one.
  Status part(Status status) {
    return status.code() == Code::out_of_memory && broken_.ok() ? fail(std::move(status)) : status;
  }
  void note_sparse(const char* algorithm, std::uint64_t entries, std::uint64_t result_entries,
                   std::uint64_t bytes_sent);
  Binding bind(const Job& job) const;  // but for the sequence
  std::byte* own_place(void* out, std::size_t bytes) const;
  Job allgather_job(const void* in, void* out, std::size_t bytes) const;
  // Of an allgather: what its schedule starts from. Not before it has begun: until then, as where memory was
  // missing, buffers are as they were.
  void place_own(const Job& job) const;
  Job reduce_job(const void* in, void* out, std::size_t count, DType type, Op op, int root);
  // Waits for one execution while all active requests move as well. `call`: what it is of; of no bytes:
  // nothing that ranks compare.
  template <typename Executes>
  Status complete(Executes& execution, const TeamCall& call = {});
  Status wait_for(const RequestImpl& request);
  // Not where the call is of no bytes, nor aside. Its root is a rank.
  Status compare_waiting(const TeamCall& call) const {
    return aside_ > 0 || call.bytes == 0 ? Status() : watch_.compare_waiting(calls_, call);
  }
  // A collective of this communicator's own, while the caller is in another or in none.
  class Aside {
   public:
    explicit Aside(CommunicatorImpl& comm) : comm_(comm) { ++comm_.aside_; }
    ~Aside() { --comm_.aside_; }
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;

   private:
    CommunicatorImpl& comm_;
  };
  Status all_still_lend();
  Status fail(Status status);
  // What calls return that come after the failure.
  [[gnu::cold, gnu::noinline]] Status failed_before() const;

  // Of this node's ranks, by their numbers in its team; or of a rank that is alone, and has no team.
  class NodeMeeting final : public Meeting {
   public:
    explicit NodeMeeting(CommunicatorImpl& comm) : comm_(comm) {}
    int rank() const override { return comm_.topology().member_index(comm_.rank_); }
    int size() const override { return static_cast<int>(members().size()); }
    int number_of(int rank) const override { return members()[static_cast<std::size_t>(rank)]; }
    Status largest(std::span<std::uint64_t> words) override {
      return team() != nullptr ? comm_.meet(words) : Status();
    }
    void tell(std::uint64_t word) override {
      if (team() != nullptr) team()->tell(word);
    }
    std::uint64_t told(int rank) const override { return team()->told(rank); }
    bool is_gone(int rank) const override { return comm_.watch_.is_gone(number_of(rank)); }
    std::uint64_t calls() const override { return comm_.calls_; }
    bool bcast_met() const override { return comm_.met_at_ == comm_.calls_; }

   private:
    const std::vector<std::int32_t>& members() const {
      return comm_.topology().team(TeamKind::node, comm_.rank_);
    }
    Team* team() const { return comm_.connections_->ports.teams[static_cast<std::size_t>(TeamKind::node)]; }

    CommunicatorImpl& comm_;
  };

  int rank_;
  int size_;
  const Config config_;
  Log log_;
  WaitPolicy policy_;
  Preferences preferences_;
  std::unique_ptr<Connections> connections_;
  PeerWatch watch_;
  Selector selector_;
  PlanCache plans_;
  FoldTable folds_;
  Team* team_;  // set when every rank is on this one node: team verbs need no schedule then
  // By collective, bit k: calls of size class k are known to be a team verb. None any more after a failure.
  std::uint64_t by_team_[kCollectives] = {};
  std::uint64_t calls_ = 0;         // blocking allreduces, sparse ones too, bcasts, reduces and allgathers
  int aside_ = 0;                   // Aside
  std::uint64_t bcasts_meet_ = 16;  // in a bcast with this number or a higher one all ranks meet
  std::uint64_t met_at_ = 0;        // number of the last bcast in which they did
  std::uint64_t sequence_ = 0;      // collectives started by messages
  std::uint64_t compared_ = 0;      // calls, with HEDDLE_CHECK
  // Of blocking collectives, one at a time: what reduces to many roots take would not be kept for each. Each
  // keeps its schedule, so that no other one comes to lie there.
  ScratchMemory scratch_;
  RecentlyUsed<const Schedule*, std::unique_ptr<Execution>> executions_{PlanCache::kMostSchedules};
  std::vector<MovingRequest*> active_;
  Fifo<TeamRequest*> turns_;  // active ones; the first is under way
  SparseSums sparse_{*this};
  SparseStats sparse_stats_;
  CompressedSums compressed_{*this};
  LocalGpu local_gpu_;
  std::string learnt_;         // about the algorithms, for describe()
  bool single_copy_ = false;   // of bcasts of some pages on this node
  Status broken_;              // the first failure in flight; final
  std::size_t unsettled_ = 0;  // bytes, when a call last ended
  NodeMeeting node_meeting_{*this};
  std::unique_ptr<DevicePath> device_path_;    // before the connections, which it meets by
  std::unique_ptr<NodesPath> nodes_path_;      // where there are several nodes
  std::unique_ptr<StreamRelay> stream_relay_;  // where there is no device_path_
  // Of a thread that is wanted and not there yet.
  struct ThreadPlan {
    ProgressThread::Work work;
    int core = -1;
  };
  std::optional<ThreadPlan> thread_plan_;
  ProgressThread* asked_ = nullptr;         // thread_, but for the time of a Turn
  std::unique_ptr<ProgressThread> thread_;  // ends before what it moves; mostly null
  // The last member: its requests take turns with the thread, and may have messages under way in memory of
  // the path.
  std::unique_ptr<NodesNetwork> nodes_network_;
};

}  // namespace heddle
