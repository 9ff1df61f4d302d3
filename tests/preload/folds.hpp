// What the programs have in common that compare MPI_Allreduce and MPI_Reduce with the host's own arithmetic:
// every predefined type and operation, inputs that all ranks know, and when two results are equal.
#pragma once

#include <algorithm>
#include <cmath>
#include <string_view>

#include "job.hpp"

namespace job {

enum class Kind { integer, real, complex, logical };

struct Type {
  const char* name;
  MPI_Datatype handle;
  Kind kind;
  int word;  // bytes of one number inside (of one part, for complex)
};

#define T(name, kind, word) \
  { #name, name, Kind::kind, word }
inline const Type kTypes[] = {
    T(MPI_CHAR, integer, 1),
    T(MPI_SIGNED_CHAR, integer, 1),
    T(MPI_UNSIGNED_CHAR, integer, 1),
    T(MPI_BYTE, integer, 1),
    T(MPI_SHORT, integer, 2),
    T(MPI_UNSIGNED_SHORT, integer, 2),
    T(MPI_INT, integer, 4),
    T(MPI_UNSIGNED, integer, 4),
    T(MPI_LONG, integer, 8),
    T(MPI_UNSIGNED_LONG, integer, 8),
    T(MPI_LONG_LONG_INT, integer, 8),
    T(MPI_UNSIGNED_LONG_LONG, integer, 8),
    T(MPI_FLOAT, real, 4),
    T(MPI_DOUBLE, real, 8),
    T(MPI_LONG_DOUBLE, real, 16),
    T(MPI_INT8_T, integer, 1),
    T(MPI_INT16_T, integer, 2),
    T(MPI_INT32_T, integer, 4),
    T(MPI_INT64_T, integer, 8),
    T(MPI_UINT8_T, integer, 1),
    T(MPI_UINT16_T, integer, 2),
    T(MPI_UINT32_T, integer, 4),
    T(MPI_UINT64_T, integer, 8),
    T(MPI_AINT, integer, 8),
    T(MPI_OFFSET, integer, 8),
    T(MPI_COUNT, integer, 8),
    T(MPI_C_BOOL, logical, 1),
    T(MPI_CXX_BOOL, logical, 1),
    T(MPI_LOGICAL, logical, 4),
    T(MPI_C_FLOAT_COMPLEX, complex, 4),
    T(MPI_C_DOUBLE_COMPLEX, complex, 8),
    T(MPI_C_LONG_DOUBLE_COMPLEX, complex, 16),
    T(MPI_CXX_FLOAT_COMPLEX, complex, 4),
    T(MPI_CXX_DOUBLE_COMPLEX, complex, 8),
    T(MPI_CXX_LONG_DOUBLE_COMPLEX, complex, 16),
    T(MPI_COMPLEX, complex, 4),
    T(MPI_DOUBLE_COMPLEX, complex, 8),
    T(MPI_COMPLEX8, complex, 4),
    T(MPI_COMPLEX16, complex, 8),
    T(MPI_REAL, real, 4),
    T(MPI_DOUBLE_PRECISION, real, 8),
    T(MPI_REAL4, real, 4),
    T(MPI_REAL8, real, 8),
    T(MPI_INTEGER, integer, 4),
    T(MPI_INTEGER1, integer, 1),
    T(MPI_INTEGER2, integer, 2),
    T(MPI_INTEGER4, integer, 4),
    T(MPI_INTEGER8, integer, 8),
    T(MPI_CHARACTER, integer, 1),
};
#undef T

struct Operation {
  const char* name;
  MPI_Op handle;
};
#define O(name) \
  { #name, name }
inline const Operation kOperations[] = {O(MPI_SUM), O(MPI_PROD), O(MPI_MIN),  O(MPI_MAX), O(MPI_LAND),
                                        O(MPI_LOR), O(MPI_LXOR), O(MPI_BAND), O(MPI_BOR), O(MPI_BXOR)};
#undef O

// What the standard has.
inline bool is_pair(const Type& type, MPI_Op op) {
  if (type.handle == MPI_BYTE) return op == MPI_BAND || op == MPI_BOR || op == MPI_BXOR;
  const bool logic = op == MPI_LAND || op == MPI_LOR || op == MPI_LXOR;
  const bool bits = op == MPI_BAND || op == MPI_BOR || op == MPI_BXOR;
  switch (type.kind) {
    case Kind::integer:
      return true;
    case Kind::real:
      return !bits && !logic;  // MPICH 4.0 accepts logic on reals and then aborts
    case Kind::complex:
      return op == MPI_SUM || op == MPI_PROD;
    case Kind::logical:
      return logic;
  }
  return false;
}

// Hosts refuse some of it, such as logic of Fortran's integers.
inline bool serves(const Type& type, MPI_Op op) {
  if (!is_pair(type, op)) return false;
  std::byte one[32] = {};
  std::byte other[32] = {};
  for (MPI_Comm comm : {MPI_COMM_WORLD, MPI_COMM_SELF})
    PMPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  const int rc = PMPI_Reduce_local(one, other, 1, type.handle, op);
  for (MPI_Comm comm : {MPI_COMM_WORLD, MPI_COMM_SELF})
    PMPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
  return rc == MPI_SUCCESS;
}

template <typename Real>
void put_real(std::byte* at, Random& random, bool whole) {
  // Whole numbers: any order of any operation gives the same bits, so the comparison can be exact.
  const Real value = whole ? static_cast<Real>(static_cast<int>(random.below(5)) - 2)
                           : static_cast<Real>(static_cast<double>(random.below(2'000'001)) / 1e6 - 1.0);
  std::memset(at, 0, sizeof(Real));  // long double has padding
  std::memcpy(at, &value, sizeof(Real) == 16 ? 10 : sizeof(Real));
}

inline std::vector<std::byte> make_input(const Type& type, std::size_t count, bool whole,
                                         std::uint64_t seed) {
  int size = 0;
  PMPI_Type_size(type.handle, &size);
  std::vector<std::byte> data(count * static_cast<std::size_t>(size));
  Random random(seed);
  const auto word = static_cast<std::size_t>(type.word);
  for (std::size_t at = 0; at < data.size(); at += word) {
    std::byte* to = data.data() + at;
    if (type.kind == Kind::real || type.kind == Kind::complex) {
      if (word == 4) put_real<float>(to, random, whole);
      if (word == 8) put_real<double>(to, random, whole);
      if (word == 16) put_real<long double>(to, random, whole);
    } else {
      const std::uint64_t value = type.kind == Kind::logical ? random.below(2) : random.next();
      std::memcpy(to, &value, word);
    }
  }
  return data;
}

template <typename Real>
bool close(const std::byte* a, const std::byte* b, double tolerance) {
  Real x;
  Real y;
  std::memcpy(&x, a, sizeof x);
  std::memcpy(&y, b, sizeof y);
  if constexpr (sizeof(Real) == 16) {
    return std::fabs(static_cast<double>(x - y)) <= tolerance;
  } else {
    return std::fabs(static_cast<double>(x) - static_cast<double>(y)) <= tolerance;
  }
}

inline bool equal(const Type& type, const std::vector<std::byte>& a, const std::byte* b, bool whole,
                  int ranks) {
  const auto word = static_cast<std::size_t>(type.word);
  if (type.kind != Kind::real && type.kind != Kind::complex) return std::equal(a.begin(), a.end(), b);
  // Whole numbers are equal in any order of folding, but for the sign of zero.
  const double tolerance = whole ? 0 : (word == 4 ? 1e-6 : 1e-14) * ranks * ranks;
  for (std::size_t at = 0; at < a.size(); at += word) {
    if (word == 4 && !close<float>(a.data() + at, b + at, tolerance)) return false;
    if (word == 8 && !close<double>(a.data() + at, b + at, tolerance)) return false;
    if (word == 16 && !close<long double>(a.data() + at, b + at, tolerance)) return false;
  }
  return true;
}

// Left to the host, at least where the host is Debian's (which gives up on some); a few ranks are enough for
// these.
inline bool costs_the_host(const Type& type, MPI_Op op) {
#ifdef OPEN_MPI
  // Its sums of these do not go round where vectors are used, and so depend on the order.
  if (type.kind == Kind::integer && type.word <= 2 && op == MPI_SUM) return true;
#endif
  const bool order = op == MPI_MIN || op == MPI_MAX;
  return type.handle == MPI_CHAR || type.handle == MPI_CHARACTER ||
         (order && std::string_view(type.name).find("MPI_U") == 0);
}

// Folded in the order of ranks, of which rank r has the input of seed + r.
inline std::vector<std::byte> folded(const Type& type, MPI_Op op, std::size_t count, bool whole,
                                     std::uint64_t seed, int ranks) {
  std::vector<std::byte> result = make_input(type, count, whole, seed);
  for (int r = 1; r < ranks; ++r) {
    // MPI_Reduce_local gives in op inout; ranks go in order, so what is already folded is the left operand.
    std::vector<std::byte> next = make_input(type, count, whole, seed + static_cast<std::uint64_t>(r));
    PMPI_Reduce_local(result.data(), next.data(), static_cast<int>(count), type.handle, op);
    result.swap(next);
  }
  return result;
}

}  // namespace job
