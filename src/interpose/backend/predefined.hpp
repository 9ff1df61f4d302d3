// The predefined handles of MPI whose meaning no library may choose, for ABIs whose handles do not say it
// themselves.
#pragma once

#include <cstddef>
#include <vector>

#include "base/dtype.hpp"
#include "interpose/backend/host_mpi.hpp"

namespace heddle::backend::abi {

struct SizedType {
  MPI_Datatype type{};
  std::size_t bytes = 0;
};

// C's. What Fortran's and C++'s are depends on the library, which is asked: sizes_of_others().
const SizedType kTypesOfC[] = {{MPI_CHAR, 1},
                               {MPI_SIGNED_CHAR, 1},
                               {MPI_UNSIGNED_CHAR, 1},
                               {MPI_BYTE, 1},
                               {MPI_PACKED, 1},
                               {MPI_WCHAR, sizeof(wchar_t)},
                               {MPI_SHORT, sizeof(short)},
                               {MPI_UNSIGNED_SHORT, sizeof(short)},
                               {MPI_INT, sizeof(int)},
                               {MPI_UNSIGNED, sizeof(int)},
                               {MPI_LONG, sizeof(long)},
                               {MPI_UNSIGNED_LONG, sizeof(long)},
                               {MPI_LONG_LONG_INT, sizeof(long long)},
                               {MPI_UNSIGNED_LONG_LONG, sizeof(long long)},
                               {MPI_FLOAT, sizeof(float)},
                               {MPI_DOUBLE, sizeof(double)},
                               {MPI_LONG_DOUBLE, sizeof(long double)},
                               {MPI_INT8_T, 1},
                               {MPI_INT16_T, 2},
                               {MPI_INT32_T, 4},
                               {MPI_INT64_T, 8},
                               {MPI_UINT8_T, 1},
                               {MPI_UINT16_T, 2},
                               {MPI_UINT32_T, 4},
                               {MPI_UINT64_T, 8},
                               {MPI_AINT, sizeof(MPI_Aint)},
                               {MPI_OFFSET, sizeof(MPI_Offset)},
                               {MPI_COUNT, sizeof(MPI_Count)},
                               {MPI_C_BOOL, 1},
                               {MPI_C_FLOAT_COMPLEX, 2 * sizeof(float)},
                               {MPI_C_DOUBLE_COMPLEX, 2 * sizeof(double)},
                               {MPI_C_LONG_DOUBLE_COMPLEX, 2 * sizeof(long double)}};

// Those of other languages that lie in memory as they are sent. MPI is initialised.
std::vector<SizedType> sizes_of_others(const HostMpi& mpi);

struct MappedOp {
  MPI_Op op;
  Op mapped;
};
const MappedOp kMappedOps[kOpCount] = {{MPI_SUM, Op::sum},   {MPI_MAX, Op::max},   {MPI_MIN, Op::min},
                                       {MPI_PROD, Op::prod}, {MPI_LAND, Op::land}, {MPI_LOR, Op::lor},
                                       {MPI_LXOR, Op::lxor}, {MPI_BAND, Op::band}, {MPI_BOR, Op::bor},
                                       {MPI_BXOR, Op::bxor}};

}  // namespace heddle::backend::abi
