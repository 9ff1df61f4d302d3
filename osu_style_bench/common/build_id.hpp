// Which build of the benchmarks this is.
#pragma once

namespace heddle::bench {

// What `git describe --always --long --dirty` said of the sources when they were last built, whose commit is
// in it whatever tags there are; the version where they are no repository of their own.
const char* build_source();
const char* build_type();  // "release", as meson calls it

}  // namespace heddle::bench
