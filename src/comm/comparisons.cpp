// HEDDLE_CHECK: the sum by which ranks learn whether all of them make the same call, as a request.
#include <utility>

#include "comm/communicator_impl.hpp"
#include "engine/kernels/kernels.hpp"

namespace heddle {

Job words_job(std::span<std::uint64_t> words, Op op, FoldKind kind) {
  return {Collective::allreduce,
          words.data(),
          words.data(),
          words.size(),
          sizeof(std::uint64_t),
          fold_kernel(DType::u64, op),
          0,
          kind};
}

Job Comparison::job_of(CallTable& calls) {
  return words_job(calls.words(), Op::sum, fold_kind(DType::u64, Op::sum));
}

Comparison::Comparison(CommunicatorImpl& comm, const CollectiveCall& call)
    : comm_(comm), call_(call.as(CollectiveCall::Form::request)), calls_(comm.size_) {}

Result<std::unique_ptr<Comparison>> Comparison::make(CommunicatorImpl& comm, const CollectiveCall& call) {
  std::unique_ptr<Comparison> made(new Comparison(comm, call));
  Result<std::unique_ptr<RequestImpl>> request = comm.request(job_of(made->calls_));
  if (!request.ok()) return request.status();
  made->request_ = std::move(request).value();
  return made;
}

// False: it is under way, or the ranks differ, and the communicator has failed.
bool CommunicatorImpl::may_begin(const Comparison& comparison) {
  if (comparison.is_active()) return false;
  Status judged = with_memory([&] { return comparison.judge(); });
  if (judged.ok()) return true;
  (void)fail(std::move(judged));
  return false;
}

Status Comparison::begin() {
  calls_.state(comm_.rank_, call_);
  HEDDLE_TRY(request_->begin());
  number_ = ++comm_.compared_;
  return {};
}

}  // namespace heddle
