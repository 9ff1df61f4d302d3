// That what our kernels are chosen by is what Highway's own library would say. Valgrind, whose processor has
// no AVX-512, runs it too.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "highway_itself.hpp"

namespace heddle {
namespace {

#if HWY_ARCH_X86
TEST(Highway, ChoosesTheSame) {
  const std::int64_t looked_for = HWY_SCALAR | HWY_SSE4 | HWY_AVX2 | HWY_AVX3;
  EXPECT_EQ(hwy::SupportedTargets(), highways_supported_targets() & looked_for);
}
#endif

TEST(Highway, AnotherCopyInTheProcessIsLeftAlone) {
  EXPECT_NE(static_cast<const void*>(&hwy::GetChosenTarget()), highways_chosen_target());
}

}  // namespace
}  // namespace heddle
