// What a result file says about where it was measured.
#pragma once

#include <string>

namespace heddle::bench {

struct Machine {
  std::string host;
  std::string cpu;        // the model's name
  int cores = 0;          // that this process may run on
  std::string core_list;  // "0-3,8": which these are
  std::string kernel;
};
Machine this_machine();

}  // namespace heddle::bench
