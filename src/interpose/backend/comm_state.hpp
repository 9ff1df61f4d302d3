// What heddle knows of one MPI communicator, and how it finds that by handle.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/communicator.hpp"
#include "interpose/backend/abi.hpp"
#include "interpose/backend/datatype_map.hpp"
#include "interpose/backend/host_p2p.hpp"
#include "interpose/savings.hpp"

namespace heddle::backend {

enum class Mode : std::uint8_t {
  counting,  // not yet taken over: the host serves, calls are counted
  heddle,    // taken over
  partly,    // the same, but for the reductions that the hosts of its ranks compute differently
  host,      // the host serves for good
  failed,    // heddle failed in flight: only errors from here on
};

// Memory that a communicator keeps between calls; a large piece is given back.
class Scratch {
 public:
  // At least `bytes` bytes, or null when there is no memory.
  void* reserve(std::size_t bytes);
  // Call when done: keeps what is small enough to keep.
  void relax();

 private:
  static constexpr std::size_t kKeep = 4u << 20;
  std::unique_ptr<std::byte[]> memory_;
  std::size_t bytes_ = 0;
};

struct CommState;
using KnownStates = std::unordered_map<MPI_Comm, CommState*>;

// Objects of this type are recycled and never freed: a thread may look at one (at `handle` only) while
// another thread frees the communicator that it belonged to. All other members belong to the threads that
// call collectives on the communicator, one at a time by MPI's own rule.
struct CommState {
  std::atomic<MPI_Comm> handle{};  // 0 while unused
  Mode mode = Mode::counting;
  bool explain = false;  // this rank writes decisions to the log
  int rank = 0;
  int size = 1;
  std::uint32_t calls = 0;       // before the take-over, of those that heddle would serve
  std::uint64_t saved = 0;       // by them, had it served them, in nanoseconds
  std::uint64_t to_save = 0;     // before the take-over
  std::uint64_t barriers = 0;    // that heddle has served
  std::string name;              // for the log: "MPI_COMM_WORLD", "a communicator of 4"
  std::unique_ptr<HostP2p> p2p;  // outlives the communicator
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Savings> savings;  // null where there is nothing to save
  std::unique_ptr<const Pairs>
      pairs;  // that are served, where that is not all that this rank's host would have heddle serve
  Scratch scratch;
  std::uint32_t explained = 0;   // reasons for the host that the log has already, a bit each
  KnownStates::node_type place;  // in the registry, while it is not there

  // Back to what a new object is, but for the handle. Destroys the communicator (local).
  void reset();
};

// All states of the process. find_fast() takes one probe and no lock; the rest takes a lock that is never
// held across an MPI call (MPI calls back into it, holding locks of its own).
class Registry {
 public:
  // The state, or null: unknown, or displaced by another communicator (then find() has it).
  CommState* find_fast(MPI_Comm handle) const {
    CommState* state = probe_[slot(handle)].load(std::memory_order_acquire);
    return state != nullptr && state->handle.load(std::memory_order_relaxed) == handle ? state : nullptr;
  }
  CommState* find(MPI_Comm handle);
  // A state that no find() returns yet: fill it in, then publish() it, or recycle() it. Only this takes
  // memory.
  CommState* take();
  void publish(CommState* state, MPI_Comm handle);
  // Forgets the state and keeps the object for the next communicator.
  void recycle(CommState* state);
  // The states in use at this moment.
  std::vector<CommState*> all();
  std::size_t allocated();

 private:
  static constexpr unsigned kProbeBits = 10;
  static std::size_t slot(MPI_Comm handle) {
    return abi::number_of(handle) * 0x9E3779B1u >> (32 - kProbeBits);
  }

  std::atomic<CommState*> probe_[std::size_t{1} << kProbeBits] = {};
  std::mutex mutex_;
  KnownStates known_;
  std::vector<CommState*> unused_;
  std::deque<CommState> pool_;
};

}  // namespace heddle::backend
