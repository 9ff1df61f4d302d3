#include "device/stream_shares.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace heddle {

Status StreamShares::connect(gpu::Gpu& gpu, const gpu::Place& place, std::size_t bytes) {
  layout_ = SharesLayout::of(bytes, lanes_);
  if (layout_.share == 0)
    return Status(Code::unsupported,
                  fmt::format("HEDDLE_DEVICE_BYTES is too little for {} ranks of a node", lanes_));
  HEDDLE_TRY(node_.make_links(gpu, place).status());
  if (node_.size() > 1) HEDDLE_TRY(node_.share_scratch(layout_.scratch_bytes()).status());
  HEDDLE_TRY(node_.share_marks().status());
  return node_.share_flags().status();
}

void StreamShares::limit(std::size_t share) {
  layout_.share = std::min(layout_.share, share / kShareGrain * kShareGrain);
}

std::unique_ptr<SharesWork> StreamShares::sum(const DeviceSum& sum, SharesHost& host) const {
  return std::make_unique<SharesSum>(node_.worker(), layout_, host, sum);
}

std::unique_ptr<SharesWork> StreamShares::bcast(const DeviceBcast& bcast, SharesHost& host) const {
  return std::make_unique<SharesBcast>(node_.worker(), layout_, host, bcast, node_.member_of(bcast.root));
}

// The turns are those of all ranks, whoever can.
Status StreamShares::begin(SharesWork& work, bool can) {
  turn_ = node_.next_turn();
  if (!can) return {};
  HEDDLE_TRY(work.first());
  return node_.link()->mark(turn_);
}

Status StreamShares::follow(SharesWork& work) {
  Status followed = node_.follow(work, turn_);
  // Otherwise this rank's work ends after what the others do with its scratch. Now that goes on, and they say
  // when it is over.
  if (!followed.ok()) node_.wait_for_others_at_end();
  return followed;
}

Status StreamShares::capture(SharesWork& work) {
  return node_.follow_in_graph(work, work.first());
}

}  // namespace heddle
