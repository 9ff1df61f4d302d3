#include "interpose/callers.hpp"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace heddle::interpose {
namespace {

// A piece of code in memory, and whether it stands before the MPI.
struct Code {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  bool is_in_front = false;

  bool has(std::uintptr_t address) const { return address - begin < bytes; }
};

// Few libraries call PMPI functions: bindings, tools, the host's own MPI-IO.
constexpr std::size_t kMostKnown = 32;
constinit Code known[kMostKnown];
constinit std::atomic<std::size_t> known_count{0};  // what is below does not change any more
constinit pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

struct Search {
  std::uintptr_t address;
  Code code;
  char path[1024];
};

// The dynamic linker holds its lock here: only take notes, open nothing.
int look_into(dl_phdr_info* info, std::size_t /*bytes*/, void* context) {
  auto* search = static_cast<Search*>(context);
  for (std::size_t i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    const Code code{info->dlpi_addr + segment.p_vaddr, segment.p_memsz, false};
    if (segment.p_type != PT_LOAD || !code.has(search->address)) continue;
    search->code = code;
    const char* name = info->dlpi_name != nullptr ? info->dlpi_name : "";
    std::size_t length = 0;
    for (; name[length] != '\0' && length + 1 < sizeof search->path; ++length)
      search->path[length] = name[length];
    search->path[length] = '\0';
    return 1;
  }
  return 0;
}

// Bindings for `use mpi` and mpif.h, and those for `use mpi_f08`, may be two libraries. What has MPI's own
// names is a tool, or an MPI.
bool is_in_front_of_mpi(const Search& search) {
  void* const library =
      dlopen(search.path, RTLD_LAZY | RTLD_NOLOAD);  // for good: its addresses remain its own
  if (library == nullptr) return false;
  // Not in what the library needs, where dlsym() looks as well.
  const auto has = [&](const char* name) {
    return search.code.has(reinterpret_cast<std::uintptr_t>(dlsym(library, name)));
  };
  if (has("mpi_allreduce_") || has("mpi_allreduce_f08_")) return true;
  return (has("MPI_Allreduce") || has("MPI_Bcast") || has("MPI_Barrier") || has("MPI_Reduce") ||
          has("MPI_Allgather")) &&
         !has("PMPI_Allreduce");
}

const Code* find_known(std::uintptr_t address) {
  const std::size_t count = known_count.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    if (known[i].has(address)) return &known[i];
  }
  return nullptr;
}

bool look_up(std::uintptr_t address) {
  Search search{address, {}, ""};
  // Code that was made at run time is no library's.
  if (dl_iterate_phdr(look_into, &search) == 0) return false;
  search.code.is_in_front = is_in_front_of_mpi(search);
  pthread_mutex_lock(&mutex);
  const std::size_t count = known_count.load(std::memory_order_relaxed);
  if (count < kMostKnown && find_known(address) == nullptr) {
    known[count] = search.code;
    known_count.store(count + 1, std::memory_order_release);
  }
  pthread_mutex_unlock(&mutex);
  return search.code.is_in_front;
}

}  // namespace

bool is_in_front_of_mpi(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (const Code* code = find_known(at); code != nullptr) return code->is_in_front;
  return look_up(at);
}

}  // namespace heddle::interpose
