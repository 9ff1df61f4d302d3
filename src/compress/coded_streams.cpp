#include "compress/coded_streams.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "sparse/convert.hpp"
#include "sparse/part.hpp"

namespace heddle {
namespace {

// to[index - first] += value, for each entry.
template <typename Index>
void add_each(const SparseView& view, std::uint64_t first, float* to) {
  const auto* indices = static_cast<const std::byte*>(view.indices);
  const auto* values = static_cast<const std::byte*>(view.values);
  const std::size_t count = view.count;
  for (std::size_t i = 0; i < count; ++i) {
    Index index = 0;
    float value = 0;
    std::memcpy(&index, indices + i * sizeof index, sizeof index);
    std::memcpy(&value, values + i * sizeof value, sizeof value);
    to[index - first] += value;
  }
}

void add_entries(const SparseView& view, std::uint64_t first, float* to) {
  if (view.index_type == IndexType::u32) {
    add_each<std::uint32_t>(view, first, to);
  } else {
    add_each<std::uint64_t>(view, first, to);
  }
}

}  // namespace

Status CodedStreams::start(const CodedStreamsBinding& binding) {
  CodedBinding sums;
  sums.data = binding.data;
  sums.count = binding.input.dimension;
  sums.settings = binding.settings;
  sums.lost = binding.lost;
  sums.sequence = binding.sequence;
  HEDDLE_TRY(begin_coded(sums, false));
  input_ = binding.input;
  rank_ = binding.rank;
  most_entries_ = binding.most_entries;
  units_.assign(schedule().scratch_units, {});
  return {};
}

void CodedStreams::end() {
  units_.clear();
}

// ---- Messages

// The same on both ends: where the chunks are complete for the sender they are for the receiver, who gets
// them into its data and changes them no more.
bool CodedStreams::is_part(const Open& open) const {
  const Step& step = open.step;
  const Slot slot = step.kind == StepKind::send ? step.src : step.dst;
  return slot != Slot::data || !is_final(open);
}

Status CodedStreams::open(Open& open, Transport& transport) {
  if (!is_part(open)) return CodedRun::open(open, transport);
  if (idle_.empty()) idle_.push_back(&messages_.emplace_back());
  StreamMessage& message = *idle_.back();
  idle_.pop_back();
  open.message = &message;
  const Step& step = open.step;
  const std::uint32_t tag = binding().sequence * kLanes + step.lane;
  if (step.kind == StepKind::recv)
    return message.recv(transport, step.peer, tag, most_stream_bytes(most_entries_));
  message.clear();
  const Range r = range(open.chunk, step.count);
  if (step.src == Slot::input) {
    message.append(part_between(input_, r.first, r.first + r.count), r.first, r.first + r.count);
  } else {
    append_data(message, r);
  }
  HEDDLE_TRY(message.send(transport, step.peer, tag));
  note_sent(message.wire_bytes());
  return {};
}

// A partial sum, piece by piece, so that its entries take little memory beside the message.
void CodedStreams::append_data(StreamMessage& message, const Range& range) {
  constexpr std::size_t kPiece = 8 * kChunkEntries;
  SparseView view = input_;
  view.index_type = IndexType::u64;
  for (std::size_t done = 0; done < range.count; done += kPiece) {
    const std::size_t first = range.first + done;
    const std::size_t count = std::min(kPiece, range.count - done);
    view.count = count_nonzero(binding().data + first, count, DType::f32);
    indices_.resize(std::max(indices_.size(), view.count));
    values_.resize(std::max(values_.size(), view.count));
    take_nonzero(binding().data + first, first, count, DType::f32, view.index_type, indices_.data(),
                 values_.data());
    view.indices = indices_.data();
    view.values = values_.data();
    message.append(view, first, first + count);
  }
}

Status CodedStreams::take(const Open& open) {
  const Step& step = open.step;
  const auto& message = *static_cast<const StreamMessage*>(open.message);
  if (message.is_handed())
    return Status(Code::internal, "from rank " + std::to_string(step.peer) +
                                      ": a stream was handed over where none is expected");
  const Range r = range(open.chunk, step.count);
  Result<StreamMessage::Received> received = message.unpack(input_, r.first, r.first + r.count, pool_);
  if (!received.ok()) return received.status();
  if (step.dst == Slot::scratch) {
    units_[open.unit] = {std::move(received->storage), received->view, step.peer};
    return {};
  }
  // A partial sum that takes the place of what was here.
  std::fill_n(binding().data + r.first, r.count, 0.0F);
  scatter(received->view, 0, binding().data);
  return {};
}

Status CodedStreams::move(Open& open) {
  if (!is_part(open)) return CodedRun::move(open);
  HEDDLE_TRY(static_cast<StreamMessage*>(open.message)->move(&open.done));
  return open.done && open.step.kind == StepKind::recv ? take(open) : Status();
}

bool CodedStreams::has_begun(const Open& open) const {
  return !is_part(open) || static_cast<const StreamMessage*>(open.message)->has_begun();
}

void CodedStreams::close(Open& open) {
  if (!is_part(open)) return CodedRun::close(open);
  auto* message = static_cast<StreamMessage*>(open.message);
  if (message == nullptr) return;
  if (!open.done) message->cancel();
  idle_.push_back(message);
}

// ---- Local steps

void CodedStreams::copy() {
  const Range r = range(cursor().chunk(), cursor().step().count);
  std::fill_n(binding().data + r.first, r.count, 0.0F);
  add_entries(part_between(input_, r.first, r.first + r.count), 0, binding().data);
}

// This step and those that follow it and fold more into the same chunks. The cursor stays on the last of
// them.
Status CodedStreams::fold() {
  const Step step = cursor().step();
  const std::uint32_t chunk = cursor().chunk();
  folded_.clear();
  for (Cursor at = cursor(); !at.done(); at.advance()) {
    const Step& next = at.step();
    if (next.kind != StepKind::reduce || at.chunk() != chunk || next.count != step.count) break;
    if (next.dst != Slot::data || next.src != Slot::scratch)
      return Status(Code::internal, "streams are folded from scratch into a coded vector, and nowhere else");
    folded_.push_back(&units_[at.unit()]);
    cursor() = at;
  }
  std::ranges::sort(folded_, {}, &Part::rank);
  for (std::uint32_t i = 0; i < step.count; ++i)
    fold_chunk(chunk + i);
  for (Part* part : folded_)
    *part = {};
  return {};
}

void CodedStreams::fold_chunk(std::uint32_t chunk) {
  const Range r = range(chunk);
  float* data = binding().data + r.first;
  const auto entries = [&](const Part& part) { return part_between(part.view, r.first, r.first + r.count); };
  const auto above = std::ranges::upper_bound(folded_, rank_, {}, &Part::rank);
  if (above != folded_.begin()) {
    float* below = one_chunk();
    std::fill_n(below, r.count, 0.0F);
    for (auto part = folded_.begin(); part != above; ++part)
      add_entries(entries(**part), r.first, below);
    add(data, below, r.count, true);
  }
  for (auto part = above; part != folded_.end(); ++part)
    add_entries(entries(**part), r.first, data);
}

}  // namespace heddle
