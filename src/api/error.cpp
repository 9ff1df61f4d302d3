#include "api/error.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace heddle::edge {
namespace {

// No constructor and no allocation: a thread that never fails pays nothing.
thread_local std::array<char, 2048> last_message;

static_assert(static_cast<int>(Code::ok) == HEDDLE_OK);
static_assert(static_cast<int>(Code::invalid_argument) == HEDDLE_ERR_ARGUMENT);
static_assert(static_cast<int>(Code::unsupported) == HEDDLE_ERR_UNSUPPORTED);
static_assert(static_cast<int>(Code::out_of_memory) == HEDDLE_ERR_MEMORY);
static_assert(static_cast<int>(Code::system) == HEDDLE_ERR_SYSTEM);
static_assert(static_cast<int>(Code::timeout) == HEDDLE_ERR_TIMEOUT);
static_assert(static_cast<int>(Code::peer_failed) == HEDDLE_ERR_PEER);
static_assert(static_cast<int>(Code::internal) == HEDDLE_ERR_INTERNAL);
static_assert(static_cast<int>(Code::capacity) == HEDDLE_ERR_CAPACITY);

}  // namespace

heddle_status fail(heddle_status status, std::string_view message) noexcept {
  const std::size_t length = std::min(message.size(), last_message.size() - 1);
  // memmove: a caller may hand back what heddle_last_error gave it.
  if (length != 0) std::memmove(last_message.data(), message.data(), length);
  last_message[length] = '\0';
  return status;
}

heddle_status fail(const Status& status) noexcept {
  return fail(static_cast<heddle_status>(status.code()), status.message());
}

const char* last_error() noexcept {
  return last_message.data();
}

}  // namespace heddle::edge
