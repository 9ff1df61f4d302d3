#include "base/watched_process.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>
#include <string>

#include "base/descriptors.hpp"
#include "base/whole_file.hpp"

namespace heddle {

namespace {

// Also one whose parent has not asked for its status yet: to kill() that is still a process.
bool none_runs(pid_t pid) {
#ifdef SYS_pidfd_open
  const Descriptor fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (fd.number() >= 0) {
    pollfd exited{fd.number(), POLLIN, 0};
    return poll(&exited, 1, 0) == 1;
  }
  // The number is nobody's, or by now that of a thread, which kill() takes for a process.
  if (errno == ESRCH || errno == ENOENT || errno == EINVAL) return true;
#endif
  // No such call here (Linux before 5.3, a sandbox, no descriptor left).
  return kill(pid, 0) != 0 && errno == ESRCH;
}

}  // namespace

// Field 22 of its stat. The second is a name in parentheses, which may have such in it. That of its first
// thread says the same as /proc/PID/stat, of which QEMU gives emulated programs one made up, with another
// time for each thread that asks.
std::uint64_t start_of_process(pid_t pid) {
  const std::string number = std::to_string(pid);
  const Result<std::string> stat = read_file("/proc/" + number + "/task/" + number + "/stat");
  if (!stat.ok()) return 0;
  const std::size_t name_end = stat.value().rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(stat.value().substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field)
    fields >> skipped;
  std::uint64_t ticks = 0;
  return fields >> ticks ? ticks : 0;
}

bool WatchedProcess::is_gone() const {
  if (none_runs(pid_)) return true;
  const std::uint64_t started = started_ == 0 ? 0 : start_of_process(pid_);
  return started != 0 && started != started_;
}

}  // namespace heddle
