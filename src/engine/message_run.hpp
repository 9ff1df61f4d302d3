// The order in which a schedule of messages runs, for executions whose messages are more than a buffer:
// sparse streams, coded vectors. The steps themselves are theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.hpp"
#include "engine/ports.hpp"
#include "engine/team_step.hpp"
#include "schedule/cursor.hpp"
#include "schedule/schedule.hpp"
#include "transports/transport.hpp"

namespace heddle {

class MessageRun {
 public:
  // A schedule without team verbs, unless operands() gives them what they need.
  MessageRun(std::shared_ptr<const Schedule> schedule, const Ports& ports)
      : schedule_(std::move(schedule)), ports_(&ports) {}
  MessageRun(const MessageRun&) = delete;
  MessageRun& operator=(const MessageRun&) = delete;
  virtual ~MessageRun() = default;

  // Runs every step that can run now. *done becomes true when the collective is complete on this rank.
  Status poll(bool* done);
  bool active() const { return cursor_.has_value(); }
  // Gives up: cancels what is open. After an error or a deadline, and by destructors of what is derived.
  void abandon();
  Waiting waiting_for() const;
  const Schedule& schedule() const { return *schedule_; }

 protected:
  // A step whose message is under way.
  struct Open {
    Step step;
    std::uint32_t chunk;
    std::uint32_t unit;  // of a step that addresses scratch
    bool done;
    void* message;       // of the derived class
    std::size_t number;  // from 0 on in each run; the same message has the same one in every run
  };

  Status begin();
  Cursor& cursor() { return *cursor_; }
  std::uint32_t unit_of(const Cursor& at, Slot slot) const { return slot == Slot::scratch ? at.unit() : 0; }

 private:
  // Sets `message` and starts it.
  virtual Status open(Open& open, Transport& transport) = 0;
  // After the transports have moved: sets `done`, and then takes what has arrived.
  virtual Status move(Open& open) = 0;
  // Whether the first part of it is through, where there may be several: transports tell of messages in any
  // order, and later parts are opened in that of the messages.
  virtual bool has_begun(const Open& /*open*/) const { return true; }
  // It is done, or to be given up.
  virtual void close(Open& open) = 0;
  virtual void copy() = 0;
  // The cursor may stay on a later step than it was on.
  virtual Status fold() = 0;
  // Of a verb of a team; without a fold where the derived class runs messages alone.
  virtual TeamOperands operands() { return {}; }
  // The last step has been run.
  virtual void end() {}

  Status open_step();
  Status move_messages();
  Status run_team(bool* done);
  bool comes_later(std::size_t place) const;
  bool retire(std::uint32_t may_stay_open);

  std::shared_ptr<const Schedule> schedule_;
  const Ports* ports_;
  std::optional<Cursor> cursor_;
  std::vector<Open> open_;  // oldest first
  std::size_t opened_ = 0;
  TeamStep team_;
};

}  // namespace heddle
