// Another communicator of the same ranks, which find each other by this one.
#include <cstring>
#include <utility>
#include <vector>

#include "comm/communicator_impl.hpp"

namespace heddle {

Status CommunicatorImpl::gather(const void* mine, void* all, std::size_t bytes, FoldKind kind) {
  const std::size_t words = (bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
  std::vector<std::uint64_t> sum(words * static_cast<std::size_t>(size_));
  std::memcpy(sum.data() + words * static_cast<std::size_t>(rank_), mine, bytes);
  if (size_ > 1) {
    const Turn turn(asked_);
    ++calls_;
    HEDDLE_TRY(run_job(words_job(sum, Op::sum, kind), Counted::yes));
  }
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(size_); ++rank)
    std::memcpy(static_cast<std::byte*>(all) + rank * bytes, sum.data() + rank * words, bytes);
  return {};
}

// But for the ranks. What this process has measured need not be measured again.
Bootstrap CommunicatorImpl::bootstrap_of_others() const {
  Bootstrap bootstrap;
  bootstrap.clock = policy_.clock;
  bootstrap.free_work = connections_->free_work;
  bootstrap.node = static_cast<std::uint64_t>(topology().node_of(rank_));
  bootstrap.process = connections_->process;
  return bootstrap;
}

Result<std::unique_ptr<HostCollectives>> CommunicatorImpl::twin() {
  Bootstrap bootstrap = bootstrap_of_others();
  bootstrap.rank = rank_;
  bootstrap.size = size_;
  bootstrap.allgather = [this](const void* mine, void* all, std::size_t bytes) {
    return gather(mine, all, bytes);
  };
  Config config = config_;
  config.cuda = false;  // it is for the host's memory alone
  Result<std::unique_ptr<Communicator>> made = Communicator::create(bootstrap, config);
  if (!made.ok()) return made.status();
  return std::unique_ptr<HostCollectives>(std::move(made).value());
}

}  // namespace heddle
