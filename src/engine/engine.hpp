// The engine: the one executor of schedules. Blocking is start and wait, non-blocking is poll, persistent is
// restart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "engine/ports.hpp"
#include "engine/team_step.hpp"
#include "schedule/cursor.hpp"
#include "schedule/schedule.hpp"
#include "schedule/split.hpp"
#include "transports/transport.hpp"

namespace heddle {

// Who does a schedule's local steps where its data lies on a GPU: the engine's own thread cannot. Work is
// begun in the order in which it is given, and done later. What fails is for its owner to find out: the run
// goes on, with undefined contents, because others wait for its messages.
class LocalWork {
 public:
  LocalWork() = default;
  LocalWork(const LocalWork&) = delete;
  LocalWork& operator=(const LocalWork&) = delete;
  virtual ~LocalWork() = default;

  // For one run at a time; null: it has not so much.
  virtual std::byte* scratch(std::size_t bytes) = 0;
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  // `to` may be either of them.
  virtual void fold(std::byte* to, const std::byte* first, const std::byte* second, std::size_t count) = 0;
  // Whether all that was given is done, so that messages may use what it has read and written.
  virtual bool done() = 0;
};

// What attaches to a schedule when a collective starts.
struct Binding {
  const std::byte* input = nullptr;  // equal to `data` in place
  std::byte* data = nullptr;         // may be null on ranks other than the root of a reduce
  std::size_t count = 0;             // elements
  std::size_t element_bytes = 1;
  FoldFn fold = nullptr;       // not for bcast
  std::uint32_t sequence = 0;  // number of this collective on its communicator: keeps messages apart
  LocalWork* local = nullptr;  // instead of `fold`, and of this thread's copies; borrowed
  FoldKind kind = 0;           // what `fold` does, where the ranks are to compare it
};

// Memory that is not zeroed: much of it may never be touched.
class ScratchMemory {
 public:
  // At least so many bytes, with undefined contents; null, and what there was is gone, where there are none.
  std::byte* at_least(std::size_t bytes);

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t bytes_ = 0;
};

// One schedule being executed, over and over. Allocates in the constructor and when a larger scratch is
// needed, never between start and completion.
class Execution {
 public:
  // `shared`: scratch of executions of which no two run at a time; null: it has its own.
  Execution(std::shared_ptr<const Schedule> schedule, const Ports& ports, ScratchMemory* shared = nullptr);
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;
  ~Execution();

  // `out_of_memory`: nothing has happened.
  Status start(const Binding& binding);
  // Runs every step that can run now. *done becomes true when the collective is complete on this rank.
  Status poll(bool* done);
  bool active() const { return active_; }
  // Gives up: cancels what is open. After an error or a deadline.
  void abandon();
  Waiting waiting_for() const;

  const Schedule& schedule() const { return *schedule_; }

 private:
  struct Range {
    std::size_t offset;
    std::size_t bytes;
  };
  Status find_scratch(std::size_t bytes);
  Range range(const Step& step) const;
  std::byte* place(Slot slot, const Range& r) const;
  void run_local(const Step& step);
  void give_local(const Step& step, std::byte* dst, const std::byte* src, std::size_t bytes);
  bool local_is_done() const { return binding_.local == nullptr || binding_.local->done(); }
  Status open_message(const Step& step);
  Status progress_messages();
  bool run_team(const Step& step);
  bool retire(std::uint32_t may_stay_open);

  std::shared_ptr<const Schedule> schedule_;
  bool uses_data_;  // where the caller has none it takes scratch
  const Ports* ports_;
  Binding binding_;
  Split split_{0, 1};
  ScratchMemory own_scratch_;
  ScratchMemory* scratch_;
  std::byte* scratch_at_ = nullptr;  // in this run
  std::size_t unit_bytes_ = 0;
  std::vector<Ticket> tickets_;  // a ring of max_open
  std::vector<std::int32_t> peer_of_ticket_;
  std::uint32_t oldest_ = 0;
  std::uint32_t open_ = 0;
  TeamStep team_;
  bool active_ = false;
  Cursor cursor_;
};

}  // namespace heddle
