// What is known of where the ranks' entries are: how far their patterns overlap, and how the entries spread
// over the indices. Measured, by samples or from the result of the call before; the same value on every rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sparse/agreement.hpp"
#include "sparse/stream.hpp"

namespace heddle {

class Profile {
 public:
  // From the samples of an agreement.
  static Profile of_samples(const Agreement& agreement);
  // From a complete result, whose parts are in order of index, of streams with `total` entries together.
  static Profile of_result(std::span<const SparseView> parts, std::uint64_t total, std::uint64_t dimension);

  // Different indices among all ranks' entries, for each entry: 1 / ranks (equal patterns) to 1 (nothing in
  // common).
  double distinct() const { return distinct_; }

  // Borders of `chunks` regions, from 0 to the dimension, with about as many entries in each.
  std::vector<std::uint64_t> cuts(std::uint64_t dimension, std::uint32_t chunks) const;

  // This one, which followed on `before`. Where it says that these entries were elsewhere, the next may be so
  // as well: moves().
  Profile after(const Profile& before) &&;
  bool moves() const { return moves_; }

  // Counts that it spoke against an exchange of entries; true when it has done so often enough to be looked
  // at anew.
  bool counts_refusal() { return ++refusals_ >= kMostRefusals; }

 private:
  static constexpr int kMostRefusals = 16;

  double distinct_ = 1;
  bool moves_ = false;
  int refusals_ = 0;
  std::vector<std::uint64_t> quantiles_;  // indices below which 1/(n+1), 2/(n+1), ... of the entries lie
};

// Different indices to expect where the streams of m of p ranks have met, which have `total` entries in all
// p, of them `distinct` * total different: as if each rank drew its entries at random from just as many
// indices as lead to that. E[K] = N (1 - (1 - k/N)^m) with that N instead of the dimension (cf. C. Renggli et
// al., SC'19, which assumes independence and takes the dimension). The same on every machine with IEEE
// arithmetic.
double expected_entries(double distinct, double total, int p, int m);

}  // namespace heddle
