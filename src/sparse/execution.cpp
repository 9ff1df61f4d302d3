#include "sparse/execution.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "sparse/merge.hpp"

namespace heddle {
namespace {

// The first entry whose index is not below `index`.
std::size_t lower_bound(const SparseView& view, std::uint64_t index) {
  std::size_t low = 0;
  std::size_t high = view.count;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (view.index(middle) < index) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

SparseView part(const SparseView& view, std::size_t begin, std::size_t end) {
  SparseView part = view;
  part.count = end - begin;
  if (part.count == 0) return part;
  part.indices = static_cast<const std::byte*>(view.indices) + begin * index_size(view.index_type);
  part.values = static_cast<const std::byte*>(view.values) + begin * dtype_size(view.value_type);
  return part;
}

// More than any form of that many entries takes on the wire: each in a chunk of its own.
std::size_t most_bytes(std::uint64_t entries) {
  constexpr std::uint64_t kEach = 72;
  return entries > SIZE_MAX / kEach ? SIZE_MAX : entries * kEach;
}

}  // namespace

StreamExecution::StreamExecution(std::shared_ptr<const Schedule> schedule, const Ports& ports)
    : schedule_(std::move(schedule)), ports_(&ports) {}

StreamExecution::~StreamExecution() {
  abandon();
}

Status StreamExecution::start(StreamBinding binding) {
  if (active_) return Status(Code::internal, "a schedule was started while it was running");
  if (binding.cuts.size() != std::size_t{schedule_->chunks} + 1)
    return Status(Code::internal, "as many regions as chunks are needed");
  binding_ = std::move(binding);
  input_cuts_.clear();
  for (const std::uint64_t cut : binding_.cuts)
    input_cuts_.push_back(lower_bound(binding_.input, cut));
  SparseView nothing = binding_.input;
  nothing.count = 0;
  data_.assign(schedule_->chunks, {nullptr, nothing});
  scratch_.assign(std::size_t{schedule_->scratch_units} * schedule_->unit_chunks, {nullptr, nothing});
  cursor_.emplace(*schedule_);
  bytes_sent_ = 0;
  active_ = true;
  return {};
}

StreamExecution::Cell StreamExecution::input_cell(std::uint32_t chunk) const {
  return {nullptr, part(binding_.input, input_cuts_[chunk], input_cuts_[chunk + 1])};
}

StreamExecution::Cell& StreamExecution::cell(Slot slot, std::uint32_t chunk, std::uint32_t unit,
                                             std::uint32_t offset) {
  if (slot == Slot::scratch) return scratch_[std::size_t{unit} * schedule_->unit_chunks + offset];
  return data_[chunk + offset];
}

// ---- Messages

StreamMessage* StreamExecution::idle_message() {
  if (idle_.empty()) return &messages_.emplace_back();
  StreamMessage* message = idle_.back();
  idle_.pop_back();
  return message;
}

Status StreamExecution::open_message() {
  const Step& step = cursor_->step();
  const bool sends = step.kind == StepKind::send;
  Transport* transport = ports_->transport_of[static_cast<std::size_t>(step.peer)];
  if (transport == nullptr)
    return Status(Code::unsupported, "no transport reaches rank " + std::to_string(step.peer));
  const Slot slot = sends ? step.src : step.dst;
  const std::uint32_t unit = slot == Slot::scratch ? cursor_->unit() : 0;
  const std::uint32_t tag = binding_.sequence * kLanes + step.lane;
  StreamMessage* message = idle_message();
  open_.push_back({step, cursor_->chunk(), unit, false, message});
  if (!sends) return message->recv(*transport, step.peer, tag, most_bytes(binding_.most_entries));
  message->clear();
  for (std::uint32_t i = 0; i < step.count; ++i) {
    const std::uint32_t chunk = cursor_->chunk() + i;
    const SparseView view =
        slot == Slot::input ? input_cell(chunk).view : cell(slot, cursor_->chunk(), unit, i).view;
    message->append(view, binding_.cuts[chunk], binding_.cuts[chunk + 1]);
  }
  HEDDLE_TRY(message->send(*transport, step.peer, tag));
  bytes_sent_ += message->wire_bytes();
  return {};
}

Status StreamExecution::take(const Open& open) {
  const std::uint32_t end = open.chunk + open.step.count;
  Result<StreamMessage::Received> received =
      open.message->unpack(binding_.input, binding_.cuts[open.chunk], binding_.cuts[end], pool_);
  if (!received.ok())
    return Status(Code::internal,
                  "from rank " + std::to_string(open.step.peer) + ": " + received.status().message());
  std::size_t begin = 0;
  for (std::uint32_t i = 0; i < open.step.count; ++i) {
    const bool last = i + 1 == open.step.count;
    const std::size_t stop =
        last ? received->view.count : lower_bound(received->view, binding_.cuts[open.chunk + i + 1]);
    cell(open.step.dst, open.chunk, open.unit, i) = {received->storage, part(received->view, begin, stop)};
    begin = stop;
  }
  return {};
}

Status StreamExecution::move_messages() {
  for (Transport* transport : ports_->transports)
    HEDDLE_TRY(transport->progress());
  // Firsts of one peer arrive in order, and seconds are opened in that order: oldest first.
  for (Open& open : open_) {
    if (open.done) continue;
    HEDDLE_TRY(open.message->move(&open.done));
    if (open.done && open.step.kind == StepKind::recv) HEDDLE_TRY(take(open));
  }
  return {};
}

// Frees finished messages from the oldest on; true when no more than `may_stay_open` are left.
bool StreamExecution::retire(std::uint32_t may_stay_open) {
  std::size_t finished = 0;
  while (open_.size() - finished > may_stay_open && open_[finished].done)
    idle_.push_back(open_[finished++].message);
  open_.erase(open_.begin(), open_.begin() + static_cast<std::ptrdiff_t>(finished));
  return open_.size() <= may_stay_open;
}

// ---- Local steps

void StreamExecution::copy() {
  const Step& step = cursor_->step();
  const std::uint32_t first = cursor_->chunk();
  const std::uint32_t unit = step.dst == Slot::scratch || step.src == Slot::scratch ? cursor_->unit() : 0;
  for (std::uint32_t i = 0; i < step.count; ++i)
    cell(step.dst, first, unit, i) =
        step.src == Slot::input ? input_cell(first + i) : cell(step.src, first, unit, i);
}

// This step, and those that follow it and fold more into the same chunks from the right: (a op b) op c is one merge of
// three streams. The cursor stays on the last of them.
Status StreamExecution::fold() {
  const Step step = cursor_->step();
  const std::uint32_t chunk = cursor_->chunk();
  folds_.assign(1, *cursor_);
  for (Cursor next = *cursor_;;) {
    next.advance();
    if (next.done() || next.step().kind != StepKind::reduce || next.chunk() != chunk ||
        next.step().count != step.count || next.step().dst != step.dst || next.step().src != Slot::scratch ||
        (next.step().flags & kSourceFirst) != 0)
      break;
    folds_.push_back(next);
  }
  for (std::uint32_t i = 0; i < step.count; ++i)
    HEDDLE_TRY(fold_chunk(i));
  cursor_ = folds_.back();
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
  SparseView merged = into.view;
  std::shared_ptr<Storage> storage = pool_.take(entries, merged.index_type, merged.value_type);
  if (!storage)
    return Status(Code::out_of_memory,
                  "no memory for a sparse stream of up to " + std::to_string(entries) + " entries");
  merged.indices = storage->indices.data();
  merged.values = storage->values.data();
  merged.count = fold_sparse(operands_, binding_.op, storage->indices.data(), storage->values.data());
  into = {std::move(storage), merged};
  return {};
}

// ---- Progress

Status StreamExecution::poll(bool* done) {
  *done = false;
  for (; !cursor_->done(); cursor_->advance()) {
    switch (cursor_->step().kind) {
      case StepKind::send:
      case StepKind::recv:
        HEDDLE_TRY(open_message());
        break;
      case StepKind::reduce:
        HEDDLE_TRY(fold());
        break;
      case StepKind::copy:
        copy();
        break;
      case StepKind::wait:
        if (retire(cursor_->step().count)) break;
        HEDDLE_TRY(move_messages());
        if (!retire(cursor_->step().count)) return {};
        break;
      case StepKind::repeat:  // the cursor never rests on one
        break;
      case StepKind::team_reduce:
      case StepKind::team_bcast:
      case StepKind::team_allreduce:
        return Status(Code::internal, "streams do not run over teams");
    }
  }
  active_ = false;
  scratch_.clear();
  *done = true;
  return {};
}

void StreamExecution::abandon() {
  for (const Open& open : open_) {
    if (!open.done) open.message->cancel();
    idle_.push_back(open.message);
  }
  open_.clear();
  active_ = false;
}

Waiting StreamExecution::waiting_for() const {
  for (const Open& open : open_) {
    if (!open.done) return {Waiting::On::rank, open.step.peer};
  }
  return {};
}

std::vector<SparseView> StreamExecution::result() const {
  std::vector<SparseView> parts;
  for (const Cell& cell : data_) {
    if (cell.view.count > 0) parts.push_back(cell.view);
  }
  return parts;
}

void StreamExecution::release() {
  data_.clear();
  pool_.trim();
  messages_.clear();
  idle_.clear();
}

}  // namespace heddle
