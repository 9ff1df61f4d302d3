// What the GPUs' path over several nodes needs of messages (nodes_path.hpp): meetings of all ranks, and sums
// and bcasts among the ranks of one place.
#include <algorithm>
#include <utility>

#include "comm/communicator_impl.hpp"
#include "engine/kernels/kernels.hpp"

namespace heddle {

// ---- One of them

LaneRequest::~LaneRequest() {
  const Turn turn(comm_.asked_);
  if (execution_ != nullptr) execution_->abandon();
  leave();
}

void LaneRequest::set(const Job& job, LocalWork* local, std::shared_ptr<const Schedule> schedule) {
  job_ = job;
  local_ = local;
  takes_part_ = schedule != nullptr;
  if (takes_part_ && (execution_ == nullptr || &execution_->schedule() != schedule.get()))
    execution_ = std::make_unique<Execution>(std::move(schedule), comm_.connections_->ports);
}

// It has a number on every rank, so that later messages have the same ones.
Status LaneRequest::begin() {
  const Result<std::uint32_t> sequence = enter();
  if (!sequence.ok()) return sequence.status();
  if (!takes_part_) {
    leave();
    return {};
  }
  Binding binding = comm_.bind(job_);
  binding.sequence = sequence.value();
  binding.local = local_;
  return execution_->start(binding);
}

// ---- All of them

NodesNetwork::NodesNetwork(CommunicatorImpl& comm)
    : comm_(comm), lanes_(comm.size()), nodes_(TopologyView::flat(comm.topology().nodes())) {
  const TopologyView& t = comm.topology();
  for (std::int32_t node = 0; node < t.nodes(); ++node)
    lanes_ = std::min(lanes_, static_cast<int>(t.members(node).size()));
  const auto place = static_cast<std::size_t>(t.member_index(comm.rank()));
  for (std::int32_t node = 0; node < t.nodes() && static_cast<int>(place) < lanes_; ++node)
    peers_.push_back(t.members(node)[place]);
  for (std::unique_ptr<LaneRequest>& request : requests_)
    request = std::make_unique<LaneRequest>(comm);
}

int NodesNetwork::rank() const {
  return comm_.rank();
}

Status NodesNetwork::largest(std::span<std::uint64_t> words) {
  const Turn turn(comm_.asked_);
  return comm_.with_memory([&, this] {
    return comm_.part(comm_.run_job({Collective::allreduce, words.data(), words.data(), words.size(),
                                     sizeof(std::uint64_t), fold_kernel(DType::u64, Op::max), 0}));
  });
}

// The algorithm that is cheapest among nodes of one rank, with the ranks of this place in their stead.
// Settings and rules are about other calls, but for sums that are to be reproducible.
NodesNetwork::Plans::Plans(const TopologyView& nodes, CommunicatorImpl& comm, std::vector<std::int32_t> peers)
    : selector(nodes, comm.connections_->cost_model(), Abilities{false, true}, preferences),
      cache(nodes, comm.topology().node_of(comm.rank_), selector, quiet, std::move(peers)) {
  preferences.reproducible = comm.preferences_.reproducible;
}

Result<std::shared_ptr<const Schedule>> NodesNetwork::schedule_of(Collective collective, std::size_t bytes,
                                                                  std::int32_t root) {
  if (plans_ == nullptr) plans_ = std::make_unique<Plans>(nodes_, comm_, peers_);
  const Result<const Selection*> selection = plans_->cache.selection(collective, bytes, true);
  if (!selection.ok()) return selection.status();
  return plans_->cache.schedule(selection.value()->choice, root);
}

Status NodesNetwork::start(std::size_t slot, const Job& job, LocalWork* local) {
  const Turn turn(comm_.asked_);
  if (!comm_.broken_.ok()) return comm_.failed_before();
  return comm_.with_memory([&, this] { return begin(slot, job, local); });
}

// `job.root` is a node.
Status NodesNetwork::begin(std::size_t slot, const Job& job, LocalWork* local) {
  const std::size_t bytes = job.count * job.element_bytes;
  std::shared_ptr<const Schedule> schedule;
  if (bytes > 0) {
    Result<std::shared_ptr<const Schedule>> found = schedule_of(job.collective, bytes, job.root);
    if (!found.ok()) return comm_.fail(found.status());
    schedule = std::move(found).value();
  }
  LaneRequest& request = *requests_[slot];
  request.set(job, local, std::move(schedule));
  if (Status begun = request.begin(); !begun.ok()) return comm_.fail(std::move(begun));
  return comm_.move_requests();
}

Status NodesNetwork::start_sum(std::size_t slot, void* data, std::size_t count, DType type, Op op,
                               LocalWork* local) {
  const Job job{
      Collective::allreduce, data, data, count, dtype_size(type), comm_.folds_.of(type, op, count), 0};
  return start(slot, job, local);
}

Status NodesNetwork::start_bcast(std::size_t slot, void* data, std::size_t bytes, int root,
                                 LocalWork* local) {
  const Job job{Collective::bcast, data, data, bytes, 1, nullptr, comm_.topology().node_of(root)};
  return start(slot, job, local);
}

Status NodesNetwork::finish(std::size_t slot) {
  const Turn turn(comm_.asked_);
  Status status = comm_.wait_for(*requests_[slot]);
  comm_.leave_to_thread();
  return status;
}

Status NodesNetwork::progress() {
  return comm_.progress();
}

Transport* NodesNetwork::network() {
  return comm_.connections_->internode.transport.get();
}

// A schedule serves a size class.
Result<std::size_t> NodesNetwork::scratch_for(std::size_t bytes) {
  constexpr std::size_t kLongestElement = 16;
  std::size_t most = 0;
  for (std::size_t least = 1; least <= bytes; least *= 2) {
    const Result<std::shared_ptr<const Schedule>> found = schedule_of(Collective::allreduce, least, 0);
    HEDDLE_TRY(found.status());
    const Schedule& schedule = *found.value();
    const std::size_t chunk = std::min(2 * least - 1, bytes) / schedule.chunks + kLongestElement;
    most = std::max(most, chunk * schedule.unit_chunks * schedule.scratch_units);
  }
  return most;
}

}  // namespace heddle
