// What was measured, as a table and as JSON.
#pragma once

#include <cstddef>
#include <string>

#include "comm/measured_choices.hpp"

namespace heddle::tune {

std::string bytes_text(std::size_t bytes);      // "64 KiB"
std::string choice_text(const Choice& choice);  // "ring, 4 chunks"

// What it was measured on, for people.
struct Subject {
  int ranks = 0;
  int nodes = 0;
  std::string communicator;  // its own description
  bool own_cores = true;     // each rank has one
};

// A row for each range of sizes with the same choices, and how far prices were from times.
std::string as_text(const Subject& subject, const MeasuredChoices& measured);
std::string as_json(const Subject& subject, const MeasuredChoices& measured);

}  // namespace heddle::tune
