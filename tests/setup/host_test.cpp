#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/host_identity.hpp"
#include "setup/bootstrap.hpp"
#include "setup/hardware.hpp"
#include "setup/usable_cores.hpp"

namespace heddle {
namespace {

TEST(HostIdentity, IsTheSameEveryTimeAndNamesTheHost) {
  const HostIdentity first = host_identity();
  const HostIdentity second = host_identity();
  EXPECT_EQ(first.value, second.value);
  EXPECT_NE(first.value, 0U);
  EXPECT_EQ(first.kernel, second.kernel);
  EXPECT_FALSE(first.host_name.empty());
  EXPECT_EQ(first.host_name, second.host_name);
}

// Each communicator of a process needs it, and reading it takes longer than the rest of a small one's set-up.
TEST(ProcessState, ReadsTheIdentityOnce) {
  const pid_t child = fork();
  if (child == 0) {
    ProcessState process;
    const HostIdentity first = process.identity();
    if (unshare(CLONE_NEWUTS) != 0 || sethostname("elsewhere", 9) != 0) _exit(77);
    const bool read_again = process.identity().host_name != first.host_name;
    const HostIdentity elsewhere = host_identity();
    const bool same_kernel = elsewhere.kernel == first.kernel && elsewhere.value != first.value;
    _exit(elsewhere.host_name == "elsewhere" && first.value != 0 && same_kernel && !read_again ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "may not name a host (needs root)";
  EXPECT_EQ(status, 0);
}

TEST(UsableCores, FollowsTheAffinityMask) {
  EXPECT_GE(usable_cores(), 1);
  std::thread([] {
    cpu_set_t before;
    ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
    EXPECT_LE(usable_cores(), CPU_COUNT(&before));
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
    }
    ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(usable_cores(), 1);
  }).join();
}

TEST(UsableCores, ReadsTheQuota) {
  EXPECT_EQ(cores_of_quota("max 100000"), 0);
  EXPECT_EQ(cores_of_quota("200000 100000"), 2);
  EXPECT_EQ(cores_of_quota("150000 100000"), 2);
  EXPECT_EQ(cores_of_quota("50000 100000"), 1);
  for (const char* odd : {"", "200000", "0 100000", "-1 100000", "200000 0", "x y"}) {
    EXPECT_EQ(cores_of_quota(odd), 0) << odd;
  }
}

TEST(Hardware, IsPlausible) {
  const Result<Hardware> found = discover_hardware();
  ASSERT_TRUE(found.ok()) << found.status().message();
  const Hardware& hardware = found.value();
  EXPECT_GE(hardware.usable_cores, 1);
  EXPECT_GE(hardware.hardware_threads, hardware.cores);
  EXPECT_GE(hardware.numa_nodes, 1);
  EXPECT_NE(describe(hardware).find(hardware.host_name), std::string::npos);
}

}  // namespace
}  // namespace heddle
