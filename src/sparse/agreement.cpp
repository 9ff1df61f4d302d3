#include "sparse/agreement.hpp"

#include <algorithm>
#include <string>

#include "base/hash.hpp"

namespace heddle {
namespace {

// The third word: type, operation, why there is no stream, the form, whether the contract is broken, and what
// else is to be equal.
constexpr std::uint64_t kMissing = std::uint64_t{1} << 16;
constexpr std::uint64_t kRefused = std::uint64_t{1} << 17;
constexpr int kForm = 18;
constexpr std::uint64_t kBroken = std::uint64_t{1} << 32;
constexpr int kHow = 33;

std::uint64_t types_word(const SparseView& view, Op op, SparseForm form, bool valid, std::uint64_t how) {
  return static_cast<std::uint64_t>(view.value_type) | static_cast<std::uint64_t>(op) << 8 |
         static_cast<std::uint64_t>(form) << kForm | (valid ? 0 : kBroken) | how << kHow;
}

const char* call_of(std::uint64_t word) {
  static constexpr const char* kCalls[] = {"heddle_sparse_allreduce", "heddle_sparse_allreduce_dense",
                                           "heddle_sparse_allreduce_in_place",
                                           "heddle_sparse_allreduce_coded"};
  return kCalls[word >> kForm & 3];
}

std::string what(std::uint64_t dimension, std::uint64_t word) {
  return std::string(op_name(static_cast<Op>(word >> 8 & 0xff))) + " of " +
         dtype_name(static_cast<DType>(word & 0xff)) + ", dimension " + std::to_string(dimension);
}

}  // namespace

std::size_t samples_shown(int ranks) {
  return std::clamp<std::size_t>(2048 / static_cast<std::size_t>(ranks), 4, 64);
}

Agreement::Agreement(int ranks, std::size_t samples)
    : ranks_(ranks), samples_(samples), words_(static_cast<std::size_t>(ranks) * (kWords + samples)) {}

// The samples are the entries whose hashes are smallest, the same rule on every rank: an index that two ranks
// have is sampled by both or by none.
void Agreement::state(int rank, const SparseView& view, Op op, SparseForm form, bool valid,
                      std::uint64_t how) {
  std::fill(words_.begin(), words_.end(), 0);
  const auto own =
      std::span(words_).subspan(static_cast<std::size_t>(rank) * (kWords + samples_), kWords + samples_);
  own[0] = valid ? view.count : 0;
  own[1] = view.dimension;
  own[2] = types_word(view, op, form, valid, how);
  if (samples_ == 0 || !valid) return;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> least;  // a heap: the largest hash first
  for (std::size_t i = 0; i < view.count; ++i) {
    const std::uint64_t index = view.index(i);
    const std::uint64_t hash = mix64(index);
    if (least.size() == samples_) {
      if (hash > least.front().first) continue;
      std::pop_heap(least.begin(), least.end());
      least.pop_back();
    }
    least.emplace_back(hash, index);
    std::push_heap(least.begin(), least.end());
  }
  std::sort(least.begin(), least.end());
  for (std::size_t i = 0; i < least.size(); ++i)
    own[kWords + i] = least[i].second;
}

void Agreement::withdraw(int rank, bool refused) {
  std::fill(words_.begin(), words_.end(), 0);
  words_[static_cast<std::size_t>(rank) * (kWords + samples_) + 2] = refused ? kRefused : kMissing;
}

Status Agreement::check(const Words& how) const {
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto theirs = of(rank);
    if ((theirs[2] & kMissing) != 0)
      return Status(Code::peer_failed,
                    "rank " + std::to_string(rank) +
                        " could not make its entries, and says why there; nothing was exchanged");
    if ((theirs[2] & kRefused) != 0)
      return Status(Code::invalid_argument,
                    "rank " + std::to_string(rank) +
                        " passed arguments that are refused, and says why there; nothing was exchanged");
    if ((theirs[2] & kBroken) != 0)
      return Status(Code::invalid_argument,
                    "rank " + std::to_string(rank) +
                        " passed a stream that breaks the contract (it knows how); nothing was exchanged");
    if (theirs[1] == of(0)[1] && theirs[2] == of(0)[2]) continue;
    if (theirs[1] == of(0)[1] && ((theirs[2] ^ of(0)[2]) >> kForm & 3) != 0)
      return Status(Code::invalid_argument, "rank " + std::to_string(rank) + " called " + call_of(theirs[2]) +
                                                ", but rank 0 " + call_of(of(0)[2]) +
                                                "; nothing was exchanged");
    if (theirs[1] == of(0)[1] && (theirs[2] ^ of(0)[2]) >> kHow << kHow == (theirs[2] ^ of(0)[2]))
      return Status(Code::invalid_argument,
                    "rank " + std::to_string(rank) +
                        " asked for another compression or seed than rank 0 (this rank: " + how() +
                        "); nothing was exchanged");
    return Status(Code::invalid_argument, "rank " + std::to_string(rank) + " passed " +
                                              what(theirs[1], theirs[2]) + ", but rank 0 " +
                                              what(of(0)[1], of(0)[2]) + "; nothing was exchanged");
  }
  return {};
}

Status Agreement::check(const Status& own, const Words& how) const {
  Status status = check(how);
  return status.ok() || own.ok() ? status : own;
}

std::uint64_t Agreement::total() const {
  std::uint64_t total = 0;
  for (int rank = 0; rank < ranks_; ++rank)
    total += count(rank);
  return total;
}

std::vector<std::uint64_t> Agreement::samples(int rank) const {
  const auto words = of(rank).subspan(kWords);
  const std::size_t shown = std::min<std::uint64_t>(count(rank), samples_);
  return {words.begin(), words.begin() + static_cast<std::ptrdiff_t>(shown)};
}

}  // namespace heddle
