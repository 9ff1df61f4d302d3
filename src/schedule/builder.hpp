// Writes a schedule step by step; algorithms use nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "schedule/schedule.hpp"

namespace heddle {

// A range of chunks.
struct Chunks {
  std::uint32_t first = 0;
  std::uint32_t count = 1;
};

class Builder {
 public:
  Builder(Collective collective, std::uint32_t chunks) {
    schedule_.collective = collective;
    schedule_.chunks = chunks;
  }

  Builder& send(std::int32_t to, Chunks c, Slot from = Slot::data, int lane = 0);
  Builder& send_scratch(std::int32_t to, Chunks c, std::uint32_t unit);
  Builder& recv(std::int32_t from, Chunks c, int lane = 0);                                  // into data
  Builder& recv_scratch(std::int32_t from, Chunks c, std::uint32_t unit = 0, int lane = 0);  // into scratch
  Builder& reduce(Chunks c, std::uint32_t unit = 0, bool scratch_first = false);  // data = data op scratch
  Builder& copy_input();                                                          // data = input, all chunks
  Builder& copy_input(Chunks c);  // data = input, these chunks
  Builder& copy_to_scratch(Chunks c, std::uint32_t unit, Slot from);
  Builder& wait(std::uint32_t may_stay_open = 0);
  Builder& team(StepKind verb, Slot from, std::int32_t member, Chunks c, TeamKind team = TeamKind::node);
  Builder& flag(StepFlags flags);         // adds flags to the step written last
  Builder& scratch(std::uint32_t units);  // at least this many scratch units, for steps with kRotate

  // Runs what `body` writes `times` times; the chunk of every step without kFixed moves by `stride` each
  // time. Repeats do not nest. Nothing is written for zero times.
  template <typename Body>
  Builder& repeat(std::uint32_t times, std::int32_t stride, Body body) {
    if (times == 0) return *this;
    const std::size_t head = open_repeat(times, stride);
    body(*this);
    close_repeat(head);
    return *this;
  }

  Builder& in_order() {
    schedule_.in_order = true;
    return *this;
  }
  Builder& root(std::int32_t rank) {
    schedule_.root = rank;
    return *this;
  }

  // Appends the schedule of one rank of a group to this one: its chunk 0 is `first_chunk`, and its repeats,
  // if any, must not run past its last chunk unless both have the same number of chunks. Peers are renamed by
  // `rank_of` (group member number to rank), and what `inner` reads from input is taken from data, its copies
  // of input there being dropped. For algorithms whose phases run another algorithm on data that is already
  // there. Steps with kRotate mean `inner`'s scratch units, so nothing else in this schedule may need more
  // units than `inner` has.
  Builder& embed(const Schedule& inner, std::span<const std::int32_t> rank_of, std::uint32_t first_chunk = 0);

  // Ends with `wait(0)` unless that is already the last step, and fills in scratch and max_open.
  Schedule finish() &&;

 private:
  std::size_t open_repeat(std::uint32_t times, std::int32_t stride);
  void close_repeat(std::size_t head);
  Step& push(Step step);

  Schedule schedule_;
};

}  // namespace heddle
