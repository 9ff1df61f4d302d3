// What the ranks tell each other before they exchange streams: one small dense allreduce.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "sparse/stream.hpp"

namespace heddle {

// Hashes of indices that a rank shows of a stream: enough to see how far the ranks' patterns overlap and
// where the entries are, few enough that it costs little beside a latency.
std::size_t samples_shown(int ranks);

// Where the result goes, by which call: what ranks exchange, and in how many steps, depends on it.
enum class SparseForm : std::uint8_t {
  entries,   // arrays of entries
  vector,    // a vector
  in_place,  // a vector, as the entries are taken from one, the same or another
  coded,     // a vector, through a codec
};

// One rank's words: count, dimension, types, then the samples, if any. The ranks' blocks stand side by side
// in one vector, zero but for one's own, which is added up over all ranks.
class Agreement {
 public:
  // `samples`: 0 or samples_shown().
  Agreement(int ranks, std::size_t samples);

  // What this rank brings; `valid`: it keeps the contract. Looks at every entry where samples are asked for.
  // `how`: a hash, of which 31 bits count, of whatever else is equal on all ranks.
  void state(int rank, const SparseView& view, Op op, SparseForm form, bool valid, std::uint64_t how = 0);

  // Instead: this rank has no stream. `refused`: for what it was passed; else it could not make one.
  void withdraw(int rank, bool refused);

  // To be added up (u64, sum) in place.
  std::span<std::uint64_t> words() { return words_; }

  // After that. The same status on every rank: `invalid_argument` names the first rank that does not fit rank
  // 0, or withdrew for such a reason; `peer_failed` one that withdrew for another. `how`: words for this
  // rank's hash of that, which nobody else has.
  using Words = std::function<std::string()>;
  Status check(const Words& how = {}) const;
  // The same, where it is known what is wrong with one's own stream: that says more than what the others
  // hear.
  Status check(const Status& own, const Words& how = {}) const;
  int ranks() const { return ranks_; }
  std::uint64_t total() const;  // entries of all ranks
  std::uint64_t count(int rank) const { return of(rank)[0]; }
  std::uint64_t dimension() const { return of(0)[1]; }
  // Indices of `rank` that were sampled, in the order of their hashes.
  std::vector<std::uint64_t> samples(int rank) const;
  bool has_samples() const { return samples_ > 0; }

 private:
  static constexpr std::size_t kWords = 3;
  std::span<const std::uint64_t> of(int rank) const {
    return std::span(words_).subspan(static_cast<std::size_t>(rank) * (kWords + samples_), kWords + samples_);
  }

  int ranks_;
  std::size_t samples_;
  std::vector<std::uint64_t> words_;
};

}  // namespace heddle
