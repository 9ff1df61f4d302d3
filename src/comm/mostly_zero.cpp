// Allreduce of vectors that may be mostly zeros: by their entries (sparse_sums.cpp) where that pays.
#include <algorithm>
#include <string>

#include "comm/communicator_impl.hpp"
#include "comm/sparse_sums.hpp"
#include "sparse/convert.hpp"

namespace heddle {
namespace {

constexpr std::size_t kSamples = 256;

// The entries of a vector: block by block, so that what is counted is still in the cache when it is taken.
Status entries_of(const std::byte* buffer, std::size_t count, DType type, Storage& storage,
                  SparseView* view) {
  constexpr std::size_t kBlock = std::size_t{1} << 16;
  const std::size_t width = dtype_size(type);
  *view = {count, 0,       count <= std::uint64_t{1} << 32 ? IndexType::u32 : IndexType::u64,
           type,  nullptr, nullptr};
  const std::size_t index_width = index_size(view->index_type);
  for (std::size_t first = 0; first < count; first += kBlock) {
    const std::size_t here = std::min(kBlock, count - first);
    const std::size_t found = count_nonzero(buffer + first * width, here, type);
    if (found == 0) continue;
    const std::size_t needed = view->count + found;
    // At the rate so far with a margin, or twice what there is.
    const double rate = static_cast<double>(needed) / static_cast<double>(first + here);
    const auto all = static_cast<std::size_t>(1.1 * rate * static_cast<double>(count));
    const std::size_t room = std::max(all, 2 * needed);
    const std::size_t wanted = std::min(count, std::max<std::size_t>(room, 1024));
    const bool full = storage.values.size() < needed * width || storage.indices.size() < needed * index_width;
    if (full && (!storage.indices.grow(wanted * index_width, view->count * index_width) ||
                 !storage.values.grow(wanted * width, view->count * width)))
      return Status(Code::out_of_memory, "no memory for " + std::to_string(wanted) + " entries of a vector");
    take_nonzero(buffer + first * width, first, here, type, view->index_type,
                 storage.indices.data() + view->count * index_width,
                 storage.values.data() + view->count * width);
    view->count = needed;
  }
  view->indices = storage.indices.data();
  view->values = storage.values.data();
  return {};
}

}  // namespace

Result<bool> CommunicatorImpl::sum_by_entries(const MostlyZeroJob& job) {
  const Turn turn(asked_);
  return with_memory([&, this] { return sparse_.exchange_entries(job); });
}

Status CommunicatorImpl::mostly_zero_allreduce(const MostlyZeroJob& job) {
  const Turn turn(asked_);
  const Result<bool> served = sum_by_entries(job);
  if (!served.ok() || served.value()) return served.status();
  return with_memory([&, this] { return sparse_.sum_whole(job); });
}

// By samples of every rank's vector: what an allreduce of their entries would cost, beside that of the
// vectors.
Result<bool> SparseSums::looks_sparse(const MostlyZeroJob& job) {
  Result<double> density = job.trouble;
  if (job.trouble.ok())
    density = job.from != nullptr ? job.from->sampled_density(kSamples)
                                  : sampled_density(job.in, job.count, job.type, kSamples);
  SparseView guess{job.count, 0, IndexType::u64, job.type, nullptr, nullptr};
  if (density.ok()) guess.count = static_cast<std::size_t>(density.value() * static_cast<double>(job.count));
  Agreement agreement(comm_.size_, 0);
  agreement.state(comm_.rank_, guess, Op::sum, SparseForm::in_place, true);
  if (!density.ok()) agreement.withdraw(comm_.rank_, false);
  HEDDLE_TRY(comm_.part(comm_.run_job(agreement_job(agreement))));
  if (Status checked = agreement.check(density.status()); !checked.ok()) {
    ++comm_.calls_;  // a rank that met this with another call has counted
    return checked;
  }
  const SparseCall call{job.count, agreement.total(),      job.type, SparseForm::in_place,
                        true,      node_memory_ != nullptr};
  const auto pays = [&](double distinct) { return !planner_.choose(comm_.size_, call, distinct).dense; };
  const auto known = profiles_.find(job.count);
  if (known != profiles_.end() && pays(known->second.distinct())) return true;
  // Where it would pay if all had the same pattern the exchange finds out how far they have: where nothing is
  // known of that, and now and then where what was known speaks against it, since a dense sum teaches
  // nothing.
  if (!pays(1.0 / comm_.size_)) return false;
  if (known == profiles_.end()) return true;
  if (known->second.counts_refusal()) profiles_.erase(known);
  return !profiles_.contains(job.count);
}

Result<bool> SparseSums::exchange_entries(const MostlyZeroJob& job) {
  const bool can = is_sparse_value(job.type) && comm_.size_ > 1 && job.count > 0;
  const Result<bool> looks = can ? looks_sparse(job) : Result<bool>(false);
  if (!looks.ok()) return looks;
  if (!looks.value()) {
    comm_.note_sparse("dense", 0, 0, 0);
    return false;
  }
  HEDDLE_TRY(learn_node_memory());
  SparseJob entries;
  entries.trouble = take_entries(job, &entries.in);
  entries.dense = job.out;
  entries.there = job.there;
  entries.of_vectors = true;
  entries.in_place = job.in_place();
  HEDDLE_TRY(exchange(entries));
  return true;
}

Status SparseSums::sum_whole(const MostlyZeroJob& job) {
  if (!job.trouble.ok()) return comm_.size_ == 1 ? job.trouble : comm_.fail(job.trouble);
  if (comm_.size_ == 1 && job.in_place()) return {};
  const void* in = job.in;
  void* out = job.out;
  // Where there is no image the others wait in vain.
  if (job.from != nullptr) {
    const Result<void*> image = job.from->load();
    if (!image.ok()) return comm_.fail(image.status());
    in = image.value();
  }
  if (job.there != nullptr) {
    const Result<void*> image = job.there->image();
    if (!image.ok()) return comm_.fail(image.status());
    out = image.value();
  }
  HEDDLE_TRY(comm_.part(comm_.allreduce(in, out, job.count, job.type, Op::sum)));
  if (job.there != nullptr) job.there->store();
  return {};
}

Status SparseSums::take_entries(const MostlyZeroJob& job, SparseView* view) {
  const void* in = job.in;
  if (job.from != nullptr) {
    const Result<SparseView> taken = job.from->entries();
    if (taken.ok()) {
      *view = taken.value();
      return {};
    }
    const Result<void*> image = job.from->load();
    if (!image.ok()) return image.status();
    in = image.value();
  }
  if (!entries_ || entries_->is_shared() != (node_memory_ != nullptr))
    entries_ = std::make_unique<Storage>(node_memory_.get());
  const auto* const vector = static_cast<const std::byte*>(in);
  const Status taken = entries_of(vector, job.count, job.type, *entries_, view);
  if (taken.ok() || node_memory_ == nullptr) return taken;
  // The others do not reach it: what lies there is sent instead of handed over.
  entries_ = std::make_unique<Storage>();
  return entries_of(vector, job.count, job.type, *entries_, view);
}

}  // namespace heddle
