// The ranks of a node, as processes or as threads, for programs on machines with little more than CUDA and a
// compiler: heddle's team in shared memory, and its path for buffers on GPUs, without a communicator around
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "cuda_memory.hpp"
#include "device/device_path.hpp"
#include "device/host_collectives.hpp"
#include "gpu/gpu.hpp"
#include "transports/shm/shm_team.hpp"

namespace heddle::test {

class NodeRank final : public Meeting {
 public:
  // `memory` is for kTeams teams.
  NodeRank(const char* library, std::byte* memory, int rank, int size, const DeviceLimits& limits);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status largest(std::span<std::uint64_t> words) override;
  void tell(std::uint64_t word) override { team_->tell(word); }
  std::uint64_t told(int rank) const override { return team_->told(rank); }
  bool is_gone(int /*rank*/) const override { return false; }
  std::uint64_t calls() const override { return calls_; }
  bool bcast_met() const override { return false; }

  const TestDriver& driver() const { return driver_; }
  DevicePath& path() { return path_; }
  gpu::Gpu& gpu() { return gpu_; }
  void barrier() { static_cast<void>(largest({})); }
  // A sum of floats by images, as it is where GPUs cannot do it.
  Status staged_sum(const float* in, float* out, std::size_t count);
  // Of all ranks, by a team of its own: sums of floats and largest words, and bcasts. `which`: 0 or 1, once
  // each. Number 1 has those across as well, of the nodes below.
  std::unique_ptr<HostCollectives> collectives(int which);
  // Of this rank's node, where two are made up: the last rank is alone on the second one. Once.
  std::unique_ptr<Meeting> made_up_node();
  // Where it is, which is told of all ranks of this process when an alarm ends it. A string that stays.
  void is_at(const char* where) const;
  // Staged calls, until the GPUs serve them. False: they do not.
  bool begin(float* buffer);

  // What a rank does when it has come to a meeting, with what it tells the others there; may be empty.
  std::function<void(std::span<const std::uint64_t> words)> before_meeting;

 private:
  const TestDriver driver_;
  std::byte* const memory_;
  const int rank_;
  const int size_;
  std::uint64_t calls_ = 0;
  gpu::Gpu gpu_;
  std::unique_ptr<Team> team_;
  DevicePath path_;
};

// What a rank does; false: it is wrong.
using RankBody = std::function<bool(NodeRank& rank)>;
// False where one of them said so, or died. In processes of their own, since CUDA does not survive a fork:
// this process must not have used it. `scratch`: bytes on the GPU for the others.
bool on_processes(const char* library, int size, std::size_t scratch, const RankBody& body);
bool on_processes(const char* library, int size, const DeviceLimits& limits, const RankBody& body);
bool on_threads(const char* library, int size, std::size_t scratch, const RankBody& body);

// Whether threads that share a GPU are to be tried where words in memory are waited for:
// HEDDLE_SHARED_CONTEXT=1, as for those who use the library.
bool tries_threads();

// main() of a program that is called as NAME LIBCUDA [--short].
int run_check(int argc, char** argv, int (*check)(const char* library, bool brief));

}  // namespace heddle::test
