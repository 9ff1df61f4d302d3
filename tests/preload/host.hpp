// The host MPI of a test program, whose functions are found as the preload library finds them.
#pragma once

#include <dlfcn.h>

#include "interpose/backend/host_mpi.hpp"

namespace heddle::backend::test {

inline HeddleHostSymbols symbols() {
  return {
      [](void* handle, const char* name) { return dlsym(handle, name); }, RTLD_DEFAULT, "the host", "?", {}};
}

inline const HostMpi& host() {
  static const HostMpi mpi = load_host_mpi(symbols()).value();
  return mpi;
}

}  // namespace heddle::backend::test
