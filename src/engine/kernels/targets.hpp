// Which instruction sets the kernels are compiled for. Include before any Highway header.
//
// On x86 SSSE3 and AVX3_DL are left out: nothing here gains from them over SSE4 and AVX3, and every target is
// another compilation of each kernel. The scalable vectors of Arm are left out because the loops want a
// vector width known to the compiler; NEON serves there. Highway always adds its portable fallback.
//
// Instrumented builds keep one vector target: the source is the same for all, and sanitizers make each take
// minutes to compile.
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HEDDLE_KERNELS_INSTRUMENTED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HEDDLE_KERNELS_INSTRUMENTED 1
#endif

#define HEDDLE_KERNELS_UNUSED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#ifdef HEDDLE_KERNELS_INSTRUMENTED
#define HWY_DISABLED_TARGETS (HEDDLE_KERNELS_UNUSED_TARGETS | HWY_SSE4 | HWY_AVX3)
#else
#define HWY_DISABLED_TARGETS HEDDLE_KERNELS_UNUSED_TARGETS
#endif
#define HWY_BROKEN_EMU128 1
