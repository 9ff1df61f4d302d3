#include "device/nodes_path.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "base/no_memory.hpp"
#include "device/stream_refusal.hpp"
#include "device/verdict.hpp"

namespace heddle {
namespace {

// In pinned memory. The link's work is waited for before a share leaves, and none fetches one that has not
// come: nothing waits in the stream.
class PinnedShares final : public SharesHost {
 public:
  // `memory`: nothing on ranks that have no share.
  PinnedShares(std::byte* memory, std::size_t share) : memory_(memory), share_(share) {}
  std::byte* at(std::size_t k) const override {
    return memory_ != nullptr ? memory_ + k % SharesLayout::kSlots * share_ : nullptr;
  }
  Status release(std::size_t /*k*/) override { return {}; }
  Status await(std::size_t /*k*/) override { return {}; }

 private:
  std::byte* const memory_;
  const std::size_t share_;
};

// The first failure counts.
void keep(Status* mine, const Status& next) {
  if (mine->ok()) *mine = next;
}

}  // namespace

// ---- Meetings of all ranks

// Whether all can. `more`: kMore words at most, of each the largest comes back. Who only heard of a failure
// in its node leaves it to the other one to tell.
Result<bool> NodesPath::meet(const Status& mine, bool can, std::span<std::uint64_t> more) {
  Verdict verdict = can ? Verdict::all_right : Verdict::cannot;
  if (!mine.ok() && mine.code() != Code::peer_failed) verdict = Verdict::failed;
  std::array<std::uint64_t, 1 + kMore> all{word_of(verdict, across_.rank())};
  const std::span<std::uint64_t> words = std::span(all).first(1 + more.size());
  std::copy(more.begin(), more.end(), words.begin() + 1);
  if (Status met = across_.largest(words); !met.ok()) {
    lost_ = true;
    return met;
  }
  std::copy(words.begin() + 1, words.end(), more.begin());
  return outcome_of(words[0], mine);
}

Status NodesPath::count_staged() {
  if (on_ || off_ || ++calls_ < meets_at_) return {};
  meets_at_ *= 4;
  // The call that this is the end of has not been seen yet.
  std::uint64_t against = bytes_ > 0 && seen_ + 1 >= kFirst ? 0 : 1;
  HEDDLE_TRY(across_.largest({&against, 1}));
  if (against == 0) agreed_at_ = calls_;
  return {};
}

// ---- The mode

Status NodesPath::after_staged(gpu::Gpu& gpu, const void* buffer, std::size_t bytes, bool on_gpu) {
  if (on_ || off_ || bytes < kFrom) return {};
  seen_ = on_gpu ? seen_ + 1 : 0;
  // Where it was another kind of call that they met in, they ask again later.
  if (agreed_at_ == 0 || agreed_at_ != calls_) return {};
  agreed_at_ = 0;
  return set_up(gpu, on_gpu ? buffer : nullptr);
}

Status NodesPath::set_up(gpu::Gpu& gpu, const void* buffer) {
  Result<gpu::Place> place = gpu::Place{};
  if (buffer != nullptr) place = gpu.place(buffer);
  std::array<std::uint64_t, 1> least{~std::uint64_t{bytes_}};
  const Result<bool> all = meet({}, buffer != nullptr && place.ok(), least);
  if (lost_) return all.status();
  if (!all.value()) return {};
  layout_ = SharesLayout::of(~least[0], across_.lanes());
  const Result<bool> connected = connect(gpu, place.value());
  if (lost_) return connected.status();
  if (connected.ok()) {
    on_ = true;
    misses_ = 0;
    tell();
    return {};
  }
  if (connected.status().code() != Code::peer_failed || across_.rank() == 0)
    log_.info("buffers on GPUs go on by way of copies on the host: " + connected.status().message());
  off_ = true;
  return leave();
}

// Each node by itself, and then all.
Result<bool> NodesPath::connect(gpu::Gpu& gpu, const gpu::Place& place) {
  Status mine;
  if (layout_.share == 0)
    mine = Status(Code::unsupported,
                  fmt::format("HEDDLE_DEVICE_BYTES is too little for {} ranks of a node", layout_.lanes));
  if (mine.ok()) mine = node_.make_links(gpu, place).status();
  if (mine.ok() && node_.size() > 1) mine = node_.share_scratch(layout_.scratch_bytes()).status();
  lost_ = node_.lost();
  if (lost_) return mine;
  Result<bool> all = meet(mine, true);
  if (!all.ok()) return all;
  HEDDLE_TRY(connect_directly(gpu));
  if (all_direct_) return true;
  if (has_share()) {
    const Result<std::byte*> pinned = node_.link()->pin(layout_.pinned_bytes());
    mine = pinned.status();
    host_ = pinned.ok() ? pinned.value() : nullptr;
  }
  return meet(mine, true);
}

// Whether the network reaches all GPUs (all_direct_). Collective; a failure is one to meet.
Status NodesPath::connect_directly(gpu::Gpu& gpu) {
  Status mine;
  if (wanted_ == false) mine = Status(Code::unsupported, "HEDDLE_GPUDIRECT is 0");
  if (mine.ok() && has_share()) {
    Result<std::unique_ptr<GpuDirect>> made = try_directly(gpu);
    mine = made.status();
    if (made.ok()) direct_ = std::move(made).value();
  }
  // The highest rank that cannot is the one that says why.
  std::uint64_t against = mine.ok() ? 0 : static_cast<std::uint64_t>(across_.rank()) + 1;
  if (Status met = across_.largest({&against, 1}); !met.ok()) {
    lost_ = true;
    return met;
  }
  all_direct_ = against == 0;
  if (all_direct_) return {};
  direct_.reset();
  if (against == static_cast<std::uint64_t>(across_.rank()) + 1)
    log_.info("buffers on GPUs: no GPUDirect RDMA between nodes: " + mine.message());
  return {};
}

Result<std::unique_ptr<GpuDirect>> NodesPath::try_directly(gpu::Gpu& gpu) {
  Transport* const network = across_.network();
  if (network == nullptr) return Status(Code::unsupported, "there are no messages between nodes");
  const Result<std::size_t> scratch = across_.scratch_for(layout_.share);
  HEDDLE_TRY(scratch.status());
  Result<std::unique_ptr<GpuDirect>> made =
      GpuDirect::make(gpu, node_.place(), *network, {layout_.share, scratch.value()});
  if (!made.ok() || wanted_ == true || made.value()->pays()) return made;
  if (!made.value()->is_measured())
    return Status(
        Code::unsupported,
        fmt::format("how {} moves the memory of GPU {} cannot be measured (HEDDLE_GPUDIRECT=1 takes "
                    "it all the same)",
                    network->capabilities().name, node_.place().device));
  const DeviceReach& reach = made.value()->reach();
  return Status(
      Code::unsupported,
      fmt::format("the network's device reads the memory of GPU {} at {:.1f} GB/s, and writes it at {:.1f}, "
                  "but the host's at {:.1f} (HEDDLE_GPUDIRECT=1 takes it all the same)",
                  node_.place().device, 1 / reach.read, 1 / reach.write, 1 / reach.host));
}

void NodesPath::tell() {
  if (across_.rank() != 0) return;
  log_.info(fmt::format(
      "buffers on GPUs: from {} KiB on the ranks of each node fold them there, and {} of "
      "each sum over the nodes{}, in pieces of up to {} KiB",
      kFrom >> 10, layout_.lanes, all_direct_ ? " by GPUDirect RDMA" : "", layout_.piece() >> 10));
}

// All ranks at the same point.
Status NodesPath::leave() {
  on_ = leaves_ = false;
  seen_ = misses_ = 0;
  host_ = nullptr;
  direct_.reset();
  all_direct_ = false;
  Status left = node_.leave().status();
  lost_ = node_.lost();
  return left;
}

// ---- Calls

Result<bool> NodesPath::can_sum(const DeviceSum& sum) {
  const std::size_t bytes = sum.count * dtype_size(sum.type);
  Result<bool> here = node_.link()->holds(sum.out, bytes);
  if (here.ok() && here.value() && sum.in != sum.out) here = node_.link()->holds(sum.in, bytes);
  if (here.ok() && here.value()) here = node_.link()->folds(sum.type, sum.op);
  return here;
}

Result<bool> NodesPath::serve_sum(const void* in, void* out, std::size_t count, DType type, Op op) {
  const DeviceSum sum{static_cast<const std::byte*>(in), static_cast<std::byte*>(out), count, type, op};
  PinnedShares host(host_, layout_.share);
  SharesSum work(node_.worker(), layout_, direct_ ? *direct_ : static_cast<SharesHost&>(host), sum);
  return serve(work, leaves_ ? Result<bool>(false) : can_sum(sum), asked(sum));
}

Result<bool> NodesPath::serve_bcast(void* buffer, std::size_t bytes, int root) {
  PinnedShares host(host_, layout_.share);
  const DeviceBcast bcast{static_cast<std::byte*>(buffer), bytes, root};
  SharesBcast work(node_.worker(), layout_, direct_ ? *direct_ : static_cast<SharesHost&>(host), bcast,
                   node_.member_of(root));
  return serve(work, leaves_ ? Result<bool>(false) : node_.link()->holds(buffer, bytes), asked(bcast));
}

// `here`: whether this rank has its part on its GPU.
Result<bool> NodesPath::serve(SharesWork& work, const Result<bool>& here, std::uint64_t asked) {
  const bool can = here.ok() && here.value();
  Status mine = here.status();
  if (can) {
    mine = without_throwing([&] { return work.first(); });
    // Also after a failure: nothing may touch the caller's buffers once the call is over.
    keep(&mine, wait_for_gpu());
  }
  std::array<std::uint64_t, kMore> words{leaves_ ? 1U : 0U, asked, ~asked};
  Result<bool> all = lost_ ? Result<bool>(mine) : meet(mine, can, words);
  all_know_ = !all.ok();
  if (all.ok() && words[0] != 0) misses_ = kMisses;
  if (all.ok() && !is_same(words[1], words[2])) {
    HEDDLE_TRY(conclude(false).status());
    return refuse_different();
  }
  if (all.ok() && all.value()) {
    const Status ran = run(work);
    if (!ran.ok()) all = ran;
  }
  return conclude(all);
}

// A failure of which all ranks know ends the mode: it may be a link that fails, as one whose context was
// destroyed.
Result<bool> NodesPath::conclude(Result<bool> served) {
  if (lost_) {
    on_ = false;
    off_ = true;
    return served;
  }
  if (served.ok()) {
    misses_ = served.value() ? 0 : misses_ + 1;
    served_ += served.value() ? 1 : 0;
    if (misses_ < kMisses) return served;
  } else if (!all_know_) {
    leaves_ = true;
    return served;
  }
  HEDDLE_TRY(leave());
  return served;
}

// After a failure a rank goes on with all that others wait for, on the network whatever there is, until they
// know as well.
Status NodesPath::run(SharesWork& work) {
  Status mine;
  for (std::size_t t = 0; t < work.steps(); ++t) {
    Status met = run_tick(work, t, &mine);
    lost_ = lost_ || node_.lost() || !met.ok();
    if (lost_) return met.ok() ? mine : met;
  }
  return mine;
}

// A failure to meet is returned, any other one goes to `mine`.
Status NodesPath::run_tick(SharesWork& work, std::size_t t, Status* mine) {
  const std::size_t pieces = work.pieces().count();
  if (mine->ok()) *mine = without_throwing([&] { return work.step(t); });
  // All shares are on the host, and the last one on the network; or it is back, on the GPU.
  if (t == pieces + (all_direct_ ? 1 : 0)) {
    const Result<bool> all = meet(*mine, true);
    if (lost_) {
      (void)node_.link()->wait();
      return all.status();
    }
    all_know_ = !all.ok();
    keep(mine, all.status());
  }
  keep(mine, wait_for_gpu());
  if (lost_) return *mine;
  if (t < pieces) HEDDLE_TRY(work.start(across_, t));
  if (t > 0 && t <= pieces) {
    HEDDLE_TRY(across_.finish((t - 1) % SharesLayout::kSlots));
    if (direct_) keep(mine, direct_->failure());
  }
  keep(mine, node_.meet(*mine, true).status());
  return {};
}

Status NodesPath::wait_for_gpu() {
  while (!node_.link()->done()) {
    if (Status moved = across_.progress(); !moved.ok()) {
      lost_ = true;
      (void)node_.link()->wait();
      return moved;
    }
  }
  return node_.link()->wait();
}

}  // namespace heddle
