// A stream between two ranks: a message whose length only the sender knows. What it holds is either chunks
// (wire.hpp) or, where both can reach the same memory, where the entries lie.
//
// The transports want both ends to name a length. So a stream travels as a first message of fixed size, which
// says how many bytes there are and holds the first of them, and, where they are more, as a second message
// with the rest. The sender opens both at once; nobody waits for an answer. The two travel on different
// lanes: firsts meet in order, and so do seconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule/step.hpp"
#include "sparse/node_memory.hpp"
#include "sparse/storage.hpp"
#include "sparse/stream.hpp"
#include "transports/transport.hpp"

namespace heddle {

inline constexpr std::size_t kFirstMessage = 512;
// Lanes that schedules may use for streams; the others carry second messages.
inline constexpr int kStreamLanes = kLanes / 2;
// Entries in one chunk on the wire: enough that its header does not count, few enough that each region of the
// vector gets the form that suits it.
inline constexpr std::size_t kChunkEntries = 4096;
// More than any form of that many entries takes on the wire: each in a chunk of its own.
constexpr std::size_t most_stream_bytes(std::uint64_t entries) {
  constexpr std::uint64_t kEach = 72;
  return entries > SIZE_MAX / kEach ? SIZE_MAX : entries * kEach;
}

// A stream in memory that the receiver can reach, one for each chunk of the message.
struct HandedStream {
  std::uint64_t count = 0;
  std::uint64_t index_type = 0;
  NodePlace indices;
  NodePlace values;
};

// Both ends of one. Reusable; does not move while it is open.
class StreamMessage {
 public:
  // `tag`: of the first message; the second one's is `tag` + kStreamLanes.
  Status send(Transport& transport, int peer, std::uint32_t tag);
  // `most_bytes`: a stream that claims to be longer is refused.
  Status recv(Transport& transport, int peer, std::uint32_t tag, std::size_t most_bytes);
  // After the transport has moved. *done: the bytes are through.
  Status move(bool* done);
  // The first message is through, so that move() has opened the second one.
  bool has_begun() const { return first_.done; }
  void cancel();

  int peer() const { return peer_; }

  // To be sent: streams are appended one after the other, between clear() and send().
  void clear();
  // The entries of [first, end) that `view` consists of.
  void append(const SparseView& view, std::uint64_t first, std::uint64_t end);
  // Instead, for all of a message: `view` lies in memory that the receiver reaches until it has told that it
  // is done.
  void hand(const HandedStream& stream);
  // Bytes on the wire of what was sent or received, both messages.
  std::size_t wire_bytes() const { return wire_bytes_; }

  // Instead of all that, where both ends know how many values there are: these alone, as one message.
  void append_values(const SparseView& view);
  Status send_values(Transport& transport, int peer, std::uint32_t tag);
  // Into `values`, which has room for `bytes` and stays until the message is done or cancelled.
  Status recv_values(Transport& transport, int peer, std::uint32_t tag, std::byte* values, std::size_t bytes);

  // Whether what was received was handed over, and then those streams.
  bool is_handed() const;
  Result<std::vector<HandedStream>> handed() const;
  // Else: entries of [first, end) as one stream in memory of the pool. Nothing that is wrong with the bytes
  // does harm: the status says what it is, and from whom they are. `out_of_memory`: they may be right.
  struct Received {
    std::shared_ptr<Storage> storage;
    SparseView view;
  };
  // `like`: dimension and types.
  // `internal`: the bytes are wrong; `out_of_memory`.
  Result<Received> unpack(const SparseView& like, std::uint64_t first, std::uint64_t end,
                          StoragePool& pool) const;

 private:
  void start(Transport& transport, int peer, bool receives, bool values_alone);
  std::uint64_t received_bytes() const;
  Status wrong_bytes(const Status& what) const;

  Transport* transport_ = nullptr;
  int peer_ = -1;
  std::uint64_t flags_ = 0;
  std::uint32_t tag_ = 0;
  bool receives_ = false;
  bool values_alone_ = false;
  bool second_open_ = false;
  std::size_t most_bytes_ = 0;
  std::size_t wire_bytes_ = 0;
  Ticket first_;
  Ticket second_;
  std::vector<std::byte> bytes_;  // sent: length and payload
  Buffer buffer_;                 // received: likewise
};

}  // namespace heddle
