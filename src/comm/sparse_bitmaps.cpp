// Allreduce of streams that lie densely, on one node: by bitmaps (sparse/bitmap_exchange.hpp).
#include <vector>

#include "comm/communicator_impl.hpp"
#include "comm/complete.hpp"
#include "comm/sparse_sums.hpp"

namespace heddle {

// Whether the stream keeps its contract. Where it lies so densely that a bitmap may serve that is made on the
// way: another pass over the indices would cost as much as the exchange of them.
Status SparseSums::look_through(const SparseJob& job) {
  constexpr std::uint64_t kDense = 16;  // a bitmap then takes no more than half of the indices
  const SparseView& in = job.in;
  if (bitmaps_) bitmaps_->abandon();  // what a call has marked that did not use it
  if (!may_be_bitmaps(job) || in.count < in.dimension / kDense || in.count > in.dimension ||
      !is_sparse_value(in.value_type))
    return check_sparse(in);
  if (!bitmaps_) bitmaps_ = std::make_unique<BitmapExchange>(*node_memory_, comm_.rank_, comm_.size_);
  return bitmaps_->mark(in) ? Status() : check_sparse(in);
}

bool SparseSums::may_be_bitmaps(const SparseJob& job) const {
  return node_memory_ != nullptr && job.op == Op::sum && !job.has_vector();
}

// *served: false where a rank has no memory for it; nothing has happened then.
Status SparseSums::run_bitmaps(const SparseJob& job, const Agreement& agreement, bool* served) {
  *served = false;
  if (!bitmaps_) bitmaps_ = std::make_unique<BitmapExchange>(*node_memory_, comm_.rank_, comm_.size_);
  if (!bitmaps_->is_marked()) bitmaps_->mark(job.in);
  std::vector<BitmapExchange::Shown> all(static_cast<std::size_t>(comm_.size_));
  all[static_cast<std::size_t>(comm_.rank_)] = bitmaps_->show();
  constexpr std::size_t kWords = sizeof(BitmapExchange::Shown) / sizeof(std::uint64_t);
  HEDDLE_TRY(comm_.part(comm_.run_job({Collective::allreduce, all.data(), all.data(), all.size() * kWords,
                                       sizeof(std::uint64_t), fold_kernel(DType::u64, Op::sum), 0})));
  for (const BitmapExchange::Shown& shown : all)
    if (shown.is_there == 0) return {};
  *served = true;
  if (Status status = bitmaps_->open(job.in, all); !status.ok()) return comm_.fail(std::move(status));
  SparseView result = job.in;
  result.count = bitmaps_->count();
  SparseRoom room;
  if (job.room) room = job.room(result.count);
  if (room.indices == nullptr) {
    if (!unplaced_.indices.grow(result.count * index_size(result.index_type)) ||
        !unplaced_.values.grow(result.count * dtype_size(result.value_type)))
      return comm_.fail(Status(Code::out_of_memory, "no memory for a sparse result of " +
                                                        std::to_string(result.count) + " entries"));
    room = {unplaced_.indices.data(), unplaced_.values.data()};
  }
  bitmaps_->start(room.indices, room.values);
  HEDDLE_TRY(comm_.complete(*bitmaps_));
  result.indices = room.indices;
  result.values = room.values;
  const std::span<const SparseView> parts(&result, result.count > 0 ? 1 : 0);
  learn(parts, agreement.total(), job.in.dimension);
  comm_.note_sparse("bitmaps", agreement.total(), result.count, 0);
  return job.deliver(parts);
}

}  // namespace heddle
