#include "transports/shm/shared_memory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/descriptors.hpp"
#include "base/round_up.hpp"
#include "base/threads.hpp"
#include "base/whole_file.hpp"

namespace heddle {
namespace {

constexpr const char* kPrefix = "heddle-";

std::size_t round_to_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return round_up(bytes, page);
}

int open_posix(SharedMemoryHandle& handle) {
  std::uint64_t salt = 0;
  if (getrandom(&salt, sizeof salt, 0) != sizeof salt) return -1;
  std::snprintf(handle.name, sizeof handle.name, "/%s%d-%llx", kPrefix, static_cast<int>(getpid()),
                static_cast<unsigned long long>(salt));
  return shm_open(handle.name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

// The kernel kills who makes a file larger than that, a memfd too, with SIGXFSZ.
Status check_file_limit(std::size_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur)
    return {};
  return Status(Code::out_of_memory, std::to_string(bytes) +
                                         " bytes of shared memory are more than files may have here (" +
                                         std::to_string(limit.rlim_cur) + ", ulimit -f)");
}

// Of memory that is limited others want some as well: where an MPI gets no more it ends the process, and the
// kernel that of a program which finds no room in /dev/shm.
std::size_t left_to_others(std::size_t limit) {
  constexpr std::size_t kMost = std::size_t{64} << 20;
  return std::min(limit / 4, kMost);
}

Status check_address_space(std::size_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  std::size_t pages = 0;
  const Result<std::string> statm = read_file("/proc/self/statm");
  if (statm.ok()) std::from_chars(statm->data(), statm->data() + statm->size(), pages);
  const std::size_t used = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t left = left_to_others(limit.rlim_cur);
  if (used + bytes + left <= limit.rlim_cur) return {};
  return Status(Code::out_of_memory,
                fmt::format("{} bytes of shared memory are too many: of the {} bytes of address space that "
                            "this process may have (ulimit -v) {} are in use, and the program may want {}",
                            bytes, limit.rlim_cur, used, left));
}

Status check_room_in_dev_shm(int fd, std::size_t bytes) {
  struct statvfs room {};
  if (fstatvfs(fd, &room) != 0 || room.f_blocks == 0) return {};
  const std::size_t left = left_to_others(room.f_blocks * room.f_frsize);
  const std::size_t free = room.f_bavail * room.f_frsize;
  if (bytes + left <= free) return {};
  return Status(
      Code::out_of_memory,
      fmt::format("{} bytes in /dev/shm are too many, where {} are free and others may want {} (make "
                  "it larger, lower HEDDLE_SLOT_BYTES, or unset HEDDLE_SHM)",
                  bytes, free, left));
}

std::string source_of(const SharedMemoryHandle& handle) {
  if (handle.name[0] != '\0') return std::string("/dev/shm") + handle.name;
  return "/proc/" + std::to_string(handle.pid) + "/fd/" + std::to_string(handle.fd);
}

// A byte of the file for each member.
flock lock_of(int member) {
  flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = member;
  lock.l_len = 1;
  return lock;
}

}  // namespace

SharedMemory::SharedMemory(SharedMemory&& other) noexcept {
  *this = std::move(other);
}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(handle_, other.handle_);
  std::swap(fd_, other.fd_);
  std::swap(claims_, other.claims_);
  return *this;
}

SharedMemory::~SharedMemory() {
  claims_ = false;
  publish_done();
  if (data_ != nullptr) munmap(data_, size_);
}

Status SharedMemory::map(int fd, std::size_t bytes) {
  HEDDLE_TRY(check_address_space(bytes));
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED)
    return system_error("mapping " + std::to_string(bytes) + " bytes of shared memory", errno);
  data_ = static_cast<std::byte*>(address);
  size_ = bytes;
  return {};
}

