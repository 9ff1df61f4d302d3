// How the first calls find the backend, and when a communicator is taken over.
#include <fmt/format.h>

#include <utility>

#include "base/launchers.hpp"
#include "base/threads.hpp"
#include "heddle/heddle.h"
#include "interpose/backend/backend.hpp"
#include "select/selector.hpp"

namespace heddle::backend {
namespace {

// When a communicator is set up: at this call, of those that heddle serves, at the earliest, and where it is
// not MPI_COMM_WORLD, which lives as long as the job, not before the calls have come to what the set-up
// costs, had heddle served them. So a program that makes communicators by the thousand, for a few calls each,
// pays nothing for it, and one that keeps them loses at most as much as it would have paid. All this is
// constant, but for HEDDLE_REPRODUCIBLE, and goes by what the ranks know alike, because they must agree
// before they can talk.
constexpr std::uint32_t kTakeoverCall = 3;
// Of two ranks on a node: more ranks cost more, and save more.
constexpr std::uint64_t kSetUpNanoseconds = 250'000;
constexpr std::uint64_t kSavedNanoseconds = 500;  // by a call of few bytes
constexpr std::uint64_t kBytesPerSaved = 5;       // and nanosecond, by longer ones

}  // namespace

bool Backend::make_ready() {
  if (closed_.load(std::memory_order_acquire)) return false;
  if (ready_.load(std::memory_order_acquire)) return true;
  int initialized = 0;
  int finalized = 0;
  mpi_.Initialized(&initialized);
  mpi_.Finalized(&finalized);
  // A program of sessions only has no MPI_COMM_SELF, whose attributes tell when MPI ends: the host serves it.
  if (initialized == 0 || finalized != 0) return false;
  const std::lock_guard lock(ready_mutex_);
  if (closed_.load(std::memory_order_relaxed)) return false;
  if (ready_.load(std::memory_order_relaxed)) return true;

  int world_rank = 0;
  mpi_.Comm_rank(MPI_COMM_WORLD, &world_rank);
  ParsedConfig parsed = parse_config_from_environ();
  const Log log(parsed.config.log_level, world_rank);
  device_buffers_.configure({parsed.config.enable && parsed.config.cuda, parsed.config.pinned_bytes});
  if (!parsed.config.enable) {
    stay_out(log, world_rank);
    return false;
  }
  // Where memory is short a later call tries again.
  try {
    prepare(std::move(parsed), log, world_rank);
    if (watch_end()) {
      ready_.store(true, std::memory_order_release);
      return true;
    }
  } catch (...) {
    self_.close();
    throw;
  }
  self_.close();
  return false;
}

void Backend::prepare(ParsedConfig parsed, const Log& log, int world_rank) {
  int world_size = 0;
  alone_ = mpi_.Comm_size(MPI_COMM_WORLD, &world_size) == MPI_SUCCESS && world_size == 1;
  world_rank_ = world_rank;
  for (std::string& line : read_preferences(parsed.config).complaints)
    parsed.complaints.push_back(std::move(line));
  if (std::string complaint = compression_complaint(parsed.config.compress); !complaint.empty()) {
    parsed.complaints.push_back(std::move(complaint));
    parsed.config.compress.clear();
  }
  const bool opened = self_.open();
  most_aliased_ = opened ? self_.most_aliased() : HostSelf::Aliased();
  abi::learn_types(mpi_);
  map_.emplace(mpi_, self_.comm());
  // Of one rank alone, perhaps: it tells the others in the set-up.
  if (!opened || !packing_.check_format()) {
    log.warn(
        "the host MPI has no communicator to spare, or packs data in a format of its own: continuing as "
        "with HEDDLE_ENABLE=0");
    parsed.config.enable = false;
  }
  if (mpi_.tolerates_failures != nullptr && *mpi_.tolerates_failures && parsed.config.enable) {
    log.warn(
        "Open MPI tolerates failures here (--with-ft), which takes collectives that know of it: "
        "continuing as with HEDDLE_ENABLE=0");
    parsed.config.enable = false;
  }
  reproducible_ = parsed.config.reproducible;
  if (parsed.config.enable) introduce(log, world_size);
  checks_.store(parsed.config.check != CheckSetting::off, std::memory_order_relaxed);
  set_up_.emplace(mpi_, self_, process_, std::move(parsed), world_rank);
}

void Backend::introduce(const Log& log, int world_size) const {
  if (world_rank_ != 0) return;
  if (const std::string other = alone_ ? other_launcher(mpi_.version) : ""; !other.empty()) {
    if (speaks_first()) log.warn(other);
    return;
  }
  if (!log.wants(LogLevel::info)) return;
  log.info(fmt::format("heddle {} in front of {}, {}", HEDDLE_VERSION_STRING, mpi_.version,
                       alone_ ? "1 rank: there is nothing to serve"
                              : fmt::format("{} ranks: takes MPI_COMM_WORLD over at its {}, other "
                                            "communicators when that pays",
                                            world_size,
                                            reproducible_ ? "first allreduce, bcast, reduce or allgather"
                                                          : "third allreduce or bcast")));
}

// Once everything is there that the callbacks use.
bool Backend::watch_end() {
  int finalize_keyval = MPI_KEYVAL_INVALID;
  return mpi_.Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &on_comm_delete, &comm_keyval_, this) ==
             MPI_SUCCESS &&
         mpi_.Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &on_finalize, &finalize_keyval, this) ==
             MPI_SUCCESS &&
         mpi_.Comm_set_attr(MPI_COMM_SELF, finalize_keyval, this) == MPI_SUCCESS;
}

