#include "base/whole_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "base/descriptors.hpp"
#include "base/random_number.hpp"

namespace heddle {
namespace {

// Where `path` leads: what a link points to is replaced, not the link. A link that leads nowhere is followed
// as far as it goes.
Result<std::string> target_of(const std::string& path) {
  constexpr int kMostLinks = 40;  // as Linux
  std::filesystem::path target = path;
  std::error_code error;
  for (int links = 0; std::filesystem::is_symlink(std::filesystem::symlink_status(target, error)); ++links) {
    if (links == kMostLinks) return system_error(path, ELOOP);
    const std::filesystem::path next = std::filesystem::read_symlink(target, error);
    if (error) return system_error(path, error.value());
    target = target.parent_path() / next;
  }
  const std::filesystem::file_status there = std::filesystem::status(target, error);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
    return Status(Code::invalid_argument, path + " is something else than a file");
  return target.string();
}

// 0, or errno.
int write_all(int fd, std::string_view text, Kept kept) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  // Or the name could outlive a power cut that the bytes did not.
  return kept == Kept::through_power_cuts && ::fsync(fd) != 0 ? errno : 0;
}

Status write_part(const std::string& path, const std::string& part, std::string_view text, Kept kept) {
  const int fd = off_standard_streams(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  int error = fd < 0 ? errno : write_all(fd, text, kept);
  if (fd >= 0 && ::close(fd) != 0 && error == 0) error = errno;
  if (error == 0) return {};
  if (fd >= 0) ::unlink(part.c_str());
  return system_error(path + " cannot be written", error);
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t most) {
  // Not to wait for whoever writes to a FIFO.
  const Descriptor file(off_standard_streams(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)));
  struct stat about {};
  if (file.number() < 0 || ::fstat(file.number(), &about) != 0) return system_error(path, errno);
  if (!S_ISREG(about.st_mode)) return Status(Code::invalid_argument, path + " is not a file");
  // No memory for what is too large anyway.
  std::string text(std::min(static_cast<std::size_t>(about.st_size), most) + 1, '\0');
  std::size_t at = 0;
  for (;;) {
    if (at > most)
      return Status(Code::invalid_argument, fmt::format("{} is larger than {} bytes", path, most));
    if (at == text.size()) text.resize(2 * at);  // it has grown, or is one of those that tell no size
    const ssize_t got = ::read(file.number(), text.data() + at, text.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(path, errno);
    if (got == 0) break;
    at += static_cast<std::size_t>(got);
  }
  text.resize(at);
  return text;
}

std::string name_beside(const std::string& path) {
  // Containers count their processes each for itself.
  static std::atomic<std::uint64_t> last{random_number()};
  return fmt::format("{}.{}.{:x}", path, getpid(), ++last);
}

Status can_replace_file(const std::string& path) {
  const Result<std::string> target = target_of(path);
  if (!target.ok()) return target.status();
  const std::string part = name_beside(target.value());
  HEDDLE_TRY(write_part(path, part, "", Kept::until_power_cuts));
  ::unlink(part.c_str());
  return {};
}

Status replace_file(const std::string& path, std::string_view text, Kept kept) {
  const Result<std::string> target = target_of(path);
  if (!target.ok()) return target.status();
  const std::string part = name_beside(target.value());
  HEDDLE_TRY(write_part(path, part, text, kept));
  if (std::rename(part.c_str(), target.value().c_str()) == 0) return {};
  const int error = errno;
  ::unlink(part.c_str());
  return system_error(path + " cannot be replaced", error);
}

}  // namespace heddle
