// Whether the GPUs of a node's ranks do reach each other's scratch, which CUDA says of GPUs between which the
// bus loses what they write: where PCIe's access control (ACS) sends it by way of an IOMMU that does not know
// the addresses, as in virtual machines. There kernels wait for ever for what was written to them, and sums
// are wrong.
//
// Each rank has a pattern of its own, which nothing that memory has from before is like. Others read it in
// this one's scratch, and it is written into theirs, by kernels: the way that everything goes later.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "gpu/link.hpp"

namespace heddle {

class ReachTrial {
 public:
  // What all are told, of each rank.
  struct Rank {
    gpu::Export scratch;
    std::uint64_t seed = 0;  // of its pattern
  };

  // `link` is borrowed.
  ReachTrial(gpu::Link& link, int rank);
  std::uint64_t seed() const { return seed_; }
  // Puts the pattern into this rank's scratch, which it has allocated; complete on return. Before the others
  // are told of it.
  Status put(const gpu::Export& scratch);
  // When all have done that, and this rank has opened their scratch; complete on return, also where it fails.
  Status cross(std::span<const Rank> all);
  // When all have done that: what has not come through, with the way out; empty: nothing. Then the scratch is
  // free for other things.
  Result<std::string> look(std::span<const Rank> all);

 private:
  static constexpr std::size_t kWords = 8;
  using Pattern = std::array<std::uint64_t, kWords>;
  static Pattern pattern_of(std::uint64_t seed, std::size_t rank);
  // Work of the link's, which has not been waited for.
  Status give_kernels(std::span<const Rank> all);
  Status give_fetch(std::size_t first, std::size_t ranks, std::vector<Pattern>* found);

  gpu::Link& link_;
  const std::size_t rank_;
  const std::uint64_t seed_;
  std::vector<Pattern> read_;  // by rank
};

}  // namespace heddle
