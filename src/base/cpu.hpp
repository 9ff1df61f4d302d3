// What the processor offers a spinning core.
#pragma once

namespace heddle {

// Eases a spin loop: leaves the core's resources to a hardware thread beside it.
inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace heddle
