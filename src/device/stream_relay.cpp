#include "device/stream_relay.hpp"

#include <algorithm>
#include <array>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/hash.hpp"
#include "base/host_identity.hpp"
#include "base/no_memory.hpp"
#include "device/stream_refusal.hpp"
#include "device/verdict.hpp"

namespace heddle {
namespace {

// Bytes of a piece, at most and at least: long enough for the network's full speed, short enough that copies
// of one are not long beside it. Not measured.
constexpr std::size_t kMostPiece = std::size_t{4} << 20;
constexpr std::size_t kLeastPiece = std::size_t{64} << 10;

// A stream may still come to them, and the driver has them registered: to unmap them would leave it with
// pages that are another's by then.
void keep_for_ever(std::unique_ptr<RelayWords> words) {
  static_cast<void>(words.release());
}

}  // namespace

// When the threads have served what the streams were given.
StreamRelay::~StreamRelay() {
  if (gear_.link != nullptr) kept_.push_back(std::move(gear_));
  for (Gear& gear : kept_) {
    const bool finished = finish(gear);
    gear.thread.reset();
    if (!finished) keep_for_ever(std::move(gear.words));
  }
}

// A link of its own waits for its thread alone, which lets it go on whatever comes. One of the node's waits
// for the GPUs of others: where that is in vain it stays (DevicePath::keep_for_ever).
bool StreamRelay::finish(Gear& gear) {
  if (gear.own_link == nullptr) return shares_->finish(*gear.link);
  gear.own_link->finish();
  return true;
}

// All ranks at the same point, and no stream of theirs is being captured.
void StreamRelay::reset() {
  const bool finished = gear_.link == nullptr || finish(gear_);
  if (captured_) {
    gear_.thread->keep();
  } else {
    gear_.thread.reset();
    gear_.own_link.reset();
  }
  if (shares_on_ && apart_) shares_->let_go();
  if (shares_on_ && !apart_) apart_ = !shares_->leave().ok();
  if (captured_) {
    kept_.push_back(std::move(gear_));
  } else if (!finished) {
    keep_for_ever(std::move(gear_.words));
  }
  captured_ = shares_on_ = false;
  gear_ = {};
}

// Whether all ranks can; else the same kind of failure on all. `more`: of each word the largest comes back.
// Who lacks memory for this does not meet the others.
Status StreamRelay::agree(const Status& mine, std::span<std::uint64_t> more) {
  Status agreed = without_throwing([&, this] { return meet(mine, more); });
  if (agreed.code() == Code::out_of_memory) apart_ = true;
  return agreed;
}

Status StreamRelay::meet(const Status& mine, std::span<std::uint64_t> more) {
  const bool cannot = mine.code() == Code::unsupported;
  const Verdict verdict = mine.ok() ? Verdict::all_right : cannot ? Verdict::cannot : Verdict::failed;
  std::vector<std::uint64_t> words(1, word_of(verdict, ranks_.rank()));
  words.insert(words.end(), more.begin(), more.end());
  if (Status met = ranks_.allreduce(words.data(), words.data(), words.size(), DType::u64, Op::max);
      !met.ok()) {
    apart_ = true;
    return met;
  }
  std::copy(words.begin() + 1, words.end(), more.begin());
  const Result<bool> all = outcome_of(words[0], cannot ? Status() : mine);
  if (!all.ok()) return all.status();
  if (all.value()) return {};
  return cannot ? mine : refused_elsewhere(static_cast<int>(rank_of(words[0])));
}

// ---- Setting up

// Whether the GPUs of all nodes reach each other there. Collective, and the same outcome on all ranks; a
// failure is one to meet.
Status StreamRelay::connect_nodes(gpu::Gpu& gpu, const gpu::Place& place) {
  if (!shares_) return {};
  std::array<std::uint64_t, 1> least{~std::uint64_t{shares_->bytes()}};
  HEDDLE_TRY(agree({}, least));
  const Status connected = shares_->connect(gpu, place, ~least[0]);
  std::array<std::uint64_t, 1> apart{connected.ok() ? 0U : 1U};
  HEDDLE_TRY(agree({}, apart));
  shares_on_ = apart[0] == 0;
  if (shares_on_) return {};
  if (!connected.ok() && connected.code() != Code::peer_failed)
    log_.info("collectives on streams: the GPUs of a node do not fold first: " + connected.message());
  return shares_->leave();
}

Status StreamRelay::find_link(gpu::Gpu& gpu, const gpu::Place& place) {
  if (shares_on_) {
    gear_.link = &shares_->link();
    return {};
  }
  Result<std::unique_ptr<gpu::Link>> made = gpu::make_link(gpu, place);
  if (!made.ok()) return made.status();
  gear_.own_link = std::move(made).value();
  gear_.link = gear_.own_link.get();
  return {};
}

// Whether no two ranks share a context; collective, as agree().
Status StreamRelay::look_for_neighbours(const Status& mine) {
  const auto me = static_cast<std::size_t>(ranks_.rank());
  std::vector<std::uint64_t> contexts(static_cast<std::size_t>(ranks_.size()));
  if (mine.ok()) {
    const gpu::Origin origin = gear_.link->origin();
    contexts[me] = host_identity().value;
    for (const std::uint64_t word : {origin.process, origin.space, origin.context})
      contexts[me] = mix64(contexts[me] ^ word);
  }
  HEDDLE_TRY(agree(mine, contexts));
  std::unordered_map<std::uint64_t, int> ranks;
  for (int rank = 0; rank < ranks_.size() && !shared_context_; ++rank) {
    const auto [first, is_new] = ranks.emplace(contexts[static_cast<std::size_t>(rank)], rank);
    if (!is_new) return Status(Code::unsupported, why_not_threads(first->second, rank));
  }
  return {};
}

Status StreamRelay::make_ring() {
  gear_.words = std::make_unique<RelayWords>();
  HEDDLE_TRY(gear_.link->open_words(std::as_writable_bytes(std::span(gear_.words.get(), 1))));
  Result<std::byte*> pinned = gear_.link->pin(RelayRing::kSlots * kMostPiece);
  gear_.ring.piece = kMostPiece;
  while (!pinned.ok() && gear_.ring.piece > kLeastPiece) {
    gear_.ring.piece /= 2;
    pinned = gear_.link->pin(RelayRing::kSlots * gear_.ring.piece);
  }
  if (!pinned.ok()) return pinned.status();
  gear_.ring.memory = pinned.value();
  return {};
}

Status StreamRelay::start_thread() {
  Result<std::unique_ptr<HostCollectives>> twin = twin_();
  Status mine = twin.status();
  try {
    if (twin.ok())
      gear_.thread = std::make_unique<RelayThread>(std::move(twin).value(), gear_.ring, *gear_.words, log_);
  } catch (const std::system_error& e) {
    mine = Status(Code::system, fmt::format("no thread for collectives on streams: {}", e.what()));
  }
  return agree(mine);
}

// Collective, and the same outcome on all ranks.
Status StreamRelay::set_up(gpu::Gpu& gpu, const gpu::Place& place) {
  HEDDLE_TRY(connect_nodes(gpu, place));
  HEDDLE_TRY(look_for_neighbours(find_link(gpu, place)));
  const Status mine = make_ring();
  std::array<std::uint64_t, 1> least{~std::uint64_t{gear_.ring.piece}};
  HEDDLE_TRY(agree(mine, least));
  gear_.ring.piece = ~least[0];
  if (shares_on_) shares_->limit(gear_.ring.piece);
  HEDDLE_TRY(start_thread());
  if (ranks_.rank() != 0) return {};
  log_.info(
      fmt::format("collectives on streams: by the host, in pieces of {} KiB of pinned memory of GPU {}'s",
                  gear_.ring.piece >> 10, place.device));
  if (shares_on_)
    log_.info(
        fmt::format("collectives on streams: from {} KiB on the GPUs of each node fold first, and {} of "
                    "each have a share, in pieces of up to {} KiB",
                    StreamShares::kFrom >> 10, shares_->lanes(), shares_->piece() >> 10));
  return {};
}

Status StreamRelay::get_ready(gpu::Gpu& gpu, gpu::Stream stream, const Buffers& buffers) {
  if (gear_.thread) return {};
  if (!refused_.ok()) return refused_;
  gpu::Place place;
  const void* const buffer = buffers.out != nullptr ? buffers.out : buffers.in;
  HEDDLE_TRY(agree(find_for_stream(gpu, stream, buffer, &place)));
  const gpu::SettingUp apart(gpu);
  Status status = set_up(gpu, place);
  if (status.ok()) {
    refusals_ = 0;
    return {};
  }
  reset();
  return apart_ ? status : refuse(status);
}

// As DevicePath: memory that is short may be there the next time, but what fails twice in a row would fail in
// every call of a program that goes on by blocking ones then, and each would pay for setting up.
Status StreamRelay::refuse(const Status& why) {
  Status refused = refuse_stream(why.message());
  if (++refusals_ < kRefusals) return refused;
  refused_ = refused;
  if (why.code() != Code::peer_failed || ranks_.rank() == 0)
    log_.info("collectives on streams are refused from now on: " + why.message());
  return refused;
}

// ---- Calls

Status StreamRelay::lies_here(const void* buffer, std::size_t bytes) {
  if (buffer == nullptr) return {};
  const Result<bool> held = gear_.link->holds(buffer, bytes);
  return held.ok() && !held.value() ? refuse_place(buffer) : held.status();
}

Status StreamRelay::check(const Buffers& buffers, std::size_t bytes) {
  if (const Status lost = gear_.thread->lost(); !lost.ok())
    return Status(lost.code(), "an earlier collective on a stream failed: " + lost.message());
  for (const Gear& gear : kept_)
    HEDDLE_TRY(gear.thread->missed());
  HEDDLE_TRY(lies_here(buffers.in, bytes));
  return buffers.out != buffers.in ? lies_here(buffers.out, bytes) : Status();
}

// Tells the thread, when the stream comes there, which call it is. Also where another rank will be found to
// refuse it: what the thread sees is the order of the calls that this rank has begun.
Status StreamRelay::begin(bool captured, RelayCall* call) {
  call->number = gear_.thread->announce(captured);
  Status given = gear_.link->take_word(&gear_.words->call.value, call->number);
  if (!given.ok()) {
    gear_.thread->withdraw(std::exchange(call->number, 0), false);
  } else if (captured) {
    gear_.link->when_graph_goes(gear_.thread->forgetting(call->number));
  }
  return given;
}

Status StreamRelay::fill(const Buffers& buffers, const RelayPiece& piece) {
  return buffers.in != nullptr ? gear_.link->to_host(piece.slot, buffers.in + piece.begin, piece.bytes)
                               : Status();
}

Status StreamRelay::empty(const Buffers& buffers, const RelayPiece& piece) {
  return buffers.out != nullptr ? gear_.link->to_device(buffers.out + piece.begin, piece.slot, piece.bytes)
                                : Status();
}

// A slot is filled after the piece before it there was taken out.
Status StreamRelay::enqueue(const Buffers& buffers, const RelayCall& call, StreamSlots& slots) {
  const std::uint32_t pieces = gear_.ring.pieces(call);
  for (std::uint32_t k = 0; k < pieces + RelayRing::kAhead; ++k) {
    if (k < pieces) {
      HEDDLE_TRY(fill(buffers, gear_.ring.piece_of(call, k)));
      HEDDLE_TRY(slots.release(k));
    }
    if (k >= RelayRing::kAhead) {
      HEDDLE_TRY(slots.await(k - RelayRing::kAhead));
      HEDDLE_TRY(empty(buffers, gear_.ring.piece_of(call, k - RelayRing::kAhead)));
    }
  }
  return {};
}

std::uint64_t StreamRelay::asked_by(const RelayCall& call) {
  if (call.collective == Collective::bcast) return asked(DeviceBcast{nullptr, call.bytes, call.root});
  return asked(DeviceSum{nullptr, nullptr, call.bytes / dtype_size(call.type), call.type, call.op});
}

// Also whether all GPUs can share the vector out (*shared). Where a stream has lost its part in an earlier
// call, all that is in its context, or a GPU that does anything more, all begin anew; not in a capture, where
// the host may wait for nothing.
Status StreamRelay::agree_on_call(const Status& mine, const RelayCall& call, bool captured, bool* shared) {
  const bool lost =
      !gear_.thread->lost().ok() || !gear_.link->is_there() || (!mine.ok() && !gear_.link->finished().ok());
  const std::uint64_t wanted = asked_by(call);
  std::array<std::uint64_t, 6> words{
      lost ? 1U : 0U, *shared ? 0U : 1U, captured ? 1U : 0U, captured ? 0U : 1U, wanted, ~wanted};
  Status status = agree(mine, words);
  *shared = words[1] == 0;
  if (status.ok() && words[2] != 0 && words[3] != 0) status = refuse_mixed(captured);
  if (status.ok() && !is_same(words[4], words[5])) status = refuse_different();
  if (status.ok()) return status;
  if (call.number != 0) gear_.thread->withdraw(call.number, true);
  gear_.link->end_on();
  if (!apart_ && words[0] != 0 && words[2] == 0) reset();
  return status;
}

bool StreamRelay::can_share(const RelayCall& call) const {
  return call.collective == Collective::bcast || gear_.link->folds(call.type, call.op);
}

// What the GPUs of the node do of it, where it is long enough: the same on all ranks.
std::unique_ptr<SharesWork> StreamRelay::work_of(const Buffers& buffers, const RelayCall& call,
                                                 SharesHost& slots) const {
  if (!shares_on_ || call.bytes < StreamShares::kFrom) return nullptr;
  if (call.collective == Collective::allreduce)
    return shares_->sum({buffers.in, buffers.out, call.bytes / dtype_size(call.type), call.type, call.op},
                        slots);
  // The root only reads, and all others only write.
  std::byte* const buffer = buffers.out != nullptr ? buffers.out : const_cast<std::byte*>(buffers.in);
  return shares_->bcast({buffer, call.bytes, call.root}, slots);
}

Status StreamRelay::serve(gpu::Gpu& gpu, gpu::Stream stream, const Buffers& buffers, RelayCall call) {
  if (call.bytes == 0) return {};
  HEDDLE_TRY(get_ready(gpu, stream, buffers));
  // Made before anything has begun, which would be left as it is where there is no memory for them.
  StreamSlots slots(*gear_.link, gear_.ring, *gear_.words, call.number);
  const std::unique_ptr<SharesWork> work = work_of(buffers, call, slots);
  bool shared = work && can_share(call);
  const Result<bool> on = gear_.link->begin_on(stream);
  const bool captured = on.ok() && on.value();
  if (captured && shared) shared = shares_->has_graphs();
  Status mine = on.status();
  if (mine.ok()) mine = without_throwing([&, this] { return check(buffers, call.bytes); });
  if (mine.ok()) mine = without_throwing([&, this] { return begin(captured, &call); });
  if (work) {
    // Outside of a capture such a call begins before it is known whether all ranks can, who need not meet
    // again then.
    const bool can = mine.ok() && shared && !captured;
    const Status begun = without_throwing([&, this] { return shares_->begin(*work, can); });
    if (mine.ok()) mine = begun;
  }
  HEDDLE_TRY(agree_on_call(mine, call, captured, &shared));
  if (shared) call.shares = work->pieces();
  SharesWork* const together = shared ? work.get() : nullptr;
  shared_ += shared ? 1 : 0;
  return captured ? capture(buffers, call, together, slots) : give(buffers, call, together, slots);
}

Status StreamRelay::give(const Buffers& buffers, const RelayCall& call, SharesWork* work,
                         StreamSlots& slots) {
  // First: streams take so much work and no more until some of it is done, for which the thread is needed.
  gear_.thread->give(call);
  Status status = without_throwing([&, this] {
    return as_told(work != nullptr ? shares_->follow(*work) : enqueue(buffers, call, slots));
  });
  if (!status.ok()) gear_.thread->lose(call.number, status);
  gear_.link->end_on();
  return status;
}

// A failure is told at once: nothing is under way that somebody would wait for.
Status StreamRelay::capture(const Buffers& buffers, const RelayCall& call, SharesWork* work,
                            StreamSlots& slots) {
  captured_ = true;
  if (shares_on_) shares_->keep_link();
  Status status = without_throwing([&, this] {
    return as_told(work != nullptr ? shares_->capture(*work) : enqueue(buffers, call, slots));
  });
  gear_.link->end_on();
  // Who has left the others of its node in their meeting meets nobody.
  if (status.code() != Code::out_of_memory) status = agree(status);
  if (status.ok()) {
    gear_.thread->give(call);
  } else {
    gear_.thread->withdraw(call.number, true);
  }
  return status;
}

Status StreamRelay::allreduce_on(gpu::Gpu& gpu, gpu::Stream stream, const void* in, void* out,
                                 std::size_t count, DType type, Op op) {
  RelayCall call;
  call.bytes = count * dtype_size(type);
  call.type = type;
  call.op = op;
  return serve(gpu, stream, {static_cast<const std::byte*>(in), static_cast<std::byte*>(out)}, call);
}

Status StreamRelay::bcast_on(gpu::Gpu& gpu, gpu::Stream stream, void* buffer, std::size_t bytes, int root) {
  RelayCall call;
  call.collective = Collective::bcast;
  call.bytes = bytes;
  call.root = root;
  auto* const data = static_cast<std::byte*>(buffer);
  const bool gives = root == ranks_.rank();
  return serve(gpu, stream, {gives ? data : nullptr, gives ? nullptr : data}, call);
}

}  // namespace heddle
