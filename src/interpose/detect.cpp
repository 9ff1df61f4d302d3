#include "interpose/detect.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace heddle::interpose {
namespace {

constexpr std::size_t kMaxCandidates = 16;
constexpr char kProbe[] = "PMPI_Comm_rank";  // which the preload library does not have
constexpr int kItsOwnAbi = -1;

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
  static char text[kLongest];
  text[0] = '\0';
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

// The version of the standard's ABI that a library says it has. One with an ABI of its own says -1, or has no
// such function.
int standard_abi_version(const HostLibrary& library) {
  using GetVersion = int (*)(int*, int*);
  auto get = reinterpret_cast<GetVersion>(find_symbol(library.handle, "PMPI_Abi_get_version"));
  if (get == nullptr) return kItsOwnAbi;
  int major = 0;
  int minor = 0;
  return get(&major, &minor) == 0 ? major : 0;
}

// MPICH and Open MPI have a library of each kind, with the same symbols: what a library says of its ABI comes
// first.
HostKind classify(const HostLibrary& library) {
  const int standard = standard_abi_version(library);
  if (standard == 1) return HostKind::standard_abi;
  // Those of that name which cannot say so have drafts of it.
  if (standard != kItsOwnAbi || std::strncmp(base_name(library.path), "libmpi_abi", 10) == 0)
    return HostKind::other;
  if (find_symbol(library.handle, "ompi_mpi_comm_world") != nullptr) return HostKind::open_mpi;
  for (const char* name : {"MPICH", "MVAPICH", "Intel(R) MPI", "ParaStation"}) {
    if (std::strstr(library.version, name) != nullptr) return HostKind::mpich_abi;
  }
  return HostKind::other;
}

// The library that defines the function at `symbol`, with a handle for exactly that one, so that later
// look-ups cannot stray.
void pin_down(void* symbol, HostLibrary* out) {
  Dl_info where;
  if (dladdr(symbol, &where) == 0 || where.dli_fname == nullptr) return;
  std::snprintf(out->path, sizeof out->path, "%s", where.dli_fname);
  if (void* handle = dlopen(out->path, RTLD_LAZY | RTLD_NOLOAD); handle != nullptr) out->handle = handle;
}

bool is_initialized(const HostLibrary& library) {
  using Initialized = int (*)(int*);
  auto ask = reinterpret_cast<Initialized>(find_symbol(library.handle, "PMPI_Initialized"));
  int flag = 0;
  return ask != nullptr && ask(&flag) == 0 && flag != 0;
}

// Takes the MPI that is found by `handle`, if any, unless `out` has one already and this one has not been
// initialised. True when there is nothing better to look for.
bool consider(void* handle, HostLibrary* out) {
  void* symbol = dlsym(handle, kProbe);
  if (symbol == nullptr) return false;
  HostLibrary found;
  found.handle = handle;
  pin_down(symbol, &found);
  const bool initialized = is_initialized(found);
  if (out->kind != HostKind::none && !initialized) return false;
  *out = found;
  out->kind = HostKind::other;  // until more is known
  return initialized;
}

// The file that is mapped at `address`: a relative path, by which it was loaded, is of a folder that the
// process may have left since.
bool mapped_path(const void* address, char* out, std::size_t bytes) {
  FILE* const maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return false;
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  char* line = nullptr;
  std::size_t room = 0;
  bool found = false;
  while (!found && getline(&line, &room, maps) > 0) {
    char* end = line;
    const std::uintptr_t first = std::strtoull(line, &end, 16);
    if (*end != '-' || wanted < first || wanted >= std::strtoull(end + 1, &end, 16)) continue;
    const char* const path = std::strchr(end, '/');
    if (path == nullptr) break;
    line[std::strcspn(line, "\n")] = '\0';
    found = std::snprintf(out, bytes, "%s", path) < static_cast<int>(bytes);
  }
  std::free(line);
  std::fclose(maps);
  return found;
}

}  // namespace

void* find_symbol(void* handle, const char* name) {
  return dlsym(handle, name);
}

void find_host_library(HostLibrary* out) {
  if (!consider(RTLD_DEFAULT, out)) {
    static Candidates loaded;
    loaded.count = 0;
    dl_iterate_phdr(note_candidate, &loaded);
    bool found = false;
    for (std::size_t i = 0; i < loaded.count && !found; ++i) {
      void* handle = dlopen(loaded.path[i], RTLD_LAZY | RTLD_NOLOAD);
      if (handle == nullptr) continue;
      found = consider(handle, out);
      if (dlsym(handle, kProbe) == nullptr) dlclose(handle);
    }
  }
  if (out->kind == HostKind::none) return;
  read_version(out);
  out->kind = classify(*out);
}

bool path_beside(const char* name, char* out, std::size_t bytes) {
  static const char here = 0;
  Dl_info self;
  if (dladdr(&here, &self) == 0 || self.dli_fname == nullptr) return false;
  static char whole[4096];
  const bool is_relative = self.dli_fname[0] != '/' && mapped_path(&here, whole, sizeof whole);
  const char* const path = is_relative ? whole : self.dli_fname;
  const int folder = static_cast<int>(base_name(path) - path);
  const int length = std::snprintf(out, bytes, "%.*s%s", folder, path, name);
  return length > 0 && static_cast<std::size_t>(length) < bytes;
}

}  // namespace heddle::interpose
