// Memory that runs out in the middle of what several ranks do together.
#pragma once

#include <new>

#include "base/status.hpp"

namespace heddle {

inline Status no_memory() {
  return Status(Code::out_of_memory, "no memory in the middle of a collective");
}

// For who gives something up, or tells the others, before anything else happens. `body` returns a Status, or
// a Result.
template <typename Body>
auto without_throwing(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
}

}  // namespace heddle
