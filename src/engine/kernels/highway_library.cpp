// The two functions of Highway's library that dispatch needs, for the headers of 1.0.3. The library would be
// one more thing to find on each machine, and takes 3.5 ms to load: it measures the timer of its benchmarks.
// Other versions are linked (meson.build), for their targets may ask for more.
#include "engine/kernels/targets.hpp"

#include <hwy/highway.h>

#include <cstdint>

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace hwy {
namespace {

constinit ChosenTarget chosen_target;

#if HWY_ARCH_X86

static_assert((HWY_TARGETS & ~(HWY_SCALAR | HWY_SSE4 | HWY_AVX2 | HWY_AVX3)) == 0,
              "a target that is not looked for below");

// clang 14 has no names for these two.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

bool has_lzcnt() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000001U, &a, &b, &c, &d) != 0 && (c & bit_LZCNT) != 0;
}

// All that Highway asks for, target by target: its headers let the compiler use any of it, and what is
// forgotten here ends programs on processors without it. The compiler's library has AVX and what builds on it
// only where the system saves their registers.
bool has_sse4() {
  return __builtin_cpu_supports("sse3") && __builtin_cpu_supports("ssse3") &&
         __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("sse4.2") &&
         __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("aes");
}

bool has_avx2() {
  return has_sse4() && __builtin_cpu_supports("avx") && __builtin_cpu_supports("avx2") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma") &&
         has_f16c() && has_lzcnt();
}

bool has_avx3() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
}

#else
static_assert((HWY_TARGETS & (HWY_TARGETS - 1)) == 0, "several targets, of which none is looked for");
#endif

}  // namespace

std::int64_t SupportedTargets() {
#if HWY_ARCH_X86
  __builtin_cpu_init();  // we may be called before the compiler's library has been
  return HWY_SCALAR | (has_sse4() ? HWY_SSE4 : 0) | (has_avx2() ? HWY_AVX2 : 0) | (has_avx3() ? HWY_AVX3 : 0);
#else
  return HWY_TARGETS;
#endif
}

ChosenTarget& GetChosenTarget() {
  return chosen_target;
}

}  // namespace hwy
