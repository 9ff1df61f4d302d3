// The edge of the C API: statuses become codes and a sentence, and nothing is thrown across.
#pragma once

#include <exception>
#include <new>
#include <string_view>

#include "base/status.hpp"
#include "heddle/heddle.h"

namespace heddle::edge {

// Keeps `message` as this thread's last error (cut to a fixed length, so that this works when memory is
// gone).
heddle_status fail(heddle_status status, std::string_view message) noexcept;
heddle_status fail(const Status& status) noexcept;
const char* last_error() noexcept;

// Runs `body`, which returns a Status.
template <typename Body>
heddle_status guarded(Body&& body) noexcept {
  try {
    const Status status = body();
    return status.ok() ? HEDDLE_OK : fail(status);
  } catch (const std::bad_alloc&) {
    return fail(HEDDLE_ERR_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return fail(HEDDLE_ERR_INTERNAL, error.what());
  } catch (...) {
    return fail(HEDDLE_ERR_INTERNAL, "an exception of unknown type");
  }
}

}  // namespace heddle::edge
