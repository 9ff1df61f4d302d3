// How a thread computes with floats: how it rounds, and what becomes of subnormal numbers.
#pragma once

#include <cfenv>
#include <cstdint>

namespace heddle {

// Of the thread that asks. What is folded by several threads, or once by one and once by another, is folded
// in one mode, or the ranks have different bits. Not like std::fenv_t, which also holds which exceptions have
// come and which of them end the program: these stay the thread's own.
class FloatMode {
 public:
  static FloatMode current() {
    FloatMode mode;
#if defined(__x86_64__)
    mode.vectors_ = __builtin_ia32_stmxcsr() & kVectors;
    std::uint16_t word = 0;
    asm volatile("fnstcw %0" : "=m"(word));
    mode.extended_ = word & kExtended;
#elif defined(__aarch64__)
    std::uint64_t word = 0;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    mode.vectors_ = static_cast<std::uint32_t>(word) & kVectors;
#else
    mode.vectors_ = static_cast<std::uint32_t>(std::fegetround());
#endif
    return mode;
  }

  // In this thread, from now on.
  void enter() const {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr((__builtin_ia32_stmxcsr() & ~kVectors) | vectors_);
    std::uint16_t word = 0;
    asm volatile("fnstcw %0" : "=m"(word));
    word = static_cast<std::uint16_t>((word & ~kExtended) | extended_);
    asm volatile("fldcw %0" : : "m"(word));
#elif defined(__aarch64__)
    std::uint64_t word = 0;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    word = (word & ~std::uint64_t{kVectors}) | vectors_;
    asm volatile("msr fpcr, %0" : : "r"(word));
#else
    (void)std::fesetround(static_cast<int>(vectors_));
#endif
  }

  friend bool operator==(const FloatMode&, const FloatMode&) = default;

 private:
  FloatMode() = default;

#if defined(__aarch64__)
  // FZ16, rounding, FZ, DN, AHP of FPCR.
  static constexpr std::uint32_t kVectors = 0x07c8'0000;
#else
  // Rounding, FTZ and DAZ of MXCSR.
  static constexpr std::uint32_t kVectors = 0xe040;
#endif
  // Rounding and precision of the x87's control word: long double.
  static constexpr std::uint32_t kExtended = 0x0f00;

  std::uint32_t vectors_ = 0;
  std::uint32_t extended_ = 0;
};

// As long as it lives this thread has that mode, and then its own again.
class InFloatMode {
 public:
  explicit InFloatMode(const FloatMode& mode) : own_(FloatMode::current()), differs_(!(own_ == mode)) {
    if (differs_) [[unlikely]]
      mode.enter();
  }
  InFloatMode(const InFloatMode&) = delete;
  InFloatMode& operator=(const InFloatMode&) = delete;
  ~InFloatMode() {
    if (differs_) [[unlikely]]
      own_.enter();
  }

 private:
  const FloatMode own_;
  const bool differs_;
};

}  // namespace heddle
