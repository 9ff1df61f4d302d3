// Runs an allreduce schedule on sparse streams whose sum is a dense vector that travels through a codec:
// DSAR_Split_allgather with QSGD in the allgather (C. Renggli, S. Ashkboos, M. Aghagolzadeh, D. Alistarh, T.
// Hoefler, "SparCML: High-Performance Sparse Communication for Machine Learning", SC'19), and what the other
// algorithms make of the same idea.
//
// Until a chunk of the vector is complete, its entries travel exactly, as streams; they are added up in the
// result's own place. Its owner, the only rank on which the last fold of the chunk is, then encodes it, keeps
// what the others decode, and sends that on as CodedRun does. So each sum is encoded once, whatever the
// algorithm, and all ranks end with the same bits.
//
// What is folded at once is folded in the order of the ranks it comes from, this rank's own in its place:
// with split_allgather, up to 32 ranks, (((+0 + rank 0) + rank 1) + rank 2) ..., where an entry that a rank
// lacks is +0. So no sum is -0, whoever makes it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/status.hpp"
#include "compress/coded_run.hpp"
#include "sparse/message.hpp"
#include "sparse/storage.hpp"
#include "sparse/stream.hpp"

namespace heddle {

struct CodedStreamsBinding {
  SparseView input;       // of f32; keeps the contract; borrowed until the collective is complete
  float* data = nullptr;  // the result, `dimension` values; overlaps nothing of the input
  int rank = 0;           // this one
  // `codec` and `bucket` equal on all ranks; the seed of one's own.
  CodecSettings settings;
  // What the codec loses of the sums that this rank encodes is added to it; `dimension` values; may be null.
  float* lost = nullptr;
  std::uint64_t most_entries = 0;  // of all ranks together: what arrives is refused where it claims more
  std::uint32_t sequence = 0;      // as in Binding
};

// Memory beside the result: of each stream in flight or waiting to be folded, of one chunk, and of the coded
// form of the chunks that this rank sends on.
class CodedStreams final : public CodedRun {
 public:
  // A schedule on lanes below kStreamLanes.
  using CodedRun::CodedRun;
  ~CodedStreams() override { abandon(); }

  Status start(const CodedStreamsBinding& binding);

 private:
  // What a unit of the scratch holds.
  struct Part {
    std::shared_ptr<const Storage> storage;
    SparseView view;
    int rank = -1;  // that sent it
  };

  Status open(Open& open, Transport& transport) override;
  Status move(Open& open) override;
  bool has_begun(const Open& open) const override;
  void close(Open& open) override;
  void copy() override;
  Status fold() override;
  void end() override;

  bool is_part(const Open& open) const;
  void append_data(StreamMessage& message, const Range& range);
  Status take(const Open& open);
  void fold_chunk(std::uint32_t chunk);

  SparseView input_;
  int rank_ = 0;
  std::uint64_t most_entries_ = 0;
  std::vector<Part> units_;
  std::vector<Part*> folded_;  // at once, by rank
  std::deque<StreamMessage> messages_;
  std::vector<StreamMessage*> idle_;
  StoragePool pool_;
  // The entries of a part of the data.
  std::vector<std::uint64_t> indices_;
  std::vector<float> values_;
};

}  // namespace heddle
