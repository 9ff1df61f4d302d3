#include "base/descriptors.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <memory>

namespace heddle {
namespace {

std::size_t limit_now() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  return limit.rlim_cur;
}

// A bit for each number: a child may be forked at any moment of any thread, so it finds neither locks nor
// anything half done.
constexpr int kNoted = 1 << 16;
constexpr int kBits = 64;
std::atomic<std::uint64_t> noted[kNoted / kBits];

std::atomic<std::uint64_t>& word_of(int fd) {
  return noted[fd / kBits];
}
std::uint64_t bit_of(int fd) {
  return std::uint64_t{1} << fd % kBits;
}

void close_all_noted() {
  for (int first = 0; first < kNoted; first += kBits) {
    std::uint64_t bits = word_of(first).load(std::memory_order_relaxed);
    word_of(first).store(0, std::memory_order_relaxed);
    for (; bits != 0; bits &= bits - 1)
      close(first + std::countr_zero(bits));
  }
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) static_cast<void>(::close(number_));
}

// Not by std::filesystem, whose iterators end the process where there is no memory for a name.
Descriptors count_descriptors() {
  Descriptors found{0, limit_now()};
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (folder == nullptr)
    return errno == EMFILE || errno == ENFILE ? Descriptors{found.limit, found.limit} : found;
  while (const dirent* entry = readdir(folder.get())) {
    if (entry->d_name[0] != '.') ++found.open;
  }
  if (found.open > 0) --found.open;  // the one of this look
  return found;
}

Status no_descriptor(const std::string& call, int error) {
  if (error == ENFILE)
    return Status(Code::out_of_memory,
                  "no socket for a connection: all programs together have as many files open as the system "
                  "allows (sysctl fs.file-max)");
  if (error != EMFILE) return system_error(call, error);
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

void close_in_children(int fd) {
  static const int watched = pthread_atfork(nullptr, nullptr, close_all_noted);
  (void)watched;  // without memory for it children keep what they inherit
  if (fd >= 0 && fd < kNoted) word_of(fd).fetch_or(bit_of(fd), std::memory_order_relaxed);
}

void close_noted(int fd) {
  if (fd < 0) return;
  const bool is_ours =
      fd >= kNoted || (word_of(fd).fetch_and(~bit_of(fd), std::memory_order_relaxed) & bit_of(fd)) != 0;
  if (is_ours) close(fd);
}

}  // namespace heddle
