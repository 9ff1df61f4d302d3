#include "sparse/threaded_fold.hpp"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>

#include "base/round_up.hpp"
#include "sparse/merge.hpp"
#include "sparse/part.hpp"

namespace heddle {
namespace {

// Entries in a region: what comes of them, and where from, stays in the second level of cache.
constexpr std::size_t kRegion = std::size_t{1} << 16;

// One fold, region by region. How many entries come out of a region is known only when it is folded. So each
// goes where the thread has room of its own, unless all before it are there already, and is copied to its
// place, out of the cache, once the region before it is folded.
class RegionFold {
 public:
  RegionFold(std::span<const SparseView> streams, Op op, std::size_t entries, void* indices, void* values)
      : streams_(streams),
        op_(op),
        regions_(div_up(entries, kRegion)),
        index_bytes_(index_size(streams[0].index_type)),
        value_bytes_(dtype_size(streams[0].value_type)),
        indices_(static_cast<std::byte*>(indices)),
        values_(static_cast<std::byte*>(values)),
        ends_(regions_) {
    for (std::atomic<std::size_t>& end : ends_)
      end.store(kUnknown, std::memory_order_relaxed);
  }

  // In every thread: the regions are dealt out in order, so that the one before is folded or being folded.
  void work(Storage& scratch) {
    for (std::size_t k = next_.fetch_add(1); k < regions_; k = next_.fetch_add(1)) {
      try {
        take(k, scratch);
      } catch (...) {
        tell(k, kFailed);  // others wait for it
        throw;
      }
    }
  }

  std::size_t count() const { return ends_.back().load(std::memory_order_acquire); }

 private:
  static constexpr std::size_t kUnknown = SIZE_MAX;
  static constexpr std::size_t kFailed = SIZE_MAX - 1;

  void tell(std::size_t region, std::size_t end) {
    ends_[region].store(end, std::memory_order_release);
    ends_[region].notify_all();
  }

  // With which entry of each stream a region begins: those before it are `region` times kRegion, or a few
  // more, so that entries of equal index stay together.
  std::vector<std::size_t> begin_of(std::size_t region) const {
    std::vector<std::size_t> low(streams_.size(), 0);
    if (region == 0) return low;
    std::vector<std::size_t> high;
    for (const SparseView& stream : streams_)
      high.push_back(stream.count);
    if (region == regions_) return high;
    std::vector<std::size_t> at(streams_.size());
    std::uint64_t least = 0;
    std::uint64_t most = streams_[0].dimension;
    while (least < most) {
      const std::uint64_t middle = least + (most - least) / 2;
      std::size_t before = 0;
      for (std::size_t s = 0; s < streams_.size(); ++s) {
        at[s] = low[s] + first_from(part(streams_[s], low[s], high[s]), middle);
        before += at[s];
      }
      const bool enough = before >= region * kRegion;
      (enough ? most : least) = enough ? middle : middle + 1;
      (enough ? high : low) = at;
    }
    return high;
  }

  void take(std::size_t region, Storage& scratch) {
    const std::vector<std::size_t> begin = begin_of(region);
    const std::vector<std::size_t> end = begin_of(region + 1);
    std::vector<SparseView> parts;
    std::size_t entries = 0;
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      parts.push_back(part(streams_[s], begin[s], end[s]));
      entries += parts.back().count;
    }
    std::size_t to = region == 0 ? 0 : ends_[region - 1].load(std::memory_order_acquire);
    if (to < kFailed) {
      tell(region, to + fold_sparse(parts, op_, indices_ + to * index_bytes_, values_ + to * value_bytes_));
      return;
    }
    if (!scratch.indices.grow(entries * index_bytes_) || !scratch.values.grow(entries * value_bytes_))
      throw std::bad_alloc();
    const std::size_t count = fold_sparse(parts, op_, scratch.indices.data(), scratch.values.data());
    ends_[region - 1].wait(kUnknown, std::memory_order_acquire);
    to = ends_[region - 1].load(std::memory_order_acquire);
    if (to == kFailed) return tell(region, kFailed);
    tell(region, to + count);
    std::memcpy(indices_ + to * index_bytes_, scratch.indices.data(), count * index_bytes_);
    std::memcpy(values_ + to * value_bytes_, scratch.values.data(), count * value_bytes_);
  }

  std::span<const SparseView> streams_;
  Op op_;
  std::size_t regions_;
  std::size_t index_bytes_;
  std::size_t value_bytes_;
  std::byte* indices_;
  std::byte* values_;
  std::atomic<std::size_t> next_{0};
  std::vector<std::atomic<std::size_t>> ends_;  // by region: entries of the result up to its end
};

}  // namespace

std::size_t ThreadedFold::fold(std::span<const SparseView> streams, Op op, void* indices, void* values) {
  std::size_t entries = 0;
  for (const SparseView& stream : streams)
    entries += stream.count;
  if (pool_.most_threads() == 1 || streams.size() < 2 || entries < kThreadsFrom)
    return fold_sparse(streams, op, indices, values);
  RegionFold fold(streams, op, entries, indices, values);
  pool_.run([&](std::size_t thread) { fold.work(scratch_[thread]); });
  return fold.count();
}

}  // namespace heddle
