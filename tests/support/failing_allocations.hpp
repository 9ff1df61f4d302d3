// Memory that runs out at a chosen allocation of a thread. Replaces operator new of the whole program, so
// that one source of it alone includes this.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace heddle::test {

inline thread_local long allocations_left = -1;         // of this thread, until one fails; -1: none does
inline thread_local bool of_those_asked_alone = false;  // counts and fails those by `nothrow` alone

inline void* allocated(std::size_t bytes, bool asks) {
  if (allocations_left >= 0 && (asks || !of_those_asked_alone) && allocations_left-- == 0) return nullptr;
  return std::malloc(bytes > 0 ? bytes : 1);
}

}  // namespace heddle::test

// Not inlined: where the compiler sees malloc on one side and `new` on the other it warns of a mismatch that
// is not one.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const memory = heddle::test::allocated(bytes, false);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new[](std::size_t bytes) {
  return operator new(bytes);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return heddle::test::allocated(bytes, true);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return heddle::test::allocated(bytes, true);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}
