#include "interpose/detect.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

namespace heddle::interpose {
namespace {

constexpr std::size_t kMaxCandidates = 16;
constexpr char kProbe[] = "PMPI_Allreduce";

struct Candidates {
  char path[kMaxCandidates][1024];
  std::size_t count = 0;
};

const char* base_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

// The dynamic linker holds its lock here: only take notes, open nothing.
int note_candidate(dl_phdr_info* info, std::size_t /*bytes*/, void* context) {
  auto* found = static_cast<Candidates*>(context);
  const char* name = info->dlpi_name;
  if (name == nullptr || std::strncmp(base_name(name), "libmpi", 6) != 0) return 0;
  const std::size_t length = std::strlen(name);
  if (length >= sizeof found->path[0] || found->count == kMaxCandidates) return 0;
  std::memcpy(found->path[found->count++], name, length + 1);
  return 0;
}

void read_version(HostLibrary* out) {
  constexpr std::size_t kLongest = 8192;  // MPICH's MPI_MAX_LIBRARY_VERSION_STRING; the largest of all
  using GetVersion = int (*)(char*, int*);
  auto get = reinterpret_cast<GetVersion>(find_symbol(out->handle, "PMPI_Get_library_version"));
  if (get == nullptr) return;
  char text[kLongest] = "";
  int length = 0;
  if (get(text, &length) != 0) return;
  text[kLongest - 1] = '\0';
  for (char* c = text; *c != '\0'; ++c) {
    if (*c == '\t') *c = ' ';
    if (*c == '\n' || *c == ',') *c = '\0';
    if (*c == '\0') break;
  }
  std::snprintf(out->version, sizeof out->version, "%.*s", static_cast<int>(sizeof out->version - 1), text);
}

HostKind classify(const HostLibrary& library) {
  if (find_symbol(library.handle, "ompi_mpi_comm_world") != nullptr) return HostKind::open_mpi;
  // The standard ABI is another ABI, whoever made the library.
  if (std::strncmp(base_name(library.path), "libmpi_abi", 10) == 0) return HostKind::other;
  for (const char* name : {"MPICH", "MVAPICH", "Intel(R) MPI", "ParaStation"}) {
    if (std::strstr(library.version, name) != nullptr) return HostKind::mpich_abi;
  }
  return HostKind::other;
}

// Replaces the handle by one for exactly the library that defines `symbol`, so that later look-ups cannot
// stray.
void pin_down(void* symbol, HostLibrary* out) {
  Dl_info where;
  if (dladdr(symbol, &where) == 0 || where.dli_fname == nullptr) return;
  std::snprintf(out->path, sizeof out->path, "%s", where.dli_fname);
  if (void* handle = dlopen(out->path, RTLD_LAZY | RTLD_NOLOAD); handle != nullptr) out->handle = handle;
}

}  // namespace

void* find_symbol(void* handle, const char* name) {
  return dlsym(handle, name);
}

void find_host_library(HostLibrary* out) {
  void* symbol = dlsym(RTLD_DEFAULT, kProbe);
  if (symbol == nullptr) {
    Candidates found;
    dl_iterate_phdr(note_candidate, &found);
    for (std::size_t i = 0; i < found.count && symbol == nullptr; ++i) {
      void* handle = dlopen(found.path[i], RTLD_LAZY | RTLD_NOLOAD);
      if (handle == nullptr) continue;
      symbol = dlsym(handle, kProbe);
      if (symbol != nullptr) {
        out->handle = handle;
      } else {
        dlclose(handle);
      }
    }
  }
  if (symbol == nullptr) return;
  pin_down(symbol, out);
  read_version(out);
  out->kind = classify(*out);
}

bool path_beside(const char* name, char* out, std::size_t bytes) {
  static const char here = 0;
  Dl_info self;
  if (dladdr(&here, &self) == 0 || self.dli_fname == nullptr) return false;
  const char* base = base_name(self.dli_fname);
  const int folder = static_cast<int>(base - self.dli_fname);
  const int length = std::snprintf(out, bytes, "%.*s%s", folder, self.dli_fname, name);
  return length > 0 && static_cast<std::size_t>(length) < bytes;
}

}  // namespace heddle::interpose
