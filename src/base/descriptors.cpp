#include "base/descriptors.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <system_error>

namespace heddle {
namespace {

std::size_t limit_now() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  return limit.rlim_cur;
}

}  // namespace

Descriptors count_descriptors() {
  Descriptors found{0, limit_now()};
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end;
       entry.increment(error))
    ++found.open;
  if (error == std::errc::too_many_files_open || error == std::errc::too_many_files_open_in_system)
    return {found.limit, found.limit};
  if (found.open > 0) --found.open;  // the one of this look
  return found;
}

Status no_descriptor(const std::string& call, int error) {
  if (error != EMFILE && error != ENFILE) return system_error(call, error);
  const Descriptors now = count_descriptors();
  return Status(Code::out_of_memory,
                fmt::format("no socket for a connection: {} of {} file descriptors are open (ulimit -n)",
                            now.open, now.limit));
}

bool has_descriptors(std::size_t count) {
  const int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (lowest < 0) return errno != EMFILE && errno != ENFILE;
  close(lowest);
  return static_cast<std::size_t>(lowest) + count <= limit_now();
}

int off_standard_streams(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  close(fd);
  errno = error;
  return moved;
}

}  // namespace heddle
