// Double binary tree allreduce: P. Sanders, J. Speck, J. L. Traeff, Parallel Computing 35(12), 2009.
#include <algorithm>
#include <array>
#include <cassert>
#include <vector>

#include "collectives/collectives.hpp"
#include "collectives/pipeline.hpp"
#include "collectives/trees.hpp"
#include "schedule/builder.hpp"

namespace heddle {
namespace {

using Iteration = Pipeline::Iteration;

// One rank's place in one of the trees, with ranks for neighbours (-1: none), and its half of the vector.
struct Stream {
  InOrderPlace at;
  Iteration height;
  std::uint32_t first_chunk;
  Iteration pieces;
  int lane;

  bool inner() const { return at.left >= 0 || at.right >= 0; }
  Chunks chunk(Iteration piece) const { return {first_chunk + static_cast<std::uint32_t>(piece), 1}; }
  // The iteration of piece 0: folded and sent up; arrived from above and sent down. One step of the tree
  // takes one iteration, so a rank at any depth of either tree finds its pieces where its own loop is.
  Iteration up() const { return height - at.depth; }
  Iteration down() const { return height + at.depth; }
  Pipeline::Window window(Iteration start) const { return {start, start + pieces}; }
};

// Both trees keep subtrees runs of ranks, so that folding left, own, right is in rank order. The first is the
// in-order tree on all ranks: its inner nodes are the odd ranks. The second is rank 0 above the in-order tree
// on the ranks from 1 on: its inner nodes are even ranks.
InOrderPlace first_tree(std::int32_t size, std::int32_t rank) {
  InOrderPlace at = in_order_place(size, rank + 1);
  for (std::int32_t* neighbour : {&at.parent, &at.left, &at.right}) {
    if (*neighbour >= 0) --*neighbour;
  }
  return at;
}

InOrderPlace second_tree(std::int32_t size, std::int32_t rank) {
  if (rank == 0) return {-1, -1, in_order_root(size - 1), 0};
  InOrderPlace at = in_order_place(size - 1, rank);
  if (at.parent < 0) at.parent = 0;
  ++at.depth;
  return at;
}

// Scratch: a rank is an inner node of one tree only. The piece being folded and the next one, for each child.
constexpr Iteration kChildUnits = 2;

class Writer {
 public:
  explicit Writer(std::array<Stream, 2> streams) : streams_(streams), units_(units_of(streams)) {}

  void emit(Builder& b) {
    // A wait completes the oldest first, so what this iteration's wait needs is opened before what the next
    // one needs.
    for (const Stream& s : streams_)
      if (ahead(s) == 0) open_from_above(s);
    for (const Stream& s : streams_)
      if (ahead(s) != 0) open_from_above(s);
    for (const Stream& s : streams_)
      open_from_below(s);
    wait_ = pipeline_.wait_for(needs_);
    for (const Stream& s : streams_)
      fold(s);
    for (const Stream& s : streams_)
      open_sends(s);
    pipeline_.emit(b);
  }

  std::uint32_t units() const { return units_; }

 private:
  static std::uint32_t units_of(const std::array<Stream, 2>& streams) {
    std::uint32_t most = 0;
    for (const Stream& s : streams) {
      most = std::max(most, static_cast<std::uint32_t>(kChildUnits) *
                                (static_cast<std::uint32_t>(s.at.left >= 0) + (s.at.right >= 0 ? 1U : 0U)));
    }
    return most;
  }

  std::uint32_t unit(std::int32_t child, const Stream& s, Iteration piece) const {
    assert(units_ > 0);  // there is a child
    const Iteration base = child == s.at.left || s.at.left < 0 ? 0 : kChildUnits;
    return static_cast<std::uint32_t>((base + piece) % static_cast<Iteration>(units_));
  }

  // A receive is opened one iteration before it is waited for, except from above at depth 1: there the piece
  // sent up last must be complete first, since the result overwrites it.
  static Iteration ahead(const Stream& s) { return s.at.depth == 1 ? 0 : 1; }

  void open_from_above(const Stream& s) {
    if (s.at.parent < 0) return;
    const Iteration start = s.down() - ahead(s);
    const int stage = pipeline_.open(s.window(start), [&s, start](Builder& b, Iteration t) {
      b.recv(s.at.parent, s.chunk(t - start), s.lane);
    });
    needs_.push_back({stage, static_cast<int>(ahead(s))});
  }

  void open_from_below(const Stream& s) {
    for (const std::int32_t child : {s.at.left, s.at.right}) {
      if (child < 0) continue;
      const int stage = pipeline_.open(
          s.window(s.up() - 1),
          [this, &s, child](Builder& b, Iteration t) {
            const Iteration piece = t - s.up() + 1;
            b.recv_scratch(child, s.chunk(piece), unit(child, s, piece), s.lane);
          },
          true);
      needs_.push_back({stage, 1});
    }
  }

  void fold(const Stream& s) {
    if (!s.inner()) return;
    const Pipeline::Window now = s.window(s.up());
    pipeline_.act(now, [&s](Builder& b, Iteration t) { b.copy_input(s.chunk(t - s.up())); });
    for (const std::int32_t child : {s.at.left, s.at.right}) {
      if (child < 0) continue;
      pipeline_.act(
          now,
          [this, &s, child](Builder& b, Iteration t) {
            const Iteration piece = t - s.up();
            b.reduce(s.chunk(piece), unit(child, s, piece), child == s.at.left);
          },
          true);
    }
  }

  void open_sends(const Stream& s) {
    if (s.at.parent >= 0) {
      const Slot from = s.inner() ? Slot::data : Slot::input;
      const int stage = pipeline_.open(s.window(s.up()), [&s, from](Builder& b, Iteration t) {
        b.send(s.at.parent, s.chunk(t - s.up()), from, s.lane);
      });
      pipeline_.also_wait_for(wait_, {stage, s.at.depth == 1 ? 1 : 2});
    }
    for (const std::int32_t child : {s.at.left, s.at.right}) {
      if (child < 0) continue;
      const int stage = pipeline_.open(s.window(s.down()), [&s, child](Builder& b, Iteration t) {
        b.send(child, s.chunk(t - s.down()), Slot::data, s.lane);
      });
      pipeline_.also_wait_for(wait_, {stage, 2});
    }
  }

  std::array<Stream, 2> streams_;
  std::uint32_t units_;
  Pipeline pipeline_{1};
  int wait_ = -1;  // the iteration's
  std::vector<Pipeline::Need> needs_;
};

}  // namespace

Schedule allreduce::double_binary_tree(const TopologyView& topology, std::int32_t rank, const Shape& shape) {
  const std::int32_t size = topology.size();
  const std::uint32_t pieces = pieces_per_block(shape, 2);
  Builder b(Collective::allreduce, 2 * pieces);
  b.in_order();
  if (size == 1) return std::move(b.copy_input()).finish();
  Writer writer({Stream{first_tree(size, rank), in_order_height(size), 0, pieces, 0},
                 Stream{second_tree(size, rank), in_order_height(size - 1) + 1, pieces, pieces, 1}});
  b.scratch(writer.units());
  writer.emit(b);
  return std::move(b).finish();
}

}  // namespace heddle
