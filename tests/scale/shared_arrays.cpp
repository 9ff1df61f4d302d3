// Preloaded into the simulation: what the sides put aside for a large vector (a copy of it, halves on their
// way into a fold) is all ranks' together, as the vectors are. Of 16 MiB on 1,024 ranks it would take 8 to 16
// GiB. Only vectors whose results are not compared need arrays as large: what holds anything would come out
// wrong, and be seen.
#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace {

constexpr std::size_t kLeast = std::size_t{256} << 10;
constexpr std::size_t kMost = std::size_t{1} << 30;

// Memory only where it is touched.
void* everyones() {
  static void* const area =
      mmap(nullptr, kMost, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return area;
}

}  // namespace

__attribute__((visibility("default"))) void* operator new[](std::size_t bytes) {
  const bool shared = bytes >= kLeast && bytes <= kMost && everyones() != MAP_FAILED;
  return shared ? everyones() : ::operator new(bytes);
}

__attribute__((visibility("default"))) void operator delete[](void* array) noexcept {
  if (array != everyones()) ::operator delete(array);
}

__attribute__((visibility("default"))) void operator delete[](void* array, std::size_t /*bytes*/) noexcept {
  operator delete[](array);
}
