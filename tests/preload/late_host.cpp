// A program that knows no MPI and opens one late and privately (RTLD_LOCAL), by way of a plugin: what Python
// does with mpi4py. Argument: the plugin.
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  void* plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  auto run = reinterpret_cast<int (*)()>(dlsym(plugin, "run_plugin"));
  return run != nullptr ? run() : 2;
}
