// The host's half of collectives on streams (stream_relay.hpp): a thread that does them on pieces of vectors, in slots of memory that streams fill and empty.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "comm/device_shares.hpp"
#include "comm/host_collectives.hpp"
#include "schedule/schedule.hpp"

namespace heddle {

// What a stream and the thread tell each other, in a page of its own. Pieces are numbered from the first call on, going round at 2^32.
struct alignas(4096) RelayWords {
  std::uint32_t unused = 0;                // what drivers are tried with
  alignas(128) std::uint32_t arrived = 0;  // pieces that lie in their slots, by the stream
  alignas(128) std::uint32_t done = 0;     // pieces whose results do, by the thread
};

// A collective that is given to it; the same on all ranks.
struct RelayCall {
  Collective collective = Collective::allreduce;
  std::size_t bytes = 0;  // of the vector; at least one
  DType type = DType::u8;
  Op op = Op::sum;
  int root = 0;
  std::uint32_t first = 0;  // number of its first piece
  // Of a call in which the GPUs of each node share the vector out: this rank's part, which is for the ranks of its place.
  std::optional<SharesPieces> shares;
};

struct RelayPiece {
  std::uint32_t number;
  std::size_t begin;  // in the vector, or in a piece of which this is a share
  std::size_t bytes;
  std::byte* slot;
};

// Slots that take turns.
struct RelayRing {
  static constexpr std::uint32_t kSlots = 4;
  // How far the stream fills slots ahead of those it empties: by then the one that comes next is free.
  static constexpr std::uint32_t kAhead = kSlots - 1;

  std::byte* memory = nullptr;
  std::size_t piece = 0;  // bytes; a multiple of every element's size

  std::uint32_t pieces(const RelayCall& call) const {
    const std::size_t count = call.shares ? call.shares->count() : (call.bytes + piece - 1) / piece;
    return static_cast<std::uint32_t>(count);
  }
  std::byte* slot(std::uint32_t number) const { return memory + number % kSlots * piece; }
  // Number `k` of the call's.
  RelayPiece piece_of(const RelayCall& call, std::uint32_t k) const {
    const std::size_t begin = k * piece;
    const std::uint32_t number = call.first + k;
    const Extent e = call.shares ? call.shares->own(k) : Extent{begin, std::min(piece, call.bytes - begin)};
    return {number, e.begin, e.bytes, slot(number)};
  }
};

class RelayThread {
 public:
  // `words` are borrowed, `ring` has memory. Throws std::system_error where there is no thread to be had.
  RelayThread(std::unique_ptr<HostCollectives> ranks, const RelayRing& ring, RelayWords& words);
  RelayThread(const RelayThread&) = delete;
  RelayThread& operator=(const RelayThread&) = delete;
  // Does what was given; where a stream has not done its part by now the others are not left waiting, and what they are sent is undefined.
  ~RelayThread();

  // Calls are served in the order in which they are given, the same on all ranks.
  void give(const RelayCall& call);
  // This rank's stream does not do its part any more: it goes on without results, and the others with whatever the slots hold. All are to be told by lost() before
  // the next call. The first reason counts.
  void lose(const Status& why);
  // The reason; also where the collectives themselves have failed, after which there are no more.
  Status lost() const;

 private:
  void run();
  void release();
  std::optional<RelayCall> next();
  bool serve(const RelayCall& call);
  void await(std::uint32_t number) const;
  Status run_piece(const RelayCall& call, std::uint32_t number);
  Status run_share(const RelayCall& call, const RelayPiece& share);

  const std::unique_ptr<HostCollectives> ranks_;
  const RelayRing ring_;
  RelayWords& words_;
  mutable std::mutex mutex_;  // of all below
  std::condition_variable given_;
  std::deque<RelayCall> calls_;
  std::uint32_t end_ = 0;  // number of the piece after the last one that was given
  bool over_ = false;
  Status lost_;
  std::thread thread_;
};

}  // namespace heddle
