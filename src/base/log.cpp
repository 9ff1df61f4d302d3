#include "base/log.hpp"

#include <unistd.h>

#include <cerrno>
#include <string>

namespace heddle {
namespace {

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::none:
      return "none";
    case LogLevel::error:
      return "error";
    case LogLevel::warn:
      return "warning";
    case LogLevel::info:
      return "info";
    case LogLevel::debug:
      return "debug";
  }
  return "unknown";
}

}  // namespace

void Log::line(LogLevel level, std::string_view text) const {
  if (level == LogLevel::none || !wants(level)) return;
  // The program around us may be about to look at errno.
  const int saved_errno = errno;
  std::string out = "heddle";
  if (rank_ >= 0) out += "[" + std::to_string(rank_) + "]";
  out += std::string(" ") + level_name(level) + ": ";
  for (const char c : text)
    out += c == '\n' ? ' ' : c;
  out += '\n';
  const char* data = out.data();
  std::size_t left = out.size();
  while (left > 0) {
    const ssize_t written = ::write(STDERR_FILENO, data, left);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;  // nobody is there to be told
    data += written;
    left -= static_cast<std::size_t>(written);
  }
  errno = saved_errno;
}

}  // namespace heddle
