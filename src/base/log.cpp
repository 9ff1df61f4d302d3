#include "base/log.hpp"

#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/no_sigpipe.hpp"

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

void write_out(std::string_view text) {
  const NoSigpipe quiet;
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;  // nobody is there to be told
    text.remove_prefix(static_cast<std::size_t>(written));
  }
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
  write_out(out);
  errno = saved_errno;
}

}  // namespace heddle
