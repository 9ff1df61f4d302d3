// What the ranks of a node have of each other's GPUs: links, scratch that all of them reach, events and flags
// by which their streams wait for each other; and how they do one collective's steps with these
// (device_work.hpp). Which calls go this way is the business of its owners: DevicePath within a node,
// NodesPath and StreamShares on several.
//
// All that is collective is called by all ranks at the same point, and has the same outcome on all of them: a
// failure of one is told to the others, which get `peer_failed`. lost() then says whether they can still
// meet.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/status.hpp"
#include "device/device_ways.hpp"
#include "device/device_work.hpp"
#include "device/meeting.hpp"
#include "gpu/link.hpp"
#include "gpu/sparse_link.hpp"
#include "transports/shm/shared_memory.hpp"

namespace heddle {

struct LinkLimits {
  std::chrono::nanoseconds patience{0};  // of a kernel that waits for others; 0: as long as it takes
  bool shared_context = false;           // graphs may be captured where ranks share a context
};

class NodeLinks {
 public:
  // Of two with one meeting, which one lets go before the other on every rank: what is told by who has let go
  // of the others' scratch. No call has these numbers.
  enum class Ends : std::uint64_t { first = ~std::uint64_t{1}, last = ~std::uint64_t{0} };
  using TimePoint = std::chrono::steady_clock::time_point;

  // `meeting` is borrowed.
  NodeLinks(Meeting& meeting, const LinkLimits& limits, const Log& log, Ends ends = Ends::last)
      : meeting_(meeting), limits_(limits), log_(log), let_go_(static_cast<std::uint64_t>(ends)) {}
  NodeLinks(const NodeLinks&) = delete;
  NodeLinks& operator=(const NodeLinks&) = delete;
  // Where other processes have this rank's scratch open it waits for them to close it, a second at most, and
  // then leaves it allocated.
  ~NodeLinks();

  // ---- Meetings

  int rank() const { return meeting_.rank(); }
  int size() const { return meeting_.size(); }
  int number_of(int rank) const { return meeting_.number_of(rank); }
  // Which of the ranks the communicator gives that number; -1: none.
  int member_of(int number) const;
  // Collective: whether all can. `more`: words, then the largest of all ranks' each; of those that are 0 but
  // for one rank that is that rank's.
  Result<bool> meet(const Status& mine, bool can, std::span<std::uint64_t> more = {});
  // Collective. Of each word the largest of all ranks'.
  Status largest(std::span<std::uint64_t> words);
  // In the last meeting, of those who cannot or have failed.
  int deciding_rank() const;
  // The ranks cannot meet any more.
  bool lost() const { return lost_; }

  // ---- Setting up: collective, in this order

  // On this rank's GPU and in its context.
  Result<bool> make_links(gpu::Gpu& gpu, const gpu::Place& place);
  // Where not direct(). `exchange`: the longest vector that kernels exchange, where each rank has a GPU.
  Result<bool> share_scratch(std::size_t bytes, std::size_t exchange = 0);
  // For calls on streams.
  Result<bool> share_marks();
  // For calls on streams that are captured. Where that is not to be had graphs() says why, and all else goes
  // on.
  Result<bool> share_flags();

  // Since make_links(), until the links are given back.
  gpu::Link* link() const { return link_.get(); }
  const gpu::Place& place() const { return place_; }
  // All ranks share one context: buffers are reached where they lie.
  bool direct() const { return direct_; }
  // Of the ranks, and where their links are; the same on all.
  std::uint64_t key() const { return key_; }
  const ScratchLayout& layout() const { return layout_; }
  const gpu::ExchangeLayout& exchange() const { return exchange_; }
  // The GPUs do not reach each other, as a trial has shown: that is final.
  bool unreachable() const { return unreachable_; }
  // Why there can be no graphs; the same on all ranks whether it says so.
  const Status& graphs() const { return graphs_; }
  Worker worker(const DeviceWays& ways = {}) const {
    return {link_.get(), meeting_.rank(), meeting_.size(), layout_, ways};
  }
  // This rank's kernels for sparse vectors, and memory for their work; made when first wanted. After
  // after_streams(): memory that grows is freed first. Null: not to be had, which is logged.
  gpu::SparseLink* make_sparse();
  gpu::SparseLink* sparse() const { return sparse_.get(); }

  // ---- Blocking calls

