// A thread with the smallest stack that the host MPI is content with: heddle is found, opened and set up
// there. small_stack KIB coroutine: on a stack of the program's own, as coroutines have them.
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstddef>

#include "job.hpp"

namespace {

void* call(void* /*unused*/) {
  static double in = 1;
  static double sum = 0;
  for (int i = 0; i < 6; ++i) {
    MPI_Allreduce(&in, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Bcast(&sum, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  }
  if (static_cast<int>(sum) != job::size_of(MPI_COMM_WORLD)) job::fail("sum is %g", sum);
  return nullptr;
}

void on_a_thread(std::size_t bytes) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, bytes);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, call, nullptr) != 0) job::fail("no thread");
  pthread_join(thread, nullptr);
}

void on_a_coroutine(std::size_t bytes) {
  static ucontext_t back;
  ucontext_t coroutine;
  // Whoever goes beyond it dies.
  constexpr std::size_t kGuard = 64 << 10;
  void* const memory =
      mmap(nullptr, kGuard + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuard, PROT_NONE) != 0) job::fail("no stack");
  getcontext(&coroutine);
  coroutine.uc_stack.ss_sp = memory;
  coroutine.uc_stack.ss_size = kGuard + bytes;
  coroutine.uc_link = &back;
  makecontext(
      &coroutine, [] { call(nullptr); }, 0);
  swapcontext(&back, &coroutine);
  munmap(memory, kGuard + bytes);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (provided < MPI_THREAD_SERIALIZED) job::fail("this MPI has no threads");
  const std::size_t bytes = 1024 * static_cast<std::size_t>(argc > 1 ? std::atoi(argv[1]) : 16);
  if (argc > 2) {
    on_a_coroutine(bytes);
  } else {
    on_a_thread(bytes);
  }
  if (job::served_by(0, 8, MPI_COMM_WORLD) == "host") job::fail("left to the host");
  MPI_Finalize();
  return 0;
}
