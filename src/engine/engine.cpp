#include "engine/engine.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/round_up.hpp"

namespace heddle {
namespace {

// The verifier lets no such schedule pass.
[[gnu::cold, gnu::noinline]] Status no_team(const Step& step) {
  return Status(Code::internal, "a schedule has a verb of team " + std::to_string(step.lane) +
                                    ", in which this rank is alone");
}

// Of scratch that takes the place of a vector.
constexpr std::size_t kAlignment = 64;

// Whether a step writes or reads `data` here: of a fold by a team only the member that it is for has it.
bool uses_data(const Step& step, const Ports& ports) {
  if (step.kind == StepKind::wait || step.kind == StepKind::repeat) return false;
  if (step.kind == StepKind::send) return step.src == Slot::data;
  if (step.kind == StepKind::recv) return step.dst == Slot::data;
  if (step.kind != StepKind::team_reduce || step.src == Slot::data)
    return step.dst == Slot::data || step.src == Slot::data;
  const Team* const team = ports.teams[step.lane];
  return team != nullptr && team->rank() == step.peer;
}

}  // namespace

std::byte* ScratchMemory::at_least(std::size_t bytes) {
  if (bytes_ < bytes) {
    bytes_ = 0;
    memory_.reset();
    memory_.reset(new (std::nothrow) std::byte[bytes]);
    if (memory_ != nullptr) bytes_ = bytes;
  }
  return bytes_ < bytes ? nullptr : memory_.get();
}

Execution::Execution(std::shared_ptr<const Schedule> schedule, const Ports& ports, ScratchMemory* shared)
    : schedule_(std::move(schedule)),
      uses_data_(std::ranges::any_of(schedule_->steps, [&](const Step& s) { return uses_data(s, ports); })),
      ports_(&ports),
      scratch_(shared != nullptr ? shared : &own_scratch_),
      tickets_(schedule_->max_open),
      peer_of_ticket_(schedule_->max_open, -1),
      cursor_(*schedule_) {}

Execution::~Execution() {
  abandon();
}

Status Execution::start(const Binding& binding) {
  if (active_) return Status(Code::internal, "a schedule was started while it was running");
  binding_ = binding;
  split_ = Split(binding.count, schedule_->chunks);
  unit_bytes_ = split_.longest(schedule_->unit_chunks) * binding.element_bytes;
  const bool lacks_data = binding.data == nullptr && uses_data_;
  const std::size_t data_bytes = lacks_data ? round_up(binding.count * binding.element_bytes, kAlignment) : 0;
  HEDDLE_TRY(find_scratch(data_bytes + unit_bytes_ * schedule_->scratch_units));
  if (lacks_data) {
    binding_.data = scratch_at_;
    scratch_at_ += data_bytes;
  }
  oldest_ = 0;
  open_ = 0;
  cursor_ = Cursor(*schedule_);
  team_.forget();
  active_ = true;
  return {};
}

Status Execution::find_scratch(std::size_t bytes) {
  if (binding_.local != nullptr) {
    scratch_at_ = binding_.local->scratch(bytes);
    return scratch_at_ != nullptr || bytes == 0
               ? Status()
               : Status(Code::internal, "a schedule needs more scratch than there is on the GPU");
  }
  scratch_at_ = scratch_->at_least(bytes);
  if (scratch_at_ == nullptr && bytes > 0)
    return Status(Code::out_of_memory, "no memory for " + std::to_string(bytes) + " bytes of scratch");
  return {};
}

Execution::Range Execution::range(const Step& step) const {
  const std::uint32_t first = cursor_.chunk();
  return {split_.begin(first) * binding_.element_bytes,
          split_.length(first, step.count) * binding_.element_bytes};
}

std::byte* Execution::place(Slot slot, const Range& r) const {
  switch (slot) {
    case Slot::data:
      return binding_.data != nullptr ? binding_.data + r.offset : nullptr;
    // Steps only read from `input`; the verifier proves it.
    case Slot::input:
      return const_cast<std::byte*>(binding_.input) + r.offset;
    case Slot::scratch:
      break;
  }
  return scratch_at_ + cursor_.unit() * unit_bytes_;
}

Status Execution::open_message(const Step& step) {
  if (open_ == tickets_.size())
    return Status(Code::internal, "a schedule opened more messages than its max_open");
  const Range r = range(step);
  Transport* transport = ports_->transport_of[static_cast<std::size_t>(step.peer)];
  if (transport == nullptr) {
    return Status(Code::unsupported, "no transport reaches rank " + std::to_string(step.peer));
  }
  const std::uint32_t slot = (oldest_ + open_) % static_cast<std::uint32_t>(tickets_.size());
  Ticket& ticket = tickets_[slot];
  ticket = Ticket{};
  peer_of_ticket_[slot] = step.peer;
  ++open_;
  const std::uint32_t tag = binding_.sequence * kLanes + step.lane;
  return step.kind == StepKind::send ? transport->send(step.peer, tag, place(step.src, r), r.bytes, ticket)
                                     : transport->recv(step.peer, tag, place(step.dst, r), r.bytes, ticket);
}

void Execution::run_local(const Step& step) {
  const Range r = range(step);
  std::byte* dst = place(step.dst, r);
  const std::byte* src = place(step.src, r);
  if (r.bytes == 0) return;
  if (binding_.local != nullptr) return give_local(step, dst, src, r.bytes);
  if (step.kind == StepKind::copy) {
    if (dst != src) std::memcpy(dst, src, r.bytes);
    return;
  }
  const bool source_first = (step.flags & kSourceFirst) != 0;
  const void* inputs[2] = {source_first ? src : dst, source_first ? dst : src};
  binding_.fold(dst, nullptr, inputs, 2, r.bytes / binding_.element_bytes);
}

void Execution::give_local(const Step& step, std::byte* dst, const std::byte* src, std::size_t bytes) {
  const bool source_first = (step.flags & kSourceFirst) != 0;
  if (step.kind == StepKind::reduce) {
    binding_.local->fold(dst, source_first ? src : dst, source_first ? dst : src,
                         bytes / binding_.element_bytes);
  } else if (dst != src) {
    binding_.local->copy(dst, src, bytes);
  }
}

bool Execution::run_team(const Step& step) {
  if (!team_.active()) {
    const Range r = range(step);
    team_.start(step, *ports_,
                {place(step.src, r), place(step.dst, r), r.bytes / binding_.element_bytes,
                 binding_.element_bytes, binding_.fold, binding_.kind});
  }
  return team_.poll();
}

// Frees finished messages from the oldest on; true when no more than `may_stay_open` are left.
bool Execution::retire(std::uint32_t may_stay_open) {
  while (open_ > may_stay_open && tickets_[oldest_].done) {
    oldest_ = (oldest_ + 1) % static_cast<std::uint32_t>(tickets_.size());
    --open_;
  }
  return open_ <= may_stay_open;
}

Status Execution::progress_messages() {
  for (Transport* transport : ports_->transports)
    HEDDLE_TRY(transport->progress());
  return {};
}

Status Execution::poll(bool* done) {
  *done = false;
  for (; !cursor_.done(); cursor_.advance()) {
    const Step& step = cursor_.step();
    switch (step.kind) {
      case StepKind::send:
      case StepKind::recv:
        if (!local_is_done()) return progress_messages();
        HEDDLE_TRY(open_message(step));
        break;
      case StepKind::reduce:
      case StepKind::copy:
        run_local(step);
        break;
      case StepKind::wait:
        if (retire(step.count)) break;
        // Once more: what was opened a moment ago may already be through.
        HEDDLE_TRY(progress_messages());
        if (!retire(step.count)) return {};
        break;
      case StepKind::repeat:  // the cursor never rests on one
        break;
      case StepKind::team_reduce:
      case StepKind::team_bcast:
      case StepKind::team_allreduce:
      case StepKind::team_allgather:
        if (ports_->teams[step.lane] == nullptr) [[unlikely]]
          return no_team(step);
        // What is still open may be what the others need to join in.
        if (!run_team(step)) return open_ > 0 ? progress_messages() : move_unsettled(*ports_);
        break;
    }
  }
  if (!local_is_done()) return progress_messages();
  active_ = false;
  *done = true;
  return {};
}

void Execution::abandon() {
  for (; open_ > 0; --open_) {
    if (!tickets_[oldest_].done) {
      ports_->transport_of[static_cast<std::size_t>(peer_of_ticket_[oldest_])]->cancel(tickets_[oldest_]);
    }
    oldest_ = (oldest_ + 1) % static_cast<std::uint32_t>(tickets_.size());
  }
  active_ = false;
}

Waiting Execution::waiting_for() const {
  if (team_.active()) return team_.waiting_for();
  for (std::uint32_t i = 0; i < open_; ++i) {
    const std::uint32_t slot = (oldest_ + i) % static_cast<std::uint32_t>(tickets_.size());
    if (!tickets_[slot].done) return {Waiting::On::rank, peer_of_ticket_[slot]};
  }
  return {};
}

}  // namespace heddle
