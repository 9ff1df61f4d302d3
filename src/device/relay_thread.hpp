// The host's half of collectives on streams (stream_relay.hpp): a thread that does them on pieces of vectors,
// in slots of memory that streams fill and empty.
//
// What a stream is to do may be captured into a CUDA graph and done many times, of which the host hears
// nothing. So the thread learns from memory which call the stream has come to, and nothing is counted: each
// word that they tell each other by is 0, or the number of a call.
//
//   the stream                                           the thread
//   waits until the word of calls is 0, sets it          sees the number: which call it is has been told
//   fills a slot, sets its word                          sees the number there, does the collective on it,
//                                                        sets the word to 0
//   waits until the slot's word is 0, empties the slot   after the last piece: sets the word of calls to 0
//
// A stream does one call after the other, each in all slots from the first one on.
#pragma once

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>

#include "base/dtype.hpp"
#include "base/float_mode.hpp"
#include "base/log.hpp"
#include "base/round_up.hpp"
#include "base/status.hpp"
#include "device/device_shares.hpp"
#include "device/host_collectives.hpp"
#include "schedule/schedule.hpp"

namespace heddle {

// A collective that is given to it; the same on all ranks.
struct RelayCall {
  Collective collective = Collective::allreduce;
  std::size_t bytes = 0;  // of the vector; 0: there is nothing to do
  DType type = DType::u8;
  Op op = Op::sum;
  int root = 0;
  std::uint32_t number = 0;               // of this rank's, by RelayThread::announce()
  FloatMode mode = FloatMode::current();  // of the thread that makes this: the collective is folded in it
  // Of a call in which the GPUs of each node share the vector out: this rank's part, which is for the ranks
  // of its place.
  std::optional<SharesPieces> shares;
};

struct RelayPiece {
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
    const std::size_t count = call.shares ? call.shares->count() : div_up(call.bytes, piece);
    return static_cast<std::uint32_t>(count);
  }
  // Of number `k` of a call's.
  std::byte* slot(std::size_t k) const { return memory + k % kSlots * piece; }
  RelayPiece piece_of(const RelayCall& call, std::uint32_t k) const {
    const std::size_t begin = k * piece;
    const Extent e = call.shares ? call.shares->own(k) : Extent{begin, std::min(piece, call.bytes - begin)};
    return {e.begin, e.bytes, slot(k)};
  }
};

// What a stream and the thread tell each other by, in a page of its own, which stays the one that the GPU
// knows when the process forks.
struct alignas(4096) RelayWords {
  static void* operator new(std::size_t bytes, std::align_val_t alignment);
  static void operator delete(void* words);
  struct alignas(128) Word {
    std::uint32_t value = 0;
  };
  Word unused;                                // what drivers are tried with
  Word call;                                  // to which the stream has come
  std::array<Word, RelayRing::kSlots> slots;  // a piece of that call lies there

  std::uint32_t& slot(std::size_t k) { return slots[k % slots.size()].value; }
};

// The calls of graphs, for as long as these may be launched. Any thread.
class CapturedCalls {
 public:
  // Its number. What it is comes later.
  std::uint32_t add();
  void set(const RelayCall& call);
  void forget(std::uint32_t number);
  // None: it was forgotten.
  std::optional<RelayCall> find(std::uint32_t number) const;
  std::size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::uint32_t, RelayCall> calls_;
  std::uint32_t last_ = 0;
};

class RelayThread {
 public:
  // `words` are borrowed, `ring` has memory. Throws std::system_error where there is no thread to be had.
  RelayThread(std::unique_ptr<HostCollectives> ranks, const RelayRing& ring, RelayWords& words,
              const Log& log);
  RelayThread(const RelayThread&) = delete;
  RelayThread& operator=(const RelayThread&) = delete;
  // Does what was given; where a stream has not done its part by now the others are not left waiting, and
  // what they are sent is undefined.
  ~RelayThread();

  // The number of a call, before a stream is given its beginning. Calls in graphs come as often as these are
  // launched; all others come once, in the order in which they are announced.
  std::uint32_t announce(bool in_graph);
  // What to do when the graph of that call is gone, and all that was made of it, so that programs which
  // capture anew in each step do not gather calls. Any thread, also after this is.
  std::function<void()> forgetting(std::uint32_t number) const {
    return [graphs = graphs_, number] { graphs->forget(number); };
  }
  std::size_t in_graphs() const { return graphs_->size(); }
  // What it is, once all ranks are agreed on it. Calls come in the same order on all ranks.
  void give(const RelayCall& call);
  // It is not to be. `begun`: the stream has been given its beginning, or a graph has, and goes on when it
  // comes there.
  void withdraw(std::uint32_t number, bool begun);
  // This rank's stream, which has begun that call, does not do its part of it: it goes on without results,
  // and the others with whatever the slots hold. All are to be told by lost() before the next call that is
  // given. The first reason counts.
  void lose(std::uint32_t number, const Status& why);
  // The reason; also where the collectives themselves have failed, after which there are no more, and streams
  // go on without results.
  Status lost() const;

  // From now on it is there for graphs alone, whose calls it was given. Where the stream has not done its
  // part of others by now, they are done as at the end.
  void keep();
  // After keep(): why graphs have gone on without results since this was asked last, if they have.
  Status missed();

 private:
  // A call that is no graph's; not known: it is not agreed on yet.
  struct Announced {
    std::uint32_t number;
    std::optional<RelayCall> call;
  };

  void run();
  std::optional<RelayCall> next();
  std::optional<RelayCall> find(std::uint32_t number) const;
  bool is_wanted() const;
  bool is_past(std::uint32_t number) const;
  Status serve(const RelayCall& call);
  void await(const RelayCall& call, std::uint32_t k);
  Status run_piece(const RelayCall& call, std::uint32_t k);
  Status run_share(const RelayCall& call, const RelayPiece& share);
  void conclude(const RelayCall& call);
  void let_go_rest();
  void fail(const Status& why);
  void let_all_go();

  std::unique_ptr<HostCollectives> ranks_;
  const RelayRing ring_;
  RelayWords& words_;
  const Log log_;
  mutable std::mutex mutex_;  // of all below
  std::condition_variable given_;
  std::deque<Announced> calls_;
  const std::shared_ptr<CapturedCalls> graphs_ = std::make_shared<CapturedCalls>();
  std::uint32_t last_ = 0;      // number of a call that was announced
  std::uint32_t given_up_ = 0;  // that of lose()
  bool over_ = false;           // there is nothing to come
  bool kept_ = false;           // it is there for graphs alone
  Status failed_;               // why there are no collectives any more
  bool missed_ = false;         // graphs have gone on without results
  Status lost_;
  std::thread thread_;
};

}  // namespace heddle
