// Rings and chains with shorter loops, for the pricer: once all ranks are at work each further iteration
// takes as long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule/schedule.hpp"
#include "schedule/topology_view.hpp"

namespace heddle {

// The longest repeats of all ranks. Losing as many iterations each they are the same ring or chain for fewer
// pieces of the same size.
class LongRepeats {
 public:
  // Borrows the schedules, one for each rank.
  LongRepeats(const TopologyView& topology, std::vector<Schedule>& schedules);

  // Of the shortest of them. 0: there are none, or they are no ring or chain.
  std::uint32_t iterations() const { return iterations_; }
  // As many of these may pass before what is still to come to some rank shows in the time that all take.
  std::uint32_t filling() const { return filling_; }
  // Leaves the shortest so many, and the others as many more as they had.
  void shorten(std::uint32_t iterations);

 private:
  struct Repeat {
    std::int32_t rank;
    std::size_t step;
    std::uint32_t iterations;
  };
  void find();

  std::vector<Schedule>& schedules_;
  std::vector<Repeat> repeats_;
  std::uint32_t iterations_ = 0;
  std::uint32_t filling_ = 0;
};

}  // namespace heddle
