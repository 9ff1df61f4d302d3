// Meetings of the ranks' GPUs that need no host: by flags in memory of the host's that all ranks have mapped,
// which streams write and wait for. A CUDA graph does the same at every launch, so nothing may be counted:
// between any two ranks there are two flags, one for each direction, and each of them goes from 0 to 1 and
// back at every meeting.
//
// A rank's stream, at each meeting, for each other rank:
//   1. waits until its own flag for that rank is 0: that one has seen the meeting before;
//   2. sets it to 1: I have come;
// and then, for each other rank again:
//   3. waits until that one's flag for it is 1: it has come;
//   4. sets that to 0: I have seen it.
// So no rank is ahead by more than one meeting, however often graphs are launched, and all flags are 0 when
// all have left.
//
// The flags lie in the host's memory since streams may write no memory of another GPU (CUDA 13.1 and later
// refuse it), while all GPUs and all processes reach the host's. Streams wait without using the GPU, also
// where processes take turns on one; nothing here can time out.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gpu/host_words.hpp"

namespace heddle::gpu {

class Handshake {
 public:
  explicit Handshake(const Driver& driver) : driver_(driver), flags_(driver) {}
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;

  // Bytes of flags for so many ranks, 64 at most.
  static std::size_t bytes(int size);
  // `flags` are all 0, and stay mapped until close(). In the context in which the streams are, which is
  // current, as in what follows. Tries on `stream` whether the driver does such operations, and waits for it.
  Status open(std::span<std::byte> flags, int rank, int size, CUstream stream);
  // No stream uses the flags any more.
  void close();
  // What `stream` is given now comes after what each other rank's stream was given before its call of this,
  // as often as that is done.
  CUresult meet(CUstream stream);
  // Its halves: 1. and 2. for all others, and 3. and 4.; and all of it, with one other rank alone. For
  // meetings in which one rank meets each other one, which meet that one alone.
  CUresult come(CUstream stream);
  CUresult hear(CUstream stream);
  CUresult meet(CUstream stream, int other);

 private:
  CUresult give(CUstream stream, std::span<CUstreamBatchMemOpParams> operations) const;
  std::size_t others() const { return operations_.size() / 4; }

  const Driver& driver_;
  HostWords flags_;
  int rank_ = 0;
  std::vector<CUstreamBatchMemOpParams> operations_;  // two for each other rank, and two more for each
};

}  // namespace heddle::gpu
