// MPI_Allreduce of every predefined type and operation against the host's own arithmetic (PMPI_Reduce_local
// in rank order), on several communicators, counts, alignments, in place and not; and the same bits on all
// ranks. Argument: the random seed.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "job.hpp"

namespace {

enum class Kind { integer, real, complex, logical };

struct Type {
  const char* name;
  MPI_Datatype handle;
  Kind kind;
  int word;  // bytes of one number inside (of one part, for complex)
};

#define T(name, kind, word) \
  { #name, name, Kind::kind, word }
const Type kTypes[] = {
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
const Operation kOperations[] = {O(MPI_SUM), O(MPI_PROD), O(MPI_MIN),  O(MPI_MAX), O(MPI_LAND),
                                 O(MPI_LOR), O(MPI_LXOR), O(MPI_BAND), O(MPI_BOR), O(MPI_BXOR)};
#undef O

// What the standard has.
bool is_pair(const Type& type, MPI_Op op) {
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
bool serves(const Type& type, MPI_Op op) {
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
void put_real(std::byte* at, job::Random& random, bool whole) {
  // Whole numbers: any order of any operation gives the same bits, so the comparison can be exact.
  const Real value = whole ? static_cast<Real>(static_cast<int>(random.below(5)) - 2)
                           : static_cast<Real>(static_cast<double>(random.below(2'000'001)) / 1e6 - 1.0);
  std::memset(at, 0, sizeof(Real));  // long double has padding
  std::memcpy(at, &value, sizeof(Real) == 16 ? 10 : sizeof(Real));
}

std::vector<std::byte> make_input(const Type& type, std::size_t count, bool whole, std::uint64_t seed) {
  int size = 0;
  PMPI_Type_size(type.handle, &size);
  std::vector<std::byte> data(count * static_cast<std::size_t>(size));
  job::Random random(seed);
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

bool equal(const Type& type, const std::vector<std::byte>& a, const std::byte* b, bool whole, int ranks) {
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
bool costs_the_host(const Type& type, MPI_Op op) {
#ifdef OPEN_MPI
  // Its sums of these do not go round where vectors are used, and so depend on the order.
  if (type.kind == Kind::integer && type.word <= 2 && op == MPI_SUM) return true;
#endif
  const bool order = op == MPI_MIN || op == MPI_MAX;
  return type.handle == MPI_CHAR || type.handle == MPI_CHARACTER ||
         (order && std::string_view(type.name).find("MPI_U") == 0);
}

struct Case {
  const job::Named& where;
  const Type& type;
  const Operation& op;
  std::size_t count;
  bool in_place;
  std::size_t shift;  // bytes that the buffers are off their alignment
  bool whole;
  std::uint64_t seed;
};

std::uint64_t run_case(const Case& c) {
  const int rank = job::rank_of(c.where.comm);
  const int size = job::size_of(c.where.comm);
  const int count = static_cast<int>(c.count);
  std::vector<std::byte> expected = make_input(c.type, c.count, c.whole, c.seed);
  for (int r = 1; r < size; ++r) {
    // MPI_Reduce_local gives in op inout; ranks go in order, so what is already folded is the left operand.
    std::vector<std::byte> next =
        make_input(c.type, c.count, c.whole, c.seed + static_cast<std::uint64_t>(r));
    PMPI_Reduce_local(expected.data(), next.data(), count, c.type.handle, c.op.handle);
    expected.swap(next);
  }
  const std::vector<std::byte> mine =
      make_input(c.type, c.count, c.whole, c.seed + static_cast<std::uint64_t>(rank));
  constexpr std::byte kGuard{0x5a};
  std::vector<std::byte> in(mine.size() + 64, kGuard);
  std::vector<std::byte> out(mine.size() + 64, kGuard);
  std::byte* result = out.data() + 16 + c.shift;
  std::copy(mine.begin(), mine.end(), (c.in_place ? result : in.data() + c.shift));
  const int rc = MPI_Allreduce(c.in_place ? MPI_IN_PLACE : in.data() + c.shift, result, count, c.type.handle,
                               c.op.handle, c.where.comm);
  const bool guarded =
      std::all_of(out.data(), result, [](std::byte b) { return b == kGuard; }) &&
      std::all_of(result + mine.size(), out.data() + out.size(), [](std::byte b) { return b == kGuard; });
  const bool kept = c.in_place || std::equal(mine.begin(), mine.end(), in.data() + c.shift);
  if (rc != MPI_SUCCESS || !guarded || !kept || !equal(c.type, expected, result, c.whole, size)) {
    job::fail("%s %s count %zu on %s of %d%s%s, shifted by %zu: %s", c.type.name, c.op.name, c.count,
              c.where.name, size, c.in_place ? " in place" : "", c.whole ? "" : " (reals)", c.shift,
              rc != MPI_SUCCESS ? "error code"
              : !guarded        ? "wrote outside"
              : !kept           ? "input changed"
                                : "wrong result");
  }
  return job::hash_bytes(0, result, c.type.word == 16 ? 0 : mine.size());
}

// Every pair once, with the rest drawn at random; some pairs again with more data.
void run_on(const job::Named& where, std::uint64_t seed) {
  const auto size = static_cast<std::size_t>(job::size_of(where.comm));
  const std::size_t counts[] = {0, 1, size > 1 ? size - 1 : 1, 17, 1000, 1023};
  job::Random random(seed);
  std::uint64_t hash = 0;
  for (const Type& type : kTypes) {
    for (const Operation& op : kOperations) {
      if (!serves(type, op.handle) || (size > 2 && costs_the_host(type, op.handle))) continue;
      for (int again = 0; again < (size > 2 ? 1 : 2); ++again) {
        const bool real = type.kind == Kind::real || type.kind == Kind::complex;
        const Case c = {where,
                        type,
                        op,
                        counts[random.below(6)],
                        random.below(2) == 0,
                        random.below(3) * (random.below(8)),
                        !real || (size > 2 ? random.below(2) == 0 : again == 0),
                        random.next()};
        hash = hash * 31 + run_case(c);
      }
    }
  }
  for (const std::size_t count : {std::size_t{4097}, std::size_t{100'003}}) {
    for (const int type : {4, 6, 12, 13}) {  // short, int, float, double
      const Case c = {where, kTypes[type],         kOperations[random.below(4)],
                      count, random.below(2) == 0, random.below(8),
                      true,  random.next()};
      if (size > 2 && costs_the_host(c.type, c.op.handle)) continue;
      hash = hash * 31 + run_case(c);
    }
  }
  job::same_everywhere(hash, where.comm, where.name);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const auto seed = static_cast<std::uint64_t>(argc > 1 ? std::atoll(argv[1]) : 1);
  if (argc > 2) job::take_place(argv[2]);
  std::vector<job::Named> all = job::make_communicators();
  for (const job::Named& where : all) {
    job::warm_up(where.comm);
    run_on(where, seed);
  }
  job::free_communicators(all);
  MPI_Finalize();
  return 0;
}
