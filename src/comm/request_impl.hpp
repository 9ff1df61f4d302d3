// The requests of CommunicatorImpl, and what the GPUs' path over several nodes needs of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/float_mode.hpp"
#include "comm/call_table.hpp"
#include "comm/communicator.hpp"
#include "comm/plan_cache.hpp"
#include "device/nodes_path.hpp"
#include "engine/engine.hpp"
#include "engine/waiter.hpp"
#include "select/selector.hpp"
#include "sparse/agreement.hpp"
#include "sparse/execution.hpp"

namespace heddle {

// Sequence numbers come back after this many collectives; the number beyond belongs to send and recv.
constexpr std::uint32_t kSequences = 2047;

struct Job {
  Collective collective;
  const void* in;
  void* out;
  std::size_t count;  // of an allgather each rank's
  std::size_t element_bytes;
  FoldFn fold;
  int root;
  FoldKind kind = 0;  // allreduce: what `fold` does, where the ranks are to compare it
};

// An allreduce of words, in place. `kind`: as in Job.
Job words_job(std::span<std::uint64_t> words, Op op, FoldKind kind = 0);

class CommunicatorImpl;
class Comparison;

class RequestImpl : public Request {
 public:
  explicit RequestImpl(CommunicatorImpl& comm) : comm_(comm) {}
  RequestImpl(const RequestImpl&) = delete;
  RequestImpl& operator=(const RequestImpl&) = delete;
  ~RequestImpl() override;

  bool active() const final;
  Status start() final;
  Status test(bool* done) final;
  Status wait() final;

  virtual bool is_active() const = 0;
  // Makes it active.
  virtual Status begin() = 0;
  virtual Waiting waiting_for() const = 0;
  // Before its first start: every one begins with this, and what it is of after that.
  void compare_first(std::unique_ptr<Comparison> comparison);
  // How the run that was completed last ended, where that is not the communicator's failure. Asked once.
  virtual Status outcome() { return {}; }
  // Of an active one whose communicator has failed: its buffers are the caller's again, and test and wait say
  // why.
  void lose() {
    lost_ = true;
    stop();
  }

 protected:
  // Makes it inactive: nobody touches its buffers any more.
  virtual void stop() = 0;

  CommunicatorImpl& comm_;
  std::unique_ptr<Comparison> comparison_;  // null without HEDDLE_CHECK
  // Of whoever started it last, in which all of it is folded: it may be moved by a thread of ours, and by
  // callers that compute in another one by then.
  FloatMode mode_ = FloatMode::current();

 private:
  Status look_around();
  [[gnu::cold, gnu::noinline]] Status begin_compared();

  bool lost_ = false;
  std::optional<Patience> tests_;  // from the first one after the start that found it not complete
};

// Of the calls in whose place a request is, by a request of its own. A mistake of one rank is told to all
// before anything else of the call is sent, so that nobody is left waiting for what will not come.
class Comparison {
 public:
  static Result<std::unique_ptr<Comparison>> make(CommunicatorImpl& comm, const CollectiveCall& call);
  // What adds the ranks' tables up, also before blocking calls.
  static Job job_of(CallTable& calls);

  Status begin();
  bool is_active() const { return request_->is_active(); }
  Waiting waiting_for() const { return request_->waiting_for(); }
  // Once it is not active any more.
  Status judge() const { return calls_.judge(number_); }

 private:
  Comparison(CommunicatorImpl& comm, const CollectiveCall& call);

  CommunicatorImpl& comm_;
  CollectiveCall call_;
  CallTable calls_;
  std::unique_ptr<RequestImpl> request_;  // uses them
  std::uint64_t number_ = 0;
};

// Any number at once, each moving by itself.
class MovingRequest : public RequestImpl {
 public:
  using RequestImpl::RequestImpl;
  Status move_on(bool* done) {
    const InFloatMode mode(mode_);
    return move(done);
  }
  std::uint64_t started() const { return started_; }

 protected:
  // Takes a place among the active ones; the number that keeps its messages apart from others'.
  Result<std::uint32_t> enter();
  // The number as well, which it took last: nothing was sent.
  void give_back();
  // Gives it up: by destructors, in the turn in which they undo the rest.
  void leave();
  virtual Status move(bool* done) = 0;

 private:
  std::uint64_t started_ = 0;  // the communicator's sequence number of the last start
};

// A schedule by messages.
class MessageRequest final : public MovingRequest {
 public:
  MessageRequest(CommunicatorImpl& comm, const Job& job, std::shared_ptr<const Schedule> schedule,
                 const Ports& ports)
      : MovingRequest(comm), job_(job), execution_(std::move(schedule), ports) {}
  ~MessageRequest() override;