Result<SharedMemory> SharedMemory::create(std::size_t bytes, Backing backing) {
  SharedMemory memory;
  const std::size_t size = round_to_pages(bytes);
  const bool posix = backing == Backing::posix;
  HEDDLE_TRY(check_file_limit(size));
  if (posix) sweep_stale_shared_memory();
  const int fd =
      off_standard_streams(posix ? open_posix(memory.handle_) : memfd_create("heddle", MFD_CLOEXEC));
  if (fd < 0) {
    const int error = errno;
    if (posix) shm_unlink(memory.handle_.name);
    memory.handle_.name[0] = '\0';
    return system_error(posix ? "shm_open in /dev/shm" : "memfd_create", error);
  }
  memory.fd_ = fd;
  memory.handle_.pid = getpid();
  memory.handle_.fd = fd;
  memory.handle_.bytes = size;
  if (ftruncate(fd, static_cast<off_t>(size)) != 0) return system_error("sizing shared memory", errno);
  struct stat info {};
  if (fstat(fd, &info) != 0) return system_error("fstat of shared memory", errno);
  memory.handle_.device = info.st_dev;
  memory.handle_.inode = info.st_ino;
  if (posix) {
    HEDDLE_TRY(check_room_in_dev_shm(fd, size));
    // Which end it on older systems (EINTR), as a profiler's timer does again and again.
    const SignalsBlocked blocked;
    if (const int err = posix_fallocate(fd, 0, static_cast<off_t>(size)); err != 0) {
      return system_error(
          "reserving " + std::to_string(size) +
              " bytes in /dev/shm (make it larger, lower HEDDLE_SLOT_BYTES, or unset HEDDLE_SHM)",
          err);
    }
  }
  HEDDLE_TRY(memory.map(fd, size));
  return memory;
}

Result<SharedMemory> SharedMemory::attach(const SharedMemoryHandle& handle) {
  SharedMemory memory;
  const bool posix = handle.name[0] != '\0';
  const std::string source = source_of(handle);
  const int fd =
      off_standard_streams(posix ? shm_open(handle.name, O_RDWR | O_CLOEXEC, 0)
                                 : open(source.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (fd < 0) return system_error("opening " + source, errno);
  struct stat info {};
  Status status;
  if (fstat(fd, &info) != 0) {
    status = system_error("fstat of " + source, errno);
  } else if (static_cast<std::uint64_t>(info.st_size) != handle.bytes) {
    status = Status(Code::system, source + " has " + std::to_string(info.st_size) + " bytes, not " +
                                      std::to_string(handle.bytes) + ": another process's?");
  } else if (info.st_dev != handle.device || info.st_ino != handle.inode) {
    status = Status(Code::system, source + " is another process's, of another PID namespace perhaps");
  } else {
    status = memory.map(fd, handle.bytes);
  }
  memory.fd_ = fd;
  if (!status.ok()) return status;
  return memory;
}

void SharedMemory::publish_done() {
  if (fd_ < 0) return;
  if (handle_.name[0] != '\0') shm_unlink(handle_.name);
  handle_.name[0] = '\0';
  if (claims_) return;
  close(fd_);
  fd_ = -1;
}

bool SharedMemory::claim(int member) {
  flock lock = lock_of(member);
  claims_ = fcntl(fd_, F_OFD_SETLK, &lock) == 0;
  return claims_;
}

bool SharedMemory::is_claimed(int member) const {
  flock lock = lock_of(member);
  return fcntl(fd_, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

void sweep_stale_shared_memory() {
  DIR* directory = opendir("/dev/shm");
  if (directory == nullptr) return;
  const std::size_t prefix = std::strlen(kPrefix);
  while (const dirent* entry = readdir(directory)) {
    int pid = 0;
    if (std::strncmp(entry->d_name, kPrefix, prefix) != 0 ||
        std::sscanf(entry->d_name + prefix, "%d-", &pid) != 1)
      continue;
    // ESRCH alone: a process of another PID namespace looks gone too, but then its object is younger than a
    // minute only while it is being set up, so age decides.
    struct stat info {};
    const std::string name = std::string("/") + entry->d_name;
    if (kill(pid, 0) == 0 || errno != ESRCH) continue;
    if (stat(("/dev/shm" + name).c_str(), &info) != 0 || time(nullptr) - info.st_mtime < 60) continue;
    shm_unlink(name.c_str());
  }
  closedir(directory);
}

}  // namespace heddle
