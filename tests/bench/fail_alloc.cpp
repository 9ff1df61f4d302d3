// Preloaded: rank 1 gets no aligned memory of 1 MiB and more, and none of `new` of 32 MiB and more. Where the
// job is aborted, the file LAST_WORDS has a line of each rank that does so: whether it has waited before, so
// that what it said last is read.
#include <dlfcn.h>
#include <mpi.h>
#include <time.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

constexpr std::size_t kMost = std::size_t{1} << 20;
constexpr std::size_t kMostOfNew = std::size_t{32} << 20;

bool fails(std::size_t size, std::size_t from) {
  const char* rank = std::getenv("PMI_RANK");
  return size >= from && rank != nullptr && std::strcmp(rank, "1") == 0;
}

thread_local bool waited = false;

}  // namespace

#pragma GCC visibility push(default)

extern "C" {

void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  void* memory = nullptr;
  if (fails(size, kMost)) {
    errno = ENOMEM;
    return nullptr;
  }
  return posix_memalign(&memory, alignment, size) == 0 ? memory : nullptr;
}

int nanosleep(const timespec* wanted, timespec* left) {
  if (wanted->tv_sec > 0 || wanted->tv_nsec >= 50'000'000) waited = true;
  const int error = clock_nanosleep(CLOCK_REALTIME, 0, wanted, left);
  errno = error;
  return error == 0 ? 0 : -1;
}

int PMPI_Abort(MPI_Comm comm, int code) {
  if (const char* path = std::getenv("LAST_WORDS")) {
    std::FILE* file = std::fopen(path, "a");
    std::fputs(waited ? "waited\n" : "did not wait\n", file);
    std::fclose(file);
  }
  using Abort = int (*)(MPI_Comm, int);
  return reinterpret_cast<Abort>(dlsym(RTLD_NEXT, "PMPI_Abort"))(comm, code);
}

}  // extern "C"

void* operator new(std::size_t size) {
  void* memory = fails(size, kMostOfNew) ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

#pragma GCC visibility pop
