// heddle's own table of a driver's functions, for programs that measure or check kernels without the rest of
// the library.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "gpu/driver.hpp"

namespace heddle {

// Of the libcuda at `path`; ends the program, with the reason, where there is none or it lacks something.
inline gpu::Driver loaded_driver(const char* path) {
  const Result<gpu::Driver> driver = gpu::load_driver(dlopen(path, RTLD_NOW));
  if (driver.ok()) return driver.value();
  std::fprintf(stderr, "%s\n", driver.status().message().c_str());
  std::exit(1);
}

}  // namespace heddle
