// Collectives that a communicator runs for the time they take.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "comm/measured_choices.hpp"

namespace heddle {

class CommunicatorImpl;
struct Job;

// On vectors of their own, by whichever choice. All ranks call the same, which is collective, and get the
// same answers, so that they decide alike.
class Trials {
 public:
  explicit Trials(CommunicatorImpl& comm) : comm_(comm) {}

  // Of so many bytes, on all ranks or on none.
  Status make_room(std::size_t bytes);
  // What `times` collectives take one after the other, in seconds. A bcast's root changes: one alone would
  // run ahead of the others, and what messages may be in flight would count, not how long they take.
  Result<double> in_a_row(Collective collective, const Choice& choice, std::size_t bytes, int times);
  // What `times` collectives take that begin together, for which there is room.
  Result<Timing> apart(Collective collective, const Choice& choice, std::size_t bytes, int times);
  // Gives up what the choices have left for their next calls.
  void forget();

  // Each becomes the largest of all ranks.
  Status largest(std::span<double> values);
  // The longest of all ranks' times.
  Result<double> slowest(double time);

 private:
  Job job(Collective collective, std::size_t bytes);

  CommunicatorImpl& comm_;
  std::vector<float> vectors_;  // an input and a result, or the buffers of two roots
};

}  // namespace heddle
