#include "comm/device_merge.hpp"

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

// A rank that cannot go on says so in the last meeting, and keeps to the others' steps until then: the call goes by images.
std::span<std::uint64_t> MergedEntries::later_words(std::size_t k) {
  if (k != steps()) return {};
  unfinished_ = !has_memory_ || worker_.sparse->broken() ? 1 : 0;
  return std::span(&unfinished_, 1);
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

// To the caller's arrays if the result fits there, which is known when it is merged.
Status MergedEntries::close() {
  if (!has_memory_) return {};
  if (job_.out.capacity == 0) return merge_beside();
  HEDDLE_TRY(merge_all(job_.out));
  if (!has_memory_ || job_.out.capacity >= total()) return {};
  HEDDLE_TRY(worker_.worker.link->wait());
  const bool fits = worker_.sparse->merged() <= job_.out.capacity;
  return fits || worker_.sparse->broken() ? Status() : merge_beside();
}

Status MergedEntries::merge_beside() {
  const Result<gpu::Room> beside = room(worker_.worker.size - 1, job_.out.wide || is_long());
  has_memory_ = beside.ok();
  return has_memory_ ? merge_all(beside.value()) : Status();
}

// For the merge of what is there with this rank's list.
Result<gpu::Room> MergedEntries::room(int rank, bool wide) {
  const std::size_t most = total();
  const Result<std::byte*> at =
      worker_.sparse->piece(kMerges + static_cast<std::size_t>(rank % 2), list_bytes(most, wide));
  if (!at.ok()) return at.status();
  return gpu::Room{at.value(), at.value() + aligned(most * gpu::index_bytes(wide)), most, wide};
}

Status MergedEntries::merge_all(const gpu::Room& to) {
  gpu::Entries so_far = lists_[0];
  for (int r = 1; r < worker_.worker.size; ++r) {
    const bool is_last = r + 1 == worker_.worker.size;
    const Result<gpu::Room> next = is_last ? Result<gpu::Room>(to) : room(r, is_long());
    has_memory_ = next.ok();
    if (!has_memory_) return {};
    const gpu::Entries& list = lists_[static_cast<std::size_t>(r)];
    HEDDLE_TRY(worker_.sparse->merge(type_, job_.op, so_far, r > 1, list, job_.dimension, next.value()));
    so_far = {next->indices, next->values, so_far.count + list.count, next->wide};
  }
  result_ = to;
  HEDDLE_TRY(after_merges(to));
  return worker_.sparse->tell();
}

// ---- Into a dense vector

Result<gpu::Entries> ScatteredEntries::make() {
  HEDDLE_TRY(worker_.sparse->check(job_.in, job_.dimension));
  return job_.in;
}

Status ScatteredEntries::after_merges(const gpu::Room& from) {
  HEDDLE_TRY(worker_.sparse->clear(out_, job_.dimension * dtype_size(type_)));
  return worker_.sparse->scatter_merged(type_, from, out_, job_.dimension);
}

}  // namespace heddle
