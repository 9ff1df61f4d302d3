// What the GPUs of a node do together of large collectives on streams over several nodes (stream_relay.hpp):
// the steps of blocking calls (device_shares.hpp), which streams follow as they do within a node
// (device_streams.cpp), and between which they wait for what threads of the host do with the shares.
//
//   the stream, tick t:  waits for the others' tick t - 1; folds its share of piece t, copies it into a slot
//                        and says so; waits for the result of piece t - 2 ...
//   the thread:          waits for piece t, sums it with those of the ranks that have the same place on the
//                        other nodes, says so
//
// In a CUDA graph streams wait for each other's ticks as they do there within a node (device_graphs.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/dtype.hpp"
#include "base/log.hpp"
#include "base/status.hpp"
#include "device/device_shares.hpp"
#include "device/meeting.hpp"
#include "device/node_links.hpp"
#include "device/nodes_path.hpp"
#include "device/relay_thread.hpp"
#include "gpu/gpu.hpp"
#include "gpu/link.hpp"

namespace heddle {

// Slots of a ring, and the words by which a stream and the thread wait for each other.
class StreamSlots final : public SharesHost {
 public:
  // `link` has opened the words. `number`: of a call; borrowed, and known when it is used.
  StreamSlots(gpu::Link& link, const RelayRing& ring, RelayWords& words, const std::uint32_t& number)
      : link_(link), ring_(ring), words_(words), number_(number) {}
  std::byte* at(std::size_t k) const override { return ring_.slot(k); }
  Status release(std::size_t k) override { return link_.write_word(&words_.slot(k), number_); }
  Status await(std::size_t k) override { return link_.wait_for_word(&words_.slot(k), 0); }

 private:
  gpu::Link& link_;
  const RelayRing& ring_;
  RelayWords& words_;
  const std::uint32_t& number_;
};

class StreamShares {
 public:
  // In bytes: where blocking calls begin as well. Shorter vectors are one piece or two, of which nothing
  // overlaps, and each takes ticks of all streams of the node. Not measured.
  static constexpr std::size_t kFrom = NodesPath::kFrom;

  // `node`, the meeting of this node's ranks, is borrowed; that none of them share a context is the
  // StreamRelay's business. `lanes`: ranks of the smallest node. `bytes`: of scratch on each GPU; 0: none.
  StreamShares(Meeting& node, int lanes, std::size_t bytes, const Log& log)
      : node_(node, {.shared_context = true}, log, NodeLinks::Ends::first), lanes_(lanes), bytes_(bytes) {}
  StreamShares(const StreamShares&) = delete;
  StreamShares& operator=(const StreamShares&) = delete;
  // As NodeLinks': waits for ranks of other processes that have this one's scratch open.
  ~StreamShares() = default;

  std::size_t bytes() const { return bytes_; }
  // Collective over the node, the same outcome on its ranks: links, and scratch of at most `bytes`, which is
  // the same on all ranks of all nodes. After a failure leave() alone is called.
  Status connect(gpu::Gpu& gpu, const gpu::Place& place, std::size_t bytes);
  gpu::Link& link() const { return *node_.link(); }
  // Waits for what a link of this rank's was given, also one of before leave(); for a rank of the node that
  // is gone, or whose GPU has failed, a second at most. False: in vain, and then the link stays for as long
  // as the process does.
  bool finish(gpu::Link& link) { return node_.finish(link); }
  // No share is longer than this.
  void limit(std::size_t share);
  int lanes() const { return lanes_; }
  std::size_t piece() const { return layout_.piece(); }
  // Collective over the node, when the link's work is done: gives all of it back but what graphs use.
  Status leave() { return node_.leave().status(); }
  // The same where the ranks cannot meet any more.
  void let_go() { node_.let_go(); }

  // Of a call that begins on a stream, this rank's work. `host` is borrowed.
  std::unique_ptr<SharesWork> sum(const DeviceSum& sum, SharesHost& host) const;
  std::unique_ptr<SharesWork> bcast(const DeviceBcast& bcast, SharesHost& host) const;
  // Before all ranks meet. `can`: this rank has nothing against it; also where it has.
  Status begin(SharesWork& work, bool can);
  // Collective over the node, when all are known to have begun: gives the stream the rest. A failure is told
  // to all ranks of the node.
  Status follow(SharesWork& work);

  // Whether calls can be captured; the same on the ranks of a node, of which one at least says why not.
  bool has_graphs() const { return node_.graphs().ok(); }
  // Collective over the node: as begin() and follow(), into a graph. Nothing has been given to the stream
  // before all were known to capture it.
  Status capture(SharesWork& work);
  // Graphs use the link: after leave() it stays until this ends.
  void keep_link() { node_.keep_for_graphs(); }

 private:
  NodeLinks node_;
  const int lanes_;
  const std::size_t bytes_;
  SharesLayout layout_;
  unsigned turn_ = 0;
};

}  // namespace heddle
