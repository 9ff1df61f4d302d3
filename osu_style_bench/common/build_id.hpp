// Which build of the benchmarks this is.
#pragma once

namespace heddle::bench {

// What `git describe --always --dirty` said of the sources when they were last built; the version where there is no git.
const char* build_source();
const char* build_type();  // "release", as meson calls it

}  // namespace heddle::bench
