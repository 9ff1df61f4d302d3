// Runs an allreduce schedule over streams instead of vectors.
//
// The same value that the dense engine executes, the verifier proves and the pricer prices: a chunk is a
// range of indices, and what a slot holds for it is the stream of the entries there, whose length is known
// only when it is there. `reduce` merges, `copy` borrows, a message carries the streams of its chunks. So the
// recursive doubling, the split and the hierarchical algorithms of SparCML are the dense ones (C. Renggli et
// al., SC'19), and what is proved of those (each contribution once, the same expression on every rank, no
// deadlock) holds here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/status.hpp"
#include "engine/message_run.hpp"
#include "sparse/fold_plan.hpp"
#include "sparse/message.hpp"
#include "sparse/storage.hpp"
#include "sparse/stream.hpp"
#include "sparse/threaded_fold.hpp"

namespace heddle {

// What attaches to a schedule when it starts.
struct StreamBinding {
  SparseView input;  // keeps the contract; borrowed until the collective is complete
  Op op = Op::sum;   // sum, min, max
  // Chunk c holds the indices [cuts[c], cuts[c + 1]); from 0 to the dimension, one more than chunks; equal on
  // all ranks.
  std::vector<std::uint64_t> cuts;
  std::uint64_t most_entries = 0;  // of all ranks together: what arrives is refused where it claims more
  std::uint32_t sequence = 0;      // as in Binding
  // Where given, by all ranks: every rank reaches all others' memory, nobody starts anew or gives memory back
  // before all are done with the result, and the input stays until all have completed. Streams are handed
  // over instead of sent, an input that lies there without a copy. Borrowed.
  NodeMemory* memory = nullptr;
  // Folds what is large with several threads, where given; borrowed.
  ThreadedFold* threads = nullptr;
  // Remember where entries come from and meet, for again(). Sums only.
  bool remember = false;
};

// Memory: of each message in flight and of each stream in a slot, proportional to its entries.
class StreamExecution final : public MessageRun {
 public:
  // A schedule on lanes below kStreamLanes.
  using MessageRun::MessageRun;
  ~StreamExecution() override { abandon(); }

  Status start(StreamBinding binding);
  // After a run that was to be remembered: other values at the same indices, on all ranks. Values alone
  // travel.
  bool remembers() const { return remembers_; }
  Status again(const void* values, std::uint32_t sequence);

  // When complete: the result in order of index, until the next start.
  std::vector<SparseView> result() const;
  // Sent by this rank since the start, on the wire.
  std::size_t bytes_sent() const { return bytes_sent_; }

 private:
  // What a slot holds for one chunk.
  struct Cell {
    std::shared_ptr<const Storage> owner;  // null: the caller's
    SparseView view;
  };

  void reset_cells();
  Status open(Open& open, Transport& transport) override;
  Status move(Open& open) override;
  bool has_begun(const Open& open) const override;
  void close(Open& open) override;
  void copy() override;
  Status fold() override;
  Cell& cell(Slot slot, std::uint32_t chunk, std::uint32_t unit, std::uint32_t offset);
  Cell input_cell(std::uint32_t chunk) const;
  Cell sent_cell(const Open& open, std::uint32_t offset);
  Status convert(Cell& cell);
  bool hand_over(StreamMessage& message, const Open& open);
  bool place(const SparseView& view, HandedStream* stream) const;
  Cell shared_copy(const SparseView& view);
  Status take(const Open& open);
  Status take_handed(const Open& open);
  Status fold_chunk(std::uint32_t offset);
  StreamMessage* idle_message();
  Status open_values(const Open& open, Transport& transport, std::uint32_t tag);
  void take_values(const Open& open);
  Status fold_values(Cell& into);
  void end() override;

  StreamBinding binding_;
  std::vector<std::size_t> input_cuts_;  // entry of the input with which each chunk begins
  std::vector<Cell> data_;               // by chunk
  std::vector<Cell> scratch_;            // by unit and place in the unit
  std::vector<Cursor> folds_;            // reduce steps that are folded together
  std::vector<SparseView> operands_;
  std::vector<std::shared_ptr<const Storage>>
      lent_;                            // handed over, and so not to be changed before the next start
  std::deque<StreamMessage> messages_;  // never move
  std::vector<StreamMessage*> idle_;
  StoragePool pool_;
  std::size_t bytes_sent_ = 0;
  // What a remembered run did, by message and by fold, and where a run from memory puts the values.
  struct Received {
    std::vector<Cell> cells;
    Buffer values;
  };
  struct Folded {
    FoldPlan plan;
    Cell cell;
    Buffer values;
  };
  std::vector<Received> received_;
  std::vector<Folded> folded_;
  std::size_t next_fold_ = 0;
  bool remembers_ = false;
  bool from_memory_ = false;
};

}  // namespace heddle
