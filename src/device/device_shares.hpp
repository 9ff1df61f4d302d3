// What a node's ranks do on their GPUs in an allreduce or bcast over several nodes, in ticks between which
// they meet: blocking (nodes_path.hpp) and on streams (stream_shares.hpp).
//
// The vector goes in pieces, and a piece is shared out among `lanes` ranks of each node, as many as the
// smallest node has: the first ones.
//
//   tick k - 1  each rank copies its part of piece k into its scratch, where the others reach it
//   tick k      each of them folds its share of everybody's, and copies that to pinned memory of the host
//               (there it is summed over the nodes, by the end of tick k + 1; or on the GPU, where the
//               network reaches that)
//   tick k + 2  the sum comes back, to the scratch
//   tick k + 3  all ranks copy all shares of it into their outputs
//
// In a bcast the root alone hands out, on its node the others copy from there to their outputs, and on all
// other nodes nothing happens before tick k + 2.
//
// So in every tick the GPU works at up to four pieces, and the network at another. A rank that is alone on
// its node needs no scratch: its pieces go to the host and come back.
#pragma once

#include <cstddef>

#include "base/round_up.hpp"
#include "base/status.hpp"
#include "device/across.hpp"
#include "device/device_work.hpp"

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

// The pieces of a vector, and one rank's shares of them.
class SharesPieces {
 public:
  // `rank`: its place on its node. `bytes`: at least 1.
  SharesPieces(const SharesLayout& layout, int rank, std::size_t bytes);

  std::size_t count() const { return div_up(bytes_, piece_); }
  Extent piece(std::size_t k) const;
  Extent own(std::size_t k) const;  // within the piece; the same for all ranks of this one's place

 private:
  int rank_;
  int lanes_;
  std::size_t bytes_;
  std::size_t piece_;
};

// Where this rank's shares lie for the network, and how its GPU and who takes them to the other nodes wait
// for each other.
class SharesHost {
 public:
  SharesHost() = default;
  SharesHost(const SharesHost&) = delete;
  SharesHost& operator=(const SharesHost&) = delete;
  virtual ~SharesHost() = default;

  virtual std::byte* at(std::size_t k) const = 0;
  // On this rank's GPU, and not in pinned memory of the host's.
  virtual bool on_gpu() const { return false; }
  // Of a call of start(): what there is to do between messages, where it is on the GPU.
  virtual LocalWork* work_on(std::size_t /*k*/, DType /*type*/, Op /*op*/) { return nullptr; }
  // Given to the link in every tick, also by ranks that have no share of the piece: when what it was given
  // before is done, that of piece `k` is there, or room for what comes.
  virtual Status release(std::size_t k) = 0;
  // Two ticks later: what is given from now on finds what became of it.
  virtual Status await(std::size_t k) = 0;
};

// Step `t` is tick `t`.
class SharesWork : public DeviceWork {
 public:
  const SharesPieces& pieces() const { return pieces_; }
  std::size_t steps() const override { return pieces_.count() + 3; }
  // Starts what becomes of this rank's share of piece `k` between the nodes, after tick k, in slot k %
  // kSlots.
  virtual Status start(Across& across, std::size_t k) = 0;

 protected:
  // `bytes`: of the vector, that goes to `out`. `host` is borrowed.
  SharesWork(const Worker& worker, const SharesLayout& layout, SharesHost& host, std::byte* out,
             std::size_t bytes)
      : worker_(worker), layout_(layout), pieces_(layout, worker.rank, bytes), host_(host), out_(out) {}

  bool alone() const { return worker_.size == 1; }
  Extent piece(std::size_t k) const { return pieces_.piece(k); }
  Extent own(std::size_t k) const { return pieces_.own(k); }
  std::byte* given(int rank, std::size_t k) const;
  std::byte* result(int rank, std::size_t k) const;
  // To where the network finds it, and back.
  Status store(std::size_t k, const std::byte* from, std::size_t bytes);
  Status load(std::byte* to, std::size_t k, std::size_t bytes);
  // A share that has come, to where the node's ranks reach it; and all shares to the output.
  Status fetch_back(std::size_t k);
  Status spread(std::size_t k);

  const Worker worker_;
  const SharesLayout layout_;
  const SharesPieces pieces_;
  SharesHost& host_;

 private:
  std::byte* const out_;
};

class SharesSum final : public SharesWork {
 public:
  SharesSum(const Worker& worker, const SharesLayout& layout, SharesHost& host, const DeviceSum& sum)
      : SharesWork(worker, layout, host, sum.out, sum.count * dtype_size(sum.type)), sum_(sum) {}

  Status first() override;
  Status step(std::size_t t) override;
  Status start(Across& across, std::size_t k) override;

 private:
  std::size_t elements(std::size_t k) const { return own(k).bytes / dtype_size(sum_.type); }
  std::byte* node_sum() const;
  Status hand_out(std::size_t k);
  Status fold(std::size_t k);

  const DeviceSum sum_;
};

class SharesBcast final : public SharesWork {
 public:
  // `bcast.root` is the communicator's; `member`: what it is on this node, -1 on the others.
  SharesBcast(const Worker& worker, const SharesLayout& layout, SharesHost& host, const DeviceBcast& bcast,
              int member)
      : SharesWork(worker, layout, host, bcast.buffer, bcast.bytes), bcast_(bcast), member_(member) {}

  Status first() override;
  Status step(std::size_t t) override;
  Status start(Across& across, std::size_t k) override;

 private:
  bool is_root() const { return member_ == worker_.rank; }
  Status hand_out(std::size_t k);
  Status take(std::size_t k);

  const DeviceBcast bcast_;
  const int member_;
};

}  // namespace heddle
