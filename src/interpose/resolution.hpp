// What the files of trampolines share: part of libheddle_preload.so, so plain C++ without its run-time
// library.
#pragma once

#include <dlfcn.h>

#include <climits>
#include <type_traits>

#include "interpose/backend_abi.h"
#include "interpose/detect.hpp"

#define HEDDLE_EXPORT extern "C" __attribute__((visibility("default")))

namespace heddle::interpose {

inline constexpr int kMpiErrCount = 2;  // MPI_ERR_COUNT in every MPI ABI
inline constexpr int kNoMpi = 16;       // where there is no MPI, there is no right value but "not zero"

// One line to the user.
__attribute__((format(printf, 1, 2))) void say(const char* format, ...);

// Finds out where all calls go, unless that is known. False where the process has no MPI that could answer.
// Any thread.
bool resolve();

// The process's MPI: as resolved, or as it would be by now. Of kind `none` where there is none. Any thread.
HostLibrary host_library();

// A call where there is no MPI: it goes on to what has its name, the stub that a serial program is linked
// with. Where there is nothing, the user is told. Of the type of the function, `like` alone counts.
template <typename... Parameters, typename... Arguments>
int without_mpi(const char* function, int (*like)(Parameters...), Arguments... arguments) {
  auto next = reinterpret_cast<decltype(like)>(dlsym(RTLD_NEXT, function));
  if (next != nullptr) return next(arguments...);
  say("%s was called, but no MPI library is loaded in this process", function);
  return kNoMpi;
}

// What stands in for a large-count function that the host does not have: `to` is the one with an int.
template <typename To, typename From>
bool is_too_large(From value) {
  if constexpr (std::is_same_v<To, int> && std::is_same_v<From, int64_t>)
    return value > INT_MAX || value < INT_MIN;
  else
    return false;
}
template <typename... To, typename... From>
int narrow(const char* name, int (*to)(To...), From... from) {
  if ((is_too_large<To>(from) || ...)) {
    say("%s of more than %d elements: the host MPI has no such function", name, INT_MAX);
    return kMpiErrCount;
  }
  return to(static_cast<To>(from)...);
}

// The next function of this name after heddle's, where it is a tool's, which has its reports to write. Of
// several MPIs in a process the next one is not always the one that is used, so an MPI's own does not count.
// Null: there is no tool.
void* tools_function(const char* mpi_name);

// What follows heddle for calls that it passes on: the host's functions, or a tool's before them. `host` is
// the library's handle.
HeddleStagedCalls next_calls(void* host);
// From now on. By whoever resolves.
void set_staged(const HeddleStagedCalls& calls);
// Whom to tell, before it happens, that the host MPI ends or a communicator does; null: nobody.
void set_ends(HeddleEndFn end, HeddleFreeCommFn free_comm);

}  // namespace heddle::interpose
