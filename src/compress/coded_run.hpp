// Runs an allreduce schedule on an f32 vector whose messages travel through a codec.
//
// A contribution is encoded by the rank that has it and decoded where it is folded, in f32; what a rank folds
// itself of its own is exact. A partial sum that is sent on becomes, on the sender too, what the receivers
// decode, and what was received complete is passed on byte for byte: so all ranks end with the same bits, as
// the verifier proves of the schedule without the codec. With split_allgather every value is encoded twice,
// up to 32 ranks: as a contribution, and as the sum. (The sum in f32 of halves sent: T. Akiba, S. Suzuki, K.
// Fukuda, "Extremely Large Minibatch SGD", 2017, in ChainerMN; the quantised allgather: C. Renggli et al.,
// SC'19, DSAR.)
//
// Who codes its contributions elsewhere gives them (`contributions`), and who decodes the result elsewhere
// takes its codes (`codes`), each by itself: then this needs the values of the chunks alone that the rank
// folds (CodedPlan). What travels is the same.
//
// CodedStreams (coded_streams.hpp) has other contributions: what it shares with this is how sums travel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "compress/codec.hpp"
#include "engine/message_run.hpp"
#include "schedule/split.hpp"

namespace heddle {

// What a rank has to do with the chunks of a vector under a schedule.
struct CodedPlan {
  struct Range {
    std::size_t first = 0;
    std::size_t count = 0;
  };
  struct Chunk {
    Range values;
    std::size_t bytes = 0;  // of its codes
    std::size_t at = 0;     // they lie there among those of all chunks, one behind the other
    bool is_contributed = false;
    std::size_t contributed_at = 0;  // and there among those of contributions
  };

  std::vector<Chunk> chunks;
  std::size_t bytes = 0;  // of all codes
  std::size_t contributed_bytes = 0;
  // Values that are folded here.
  Range held;
  // Each chunk is either contributed, or held: contributions may be coded elsewhere.
  bool takes_contributions = false;
  // The result of each is coded on this rank in the end: it may be decoded elsewhere.
  bool leaves_codes = false;
};

struct CodedBinding {
  const float* input = nullptr;
  float* data = nullptr;  // the result; may be `input`
  std::size_t count = 0;
  // `codec` and `bucket` equal on all ranks; the seed of one's own.
  CodecSettings settings;
  // What the codec loses of what this rank encodes, at the elements where it is lost: of contributions it is
  // written here, of sums added to it; `count` values; may be null. Where an algorithm lets several ranks
  // hold the same partial sum it would be counted more than once: use split_allgather or leaders with it.
  float* lost = nullptr;
  std::uint32_t sequence = 0;  // as in Binding
  // The codes of this rank's contributions, as in its CodedPlan, which takes_contributions. Then `input` and
  // `lost` are of the values held alone.
  const std::byte* contributions = nullptr;
  // Receives the codes of the result, as in its CodedPlan, which leaves_codes. Then there is no `data`.
  std::byte* codes = nullptr;
};

// Memory beside the vector: the contributions that are folded, the coded form of the chunks that this rank
// sends on, one chunk.
class CodedRun : public MessageRun {
 public:
  using MessageRun::MessageRun;
  ~CodedRun() override { abandon(); }

  Status start(const CodedBinding& binding);
  CodedPlan plan(std::size_t count, const CodecSettings& settings);
  std::size_t bytes_sent() const { return bytes_sent_; }

 protected:
  using Range = CodedPlan::Range;

  // `parts_are_coded`: partial sums that are sent on travel through the codec as well; the same in each run.
  Status begin_coded(const CodedBinding& binding, bool parts_are_coded);
  Status open(Open& open, Transport& transport) override;
  Status move(Open& open) override;
  void close(Open& open) override;
  void copy() override;
  Status fold() override;
  TeamOperands operands() override;

  const CodedBinding& binding() const { return binding_; }
  Range range(std::uint32_t chunk) const { return {split_.begin(chunk), split_.length(chunk, 1)}; }
  Range range(std::uint32_t chunk, std::uint32_t count) const {
    return {split_.begin(chunk), split_.length(chunk, count)};
  }
  // Of a message from or to the data: nothing is written over these chunks any more. They hold the sum of all
  // ranks, on both ends.
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
  void find_roles();
  // Of values of the input, and of what is lost.
  std::size_t own_place(std::size_t first) const {
    return binding_.contributions != nullptr ? first - plan_.held.first : first;
  }
  const float* input_at(std::size_t first) const { return binding_.input + own_place(first); }
  float* data_at(std::size_t first) const {
    return binding_.data + (binding_.codes != nullptr ? first - plan_.held.first : first);
  }
  std::size_t coded_size(std::uint32_t chunk, std::uint32_t count) const;
  std::byte* place_for(const Open& open, Message& message, std::size_t bytes);
  // Of the codes of a chunk of data, where that has one.
  bool has_place(std::uint32_t chunk) const { return binding_.codes != nullptr || is_sent_on_[chunk]; }
  std::byte* place_of(std::uint32_t chunk) {
    return binding_.codes != nullptr ? binding_.codes + plan_.chunks[chunk].at
                                     : coded_.data() + coded_at_[chunk];
  }
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
  // Of the schedule, by chunk: the number of the first message after, or with, the last write to it; whether
  // it is sent from the data.
  std::vector<std::size_t> final_from_;
  std::vector<bool> is_sent_on_;
  // Of the schedule, by chunk, for plans.
  struct Role {
    bool is_contributed = false;
    bool is_held = false;
    bool ends_coded = false;
  };
  std::vector<Role> roles_;
  CodedPlan plan_;                     // where contributions or the result are codes
  std::vector<float> held_;            // the data, where there are but codes
  Bytes coded_;                        // of the chunks of data that are sent on, one behind the other
  std::vector<std::size_t> coded_at_;  // where, by chunk
  std::vector<bool> is_coded_;         // by chunk: what the data holds was decoded from what is there
  Bytes moved_;                        // of one chunk
  std::deque<Message> messages_;
  std::vector<Message*> idle_;
  std::size_t bytes_sent_ = 0;
};

}  // namespace heddle
