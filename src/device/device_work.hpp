// What the ranks of a node do on their GPUs in one allreduce or bcast, in steps between which they meet
// (node_links.hpp).
//
// Each rank has its own; all take the same steps. After a meeting what every rank did before it is complete,
// and there for the others to read. The last meeting ends the call: nobody reads from anybody after it, so
// the next call may use all scratch at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "device/device_ways.hpp"
#include "gpu/link.hpp"

namespace heddle {

// Pieces and shares are multiples of this: of every element's size, and of what GPUs like to load at once.
inline constexpr std::size_t kShareGrain = 256;

// Bytes [begin, begin + bytes).
struct Extent {
  std::size_t begin;
  std::size_t bytes;
};
// The part of `bytes` bytes that is rank `rank`'s, of `size` ranks that share them out.
Extent share_of(std::size_t bytes, int rank, int size);

// How the scratch of each rank is divided: two halves, which take turns. In each a piece of a vector, and a
// share of a result. A vector that is one piece has all of it.
struct ScratchLayout {
  std::size_t half = 0;
  std::size_t piece = 0;
  std::size_t whole = 0;  // the longest vector that is one piece

  static ScratchLayout of(std::size_t bytes, int ranks);
};

// One rank among others, and its link.
struct Worker {
  gpu::Link* link;
  int rank;
  int size;
  ScratchLayout layout;
  DeviceWays ways;
};

class DeviceWork {
 public:
  DeviceWork() = default;
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;
  virtual ~DeviceWork() = default;

  // Words that the first meeting is to carry to all: 0 but for this rank's.
  virtual std::span<std::uint64_t> words() { return {}; }
  // The same for meeting number `k`, 1 or more.
  virtual std::span<std::uint64_t> later_words(std::size_t /*k*/) { return {}; }
  // After the first meeting, by what words() has become: whether all go on; the same on all ranks. If not, no
  // rank's memory has changed.
  virtual bool agreed() const { return true; }
  // Given to the link before the first meeting.
  virtual Status first() { return {}; }
  // Given to it after meeting number `k`, for 0 <= k < steps(); then comes the next one.
  virtual Status step(std::size_t k) = 0;
  virtual std::size_t steps() const = 0;
  // The GPUs meet by themselves: the only step is given after the first meeting, and the second one is for
  // all to know that everybody has given it, before anybody waits for it.
  virtual bool meets_on_gpus() const { return false; }
  // The rank that does the only step for all: their inputs are there after the first meeting, and their
  // results after the second. -1: each does its own.
  virtual int leader() const { return -1; }
};

struct DeviceSum {
  const std::byte* in;
  std::byte* out;     // may be `in`
  std::size_t count;  // at least 1
  DType type;
  Op op;
};
struct DeviceBcast {
  std::byte* buffer;
  std::size_t bytes;  // at least 1
  int root;
};

// What a rank wants, where its buffers lie apart: equal numbers where ranks want the same. Ranks that meet
// give the number and its complement, and get the largest of each, which are one rank's where all are equal.
std::uint64_t asked(const DeviceSum& sum);
std::uint64_t asked(const DeviceBcast& bcast);
inline bool is_same(std::uint64_t largest, std::uint64_t largest_complement) {
  return largest == ~largest_complement;
}

// Work before which the ranks compare what they want.
class AskedWork : public DeviceWork {
 public:
  std::span<std::uint64_t> words() override { return std::span(words_).first(kHead); }
  bool agreed() const override { return is_same(words_[kAsked], words_[kNotAsked]) && words_[kBroken] == 0; }

 protected:
  // `asked`: a number that is equal where ranks want the same. `more`: words for places, for a later meeting
  // or for the first one as well.
  explicit AskedWork(std::uint64_t asked, std::size_t more = 0) : words_(kHead + more) {
    words_[kAsked] = asked;
    words_[kNotAsked] = ~asked;
  }

  std::span<std::uint64_t> all_words() { return words_; }
  std::span<std::uint64_t> places() { return std::span(words_).subspan(kHead); }
  std::span<const std::uint64_t> places() const { return std::span(words_).subspan(kHead); }
  // That a rank's entries break their contract, or do not.
  void tell_broken(bool is_broken) { words_[kBroken] = is_broken ? 1 : 0; }
  static std::uint64_t word(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }
  static std::byte* pointer(std::uint64_t word) {
    return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(word));
  }

 private:
  enum Head : std::uint8_t { kAsked, kNotAsked, kBroken, kHead };

  std::vector<std::uint64_t> words_;
};

// All ranks share one context: the first one folds everybody's input into everybody's output, where they lie,
// or the root copies its buffer to the others'. One GPU does it all in any case; and threads that give it
// work at the same time hold each other up in the driver.
std::unique_ptr<DeviceWork> direct_sum(const Worker& worker, const DeviceSum& sum);
std::unique_ptr<DeviceWork> direct_bcast(const Worker& worker, const DeviceBcast& bcast);
// Short ones are exchanged (gpu::Link::gather), and each rank folds what has come. Longer ones go by way of
// the scratch, a piece after the other: each rank copies its own there, then
// - each folds all of everybody's, for two ranks and below ways.shared_from (one meeting for each piece), or
// - each folds its share, and copies the others' shares of the result. That moves fewer bytes where there are
//   more ranks.
// Folds go in the order of ranks, whatever the way: the result has the same bits.
std::unique_ptr<DeviceWork> scratch_sum(const Worker& worker, const DeviceSum& sum);
std::unique_ptr<DeviceWork> scratch_bcast(const Worker& worker, const DeviceBcast& bcast);

}  // namespace heddle
