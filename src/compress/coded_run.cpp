#include "compress/coded_run.hpp"

#include <cmath>
#include <cstring>
#include <string>

#include "engine/kernels/kernels.hpp"

namespace heddle {

Status CodedRun::start(const CodedBinding& binding) {
  HEDDLE_TRY(begin());
  binding_ = binding;
  sum_ = fold_kernel(DType::f32, Op::sum);
  split_ = Split(binding.count, schedule().chunks);
  scratch_.resize(split_.longest(schedule().unit_chunks) * schedule().scratch_units);
  decoded_.resize(split_.longest(1));
  coded_.resize(schedule().chunks);
  for (Bytes& coded : coded_)
    coded.clear();
  bytes_sent_ = 0;
  return {};
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
  float* lost = binding_.lost + range.first;
  for (std::size_t i = 0; i < range.count; ++i) {
    const float difference = value[i] - decoded[i];
    if (std::isfinite(difference)) lost[i] += difference;
  }
}

void CodedRun::code_input(std::uint32_t chunk, std::byte* to) {
  const Range r = range(chunk);
  const float* values = binding_.input + r.first;
  encode(binding_.settings, values, r.count, r.first, to);
  if (binding_.lost == nullptr) return;
  // Its own encoding always decodes.
  (void)decode(binding_.settings, {to, coded_bytes(binding_.settings, r.count)}, decoded_.data(), r.count);
  note_lost(r, values, decoded_.data());
}

const CodedRun::Bytes& CodedRun::code_data(std::uint32_t chunk) {
  Bytes& coded = coded_[chunk];
  const Range r = range(chunk);
  if (!coded.empty() || r.count == 0) return coded;
  float* values = binding_.data + r.first;
  coded.resize(coded_bytes(binding_.settings, r.count));
  // Another seed than that of contributions, whose random numbers belong to the same positions.
  CodecSettings settings = binding_.settings;
  settings.seed = ~settings.seed;
  encode(settings, values, r.count, r.first, coded.data());
  (void)decode(settings, coded, decoded_.data(), r.count);
  note_lost(r, values, decoded_.data());
  std::memcpy(values, decoded_.data(), r.count * sizeof(float));
  return coded;
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
  message.bytes.resize(coded_size(open.chunk, step.count));
  const std::uint32_t tag = binding_.sequence * kLanes + step.lane;
  if (step.kind == StepKind::recv)
    return transport.recv(step.peer, tag, message.bytes.data(), message.bytes.size(), message.ticket);
  std::byte* to = message.bytes.data();
  for (std::uint32_t chunk = open.chunk; chunk < open.chunk + step.count; ++chunk) {
    const std::size_t bytes = coded_size(chunk, 1);
    if (step.src == Slot::input) {
      code_input(chunk, to);
    } else if (bytes > 0) {
      std::memcpy(to, code_data(chunk).data(), bytes);
    }
    to += bytes;
  }
  bytes_sent_ += message.bytes.size();
  return transport.send(step.peer, tag, message.bytes.data(), message.bytes.size(), message.ticket);
}

Status CodedRun::take(const Open& open) {
  const Message& message = *static_cast<const Message*>(open.message);
  std::span<const std::byte> left(message.bytes);
  float* scratch = open.step.dst == Slot::scratch ? unit(open.unit) : nullptr;
  for (std::uint32_t chunk = open.chunk; chunk < open.chunk + open.step.count; ++chunk) {
    const Range r = range(chunk);
    const std::span<const std::byte> coded = left.first(coded_size(chunk, 1));
    float* to = scratch != nullptr ? scratch : binding_.data + r.first;
    const Status status = decode(binding_.settings, coded, to, r.count);
    if (!status.ok())
      return Status(Code::internal, "from rank " + std::to_string(open.step.peer) + ": " + status.message());
    if (scratch != nullptr) {
      scratch += r.count;
    } else {
      coded_[chunk].assign(coded.begin(), coded.end());
    }
    left = left.subspan(coded.size());
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
  if (count > 0 && binding_.data != binding_.input)
    std::memcpy(binding_.data + first, binding_.input + first, count * sizeof(float));
}

Status CodedRun::fold() {
  const Step& step = cursor().step();
  const std::uint32_t chunk = cursor().chunk();
  float* data = binding_.data + split_.begin(chunk);
  const float* other = unit(cursor().unit());
  const bool other_first = (step.flags & kSourceFirst) != 0;
  const void* inputs[2] = {other_first ? other : data, other_first ? data : other};
  sum_(data, nullptr, inputs, 2, split_.length(chunk, step.count));
  for (std::uint32_t i = 0; i < step.count; ++i)
    coded_[chunk + i].clear();
  return {};
}

}  // namespace heddle
