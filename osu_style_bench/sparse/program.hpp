// What heddle_sparse_allreduce's main() does.
#pragma once

namespace heddle::bench {

// Returns the exit status: 0, 1 after a failure (a wrong result under -c among them), 2 if the command line
// is wrong.
int run_sparse_program(int argc, char** argv);

}  // namespace heddle::bench
