// What every benchmark's main() does.
#pragma once

#include "common/options.hpp"

namespace heddle::bench {

// Runs the benchmark `kind`; returns the exit status: 0, 1 after a failure (a wrong result under -c among
// them), 2 if the command line is wrong.
int run_program(Kind kind, int argc, char** argv);

}  // namespace heddle::bench
