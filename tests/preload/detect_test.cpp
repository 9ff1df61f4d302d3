// Which MPI is found among several? Arguments: the kind that is to be found; then libraries, which are loaded
// in this order: [global:][initialized:][this:]PATH. "this:" is the one to be found.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "interpose/detect.hpp"

namespace {

using heddle::interpose::HostKind;

const char* kind_name(HostKind kind) {
  switch (kind) {
    case HostKind::none:
      return "none";
    case HostKind::mpich_abi:
      return "mpich_abi";
    case HostKind::open_mpi:
      return "open_mpi";
    case HostKind::standard_abi:
      return "standard_abi";
    case HostKind::other:
      return "other";
  }
  return "?";
}

bool take(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::string wanted;
  for (int i = 2; i < argc; ++i) {
    std::string_view path = argv[i];
    const int scope = take(&path, "global:") ? RTLD_GLOBAL : RTLD_LOCAL;
    const bool initialized = take(&path, "initialized:");
    const bool is_wanted = take(&path, "this:");
    void* library = dlopen(path.data(), RTLD_NOW | scope);
    if (library == nullptr) {
      std::printf("%s\n", dlerror());
      return 2;
    }
    if (initialized) reinterpret_cast<void (*)()>(dlsym(library, "fake_initialize"))();
    if (is_wanted) wanted = path;
  }
  heddle::interpose::HostLibrary found;
  heddle::interpose::find_host_library(&found);
  std::printf("found: %s, %s, %s\n", kind_name(found.kind), found.path, found.version);
  if (std::strcmp(kind_name(found.kind), argv[1]) != 0 || wanted != found.path) {
    std::printf("wanted: %s, %s\n", argv[1], wanted.c_str());
    return 1;
  }
  // Later look-ups are in that library and in no other.
  if (!wanted.empty() &&
      dlsym(found.handle, "PMPI_Comm_rank") != dlsym(dlopen(wanted.c_str(), RTLD_NOW), "PMPI_Comm_rank")) {
    std::printf("the handle is another library's\n");
    return 1;
  }
  return 0;
}
