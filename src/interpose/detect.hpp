// Which MPI has this process loaded? Part of libheddle_preload.so, so plain C++ without its run-time library.
#pragma once

#include <cstddef>

namespace heddle::interpose {

enum class HostKind { none, mpich_abi, open_mpi, standard_abi, other };

struct HostLibrary {
  HostKind kind = HostKind::none;
  void* handle = nullptr;  // for dlsym; null is RTLD_DEFAULT (MPI linked into the executable)
  char path[1024] = "";
  char version[160] = "";  // first line of MPI_Get_library_version
};

// Looks at what is loaded now, in the global scope first and then at libraries opened with RTLD_LOCAL
// (Python's extension modules bring their MPI that way). Where there are several the one that has been
// initialised is the one that calls come from. Opens nothing that is not loaded; what it finds stays loaded.
// One thread at a time, which may have a small stack.
void find_host_library(HostLibrary* out);

// dlsym with `handle` from above.
void* find_symbol(void* handle, const char* name);

// The path of the file beside this library: <its folder>/<name>. False when it does not fit. One thread at a
// time.
bool path_beside(const char* name, char* out, std::size_t bytes);

}  // namespace heddle::interpose
