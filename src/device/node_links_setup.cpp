// NodeLinks: the ranks' links, scratch that they reach, what their kernels exchange short vectors by, and
// what their streams wait for each other by.
#include <algorithm>

#include <fmt/format.h>

#include "base/hash.hpp"
#include "device/node_links.hpp"
#include "device/reach_trial.hpp"
#include "device/stream_refusal.hpp"

namespace heddle {
namespace {

std::uint64_t key_of(const std::vector<gpu::Origin>& origins) {
  std::uint64_t key = origins.size();
  for (const gpu::Origin& one : origins) {
    for (const std::uint64_t word : {one.process, one.space, one.device, one.board[0], one.board[1]})
      key = mix64(key ^ word);
  }
  return key;
}

// Whether no two ranks have in common what `same` says.
template <typename Same>
bool are_all_different(const std::vector<gpu::Origin>& origins, const Same& same) {
  return std::all_of(origins.begin(), origins.end(), [&](const gpu::Origin& one) {
    return std::count_if(origins.begin(), origins.end(),
                         [&](const gpu::Origin& other) { return same(one, other); }) == 1;
  });
}

bool are_apart(const std::vector<gpu::Origin>& origins) {
  return are_all_different(origins, [](const gpu::Origin& one, const gpu::Origin& other) {
    return one.board[0] == 0 || std::equal(std::begin(one.board), std::end(one.board), other.board);
  });
}

// In one process a call of any thread's that waits for a GPU (cudaFree) may wait for the kernel of one rank,
// and hold up the launch of the other rank's, for which that one waits.
bool are_processes(const std::vector<gpu::Origin>& origins) {
  return are_all_different(
      origins, [](const gpu::Origin& one, const gpu::Origin& other) { return one.same_process(other); });
}

}  // namespace

Result<bool> NodeLinks::make_links(gpu::Gpu& gpu, const gpu::Place& place) {
  place_ = place;
  Result<std::unique_ptr<gpu::Link>> made = gpu::make_link(gpu, place_);
  const Status status = made.status();
  if (status.ok()) link_ = std::move(made).value();
  std::vector<gpu::Origin> origins;
  const gpu::Origin mine = link_ ? link_->origin() : gpu::Origin{};
  const Result<bool> met = gather(status, mine, &origins);
  if (!met.ok()) return met;
  direct_ = std::all_of(origins.begin(), origins.end(), [&](const gpu::Origin& one) { return one == mine; });
  exported_ = std::any_of(origins.begin(), origins.end(),
                          [&](const gpu::Origin& one) { return !one.same_process(mine); });
  apart_ = are_apart(origins) && (limits_.shared_context || are_processes(origins));
  key_ = key_of(origins);
  return met;
}

// For exchanges an eighth of it at most.
Result<bool> NodeLinks::share_scratch(std::size_t bytes, std::size_t exchange) {
  Result<gpu::Export> mine = link_->allocate(bytes, exported_);
  if (mine.ok() && apart_ && link_->may_wait_in_kernels()) mine->exchange = exchange;
  ReachTrial trial(*link_, meeting_.rank());
  const Status ready = mine.ok() ? trial.put(mine.value()) : mine.status();
  std::vector<ReachTrial::Rank> all;
  const Result<bool> met =
      gather(ready, ready.ok() ? ReachTrial::Rank{mine.value(), trial.seed()} : ReachTrial::Rank{}, &all);
  if (!met.ok()) return met;
  gpu::Export least = all[0].scratch;
  std::vector<gpu::Export> exports;
  for (const ReachTrial::Rank& one : all) {
    least.bytes = std::min(least.bytes, one.scratch.bytes);
    least.exchange = std::min(least.exchange, one.scratch.exchange);
    exports.push_back(one.scratch);
  }
  const auto layout = gpu::ExchangeLayout::of(least.bytes / 8, meeting_.size(), least.exchange);
  const std::size_t offset = (least.bytes - layout.bytes()) / kShareGrain * kShareGrain;
  layout_ = ScratchLayout::of(offset, meeting_.size());
  // No kernel runs where a rank has not opened all.
  const Result<bool> opened = meet(link_->open(exports, meeting_.rank()), true);
  if (!opened.ok()) return opened;
  const Result<bool> crossed = meet(trial.cross(all), true);
  if (!crossed.ok()) return crossed;
  const Result<bool> reached = agree_on_reach(trial.look(all));
  return reached.ok() && layout.most > 0 ? open_exchange(layout, offset) : reached;
}

// `wrong`: what this rank has found. The lowest rank that has found something says it, once; a failure is one
// of all. What is agreed is final, for streams as well: it is how the machine is set up.
Result<bool> NodeLinks::agree_on_reach(const Result<std::string>& wrong) {
  const Result<bool> all = meet(wrong.status(), wrong.ok() && wrong->empty());
  if (!all.ok() || all.value()) return all;
  unreachable_ = true;
  if (member_of(deciding_rank()) != meeting_.rank())
    return Status(Code::peer_failed, fmt::format("the GPUs of the node do not reach each other, as rank {} "
                                                 "has found, and says there",
                                                 deciding_rank()));
  log_.warn(wrong.value());
  return Status(Code::unsupported, wrong.value());
}

// Where they are not to be had all else goes on.
Result<bool> NodeLinks::open_exchange(const gpu::ExchangeLayout& layout, std::size_t offset) {
  const Status mine = link_->open_exchange(layout, offset, meeting_.rank(), limits_.patience);
  const Result<bool> all = meet(Status(), mine.ok());
  if (!all.ok()) return all;
  exchange_ = all.value() ? layout : gpu::ExchangeLayout();
  if (!mine.ok()) log_.info("the GPUs do not exchange short vectors in kernels: " + mine.message());
  return true;
}

gpu::SparseLink* NodeLinks::make_sparse() {
  if (sparse_ != nullptr) return sparse_.get();
  Result<std::unique_ptr<gpu::SparseLink>> made = gpu::make_sparse_link(*link_);
  if (made.ok()) {
    sparse_ = std::move(made).value();
  } else {
    log_.info("sparse vectors on GPUs go on by way of copies on the host: " + made.status().message());
  }
  return sparse_.get();
}

// ---- For streams

Result<bool> NodeLinks::share_marks() {
  const Result<gpu::Marks> mine = link_->make_marks(exported_);
  std::vector<gpu::Marks> all;
  const Result<bool> met = gather(mine.status(), mine.ok() ? mine.value() : gpu::Marks{}, &all);
  neighbours_ = {};
  for (int r = 1; r < meeting_.size(); ++r) {
    const auto same = [&](const gpu::Marks& other) {
      return other.origin == all[static_cast<std::size_t>(r)].origin;
    };
    const auto first = std::find_if(all.begin(), all.begin() + r, same);
    if (first != all.begin() + r)
      neighbours_ = {meeting_.number_of(static_cast<int>(first - all.begin())), meeting_.number_of(r)};
  }
  return met.ok() ? meet(link_->open_marks(all, meeting_.rank()), true) : met;
}

// Memory of the host's, the same for all; zeroed.
Result<bool> NodeLinks::share_memory() {
  const bool makes = meeting_.rank() == 0;
  Result<bool> all = false;
  for (const auto backing : {SharedMemory::Backing::memfd, SharedMemory::Backing::posix}) {
    Result<SharedMemory> mine = SharedMemory();
    if (makes) mine = SharedMemory::create(gpu::flag_bytes(meeting_.size()), backing);
    std::vector<SharedMemoryHandle> handles;
    const bool made = makes && mine.ok();
    all = gather(Status(), made ? mine->handle() : SharedMemoryHandle(), &handles);
    if (!all.ok()) return all;
    if (!makes) mine = SharedMemory::attach(handles[0]);
    graphs_ = mine.status();
    all = meet(Status(), mine.ok());
    if (!all.ok()) return all;
    if (!all.value()) continue;
    flags_ = std::move(mine).value();
    flags_.publish_done();
    break;
  }
  return all;
}

// Flags, by which streams meet in graphs.
Result<bool> NodeLinks::share_flags() {
  graphs_ = {};
  if (meeting_.size() == 1) return true;
  if (const auto [one, other] = neighbours_; one != other && !limits_.shared_context) {
    graphs_ = Status(Code::unsupported, why_not_threads(one, other) + ": call it outside of the capture");
    return true;
  }
  Result<bool> all = share_memory();
  if (all.ok() && all.value()) {
    graphs_ = link_->open_flags({flags_.data(), flags_.size()}, meeting_.rank(), meeting_.size());
    all = meet(Status(), graphs_.ok());
  }
  if (!all.ok() || all.value()) return all;
  const std::string why = graphs_.ok() ? fmt::format("rank {} says why", deciding_rank()) : graphs_.message();
  const std::string text = fmt::format("the GPUs cannot meet inside of CUDA graphs ({})", why);
  graphs_ = Status(Code::unsupported, text + ": call it outside of the capture");
  log_.info(text);
  return true;
}

}  // namespace heddle