  // Of a rank that can do its part: what its streams were given is done, before the link is given anything
  // that the host will wait for.
  Result<bool> after_streams(const Result<bool>& here);
  Status after_streams();
  // Collective: all steps of a work. `here`: whether this rank can do its part, after after_streams(). False:
  // not all can, or the ranks want different things. Until then GPUs wait for each other in kernels.
  Result<bool> run(DeviceWork& work, const Result<bool>& here, TimePoint until = TimePoint::max());

  // ---- Calls on streams, after share_marks(); in graphs after share_flags()

  // Which of its two events a rank records next; the same on all.
  unsigned next_turn() { return turns_++ % 2; }
  // Collective, when all have recorded an event for this turn: gives the rest of the work to the stream.
  Status follow(DeviceWork& work, unsigned turn);
  // Collective: all of it but first(), into a graph. `mine`: what came before.
  Status follow_in_graph(DeviceWork& work, Status mine);
  // Graphs use the link: after leave() it stays until this ends.
  void keep_for_graphs() { captured_ = true; }
  // As if other processes had this rank's scratch open: its work may end before what they do with that.
  void wait_for_others_at_end() { exported_ = true; }

  // ---- Ends

  // Waits for what a link of this rank's was given, also one of before leave(); for a rank that is gone, or
  // whose GPU has failed, a second at most. False: in vain, and then the link stays for as long as the
  // process does.
  bool finish(gpu::Link& link);
  // Collective: gives all of it back but what graphs use. False: some rank waits in vain, and what is begun
  // anew might never be freed.
  Result<bool> leave();
  // Local, and final: nothing is called any more.
  void let_go();

 private:
  // Links that graphs use, or streams that wait in vain: until nobody does any more. What is below another
  // one goes before it.
  struct Kept {
    SharedMemory flags;
    std::unique_ptr<gpu::Link> link;
    std::unique_ptr<gpu::SparseLink> sparse;
  };
  template <typename T>
  Result<bool> gather(const Status& mine, const T& one, std::vector<T>* all);
  Result<bool> open_exchange(const gpu::ExchangeLayout& layout, std::size_t offset);
  Result<bool> agree_on_reach(const Result<std::string>& wrong);
  Result<bool> share_memory();
  Result<bool> run_on_gpus(DeviceWork& work, const Result<bool>& here, TimePoint until);
  Status give_to_gpus(DeviceWork& work);
  Status wait_for_gpus(TimePoint until);
  Status follow_leader(DeviceWork& work, unsigned turn);
  Status capture_steps(DeviceWork& work);
  Status follow_leader_in_graph(DeviceWork& work);
  bool is_finished(gpu::Link& link);
  int awaited_in_vain() const;  // a rank whose GPU does nothing more, or which is gone; -1: none
  std::string awaited_name() const;
  void keep_for_ever(Kept kept);

  Meeting& meeting_;
  const LinkLimits limits_;
  const Log log_;
  const std::uint64_t let_go_;
  gpu::Place place_;
  std::vector<Kept> kept_;
  SharedMemory flags_;  // for graphs; goes after the link
  std::unique_ptr<gpu::Link> link_;
  std::unique_ptr<gpu::SparseLink> sparse_;
  bool apart_ = false;  // each rank has a GPU of its own
  bool direct_ = false;
  bool unreachable_ = false;
  std::pair<int, int> neighbours_;  // two ranks that share a context, if any; known since share_marks()
  bool exported_ = false;           // other processes have this rank's scratch open, or its events
  unsigned turns_ = 0;              // events that each rank recorded
  Status graphs_;
  bool captured_ = false;  // a graph uses the link
  bool lost_ = false;
  bool stuck_ = false;  // something is kept for ever
  std::uint64_t key_ = 0;
  ScratchLayout layout_;
  gpu::ExchangeLayout exchange_;
  std::vector<std::uint64_t> words_;  // for meetings
};

// Everybody's `one`, in the order of ranks.
template <typename T>
Result<bool> NodeLinks::gather(const Status& mine, const T& one, std::vector<T>* all) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(std::uint64_t) == 0);
  constexpr std::size_t kWords = sizeof(T) / sizeof(std::uint64_t);
  std::vector<std::uint64_t> words(kWords * static_cast<std::size_t>(meeting_.size()));
  std::memcpy(words.data() + kWords * static_cast<std::size_t>(meeting_.rank()), &one, sizeof one);
  Result<bool> met = meet(mine, true, words);
  all->resize(static_cast<std::size_t>(meeting_.size()));
  std::memcpy(static_cast<void*>(all->data()), words.data(), words.size() * sizeof words[0]);
  return met;
}

}  // namespace heddle
