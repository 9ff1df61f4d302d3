// How two ranks come to one connection, over datagrams that may be lost, doubled or late, whether one of them
// begins or both do.
//
// Each side has one queue pair for the other. It calls with that queue pair's number until the other side
// says that it has it. A hello of the last stage is not answered, so that the exchange ends.
#pragma once

#include <algorithm>
#include <chrono>

#include "transports/verbs/wire.hpp"

namespace heddle::verbs {

class Handshake {
 public:
  using Clock = std::chrono::steady_clock;

  // What is to be done after an event.
  struct Next {
    bool connect = false;  // the other side's queue pair is known as of now: bring ours up to it
    bool say = false;      // send a hello of stage()
    bool broken = false;   // the other side has another queue pair than it had: it cannot be talked to
  };

  bool begun() const { return begun_; }
  bool is_open() const { return begun_ && stage_ == Stage::open; }
  Stage stage() const { return stage_; }

  // Somebody here wants the connection; nothing happens when it is under way.
  Next begin(Clock::time_point now);
  // A hello came in.
  Next heard(const Hello& hello, Clock::time_point now);
  // A message came over the connection: the other side must have our queue pair.
  void message_came() {
    if (stage_ == Stage::known) stage_ = Stage::open;
  }
  // Time passed: calls again, at longer and longer intervals.
  Next tick(Clock::time_point now);
  std::chrono::milliseconds waited(Clock::time_point now) const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - begin_);
  }
  // For so long, until `now`, nobody here read what came in: that was no waiting.
  void was_away(Clock::duration time, Clock::time_point now) { begin_ = std::min(begin_ + time, now); }

 private:
  void say_at(Clock::time_point now);

  bool begun_ = false;
  Stage stage_ = Stage::calling;
  std::uint32_t queue_pair_ = 0;  // the other side's
  Clock::time_point begin_;
  Clock::time_point again_;
  std::chrono::milliseconds interval_{0};
};

}  // namespace heddle::verbs
