#include "sparse/execution.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "sparse/merge.hpp"
#include "sparse/part.hpp"

namespace heddle {
Status StreamExecution::start(StreamBinding binding) {
  if (binding.cuts.size() != std::size_t{schedule().chunks} + 1)
    return Status(Code::internal, "as many regions as chunks are needed");
  HEDDLE_TRY(begin());
  binding_ = std::move(binding);
  input_cuts_.clear();
  for (const std::uint64_t cut : binding_.cuts)
    input_cuts_.push_back(first_from(binding_.input, cut));
  reset_cells();
  lent_.clear();
  pool_.use(binding_.memory);
  received_.clear();
  folded_.clear();
  remembers_ = false;
  from_memory_ = false;
  bytes_sent_ = 0;
  return {};
}

void StreamExecution::reset_cells() {
  SparseView nothing = binding_.input;
  nothing.count = 0;
  data_.assign(schedule().chunks, {nullptr, nothing});
  scratch_.assign(std::size_t{schedule().scratch_units} * schedule().unit_chunks, {nullptr, nothing});
}

Status StreamExecution::again(const void* values, std::uint32_t sequence) {
  HEDDLE_TRY(begin());
  binding_.input.values = values;
  binding_.sequence = sequence;
  reset_cells();
  from_memory_ = true;
  next_fold_ = 0;
  bytes_sent_ = 0;
  return {};
}

void StreamExecution::end() {
  scratch_.clear();
  remembers_ = binding_.remember;
}

StreamExecution::Cell StreamExecution::input_cell(std::uint32_t chunk) const {
  return {nullptr, part(binding_.input, input_cuts_[chunk], input_cuts_[chunk + 1])};
}

StreamExecution::Cell& StreamExecution::cell(Slot slot, std::uint32_t chunk, std::uint32_t unit,
                                             std::uint32_t offset) {
  if (slot == Slot::scratch) return scratch_[std::size_t{unit} * schedule().unit_chunks + offset];
  return data_[chunk + offset];
}

// ---- Messages

StreamMessage* StreamExecution::idle_message() {
  if (idle_.empty()) return &messages_.emplace_back();
  StreamMessage* message = idle_.back();
  idle_.pop_back();
  return message;
}

Status StreamExecution::open(Open& open, Transport& transport) {
  const Step& step = open.step;
  const std::uint32_t tag = binding_.sequence * kLanes + step.lane;
  StreamMessage* message = idle_message();
  open.message = message;
  if (from_memory_) return open_values(open, transport, tag);
  if (step.kind == StepKind::recv) {
    const std::size_t handed = binding_.memory != nullptr ? step.count * sizeof(HandedStream) : 0;
    return message->recv(transport, step.peer, tag,
                         std::max(handed, most_stream_bytes(binding_.most_entries)));
  }
  message->clear();
  if (binding_.memory == nullptr || !hand_over(*message, open)) {
    message->clear();
    for (std::uint32_t i = 0; i < step.count; ++i) {
      const std::uint32_t chunk = open.chunk + i;
      message->append(sent_cell(open, i).view, binding_.cuts[chunk], binding_.cuts[chunk + 1]);
    }
  }
  HEDDLE_TRY(message->send(transport, step.peer, tag));
  bytes_sent_ += message->wire_bytes();
  return {};
}

StreamExecution::Cell StreamExecution::sent_cell(const Open& open, std::uint32_t offset) {
  if (open.step.src == Slot::input) return input_cell(open.chunk + offset);
  return cell(open.step.src, open.chunk, open.unit, offset);
}

bool StreamExecution::place(const SparseView& view, HandedStream* stream) const {
  *stream = {view.count, static_cast<std::uint64_t>(view.index_type), {}, {}};
  return view.count == 0 ||
         (binding_.memory->place_of(view.indices, view.count * index_size(view.index_type),
                                    &stream->indices) &&
          binding_.memory->place_of(view.values, view.count * dtype_size(view.value_type), &stream->values));
}

// What lies elsewhere (another rank's, or the caller's) is copied to where others reach it. Without memory
// for that the cell stays as it is.
StreamExecution::Cell StreamExecution::shared_copy(const SparseView& view) {
  std::shared_ptr<Storage> storage = pool_.take(view.count, view.index_type, view.value_type);
  if (!storage || !storage->is_shared()) return {nullptr, view};
  std::memcpy(storage->indices.data(), view.indices, view.count * index_size(view.index_type));
  std::memcpy(storage->values.data(), view.values, view.count * dtype_size(view.value_type));
  SparseView copy = view;
  copy.indices = storage->indices.data();
  copy.values = storage->values.data();
  return {std::move(storage), copy};
}

bool StreamExecution::hand_over(StreamMessage& message, const Open& open) {
  for (std::uint32_t i = 0; i < open.step.count; ++i) {
    Cell cell = sent_cell(open, i);
    HandedStream stream;
    if (!place(cell.view, &stream)) {
      cell = shared_copy(cell.view);
      if (!place(cell.view, &stream)) return false;
    }
    message.hand(stream);
    if (cell.owner) lent_.push_back(cell.owner);
  }
  return true;
}

Status StreamExecution::take_handed(const Open& open) {
  const Result<std::vector<HandedStream>> streams = static_cast<StreamMessage*>(open.message)->handed();
  if (!streams.ok()) return streams.status();
  const std::string who = "rank " + std::to_string(open.step.peer);
  if (streams.value().size() != open.step.count)
    return Status(Code::internal, who + " hands over another number of streams than is expected");
  for (std::uint32_t i = 0; i < open.step.count; ++i) {
    const HandedStream& stream = streams.value()[i];
    SparseView view = binding_.input;
    view.count = stream.count;
    if (stream.count > 0) {
      view.indices = binding_.memory->at(open.step.peer, stream.indices);
      view.values = binding_.memory->at(open.step.peer, stream.values);
      if (view.indices == nullptr || view.values == nullptr)
        return Status(Code::system, "memory that " + who + " hands over cannot be mapped");
    }
    Cell& to = cell(open.step.dst, open.chunk, open.unit, i);
    to = {nullptr, view};
    if (stream.index_type != static_cast<std::uint64_t>(view.index_type)) HEDDLE_TRY(convert(to));
  }
  return {};
}

// The other rank's indices have the other width.
Status StreamExecution::convert(Cell& cell) {
  const SparseView& own = binding_.input;
  SparseView theirs = cell.view;
  theirs.index_type = own.index_type == IndexType::u32 ? IndexType::u64 : IndexType::u32;
  std::shared_ptr<Storage> storage = pool_.take(theirs.count, own.index_type, own.value_type);
  if (!storage)
    return Status(Code::out_of_memory, "no memory for " + std::to_string(theirs.count) + " entries");
  for (std::size_t i = 0; i < theirs.count; ++i) {
    const std::uint64_t index = theirs.index(i);
    std::memcpy(storage->indices.data() + i * index_size(own.index_type), &index, index_size(own.index_type));
  }
  cell.view.indices = storage->indices.data();
  lent_.push_back(std::move(storage));
  return {};
}

Status StreamExecution::take(const Open& open) {
  if (static_cast<StreamMessage*>(open.message)->is_handed()) {
    if (binding_.memory != nullptr) return take_handed(open);
    return Status(Code::internal, "a stream was handed over where none is expected");
  }
  const std::uint32_t end = open.chunk + open.step.count;
  Result<StreamMessage::Received> received =
      static_cast<StreamMessage*>(open.message)
          ->unpack(binding_.input, binding_.cuts[open.chunk], binding_.cuts[end], pool_);
  if (!received.ok()) return received.status();
  std::size_t begin = 0;
  for (std::uint32_t i = 0; i < open.step.count; ++i) {
    const bool last = i + 1 == open.step.count;
    const std::size_t stop =
        last ? received->view.count : first_from(received->view, binding_.cuts[open.chunk + i + 1]);
    cell(open.step.dst, open.chunk, open.unit, i) = {received->storage, part(received->view, begin, stop)};
    begin = stop;
  }
  return {};
}

Status StreamExecution::move(Open& open) {
  HEDDLE_TRY(static_cast<StreamMessage*>(open.message)->move(&open.done));
  if (!open.done || open.step.kind == StepKind::send) return {};
  if (from_memory_) {
    take_values(open);
    return {};
  }
  HEDDLE_TRY(take(open));
  if (!binding_.remember) return {};
  if (received_.size() <= open.number) received_.resize(open.number + 1);
  for (std::uint32_t i = 0; i < open.step.count; ++i)
    received_[open.number].cells.push_back(cell(open.step.dst, open.chunk, open.unit, i));
  return {};
}

bool StreamExecution::has_begun(const Open& open) const {
  return static_cast<const StreamMessage*>(open.message)->has_begun();
}

void StreamExecution::close(Open& open) {
  auto* message = static_cast<StreamMessage*>(open.message);
  if (message == nullptr) return;
  if (!open.done) message->cancel();
  idle_.push_back(message);
}

// ---- From memory

Status StreamExecution::open_values(const Open& open, Transport& transport, std::uint32_t tag) {
  auto& message = *static_cast<StreamMessage*>(open.message);
  if (open.step.kind == StepKind::recv) {
    Received& received = received_[open.number];
    std::size_t bytes = 0;
    for (const Cell& cell : received.cells)
      bytes += cell.view.count * dtype_size(cell.view.value_type);
    if (!received.values.grow(std::max<std::size_t>(bytes, 1)))
      return Status(Code::out_of_memory, "no memory for " + std::to_string(bytes) + " bytes of values");
    return message.recv_values(transport, open.step.peer, tag, received.values.data(), bytes);
  }
  message.clear();
  for (std::uint32_t i = 0; i < open.step.count; ++i)
    message.append_values(sent_cell(open, i).view);
  HEDDLE_TRY(message.send_values(transport, open.step.peer, tag));
  bytes_sent_ += message.wire_bytes();
  return {};
}

void StreamExecution::take_values(const Open& open) {
  Received& received = received_[open.number];
  const std::byte* values = received.values.data();
  for (std::uint32_t i = 0; i < open.step.count; ++i) {
    Cell& to = cell(open.step.dst, open.chunk, open.unit, i);
    to = received.cells[i];
    to.view.values = values;
    values += to.view.count * dtype_size(to.view.value_type);
  }
}

Status StreamExecution::fold_values(Cell& into) {
  Folded& folded = folded_[next_fold_++];
  std::vector<const void*> values;
  for (const SparseView& operand : operands_)
    values.push_back(operand.values);
  const std::size_t bytes = folded.cell.view.count * dtype_size(folded.cell.view.value_type);
  if (!folded.values.grow(std::max<std::size_t>(bytes, 1)))
    return Status(Code::out_of_memory, "no memory for " + std::to_string(bytes) + " bytes of sums");
  folded.plan.sum(values, folded.values.data());
  into = folded.cell;
  into.view.values = folded.values.data();
  return {};
}

// ---- Local steps

void StreamExecution::copy() {
  const Step& step = cursor().step();
  const std::uint32_t first = cursor().chunk();
  const bool of_scratch = step.dst == Slot::scratch || step.src == Slot::scratch;
  const std::uint32_t unit = of_scratch ? cursor().unit() : 0;
  for (std::uint32_t i = 0; i < step.count; ++i)
    cell(step.dst, first, unit, i) =
        step.src == Slot::input ? input_cell(first + i) : cell(step.src, first, unit, i);
}

// This step, and those that follow it and fold more into the same chunks from the right: (a op b) op c is one
// merge of three streams. The cursor stays on the last of them.
Status StreamExecution::fold() {
  const Step step = cursor().step();
  const std::uint32_t chunk = cursor().chunk();
  folds_.assign(1, cursor());
  for (Cursor next = cursor();;) {
    next.advance();
    if (next.done() || next.step().kind != StepKind::reduce || next.chunk() != chunk ||
        next.step().count != step.count || next.step().dst != step.dst || next.step().src != Slot::scratch ||
        (next.step().flags & kSourceFirst) != 0)
      break;
    folds_.push_back(next);
  }
  for (std::uint32_t i = 0; i < step.count; ++i)
    HEDDLE_TRY(fold_chunk(i));
  cursor() = folds_.back();
  return {};
}

Status StreamExecution::fold_chunk(std::uint32_t offset) {
  const Cursor& first = folds_.front();
  const std::uint32_t own_unit = first.step().dst == Slot::scratch ? first.unit() : 0;
  Cell& into = cell(first.step().dst, first.chunk(), own_unit, offset);
  operands_.assign(1, into.view);
  std::size_t entries = into.view.count;
  for (const Cursor& fold : folds_) {
    const std::uint32_t unit = fold.step().src == Slot::scratch ? fold.unit() : 0;
    const SparseView& other = cell(fold.step().src, fold.chunk(), unit, offset).view;
    const bool before = (fold.step().flags & kSourceFirst) != 0;
    operands_.insert(before ? operands_.begin() : operands_.end(), other);
    entries += other.count;
  }
  if (from_memory_) return fold_values(into);
  SparseView merged = into.view;
  std::shared_ptr<Storage> storage = pool_.take(entries, merged.index_type, merged.value_type);
  if (!storage)
    return Status(Code::out_of_memory,
                  "no memory for a sparse stream of up to " + std::to_string(entries) + " entries");
  std::byte* const indices = storage->indices.data();
  std::byte* const values = storage->values.data();
  merged.count = binding_.threads != nullptr ? binding_.threads->fold(operands_, binding_.op, indices, values)
                                             : fold_sparse(operands_, binding_.op, indices, values);
  merged.indices = indices;
  merged.values = values;
  into = {std::move(storage), merged};
  if (binding_.remember) folded_.push_back({FoldPlan(operands_, merged), into, Buffer()});
  return {};
}

std::vector<SparseView> StreamExecution::result() const {
  std::vector<SparseView> parts;
  for (const Cell& cell : data_) {
    if (cell.view.count > 0) parts.push_back(cell.view);
  }
  return parts;
}

}  // namespace heddle