// HEDDLE_ENABLE=0 is what users turn to when a job hangs, so it asks nothing of the other ranks, nor of the
// host: whoever has it is to them as a rank without the preload library.
void Backend::stay_out(const Log& log, int world_rank) {
  closed_.store(true, std::memory_order_release);
  log.line(world_rank == 0 ? LogLevel::info : LogLevel::debug,
           "HEDDLE_ENABLE=0: this process leaves every call to the host MPI");
}

void Backend::take_over(MPI_Comm comm, CommState& state) {
  // Open MPI's and UCX's functions take what they like of the stack, and MPICH 4.0 137 KiB to add two vectors
  // of integers. Who uses MPI in a thread with less has asked for threads, so that another one may.
  constexpr std::size_t kStack = 512 * 1024;
  try {
    with_stack(kStack, [&] { set_up_->run(comm, state, *map_); });
  } catch (...) {
    // The others are in it, and would take this rank's next call for this one.
    state.mode = Mode::failed;
    throw;
  }
}

bool Backend::attach(MPI_Comm comm, CommState* state) {
  if (comm == MPI_COMM_NULL || is_ending(comm)) return false;
  int is_inter = -1;
  int size = 0;
  int rank = 0;
  // MPICH 5 returns MPI_SUCCESS for a wrong communicator when the user's error handler has returned: the
  // answer tells.
  if (mpi_.Comm_test_inter(comm, &is_inter) != MPI_SUCCESS || is_inter < 0 ||
      mpi_.Comm_size(comm, &size) != MPI_SUCCESS || mpi_.Comm_rank(comm, &rank) != MPI_SUCCESS) {
    return false;
  }
  state->mode = is_inter != 0 || size == 1 ? Mode::host : Mode::counting;
  state->size = size;
  state->rank = rank;
  state->to_save = comm == MPI_COMM_WORLD || reproducible_ ? 0 : kSetUpNanoseconds;
  // The host adds in an order of its own: bits would change when heddle takes over.
  if (reproducible_) state->calls = kTakeoverCall - 1;
  if (mpi_.Comm_set_attr(comm, comm_keyval_, state) != MPI_SUCCESS) return false;
  registry_.publish(state, comm);
  return true;
}

bool Backend::is_due(CommState& state, std::size_t counted) {
  if (counted == 0) return false;
  state.saved += kSavedNanoseconds + counted / kBytesPerSaved;
  return ++state.calls >= kTakeoverCall && state.saved >= state.to_save;
}

// Programs that do nothing else have some barriers, between accesses to files or to windows, some allgathers,
// of the names of their hosts, and some reduces, of their timings at the end, without being in a hurry.
bool Backend::is_due_by_worth(CommState& state, std::size_t counted) {
  state.saved += kSavedNanoseconds + counted / kBytesPerSaved;
  return state.saved >= kSetUpNanoseconds;
}

}  // namespace heddle::backend
