// Walks a schedule with its repeats rolled: the next step to run and the chunk and unit it addresses there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "schedule/schedule.hpp"

namespace heddle {

// Borrows the schedule. Rests on a step that is not a repeat, or at the end. Any schedule terminates, also
// one that the verifier would reject: a repeat without a body is skipped, one that runs past the end stops
// there.
class Cursor {
 public:
  explicit Cursor(const Schedule& schedule) : schedule_(&schedule) { settle(); }

  bool done() const { return pc_ >= schedule_->steps.size(); }
  const Step& step() const { return schedule_->steps[pc_]; }
  std::size_t index() const { return pc_; }
  std::uint32_t iteration() const { return iteration_; }
  bool in_repeat() const { return body_end_ != 0; }
  // Inside a repeat: iterations from this one to the last, and going on as many later.
  std::uint32_t iterations_left() const { return iterations_ - iteration_; }
  void skip_iterations(std::uint32_t n) { iteration_ += n; }
  std::uint32_t chunk() const { return chunk_at(step(), stride_, iteration_, schedule_->chunks); }
  // Only for steps that address scratch, of schedules that have some.
  std::uint32_t unit() const { return unit_at(step(), iteration_, schedule_->scratch_units); }

  void advance() {
    ++pc_;
    if (pc_ == body_end_) {
      if (++iteration_ < iterations_) {
        pc_ = body_begin_;
        return;
      }
      body_end_ = 0;
      iteration_ = 0;
    }
    settle();
  }

 private:
  void settle() {
    while (!done() && step().kind == StepKind::repeat) {
      const Step& head = step();
      const auto body = static_cast<std::size_t>(head.peer > 0 ? head.peer : 0);
      ++pc_;
      if (head.count == 0 || body == 0) {
        pc_ += body;
        continue;
      }
      body_begin_ = pc_;
      body_end_ = pc_ + body;
      iterations_ = head.count;
      stride_ = head.stride();
      return;
    }
  }

  const Schedule* schedule_;
  std::size_t pc_ = 0;
  std::size_t body_begin_ = 0;
  std::size_t body_end_ = 0;  // 0 outside of a repeat
  std::uint32_t iteration_ = 0;
  std::uint32_t iterations_ = 0;
  std::int32_t stride_ = 0;
};

}  // namespace heddle
