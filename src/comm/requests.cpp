#include <utility>

#include "comm/communicator_impl.hpp"
#include "engine/kernels/kernels.hpp"

namespace heddle {

Result<std::unique_ptr<Request>> CommunicatorImpl::request(const Job& job) {
  if (!broken_.ok()) return broken_;
  std::shared_ptr<const Schedule> schedule;
  const Result<const Selection*> selection =
      plans_.selection(job.collective, job.count * job.element_bytes, true);
  if (!selection.ok()) return selection.status();
  schedule = plans_.schedule(selection.value()->choice, job.root);
  return std::unique_ptr<Request>(
      std::make_unique<RequestImpl>(*this, job, std::move(schedule), connections_->ports));
}

Result<std::unique_ptr<Request>> CommunicatorImpl::allreduce_request(const void* in, void* out,
                                                                     std::size_t count, DType type, Op op) {
  return request({Collective::allreduce, in, out, count, dtype_size(type), folds_.of(type, op, count), 0});
}

Result<std::unique_ptr<Request>> CommunicatorImpl::bcast_request(void* buffer, std::size_t bytes, int root) {
  return request({Collective::bcast, buffer, buffer, bytes, 1, nullptr, root});
}

Result<std::unique_ptr<Request>> CommunicatorImpl::barrier_request() {
  return request({Collective::barrier, nullptr, nullptr, 0, 1, fold_kernel(DType::u8, Op::bor), 0});
}

Status CommunicatorImpl::progress() {
  for (std::size_t i = 0; i < active_.size();) {
    bool done = false;
    Status status = active_[i]->execution_.poll(&done);
    if (!status.ok()) return fail(std::move(status));
    if (done) {
      active_[i] = active_.back();
      active_.pop_back();
    } else {
      ++i;
    }
  }
  return {};
}

RequestImpl::~RequestImpl() {
  std::erase(comm_.active_, this);
}

Status RequestImpl::start() {
  if (!comm_.broken_.ok()) return comm_.broken_;
  if (active())
    return Status(Code::invalid_argument, "a request was started while it is active: wait for it first");
  HEDDLE_TRY(comm_.free_sequence());
  started_ = comm_.sequence_;
  HEDDLE_TRY(execution_.start(comm_.bind(job_)));
  comm_.active_.push_back(this);
  return comm_.progress();
}

Status RequestImpl::test(bool* done) {
  if (active()) {
    if (!comm_.broken_.ok()) return comm_.broken_;
    if (comm_.policy_.host_progress) comm_.policy_.host_progress();
    HEDDLE_TRY(comm_.progress());
  }
  *done = !active();
  return {};
}

Status RequestImpl::wait() {
  if (!active()) return {};
  if (!comm_.broken_.ok()) return comm_.broken_;
  const auto poll = [&](bool* done) -> Status {
    HEDDLE_TRY(comm_.progress());
    *done = !active();
    return {};
  };
  const auto look = [&](Patience& patience) { return comm_.inspect(execution_.waiting_for(), patience); };
  Status status = wait_until_done(comm_.policy_, poll, look);
  return status.ok() ? status : comm_.fail(std::move(status));
}

}  // namespace heddle
