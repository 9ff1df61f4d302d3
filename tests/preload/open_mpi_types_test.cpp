// Bcasts of Fortran's types need no packing either, where they lie in memory as they are sent.
#include <dlfcn.h>

#include <cstdio>

#include "interpose/backend/abi.hpp"

int main(int argc, char** argv) {
  using namespace heddle::backend;
  MPI_Init(&argc, &argv);
  const HeddleHostSymbols symbols = {
      [](void* handle, const char* name) { return dlsym(handle, name); }, RTLD_DEFAULT, "the host", "?", {}};
  const HostMpi mpi = load_host_mpi(symbols).value();
  const struct {
    const char* name;
    MPI_Datatype type;
    std::size_t bytes;
  } types[] = {{"MPI_CHARACTER", MPI_CHARACTER, 1},
               {"MPI_LOGICAL", MPI_LOGICAL, 4},
               {"MPI_INTEGER", MPI_INTEGER, 4},
               {"MPI_INTEGER8", MPI_INTEGER8, 8},
               {"MPI_REAL", MPI_REAL, 4},
               {"MPI_DOUBLE_PRECISION", MPI_DOUBLE_PRECISION, 8},
               {"MPI_COMPLEX", MPI_COMPLEX, 8},
               {"MPI_DOUBLE_COMPLEX", MPI_DOUBLE_COMPLEX, 16},
               {"MPI_CXX_BOOL", MPI_CXX_BOOL, 1},
               {"MPI_DOUBLE", MPI_DOUBLE, 8},
               {"MPI_DOUBLE_INT", MPI_DOUBLE_INT, 0},
               {"MPI_DATATYPE_NULL", MPI_DATATYPE_NULL, 0}};
  int wrong = abi::predefined_size(MPI_DOUBLE) == 8 ? 0 : 1;  // before it has learned of the others
  abi::learn_types(mpi);
  for (const auto& one : types) {
    // A library without Fortran has none of its types.
    const std::size_t wanted = abi::size_of(mpi, one.type) > 0 ? one.bytes : 0;
    const std::size_t known = abi::predefined_size(one.type);
    if (known == wanted) continue;
    std::printf("%s: %zu bytes, not %zu\n", one.name, known, wanted);
    ++wrong;
  }
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
