// What is being measured, on standard error while it goes on.
#pragma once

#include <chrono>

#include "comm/measured_choices.hpp"

namespace heddle::tune {

// On a terminal one line that changes; elsewhere a line every few seconds.
class ProgressLine {
 public:
  ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine();  // leaves an empty line behind

  void show(const TrialProgress& progress);

 private:
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace heddle::tune
