// Which instruction sets the kernels are compiled for. Include before any Highway header.
//
// On x86 SSSE3 and AVX3_DL are left out: nothing here gains from them over SSE4 and AVX3, and every target is
// another compilation of each kernel. The scalable vectors of Arm are left out because the loops want a
// vector width known to the compiler; NEON serves there. Highway always adds its portable fallback.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define HWY_BROKEN_EMU128 1
