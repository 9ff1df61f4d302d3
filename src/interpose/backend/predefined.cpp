#include "interpose/backend/predefined.hpp"

#include "interpose/backend/abi.hpp"

namespace heddle::backend::abi {

std::vector<SizedType> sizes_of_others(const HostMpi& mpi) {
  const MPI_Datatype types[] = {MPI_CHARACTER,
                                MPI_LOGICAL,
                                MPI_INTEGER,
                                MPI_INTEGER1,
                                MPI_INTEGER2,
                                MPI_INTEGER4,
                                MPI_INTEGER8,
                                MPI_REAL,
                                MPI_REAL4,
                                MPI_REAL8,
                                MPI_DOUBLE_PRECISION,
                                MPI_COMPLEX,
                                MPI_COMPLEX8,
                                MPI_COMPLEX16,
                                MPI_DOUBLE_COMPLEX,
                                MPI_CXX_BOOL,
                                MPI_CXX_FLOAT_COMPLEX,
                                MPI_CXX_DOUBLE_COMPLEX,
                                MPI_CXX_LONG_DOUBLE_COMPLEX};
  std::vector<SizedType> known;
  for (const MPI_Datatype type : types) {
    const std::size_t bytes = size_of(mpi, type);
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    if (bytes == 0 || bytes > 255 || mpi.Type_get_extent(type, &lower, &extent) != MPI_SUCCESS) continue;
    if (lower == 0 && extent == static_cast<MPI_Aint>(bytes)) known.push_back({type, bytes});
  }
  return known;
}

}  // namespace heddle::backend::abi
