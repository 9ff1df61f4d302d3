#include "setup/core_claim.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "setup/hello.hpp"

namespace heddle {
namespace {

// Variables of a launcher, for as long as a test takes.
class Launcher {
 public:
  Launcher(const char* name, const char* value) {
    for (const char* each : kNames)
      unsetenv(each);
    setenv(name, value, 1);
  }
  ~Launcher() {
    for (const char* each : kNames)
      unsetenv(each);
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

 private:
  static constexpr const char* kNames[] = {"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                           "LOCAL_WORLD_SIZE"};
};

TEST(CoreClaim, SaysHowManyRanksTheLauncherStarted) {
  for (const char* name : {"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"}) {
    const Launcher launcher(name, "12");
    EXPECT_EQ(core_claim(0).launched, 12) << name;
  }
  for (const char* wrong : {"", "x", "3x", "-3", "99999999999"}) {
    const Launcher launcher("MPI_LOCALNRANKS", wrong);
    EXPECT_EQ(core_claim(0).launched, 0) << wrong;
  }
  EXPECT_EQ(core_claim(0).launched, 0);
  EXPECT_GT(core_claim(0).processors, 0);
}

// Two ranks of a job, that may run on any of four cores.
bool have_cores(int launched, int quota) {
  CoreClaim claim;
  claim.mask[0] = 15;
  claim.processors = 4;
  claim.quota = quota;
  claim.launched = launched;
  return each_has_a_core({claim, claim});
}

TEST(CoreClaim, RanksThatAreNotAmongTheClaimsTakeCoresToo) {
  EXPECT_TRUE(have_cores(0, 0)) << "nobody says";
  EXPECT_TRUE(have_cores(4, 0));
  EXPECT_FALSE(have_cores(5, 0));
  EXPECT_TRUE(have_cores(3, 3));
  EXPECT_FALSE(have_cores(4, 3)) << "the cgroup grants no more";
}

// Each in a container of its own, which may run on two cores and is granted one.
TEST(CoreClaim, ContainersUnderOneKernelShareItsCores) {
  std::vector<Hello> hellos(3);
  for (Hello& each : hellos) {
    each.kernel = 7;
    each.cores.mask[0] = 3;
    each.cores.quota = 1;
  }
  EXPECT_FALSE(each_has_a_core(claims_beside(hellos, 0))) << "three on two cores";
  hellos[2].kernel = 8;
  EXPECT_EQ(claims_beside(hellos, 0).size(), 2U);
  EXPECT_EQ(claims_beside(hellos, 2).size(), 1U);
  EXPECT_TRUE(each_has_a_core(claims_beside(hellos, 0))) << "the quotas are not one for both";
  for (Hello& each : hellos)
    each.kernel = 0;
  EXPECT_TRUE(each_has_a_core(claims_beside(hellos, 0))) << "nothing is known";
}

TEST(CoreClaim, RanksWithCoresOfTheirOwnKeepThem) {
  CoreClaim first;
  first.mask[0] = 1;
  first.processors = 64;
  first.launched = 64;
  CoreClaim second = first;
  second.mask[0] = 2;
  EXPECT_TRUE(each_has_a_core({first, second}));
  EXPECT_FALSE(each_has_a_core({first, first}));
}

}  // namespace
}  // namespace heddle
