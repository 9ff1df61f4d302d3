#include "compress/coded_run.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "engine/kernels/kernels.hpp"

namespace heddle {
namespace {

// By this rank, or its node in shared memory: on values as they are.
bool is_done_here(StepKind kind) {
  return kind == StepKind::reduce || kind == StepKind::copy || kind == StepKind::team_reduce ||
         kind == StepKind::team_bcast || kind == StepKind::team_allreduce;
}

}  // namespace

Status CodedRun::start(const CodedBinding& binding) {
  HEDDLE_TRY(begin_coded(binding, true));
  scratch_.resize(split_.longest(schedule().unit_chunks) * schedule().scratch_units);
  return {};
}

Status CodedRun::begin_coded(const CodedBinding& binding, bool parts_are_coded) {
  HEDDLE_TRY(begin());
  binding_ = binding;
  sum_ = fold_kernel(DType::f32, Op::sum);
  split_ = Split(binding.count, schedule().chunks);
  if (final_from_.empty()) look_ahead(parts_are_coded);
  if (binding.contributions != nullptr || binding.codes != nullptr)
    plan_ = plan(binding.count, binding.settings);
  if (binding.codes != nullptr) {
    held_.resize(plan_.held.count);
    binding_.data = held_.data();
  }
  coded_at_.resize(schedule().chunks);
  std::size_t bytes = 0;
  for (std::uint32_t chunk = 0; chunk < schedule().chunks && binding.codes == nullptr; ++chunk) {
    coded_at_[chunk] = bytes;
    if (is_sent_on_[chunk]) bytes += coded_size(chunk, 1);
  }
  coded_.resize(bytes);
  is_coded_.assign(schedule().chunks, false);
  decoded_.resize(split_.longest(1));
  bytes_sent_ = 0;
  return {};
}

void CodedRun::look_ahead(bool parts_are_coded) {
  final_from_.assign(schedule().chunks, 0);
  is_sent_on_.assign(schedule().chunks, false);
  const auto for_each_message_and_write = [&](auto use) {
    std::size_t number = 0;
    for (Cursor at(schedule()); !at.done(); at.advance()) {
      const StepKind kind = at.step().kind;
      const bool is_message = kind == StepKind::send || kind == StepKind::recv;
      const bool is_local = is_done_here(kind);
      for (std::uint32_t i = 0; (is_message || is_local) && i < at.step().count; ++i)
        use(at.step(), at.chunk() + i, number);
      if (is_message) ++number;
    }
  };
  for_each_message_and_write([&](const Step& step, std::uint32_t chunk, std::size_t number) {
    if (step.kind != StepKind::send && step.dst == Slot::data) final_from_[chunk] = number;
  });
  for_each_message_and_write([&](const Step& step, std::uint32_t chunk, std::size_t number) {
    if (step.kind == StepKind::send && step.src == Slot::data &&
        (parts_are_coded || number >= final_from_[chunk]))
      is_sent_on_[chunk] = true;
  });
}

// By the order of the steps: what happens to a chunk last counts.
void CodedRun::find_roles() {
  if (final_from_.empty()) look_ahead(true);
  roles_.assign(schedule().chunks, {});
  std::size_t number = 0;
  for (Cursor at(schedule()); !at.done(); at.advance()) {
    const Step& step = at.step();
    const bool is_local = is_done_here(step.kind);
    const bool sends = step.kind == StepKind::send;
    const bool receives = step.kind == StepKind::recv;
    for (std::uint32_t i = 0; (is_local || sends || receives) && i < step.count; ++i) {
      Role& role = roles_[at.chunk() + i];
      if (sends && step.src == Slot::input) role.is_contributed = true;
      if ((sends && step.src == Slot::data) || (receives && step.dst == Slot::data)) role.ends_coded = true;
      if (is_local) role.ends_coded = false;
      if (is_local || (receives && step.dst == Slot::data && number < final_from_[at.chunk() + i]))
        role.is_held = true;
    }
    if (sends || receives) ++number;
  }
}

CodedPlan CodedRun::plan(std::size_t count, const CodecSettings& settings) {
  if (roles_.empty()) find_roles();
  CodedPlan plan;
  const Split split(count, schedule().chunks);
  std::size_t held_end = 0;
  plan.leaves_codes = true;
  bool is_either = true;
  for (std::uint32_t chunk = 0; chunk < schedule().chunks; ++chunk) {
    const Role& role = roles_[chunk];
    const Range values{split.begin(chunk), split.length(chunk, 1)};
    const std::size_t bytes = coded_bytes(settings, values.count);
    plan.chunks.push_back({values, bytes, plan.bytes, role.is_contributed, plan.contributed_bytes});
    plan.bytes += bytes;
    if (role.is_contributed) plan.contributed_bytes += bytes;
    if (role.is_held && held_end == 0) plan.held.first = values.first;
    if (role.is_held) held_end = values.first + values.count;
    plan.leaves_codes = plan.leaves_codes && role.ends_coded;
    is_either = is_either && role.is_held != role.is_contributed;
  }
  plan.held.count = held_end - std::min(plan.held.first, held_end);
  plan.takes_contributions = is_either && plan.contributed_bytes > 0;
  return plan;
}

std::size_t CodedRun::coded_size(std::uint32_t chunk, std::uint32_t count) const {
  std::size_t bytes = 0;
  for (std::uint32_t i = 0; i < count; ++i)
    bytes += coded_bytes(binding_.settings, range(chunk + i).count);
  return bytes;
}

// ---- Coding

// Not a number would stay for ever where it is added to what comes next: what is not finite counts as sent.
void CodedRun::note_lost(const Range& range, const float* value, const float* decoded) {
  if (binding_.lost == nullptr) return;
  float* lost = binding_.lost + own_place(range.first);
  for (std::size_t i = 0; i < range.count; ++i) {
    const float sum = lost[i] + (value[i] - decoded[i]);
    if (std::isfinite(sum)) lost[i] = sum;
  }
}

void CodedRun::code_input(std::uint32_t chunk, std::byte* to) {
  const Range r = range(chunk);
  const float* values = input_at(r.first);
  encode(binding_.settings, values, r.count, r.first, to);
  if (binding_.lost == nullptr) return;
  // Its own encoding always decodes.
  (void)decode(binding_.settings, {to, coded_bytes(binding_.settings, r.count)}, decoded_.data(), r.count);
  float* lost = binding_.lost + own_place(r.first);
  for (std::size_t i = 0; i < r.count; ++i) {
    const float left_out = values[i] - decoded_[i];
    lost[i] = std::isfinite(left_out) ? left_out : 0.0F;
  }
}

void CodedRun::code_data(std::uint32_t chunk) {
  const Range r = range(chunk);
  if (is_coded_[chunk] || r.count == 0) return;
  is_coded_[chunk] = true;
  float* values = data_at(r.first);
  const std::span<std::byte> coded(place_of(chunk), coded_size(chunk, 1));
  // Another seed than that of contributions, whose random numbers belong to the same positions.
  CodecSettings settings = binding_.settings;
  settings.seed = ~settings.seed;
  encode(settings, values, r.count, r.first, coded.data());
  (void)decode(settings, coded, decoded_.data(), r.count);
  note_lost(r, values, decoded_.data());
  std::memcpy(values, decoded_.data(), r.count * sizeof(float));
}

// ---- Messages

Status CodedRun::open(Open& open, Transport& transport) {
  if (idle_.empty()) idle_.push_back(&messages_.emplace_back());
  Message& message = *idle_.back();
  idle_.pop_back();
  open.message = &message;
  message.transport = &transport;
  message.ticket = Ticket{};
  const Step& step = open.step;
  const std::size_t bytes = coded_size(open.chunk, step.count);
  const std::uint32_t tag = binding_.sequence * kLanes + step.lane;
  if (step.kind == StepKind::send && step.src == Slot::input && binding_.contributions != nullptr) {
    bytes_sent_ += bytes;
    return transport.send(step.peer, tag, binding_.contributions + plan_.chunks[open.chunk].contributed_at,
                          bytes, message.ticket);
  }
  message.at = place_for(open, message, bytes);
  if (step.kind == StepKind::recv) return transport.recv(step.peer, tag, message.at, bytes, message.ticket);
  std::byte* to = message.at;
  for (std::uint32_t chunk = open.chunk; chunk < open.chunk + step.count; ++chunk) {
    if (step.src == Slot::input) {
      code_input(chunk, to);
    } else {
      code_data(chunk);
    }
    to += coded_size(chunk, 1);
  }
  bytes_sent_ += bytes;
  return transport.send(step.peer, tag, message.at, bytes, message.ticket);
}

// Sums are sent from where they are coded once for all who get them, and arrive there, or where they are
// decoded to: the coded vector is nowhere as a whole where it is not sent on.
std::byte* CodedRun::place_for(const Open& open, Message& message, std::size_t bytes) {
  const bool sends = open.step.kind == StepKind::send;
  const Range r = range(open.chunk, open.step.count);
  message.own.clear();
  if ((sends ? open.step.src : open.step.dst) == Slot::data) {
    bool have_places = true;
    bool fit = true;  // none reaches beyond the place of its values
    for (std::uint32_t i = 0; i < open.step.count; ++i) {
      have_places = have_places && has_place(open.chunk + i);
      fit = fit && coded_size(open.chunk, i + 1) <= range(open.chunk, i + 1).count * sizeof(float);
    }
    if (have_places) return place_of(open.chunk);
    if (fit) return reinterpret_cast<std::byte*>(data_at(r.first));
  }
  message.own.resize(bytes);
  return message.own.data();
}

// The coded chunk, out of the way of its values.
std::span<const std::byte> CodedRun::keep(std::uint32_t chunk, const std::byte* coded) {
  const std::size_t bytes = coded_size(chunk, 1);
  if (!has_place(chunk)) moved_.resize(std::max(moved_.size(), bytes));
  std::byte* to = has_place(chunk) ? place_of(chunk) : moved_.data();
  if (to != coded && bytes > 0) std::memcpy(to, coded, bytes);
  is_coded_[chunk] = true;
  return {to, bytes};
}

Status CodedRun::take(const Open& open) {
  const Step& step = open.step;
  const std::byte* at = static_cast<const Message*>(open.message)->at + coded_size(open.chunk, step.count);
  const std::size_t first = split_.begin(open.chunk);
  // The last first: what arrives in the place of the values lies in front of where it is decoded to.
  for (std::uint32_t chunk = open.chunk + step.count; chunk-- > open.chunk;) {
    const Range r = range(chunk);
    at -= coded_size(chunk, 1);
    const bool to_data = step.dst == Slot::data;
    const std::span<const std::byte> coded = to_data ? keep(chunk, at) : std::span(at, coded_size(chunk, 1));
    if (to_data && binding_.codes != nullptr && is_final(open)) continue;
    float* to = to_data ? data_at(r.first) : unit(open.unit) + (r.first - first);
    const Status status = decode(binding_.settings, coded, to, r.count);
    if (!status.ok())
      return Status(Code::internal, "from rank " + std::to_string(step.peer) + ": " + status.message());
  }
  return {};
}

Status CodedRun::move(Open& open) {
  open.done = static_cast<const Message*>(open.message)->ticket.done;
  return open.done && open.step.kind == StepKind::recv ? take(open) : Status();
}

void CodedRun::close(Open& open) {
  auto* message = static_cast<Message*>(open.message);
  if (message == nullptr) return;
  if (!open.done) message->transport->cancel(message->ticket);
  idle_.push_back(message);
}

// ---- Local steps

void CodedRun::copy() {
  const std::uint32_t chunk = cursor().chunk();
  const std::size_t first = split_.begin(chunk);
  const std::size_t count = split_.length(chunk, cursor().step().count);
  if (count > 0 && data_at(first) != input_at(first))
    std::memcpy(data_at(first), input_at(first), count * sizeof(float));
}

// Within a node nothing is coded.
TeamOperands CodedRun::operands() {
  const Step& step = cursor().step();
  const Range r = range(cursor().chunk(), step.count);
  for (std::uint32_t i = 0; i < step.count; ++i)
    is_coded_[cursor().chunk() + i] = false;
  const float* const from = step.src == Slot::input ? input_at(r.first) : data_at(r.first);
  return {reinterpret_cast<const std::byte*>(from),
          reinterpret_cast<std::byte*>(data_at(r.first)),
          r.count,
          sizeof(float),
          sum_,
          fold_kind(DType::f32, Op::sum)};
}

void CodedRun::add(float* sum, const float* other, std::size_t count, bool other_first) const {
  const void* inputs[2] = {other_first ? other : sum, other_first ? sum : other};
  sum_(sum, nullptr, inputs, 2, count);
}

Status CodedRun::fold() {
  const Step& step = cursor().step();
  const std::uint32_t chunk = cursor().chunk();
  const Range r = range(chunk, step.count);
  add(data_at(r.first), unit(cursor().unit()), r.count, (step.flags & kSourceFirst) != 0);
  for (std::uint32_t i = 0; i < step.count; ++i)
    is_coded_[chunk + i] = false;
  return {};
}

}  // namespace heddle