  bool is_active() const override { return waits_ || execution_.active(); }
  Status begin() override;
  Waiting waiting_for() const override {
    return waits_ ? comparison_->waiting_for() : execution_.waiting_for();
  }
  Status move(bool* done) override;
  void stop() override {
    waits_ = false;
    execution_.abandon();
  }

 private:
  Job job_;
  Execution execution_;
  Binding binding_;
  bool waits_ = false;  // for the comparison
};

// By the team, which takes one operation at a time: in the order in which they were started, the same on
// every rank.
class TeamRequest final : public RequestImpl {
 public:
  TeamRequest(CommunicatorImpl& comm, const Job& job) : RequestImpl(comm), job_(job) {}
  ~TeamRequest() override;

  bool is_active() const override { return active_; }
  Status begin() override;
  Waiting waiting_for() const override;
  void stop() override { active_ = false; }

 private:
  friend class CommunicatorImpl;
  Job job_;
  TeamOp op_;
  bool active_ = false;
  bool under_way_ = false;  // its turn has come
};

// First the agreement, which is an allreduce of its own, then the streams.
class SparseRequest final : public MovingRequest {
 public:
  SparseRequest(CommunicatorImpl& comm, SparseJob job);
  ~SparseRequest() override;
  // What the agreement needs; before the first start.
  Status prepare();

  bool is_active() const override { return stage_ != Stage::idle; }
  Status begin() override;
  Waiting waiting_for() const override;
  Status move(bool* done) override;
  // Delivers, in the caller's thread.
  Status outcome() override;
  void stop() override;

 private:
  enum class Stage : std::uint8_t { idle, agreeing, exchanging };
  Status open_streams();
  Status advance(bool* done);
  std::vector<std::byte> copy_of_indices() const;
  Status keeps_indices() const;

  SparseJob job_;
  std::vector<std::byte> first_indices_;  // of a persistent request, with HEDDLE_CHECK
  Agreement agreement_;
  Status valid_;
  std::unique_ptr<RequestImpl> agreeing_;
  std::unique_ptr<StreamExecution> streams_;
  const char* algorithm_ = "none";
  std::uint32_t sequence_ = 0;
  Stage stage_ = Stage::idle;
  bool arrived_ = false;  // and not delivered yet
  Status outcome_;
};

// A sum or bcast among the ranks that have this one's place on their nodes, of a vector that is another one
// in every run (nodes_network.cpp).
class LaneRequest final : public MovingRequest {
 public:
  using MovingRequest::MovingRequest;
  ~LaneRequest() override;
  // While it is inactive. Null: this rank has no part in the next run.
  void set(const Job& job, LocalWork* local, std::shared_ptr<const Schedule> schedule);

  bool is_active() const override { return execution_ != nullptr && execution_->active(); }
  Status begin() override;
  Waiting waiting_for() const override { return execution_->waiting_for(); }
  Status move(bool* done) override { return execution_->poll(done); }
  void stop() override { execution_->abandon(); }

 private:
  Job job_{};
  LocalWork* local_ = nullptr;
  bool takes_part_ = false;
  std::unique_ptr<Execution> execution_;
};

// What NodesPath needs of the other nodes.
class NodesNetwork final : public Across {
 public:
  explicit NodesNetwork(CommunicatorImpl& comm);

  int rank() const override;
  int lanes() const override { return lanes_; }
  Status largest(std::span<std::uint64_t> words) override;
  Status start_sum(std::size_t slot, void* data, std::size_t count, DType type, Op op,
                   LocalWork* local) override;
  Status start_bcast(std::size_t slot, void* data, std::size_t bytes, int root, LocalWork* local) override;
  Status finish(std::size_t slot) override;
  Status progress() override;
  Transport* network() override;
  Result<std::size_t> scratch_for(std::size_t bytes) override;

 private:
  struct Plans {
    Plans(const TopologyView& nodes, CommunicatorImpl& comm, std::vector<std::int32_t> peers);
    Preferences preferences;
    Log quiet{LogLevel::none};
    Selector selector;
    PlanCache cache;
  };
  // `root` is a node.
  Result<std::shared_ptr<const Schedule>> schedule_of(Collective collective, std::size_t bytes,
                                                      std::int32_t root);
  Status start(std::size_t slot, const Job& job, LocalWork* local);
  Status begin(std::size_t slot, const Job& job, LocalWork* local);

  CommunicatorImpl& comm_;
  int lanes_;
  std::vector<std::int32_t> peers_;  // by node: the ranks with this one's place; empty: some node has none
  TopologyView nodes_;               // each like a rank
  std::unique_ptr<Plans> plans_;
  std::array<std::unique_ptr<LaneRequest>, SharesLayout::kSlots> requests_;
};

}  // namespace heddle
