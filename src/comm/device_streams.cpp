// Collectives on the callers' streams: what DevicePath does of a call that gives work to a stream and returns.
//
// The same steps as those of a blocking call (device_work.hpp). Where that waits for its GPU before the ranks meet, this one records an event,
// and after the meeting its stream waits for the others' events: what a meeting ends for the host it puts in order for the streams.
#include <fmt/format.h>

#include "comm/device_path.hpp"

namespace heddle {
namespace {

constexpr const char* kWayOut = "synchronise the stream and call heddle_allreduce or heddle_bcast instead";

Status refusal(const std::string& why) {
  return Status(Code::unsupported, fmt::format("{}: {}", why, kWayOut));
}

}  // namespace

// As meet(), but that a rank which cannot, for a reason that is `unsupported`, has not failed: *refused then, the same on all ranks.
Status DevicePath::agree(const Status& mine, std::span<std::uint64_t> more, bool* refused) {
  const bool cannot = mine.code() == Code::unsupported;
  const Result<bool> all = meet(cannot ? Status() : mine, mine.ok(), more);
  if (!all.ok()) return all.status();
  *refused = !all.value();
  if (all.value()) return {};
  if (cannot) return mine;
  return refusal(fmt::format("rank {} could not do its part of a collective on streams, and says why there",
                             deciding_rank()));
}

// ---- Setting up

// Of the buffer whose context the link will be for.
Status DevicePath::find(gpu::Gpu& gpu, const void* buffer) {
  if (mode_ == Mode::off)
    return refusal(
        "the GPUs do not serve this communicator (HEDDLE_DEVICE_BYTES, HEDDLE_CUDA, or what HEDDLE_LOG=info "
        "has said)");
  if (!gpu.present()) return refusal("this process has not loaded CUDA, or HEDDLE_CUDA=0 hides it");
  const Result<gpu::Place> place = gpu.place(buffer);
  if (!place.ok()) return place.status();
  if (!gpu::needs_image(place->kind))
    return refusal(
        fmt::format("the buffer at {} is {} memory, not a GPU's", buffer, gpu::kind_name(place->kind)));
  place_ = place.value();
  return {};
}

Result<bool> DevicePath::share_marks() {
  const Result<gpu::Marks> mine = link_->make_marks(exported_);
  std::vector<gpu::Marks> all;
  const Result<bool> met = gather(mine.status(), mine.ok() ? mine.value() : gpu::Marks{}, &all);
  return met.ok() ? meet(link_->open_marks(all, meeting_.rank()), true) : met;
}

// All ranks at the same point. Where blocking calls have been set up already, that serves here as well, and the other way round.
Status DevicePath::get_ready(gpu::Gpu& gpu, const void* buffer) {
  if (mode_ == Mode::on && marks_open_) [[likely]]
    return {};
  Result<bool> done = true;
  if (mode_ != Mode::on) {
    bool refused = false;
    HEDDLE_TRY(agree(find(gpu, buffer), {}, &refused));
    done = connect(gpu);
    if (done.ok()) begin();
  }
  if (done.ok()) done = share_marks();
  if (lost_) return done.status();
  marks_open_ = done.ok();
  if (marks_open_) return {};
  HEDDLE_TRY(leave(Mode::idle));
  return refusal(done.status().message());
}

// ---- Calls

Status DevicePath::lies_here(const void* buffer, std::size_t bytes) {
  const Result<bool> held = link_->holds(buffer, bytes);
  if (!held.ok() || held.value()) return held.status();
  return refusal(fmt::format(
      "the buffer at {} is not in the GPU context that serves this communicator's calls", buffer));
}

// After the first meeting. Each step: what the others gave before the last meeting comes before what is given now.
Status DevicePath::follow(DeviceWork& work, unsigned turn) {
  for (std::size_t k = 0;; ++k) {
    Status mine = link_->after_others(turn);
    // One meeting more than a blocking call has: nobody ends a link whose events another rank is about to wait for.
    if (k == work.steps()) return meet(mine, true).status();
    if (mine.ok()) mine = work.step(k);
    turn = next_turn();
    if (mine.ok()) mine = link_->mark(turn);
    if (const Result<bool> all = meet(mine, true); !all.ok()) return all.status();
  }
}

Status DevicePath::serve_on(gpu::Stream stream, DeviceWork& work, Status mine) {
  if (mine.ok()) mine = link_->begin_on(stream);
  if (mine.ok()) mine = work.first();
  const unsigned turn = next_turn();
  if (mine.ok()) mine = link_->mark(turn);
  bool refused = false;
  Status status = agree(mine, work.words(), &refused);
  if (status.ok()) status = follow(work, turn);
  link_->end_on();
  if (status.ok() || refused) return status;
  // All know of it. What was given to streams is waited for, since it may use buffers of ranks that are told now that it failed.
  if (lost_) {
    mode_ = Mode::off;
  } else {
    HEDDLE_TRY(leave(Mode::idle));
  }
  return status;
}

Status DevicePath::allreduce_on(gpu::Gpu& gpu, gpu::Stream stream, const void* in, void* out,
                                std::size_t count, DType type, Op op) {
  if (count == 0) return {};
  HEDDLE_TRY(get_ready(gpu, out));
  const std::size_t bytes = count * dtype_size(type);
  Status mine = lies_here(out, bytes);
  if (mine.ok() && in != out) mine = lies_here(in, bytes);
  if (mine.ok() && !link_->folds(type, op))
    mine = refusal(fmt::format("there is no kernel for {} of {} on GPUs", op_name(op), dtype_name(type)));
  const DeviceSum sum{static_cast<const std::byte*>(in), static_cast<std::byte*>(out), count, type, op};
  const std::unique_ptr<DeviceWork> work = direct_ ? direct_sum(worker(), sum) : scratch_sum(worker(), sum);
  return serve_on(stream, *work, std::move(mine));
}

Status DevicePath::bcast_on(gpu::Gpu& gpu, gpu::Stream stream, void* buffer, std::size_t bytes, int root) {
  if (bytes == 0) return {};
  HEDDLE_TRY(get_ready(gpu, buffer));
  const DeviceBcast bcast{static_cast<std::byte*>(buffer), bytes, root};
  const std::unique_ptr<DeviceWork> work =
      direct_ ? direct_bcast(worker(), bcast) : scratch_bcast(worker(), bcast);
  return serve_on(stream, *work, lies_here(buffer, bytes));
}

}  // namespace heddle
