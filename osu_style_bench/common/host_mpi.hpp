// The MPI that starts the benchmarks' ranks, as far as they use it themselves. Two files define this:
// host_mpi.cpp, which calls MPI, and without_mpi.cpp, for programs that are built without one; side.hpp's
// sides of MPI are as many.
#pragma once

#include <span>
#include <string>

#include "heddle/heddle.h"

namespace heddle::bench::host {

// Whether the program was built with MPI. Without it start() fails, and nothing below it is called.
bool built_in();
// Its description of itself, on one line; "no MPI" without one. Needs no start().
std::string library();

// False on failure, with the sentence in `problem`. `native`: the benchmark could do without MPI. `threads`:
// several threads will call at once.
bool start(int* argc, char*** argv, bool native, bool threads, std::string& problem);
void finish();
int rank();
int size();
int rank_on_machine();  // collective
// PMPI_ calls, which no preload library sees: each value becomes the largest, or the sum, over all ranks.
void reduce(std::span<double> values, bool largest);
void barrier();
heddle_status make_comm(heddle_comm_t* comm);  // over all ranks
void abort();                                  // of all ranks

}  // namespace heddle::bench::host
