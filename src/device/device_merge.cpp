#include "device/device_merge.hpp"

#include "base/round_up.hpp"

namespace heddle {
namespace {

// The link's pieces of memory: lists that come in pieces, and what two merges in a row make, by turns.
constexpr std::size_t kCollected = 0;
constexpr std::size_t kMerges = 1;

// Of values behind indices.
constexpr std::size_t kAlignment = 16;
constexpr std::size_t aligned(std::size_t bytes) {
  return round_up(bytes, kAlignment);
}

}  // namespace

std::size_t MergedEntries::list_bytes(std::size_t count, bool wide) const {
  return aligned(count * gpu::index_bytes(wide)) + aligned(count * dtype_size(type_));
}

// A rank that cannot go on says so in the last meetings, and keeps to the others' steps until then: the call
// goes by images. How long the result is who has merged knows after the wait; that the ranks merge once more
// is decided once.
std::span<std::uint64_t> MergedEntries::later_words(std::size_t k) {
  if (k < EntriesWork::steps()) return {};
  if (!has_memory_ || (merged_ && worker_.sparse->broken())) outcome_[kUnfinished] = 1;
  if (k == EntriesWork::steps() && merged_ && outcome_[kUnfinished] == 0) {
    outcome_[kCount] = worker_.sparse->merged();
    for (const gpu::Room& room : serves())
      outcome_[kAgain] |= room.capacity < outcome_[kCount] ? 1U : 0U;
  }
  return outcome_;
}

Status MergedEntries::step(std::size_t k) {
  if (k < EntriesWork::steps()) return EntriesWork::step(k);
  if (!has_room() || job_.out.capacity >= outcome_[kCount]) return {};
  HEDDLE_TRY(worker_.worker.link->after_earlier_work());
  return merge_beside();
}

// ---- Everybody's lists, each in one place

Status MergedEntries::open() {
  std::size_t bytes = 0;
  for (int r = 0; r < worker_.worker.size; ++r)
    if (!is_whole(r)) bytes += list_bytes(entries_of(r).count, entries_of(r).wide);
  if (bytes == 0) return {};
  const Result<std::byte*> collected = worker_.sparse->piece(kCollected, bytes);
  has_memory_ = collected.ok();
  if (!has_memory_) return {};
  std::byte* at = collected.value();
  for (int r = 0; r < worker_.worker.size; ++r) {
    if (is_whole(r)) continue;
    const gpu::Entries all = entries_of(r);
    lists_[static_cast<std::size_t>(r)] = {at, at + aligned(all.count * gpu::index_bytes(all.wide)),
                                           all.count, all.wide};
    at += list_bytes(all.count, all.wide);
  }
  return {};
}

Status MergedEntries::use(int rank, const gpu::Entries& entries, std::size_t first) {
  gpu::Entries& list = lists_[static_cast<std::size_t>(rank)];
  if (is_whole(rank)) list = entries;
  if (is_whole(rank) || !has_memory_) return {};
  // Memory of the link's own, whatever else the list may be.
  auto* const indices = static_cast<std::byte*>(const_cast<void*>(list.indices));
  auto* const values = static_cast<std::byte*>(const_cast<void*>(list.values));
  const std::size_t width = gpu::index_bytes(list.wide);
  HEDDLE_TRY(worker_.worker.link->copy(indices + first * width, entries.indices, entries.count * width));
  return worker_.worker.link->copy(values + first * dtype_size(type_), entries.values,
                                   entries.count * dtype_size(type_));
}

// ---- Merging

// The arrays that this rank puts the result to.
std::vector<gpu::Room> MergedEntries::serves() const {
  std::vector<gpu::Room> rooms;
  if (!worker_.direct && has_room()) rooms.push_back(job_.out);
  for (int r = 0; worker_.direct && worker_.worker.rank == 0 && r < worker_.worker.size; ++r) {
    if (room_of(r).capacity > 0) rooms.push_back(room_of(r));
  }
  return rooms;
}

Status MergedEntries::close() {
  result_ = job_.out;
  if (!has_memory_ || !works()) return {};
  const std::vector<gpu::Room> rooms = serves();
  if (!rooms.empty()) HEDDLE_TRY(merge_all(rooms));
  if (has_room() || !has_memory_) return {};
  // Lists between merges may grow, and nothing may be under way there.
  if (!rooms.empty()) HEDDLE_TRY(worker_.worker.link->wait());
  return merge_beside();
}

Status MergedEntries::merge_beside() {
  const Result<gpu::Room> beside = room(worker_.worker.size - 1, job_.out.wide || is_long());
  has_memory_ = beside.ok();
  if (!has_memory_) return {};
  result_ = beside.value();
  return merge_all(std::span(&result_, 1));
}

// For the merge of what is there with this rank's list.
Result<gpu::Room> MergedEntries::room(int rank, bool wide) {
  const std::size_t most = total();
  const Result<std::byte*> at =
      worker_.sparse->piece(kMerges + static_cast<std::size_t>(rank % 2), list_bytes(most, wide));
  if (!at.ok()) return at.status();
  return gpu::Room{at.value(), at.value() + aligned(most * gpu::index_bytes(wide)), most, wide};
}

Status MergedEntries::merge_all(std::span<const gpu::Room> to) {
  gpu::Entries so_far = lists_[0];
  for (int r = 1; r < worker_.worker.size; ++r) {
    const bool is_last = r + 1 == worker_.worker.size;
    const Result<gpu::Room> next = is_last ? Result<gpu::Room>(to[0]) : room(r, is_long());
    has_memory_ = next.ok();
    if (!has_memory_) return {};
    const gpu::Entries& list = lists_[static_cast<std::size_t>(r)];
    HEDDLE_TRY(worker_.sparse->merge(type_, job_.op, so_far, r > 1, list, job_.dimension,
                                     is_last ? to : std::span(&next.value(), 1)));
    so_far = {next->indices, next->values, so_far.count + list.count, next->wide};
  }
  merged_ = true;
  HEDDLE_TRY(after_merges(to[0]));
  return worker_.sparse->tell();
}

// ---- Into a dense vector

Status SpreadEntries::after_merges(const gpu::Room& from) {
  std::vector<void*> dense(1, out_);
  if (worker_.direct) dense.clear();
  for (int r = 0; worker_.direct && r < worker_.worker.size; ++r)
    dense.push_back(room_of(r).indices);
  return worker_.sparse->spread_merged(type_, from, job_.op == Op::sum, dense, job_.dimension);
}

}  // namespace heddle
