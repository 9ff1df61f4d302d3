// What a node's ranks do on their GPUs in an allreduce over several nodes (nodes_path.hpp), in ticks between which they meet.
//
// The vector goes in pieces, and a piece is shared out among `lanes` ranks of each node, as many as the smallest node has: the first ones.
//
//   tick k - 1  each rank copies its part of piece k into its scratch, where the others reach it
//   tick k      each of them folds its share of everybody's, and copies that to pinned memory of the host
//               (there it is summed over the nodes, by the end of tick k + 1)
//   tick k + 2  the sum comes back, to the scratch
//   tick k + 3  all ranks copy all shares of it into their outputs
//
// So in every tick the GPU works at up to four pieces, and the network at another. A rank that is alone on its node needs no scratch: its pieces go
// to the host and come back.
#pragma once

#include <cstddef>

#include "base/status.hpp"
#include "comm/device_work.hpp"

namespace heddle {

// The same on all ranks of all nodes.
struct SharesLayout {
  int lanes = 1;
  std::size_t share = 0;  // most bytes of a rank's share of a piece

  // For `bytes` bytes of scratch at most.
  static SharesLayout of(std::size_t bytes, int lanes);
  std::size_t piece() const { return share * static_cast<std::size_t>(lanes); }
  // Two pieces, of which each has a part of everybody's, two shares of results, and one of a sum of the node.
  std::size_t scratch_bytes() const { return 2 * piece() + 3 * share; }
  std::size_t pinned_bytes() const { return kSlots * share; }
  static constexpr std::size_t kSlots = 3;  // pieces that are on the host at a time
};

class SharesSum {
 public:
  // `host`: pinned_bytes() of memory; nothing on ranks that have no share.
  SharesSum(const Worker& worker, const SharesLayout& layout, std::byte* host, const DeviceSum& sum);

  std::size_t pieces() const { return pieces_; }
  std::size_t ticks() const { return pieces_ + 3; }
  // What is given to the link before the first meeting, and after the meeting before tick `t`.
  Status first();
  Status give(std::size_t t);

  // This rank's share of piece `k` on the host, after tick k; the same number of elements on all ranks of this one's place.
  std::byte* on_host(std::size_t k) const {
    return host_ != nullptr ? host_ + k % SharesLayout::kSlots * layout_.share : nullptr;
  }
  std::size_t elements(std::size_t k) const { return own(k).bytes / dtype_size(sum_.type); }
  DType type() const { return sum_.type; }
  Op op() const { return sum_.op; }

 private:
  bool alone() const { return worker_.size == 1; }
  Extent piece(std::size_t k) const;
  Extent own(std::size_t k) const;  // within the piece
  std::byte* given(int rank, std::size_t k) const;
  std::byte* result(int rank, std::size_t k) const;
  std::byte* node_sum() const;
  Status hand_out(std::size_t k);
  Status fold(std::size_t k);
  Status fetch_back(std::size_t k);
  Status spread(std::size_t k);

  const Worker worker_;
  const SharesLayout layout_;
  std::byte* const host_;
  const DeviceSum sum_;
  const std::size_t bytes_;
  std::size_t piece_;
  std::size_t pieces_;
};

}  // namespace heddle
