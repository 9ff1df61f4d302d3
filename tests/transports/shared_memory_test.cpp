// Shared memory is found by those who should, by nobody else, and leaves nothing behind.
#include "transports/shm/shared_memory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <set>
#include <string>

namespace heddle::test {
namespace {

using Backing = SharedMemory::Backing;

// heddle's objects in /dev/shm made by process `pid`.
std::set<std::string> objects_of(pid_t pid) {
  std::set<std::string> names;
  const std::string prefix = "heddle-" + std::to_string(pid) + "-";
  DIR* directory = opendir("/dev/shm");
  while (const dirent* entry = directory != nullptr ? readdir(directory) : nullptr) {
    if (std::strncmp(entry->d_name, prefix.c_str(), prefix.size()) == 0) names.insert(entry->d_name);
  }
  if (directory != nullptr) closedir(directory);
  return names;
}

// Runs `body` in a child process; its exit status, or 128 + signal.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

class SharedMemoryTest : public ::testing::TestWithParam<Backing> {};
INSTANTIATE_TEST_SUITE_P(Backings, SharedMemoryTest, ::testing::Values(Backing::memfd, Backing::posix),
                         [](const auto& kind) { return kind.param == Backing::memfd ? "memfd" : "posix"; });

// 64 KiB on some machines with Arm's processors.
const std::size_t kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

TEST_P(SharedMemoryTest, IsZeroedAndRoundedToPages) {
  Result<SharedMemory> memory = SharedMemory::create(kPage + 904, GetParam());
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  EXPECT_EQ(memory->size(), 2 * kPage);
  for (std::size_t i = 0; i < memory->size(); ++i)
    ASSERT_EQ(memory->data()[i], std::byte{0});
}

TEST_P(SharedMemoryTest, AnotherProcessSeesTheSameBytes) {
  SharedMemory memory = SharedMemory::create(kPage, GetParam()).value();
  const SharedMemoryHandle handle = memory.handle();
  memory.data()[10] = std::byte{42};
  EXPECT_EQ(in_child([&] {
              Result<SharedMemory> attached = SharedMemory::attach(handle);
              if (!attached.ok() || attached->size() != kPage || attached->data() == memory.data()) return 1;
              if (attached->data()[10] != std::byte{42}) return 2;
              attached->data()[11] = std::byte{43};
              return 0;
            }),
            0);
  EXPECT_EQ(memory.data()[11], std::byte{43});
}

TEST_P(SharedMemoryTest, CannotBeFoundAfterPublishDone) {
  SharedMemory memory = SharedMemory::create(4096, GetParam()).value();
  const SharedMemoryHandle handle = memory.handle();
  Result<SharedMemory> attached = SharedMemory::attach(handle);
  ASSERT_TRUE(attached.ok());
  memory.publish_done();
  memory.publish_done();  // twice does no harm
  EXPECT_TRUE(objects_of(getpid()).empty());
  EXPECT_FALSE(SharedMemory::attach(handle).ok());
  memory.data()[5] = std::byte{9};
  EXPECT_EQ(attached->data()[5], std::byte{9});
}

TEST_P(SharedMemoryTest, AWrongSizeIsRefused) {
  SharedMemory memory = SharedMemory::create(2 * kPage, GetParam()).value();
  SharedMemoryHandle handle = memory.handle();
  handle.bytes = kPage;
  const Result<SharedMemory> attached = SharedMemory::attach(handle);
  ASSERT_FALSE(attached.ok());
  EXPECT_EQ(attached.status().code(), Code::system);
  EXPECT_NE(attached.status().message().find("has " + std::to_string(2 * kPage) + " bytes, not " +
                                             std::to_string(kPage)),
            std::string::npos)
      << attached.status().message();
}

// What a process number of another PID namespace may lead to: memory of the same size, which even this
// process may have made.
TEST_P(SharedMemoryTest, OtherMemoryOfThatSizeIsRefused) {
  SharedMemory meant = SharedMemory::create(8192, GetParam()).value();
  SharedMemory other = SharedMemory::create(8192, GetParam()).value();
  SharedMemoryHandle handle = meant.handle();
  handle.fd = other.handle().fd;
  std::memcpy(handle.name, other.handle().name, sizeof handle.name);
  const Result<SharedMemory> attached = SharedMemory::attach(handle);
  ASSERT_FALSE(attached.ok());
  EXPECT_NE(attached.status().message().find("PID namespace"), std::string::npos)
      << attached.status().message();
}

TEST_P(SharedMemoryTest, MoreThanALimitOnFilesIsAStatusAndNoSignal) {
  EXPECT_EQ(in_child([] {
              const rlimit limit = {64 * 1024, 64 * 1024};
              if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              const Result<SharedMemory> large = SharedMemory::create(64 * 1024 + 1, GetParam());
              if (large.ok()) return 2;
              if (large.status().message().find("ulimit -f") == std::string::npos) return 3;
              return SharedMemory::create(64 * 1024, GetParam()).ok() ? 0 : 4;
            }),
            0);
  EXPECT_TRUE(objects_of(getpid()).empty());
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which take terabytes of it
TEST_P(SharedMemoryTest, SomeOfALimitedAddressSpaceIsLeft) {
  EXPECT_EQ(in_child([] {
              std::size_t pages = 0;
              std::ifstream("/proc/self/statm") >> pages;
              constexpr std::size_t kMiB = std::size_t{1} << 20;
              const rlim_t most = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + 320 * kMiB;
              const rlimit limit = {most, most};
              if (setrlimit(RLIMIT_AS, &limit) != 0) return 1;
              const Result<SharedMemory> most_of_it = SharedMemory::create(280 * kMiB, GetParam());
              if (most_of_it.ok() || most_of_it.status().code() != Code::out_of_memory) return 2;
              if (most_of_it.status().message().find("ulimit -v") == std::string::npos) return 3;
              return SharedMemory::create(200 * kMiB, GetParam()).ok() ? 0 : 4;
            }),
            0);
  EXPECT_TRUE(objects_of(getpid()).empty());
}
#endif

TEST_P(SharedMemoryTest, AMissingObjectIsNamed) {
  SharedMemoryHandle handle;
  handle.pid = getpid();
  handle.fd = 9999;
  handle.bytes = 4096;
  if (GetParam() == Backing::posix) std::strcpy(handle.name, "/heddle-0-none");
  const Result<SharedMemory> attached = SharedMemory::attach(handle);
  ASSERT_FALSE(attached.ok());
  EXPECT_NE(
      attached.status().message().find(GetParam() == Backing::posix ? "/dev/shm/heddle-0-none" : "/fd/9999"),
      std::string::npos)
      << attached.status().message();
}

TEST_P(SharedMemoryTest, MovesAndDiesWithoutTrace) {
  {
    SharedMemory memory = SharedMemory::create(4096, GetParam()).value();
    SharedMemory second = std::move(memory);
    memory = SharedMemory::create(4096, GetParam()).value();
    memory = std::move(second);
    EXPECT_NE(memory.data(), nullptr);
  }
  EXPECT_TRUE(objects_of(getpid()).empty());
}

// What the program goes on printing would be written to the memory.
TEST_P(SharedMemoryTest, IsNotFoundInThePlaceOfAClosedStream) {
  EXPECT_EQ(in_child([&] {
              SharedMemory before = SharedMemory::create(4096, GetParam()).value();
              for (int stream = 0; stream < 3; ++stream)
                close(stream);
              SharedMemory made = SharedMemory::create(4096, GetParam()).value();
              Result<SharedMemory> attached = SharedMemory::attach(before.handle());
              const char text[] = "progress";
              for (int stream = 0; stream < 3; ++stream) {
                if (write(stream, text, sizeof text) >= 0 || errno != EBADF) return 1;
              }
              return attached.ok() && made.data()[0] == std::byte{0} ? 0 : 2;
            }),
            0);
}

TEST_P(SharedMemoryTest, AnImpossibleSizeIsAStatus) {
  const Result<SharedMemory> memory = SharedMemory::create(std::size_t{1} << 62, GetParam());
  ASSERT_FALSE(memory.ok());
  EXPECT_FALSE(memory.status().message().empty());
  EXPECT_TRUE(objects_of(getpid()).empty());
}

// Without a look at the number of the process.
TEST_P(SharedMemoryTest, AClaimEndsWithItsProcess) {
  SharedMemory memory = SharedMemory::create(4096, GetParam()).value();
  EXPECT_TRUE(memory.claim(0));
  EXPECT_FALSE(memory.is_claimed(0)) << "its own";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const SharedMemoryHandle handle = memory.handle();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    SharedMemory mine = SharedMemory::attach(handle).value();
    const char well = mine.is_claimed(0) && mine.claim(3) ? 'y' : 'n';
    mine.publish_done();
    if (write(ready[1], &well, 1) != 1) _exit(1);
    pause();
    _exit(1);
  }
  char well = 'n';
  EXPECT_EQ(read(ready[0], &well, 1), 1);
  EXPECT_EQ(well, 'y');
  memory.publish_done();
  EXPECT_TRUE(memory.is_claimed(3));
  EXPECT_FALSE(memory.is_claimed(2));
  kill(child, SIGKILL);
  siginfo_t ended;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(memory.is_claimed(3)) << "nobody has asked for its status yet";
  waitpid(child, nullptr, 0);
}

// A descriptor is all that a claim takes, and as long as the memory.
TEST_P(SharedMemoryTest, AClaimIsGivenUpWithTheMemory) {
  SharedMemory memory = SharedMemory::create(4096, GetParam()).value();
  const int lowest = dup(0);
  close(lowest);
  {
    SharedMemory other = SharedMemory::attach(memory.handle()).value();
    EXPECT_TRUE(other.claim(1));
    other.publish_done();
    EXPECT_TRUE(memory.is_claimed(1));
  }
  EXPECT_FALSE(memory.is_claimed(1));
  {
    SharedMemory other = SharedMemory::attach(memory.handle()).value();
    other.publish_done();
    const int now = dup(0);
    close(now);
    EXPECT_EQ(now, lowest) << "who claims nothing keeps nothing open";
  }
  const int after = dup(0);
  close(after);
  EXPECT_EQ(after, lowest);
}

// Killed between create and publish_done; `name` comes back through a pipe.
std::string killed_creator(pid_t* pid) {
  int ends[2];
  if (pipe(ends) != 0) return "";
  *pid = fork();
  if (*pid == 0) {
    alarm(60);
    SharedMemory memory = SharedMemory::create(4096, Backing::posix).value();
    const ssize_t n = write(ends[1], memory.handle().name, sizeof memory.handle().name);
    if (n > 0) kill(getpid(), SIGKILL);
    _exit(1);
  }
  close(ends[1]);
  char name[sizeof SharedMemoryHandle().name] = {};
  const ssize_t n = read(ends[0], name, sizeof name);
  close(ends[0]);
  int status = 0;
  waitpid(*pid, &status, 0);
  return n == sizeof name && WIFSIGNALED(status) ? name : "";
}

TEST(SharedMemorySweep, RemovesWhatADeadProcessLeftAMinuteAgo) {
  pid_t pid = 0;
  const std::string path = "/dev/shm" + killed_creator(&pid);
  ASSERT_EQ(objects_of(pid).size(), 1U) << "nothing was left: the test lost its point";
  sweep_stale_shared_memory();
  EXPECT_EQ(objects_of(pid).size(), 1U) << "too young to be judged";
  timespec times[2] = {{time(nullptr) - 61, 0}, {time(nullptr) - 61, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  sweep_stale_shared_memory();
  EXPECT_TRUE(objects_of(pid).empty());
}

TEST(SharedMemorySweep, LeavesTheLivingAndTheForeignAlone) {
  SharedMemory memory = SharedMemory::create(4096, Backing::posix).value();
  const std::string mine = std::string("/dev/shm") + memory.handle().name;
  const std::string foreign = "/dev/shm/heddle-not-ours-" + std::to_string(getpid());
  const int fd = open(foreign.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  close(fd);
  timespec times[2] = {{time(nullptr) - 1000, 0}, {time(nullptr) - 1000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, mine.c_str(), times, 0), 0);
  ASSERT_EQ(utimensat(AT_FDCWD, foreign.c_str(), times, 0), 0);
  sweep_stale_shared_memory();
  EXPECT_EQ(access(mine.c_str(), F_OK), 0);
  EXPECT_EQ(access(foreign.c_str(), F_OK), 0);
  unlink(foreign.c_str());
}

// In a mount namespace of its own, over a tiny file system.
TEST(SharedMemoryFull, AFullDevShmIsAStatusAndNoSignal) {
  constexpr int kNotPermitted = 77;
  const int result = in_child([] {
    if (unshare(CLONE_NEWNS) != 0) return kNotPermitted;
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return kNotPermitted;
    if (mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=256k") != 0) return kNotPermitted;
    const Result<SharedMemory> large = SharedMemory::create(std::size_t{1} << 20, Backing::posix);
    if (large.ok()) return 1;
    if (large.status().code() != Code::out_of_memory) return 2;
    if (large.status().message().find("/dev/shm") == std::string::npos) return 3;
    if (!objects_of(getpid()).empty()) return 4;
    Result<SharedMemory> small = SharedMemory::create(64 * 1024, Backing::posix);
    if (!small.ok()) return 5;
    std::memset(small->data(), 1, small->size());
    Result<SharedMemory> anonymous = SharedMemory::create(std::size_t{1} << 20, Backing::memfd);
    if (!anonymous.ok()) return 6;
    std::memset(anonymous->data(), 1, anonymous->size());
    // It would fit, and leave others less than a quarter.
    Result<SharedMemory> all = SharedMemory::create(160 * 1024, Backing::posix);
    if (all.ok()) return 7;
    return all.status().message().find("others may want 65536") != std::string::npos ? 0 : 8;
  });
  if (result == kNotPermitted) GTEST_SKIP() << "no permission for a mount namespace (CAP_SYS_ADMIN)";
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace heddle::test
