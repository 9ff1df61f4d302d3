// Runs an allreduce schedule on an f32 vector whose messages travel through a codec.
//
// A contribution is encoded by the rank that has it and decoded where it is folded, in f32; what a rank folds itself of its own is
// exact. A partial sum that is sent on becomes, on the sender too, what the receivers decode, and what was received complete is
// passed on byte for byte: so all ranks end with the same bits, as the verifier proves of the schedule without the codec. With
// split_allgather every value is encoded twice, up to 32 ranks: as a contribution, and as the sum. (The sum in f32 of halves sent: T. Akiba, S. Suzuki, K. Fukuda,
// "Extremely Large Minibatch SGD", 2017, in ChainerMN; the quantised allgather: C. Renggli et al., SC'19, DSAR.)
//
// CodedStreams (coded_streams.hpp) has other contributions: what it shares with this is how sums travel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "compress/codec.hpp"
#include "engine/message_run.hpp"
#include "schedule/split.hpp"

namespace heddle {

struct CodedBinding {
  const float* input = nullptr;
  float* data = nullptr;  // the result; may be `input`
  std::size_t count = 0;
  // `codec` and `bucket` equal on all ranks; the seed of one's own.
  CodecSettings settings;
  // What the codec loses of what this rank encodes is added to it, at the elements where it is lost; `count` values; may be
  // null. Where an algorithm lets several ranks hold the same partial sum it would be counted more than once: use split_allgather or
  // leaders with it.
  float* lost = nullptr;
  std::uint32_t sequence = 0;  // as in Binding
};

// Memory beside the vector: the contributions that are folded, the coded form of the chunks that this rank sends on, one chunk.
class CodedRun : public MessageRun {
 public:
  using MessageRun::MessageRun;
  ~CodedRun() override { abandon(); }

  Status start(const CodedBinding& binding);
  std::size_t bytes_sent() const { return bytes_sent_; }

 protected:
  struct Range {
    std::size_t first;
    std::size_t count;
  };

  // `parts_are_coded`: partial sums that are sent on travel through the codec as well; the same in each run.
  Status begin_coded(const CodedBinding& binding, bool parts_are_coded);
  Status open(Open& open, Transport& transport) override;
  Status move(Open& open) override;
  void close(Open& open) override;
  void copy() override;
  Status fold() override;

  const CodedBinding& binding() const { return binding_; }
  Range range(std::uint32_t chunk) const { return {split_.begin(chunk), split_.length(chunk, 1)}; }
  Range range(std::uint32_t chunk, std::uint32_t count) const {
    return {split_.begin(chunk), split_.length(chunk, count)};
  }
  // Of a message from or to the data: nothing is written over these chunks any more. They hold the sum of all ranks, on both ends.
  bool is_final(const Open& open) const { return open.number >= final_from_[open.chunk]; }
  // sum += other, with `other` as the left operand where that is asked for.
  void add(float* sum, const float* other, std::size_t count, bool other_first) const;
  float* one_chunk() { return decoded_.data(); }
  void note_sent(std::size_t bytes) { bytes_sent_ += bytes; }

 private:
  using Bytes = std::vector<std::byte>;
  struct Message {
    Transport* transport = nullptr;
    Ticket ticket;
    std::byte* at = nullptr;  // where the bytes are, or arrive
    Bytes own;                // empty where that is elsewhere
  };

  void look_ahead(bool parts_are_coded);
  std::size_t coded_size(std::uint32_t chunk, std::uint32_t count) const;
  std::byte* place_for(const Open& open, Message& message, std::size_t bytes);
  void code_input(std::uint32_t chunk, std::byte* to);
  void code_data(std::uint32_t chunk);
  void note_lost(const Range& range, const float* value, const float* decoded);
  std::span<const std::byte> keep(std::uint32_t chunk, const std::byte* coded);
  Status take(const Open& open);
  float* unit(std::uint32_t number) {
    return scratch_.data() + number * split_.longest(schedule().unit_chunks);
  }

  CodedBinding binding_;
  FoldFn sum_ = nullptr;
  Split split_{0, 1};
  std::vector<float> scratch_;
  std::vector<float> decoded_;  // of one chunk
  // Of the schedule, by chunk: the number of the first message after, or with, the last write to it; whether it is sent from the data.
  std::vector<std::size_t> final_from_;
  std::vector<bool> is_sent_on_;
  Bytes coded_;                        // of the chunks of data that are sent on, one behind the other
  std::vector<std::size_t> coded_at_;  // where, by chunk
  std::vector<bool> is_coded_;         // by chunk: what the data holds was decoded from what is there
  Bytes moved_;                        // of one chunk
  std::deque<Message> messages_;
  std::vector<Message*> idle_;
  std::size_t bytes_sent_ = 0;
};

}  // namespace heddle
