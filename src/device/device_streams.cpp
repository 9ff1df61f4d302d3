// Collectives on the callers' streams: what DevicePath does of a call that gives work to a stream and
// returns.
//
// The same steps as those of a blocking call (device_work.hpp), which streams follow (node_links_steps.cpp).
// That the ranks all capture a graph of the same is agreed in meetings of the host, as ever.
#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/no_memory.hpp"
#include "device/device_path.hpp"
#include "device/stream_refusal.hpp"

namespace heddle {
// As meet(), but that a rank which cannot, for a reason that is `unsupported`, has not failed: *refused then,
// the same on all ranks.
Status DevicePath::agree(const Status& mine, std::span<std::uint64_t> more, bool* refused) {
  const bool cannot = mine.code() == Code::unsupported;
  const Result<bool> all = links_.meet(cannot ? Status() : mine, mine.ok(), more);
  if (!all.ok()) return all.status();
  *refused = !all.value();
  if (all.value()) return {};
  if (cannot) return mine;
  return refused_elsewhere(links_.deciding_rank());
}

// ---- Setting up

// Of the buffer whose context the link will be for.
Status DevicePath::find(gpu::Gpu& gpu, gpu::Stream stream, const void* buffer, gpu::Place* found) {
  if (mode_ == Mode::off)
    return refuse_stream(
        "the GPUs do not serve this communicator (HEDDLE_DEVICE_BYTES, HEDDLE_CUDA, or what HEDDLE_LOG=info "
        "has said)");
  return find_for_stream(gpu, stream, buffer, found);
}

// All ranks at the same point. Where blocking calls have been set up already, that serves here as well, and
// the other way round.
Status DevicePath::get_ready(gpu::Gpu& gpu, gpu::Stream stream, const void* buffer) {
  if (mode_ == Mode::on && marks_open_) [[likely]]
    return {};
  if (!refused_.ok()) return refused_;
  gpu::Place place;
  bool refused = false;
  HEDDLE_TRY(agree(find(gpu, stream, buffer, &place), {}, &refused));
  const gpu::SettingUp apart(gpu);
  Result<bool> done = true;
  if (mode_ != Mode::on) {
    place_ = place;
    done = connect(gpu);
    if (done.ok()) begin();
  }
  if (done.ok()) done = links_.share_marks();
  if (done.ok()) done = links_.share_flags();
  if (links_.lost()) return done.status();
  marks_open_ = done.ok();
  refusals_ = marks_open_ ? 0 : refusals_ + 1;
  return marks_open_ ? Status() : refuse(done.status());
}

// What fails once may be had the next time, as memory that is short. What fails twice would fail in every
// iteration of a program that falls back to blocking calls, and would let it pay for setting up each time:
// that is final. Blocking calls need no events, and go on by the GPUs where these are all that is missing.
Status DevicePath::refuse(const Status& why) {
  Status refused = refuse_stream(why.message());
  const bool is_final = refusals_ >= kRefusals || links_.unreachable();
  if (is_final) refused_ = refused;
  if (is_final && (why.code() != Code::peer_failed || meeting_.rank() == 0))
    log_.info("collectives on streams are refused from now on: " + why.message());
  if (mode_ != Mode::on) HEDDLE_TRY(leave(is_final ? Mode::off : Mode::idle));
  return refused;
}

// ---- Calls

Status DevicePath::lies_here(const void* buffer, std::size_t bytes) {
  const Result<bool> held = links_.link()->holds(buffer, bytes);
  return held.ok() && !held.value() ? refuse_place(buffer) : held.status();
}

// The first meeting: also whether all streams are being captured (*in_graph), or none.
Status DevicePath::agree_on_call(const Status& mine, bool captured, DeviceWork& work, bool* in_graph,
                                 bool* refused) {
  const std::span<std::uint64_t> words = work.words();
  std::vector<std::uint64_t> all = {captured ? 1U : 0U, captured ? 0U : 1U};
  all.insert(all.end(), words.begin(), words.end());
  const Status status = agree(mine, all, refused);
  std::copy(all.begin() + 2, all.end(), words.begin());
  *in_graph = all[0] != 0;
  if (!status.ok()) return status;
  *refused = true;
  if (all[0] != 0 && all[1] != 0) return refuse_mixed(captured);
  if (!work.agreed()) return refuse_different();
  *refused = false;
  return {};
}

namespace {

// Whatever ends a call: its stream is followed until what it was given is done.
class Followed {
 public:
  explicit Followed(gpu::Link& link) : link_(&link) {}
  ~Followed() { end(); }
  Followed(const Followed&) = delete;
  Followed& operator=(const Followed&) = delete;
  void end() {
    if (link_ != nullptr) link_->end_on();
    link_ = nullptr;
  }

 private:
  gpu::Link* link_;
};

}  // namespace

Status DevicePath::serve_on(gpu::Stream stream, DeviceWork& work, Status mine) {
  gpu::Link& link = *links_.link();
  Followed followed(link);
  const Result<bool> begun = link.begin_on(stream);
  const bool captured = begun.ok() && begun.value();
  if (mine.ok()) mine = begun.status();
  if (mine.ok() && captured) mine = links_.graphs();
  if (mine.ok()) mine = link.exchanged();
  if (mine.ok()) mine = without_throwing([&] { return work.first(); });
  const unsigned turn = links_.next_turn();
  const bool marks = !captured && !work.meets_on_gpus() && work.leader() != meeting_.rank();
  if (mine.ok() && marks) mine = link.mark(turn);
  bool refused = false;
  bool in_graph = false;
  Status status = agree_on_call(mine, captured, work, &in_graph, &refused);
  if (status.ok()) status = in_graph ? links_.follow_in_graph(work, {}) : links_.follow(work, turn);
  followed.end();
  if (status.ok() || refused) return status;
  // All know of it.
  if (links_.lost()) {
    mode_ = Mode::off;
  } else if (!in_graph) {
    // What was given to streams is waited for, since it may use buffers of ranks that are told now that it
    // failed. In a graph nothing was given, and the host may not wait.
    HEDDLE_TRY(leave(Mode::idle));
  }
  return status;
}

Status DevicePath::allreduce_on(gpu::Gpu& gpu, gpu::Stream stream, const void* in, void* out,
                                std::size_t count, DType type, Op op) {
  if (count == 0) return {};
  HEDDLE_TRY(get_ready(gpu, stream, out));
  const std::size_t bytes = count * dtype_size(type);
  Status mine = lies_here(out, bytes);
  if (mine.ok() && in != out) mine = lies_here(in, bytes);
  if (mine.ok() && !links_.link()->folds(type, op))
    mine =
        refuse_stream(fmt::format("there is no kernel for {} of {} on GPUs", op_name(op), dtype_name(type)));
  const DeviceSum sum{static_cast<const std::byte*>(in), static_cast<std::byte*>(out), count, type, op};
  const std::unique_ptr<DeviceWork> work =
      links_.direct() ? direct_sum(worker(), sum) : scratch_sum(worker(), sum);
  return serve_on(stream, *work, std::move(mine));
}

Status DevicePath::bcast_on(gpu::Gpu& gpu, gpu::Stream stream, void* buffer, std::size_t bytes, int root) {
  if (bytes == 0) return {};
  HEDDLE_TRY(get_ready(gpu, stream, buffer));
  const DeviceBcast bcast{static_cast<std::byte*>(buffer), bytes, root};
  const std::unique_ptr<DeviceWork> work =
      links_.direct() ? direct_bcast(worker(), bcast) : scratch_bcast(worker(), bcast);
  return serve_on(stream, *work, lies_here(buffer, bytes));
}

}  // namespace heddle
