// What the trampolines of both files share: part of libheddle_preload.so, so plain C++ without its run-time library.
#pragma once

#include "interpose/backend_abi.h"

#define HEDDLE_EXPORT extern "C" __attribute__((visibility("default")))

namespace heddle::interpose {

inline constexpr int kMpiErrCount = 2;  // MPI_ERR_COUNT in every MPI ABI
inline constexpr int kNoMpi = 16;       // where there is no MPI, there is no right value but "not zero"

// One line to the user.
__attribute__((format(printf, 1, 2))) void say(const char* format, ...);

// Finds out where all calls go, unless that is known. False, and the user has been told, where the process has no MPI that could
// answer to `function`. Any thread.
bool resolve(const char* function);

// The next function of this name after heddle's, where it is a tool's, which has its reports to write. Of several MPIs in a process the next one is
// not always the one that is used, so an MPI's own does not count. Null: there is no tool.
void* tools_function(const char* mpi_name);

// What follows heddle for calls that it passes on: the host's functions, or a tool's before them. `host` is the library's handle.
HeddleStagedCalls next_calls(void* host);
// From now on. By whoever resolves.
void set_staged(const HeddleStagedCalls& calls);

}  // namespace heddle::interpose
