// What DevicePath sets up: the ranks' links, scratch that they reach, and what their kernels exchange short
// vectors by.
#include <algorithm>

#include <fmt/format.h>

#include "base/hash.hpp"
#include "comm/device_path.hpp"
#include "comm/reach_trial.hpp"

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

}  // namespace

Result<bool> DevicePath::make_links(gpu::Gpu& gpu) {
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
  apart_ = std::all_of(origins.begin(), origins.end(), [&](const gpu::Origin& one) {
    return one.board[0] != 0 && std::count_if(origins.begin(), origins.end(), [&](const gpu::Origin& other) {
                                  return std::equal(std::begin(one.board), std::end(one.board), other.board);
                                }) == 1;
  });
  key_ = key_of(origins);
  return met;
}

// For exchanges an eighth of it at most.
Result<bool> DevicePath::share_scratch(std::size_t bytes, std::size_t exchange) {
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
Result<bool> DevicePath::agree_on_reach(const Result<std::string>& wrong) {
  const Result<bool> all = meet(wrong.status(), wrong.ok() && wrong->empty());
  if (!all.ok() || all.value()) return all;
  refusals_ = kRefusals;
  if (member_of(deciding_rank()) != meeting_.rank())
    return Status(Code::peer_failed, fmt::format("the GPUs of the node do not reach each other, as rank {} "
                                                 "has found, and says there",
                                                 deciding_rank()));
  log_.warn(wrong.value());
  return Status(Code::unsupported, wrong.value());
}

// Where they are not to be had all else goes on.
Result<bool> DevicePath::open_exchange(const gpu::ExchangeLayout& layout, std::size_t offset) {
  const Status mine = link_->open_exchange(layout, offset, meeting_.rank(), limits_.patience);
  const Result<bool> all = meet(Status(), mine.ok());
  if (!all.ok()) return all;
  exchange_ = all.value() ? layout : gpu::ExchangeLayout();
  ways_.sums_exchanged = ways_.bcasts_exchanged = exchange_.most;
  if (!mine.ok()) log_.info("the GPUs do not exchange short vectors in kernels: " + mine.message());
  return true;
}

}  // namespace heddle
