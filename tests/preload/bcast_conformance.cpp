// MPI_Bcast from every root, with basic and derived datatypes, and with different datatypes of one signature
// on different ranks, which MPI allows and which tells whether packed bytes are what travels.
#include <algorithm>
#include <numeric>

#include "job.hpp"

namespace {

// One way to describe `n` ints: where they lie, as a datatype and a count.
struct Layout {
  const char* name = "";
  MPI_Datatype type = MPI_INT;
  int count = 0;
  bool derived = false;
  std::vector<std::size_t> place;  // of each int, in the order of the type map, in units of int
  std::size_t origin = 0;          // where the buffer begins, in units of int
};

constexpr std::size_t kRoom = 4;  // ints of memory per int of data, at most

Layout basic(int n) {
  Layout l;
  l.name = "basic";
  l.count = n;
  l.place.resize(static_cast<std::size_t>(n));
  std::iota(l.place.begin(), l.place.end(), std::size_t{0});
  return l;
}

Layout bytes(int n) {
  Layout l = basic(n);
  l.name = "contiguous of int";
  l.count = 1;
  l.derived = true;
  MPI_Type_contiguous(n, MPI_INT, &l.type);
  return l;
}

Layout strided(int n) {
  Layout l;
  l.name = "vector, resized";
  MPI_Datatype vector;
  MPI_Type_vector(1, 1, 3, MPI_INT, &vector);
  MPI_Type_create_resized(vector, 0, 3 * sizeof(int), &l.type);
  MPI_Type_free(&vector);
  l.count = n;
  l.derived = true;
  for (int i = 0; i < n; ++i)
    l.place.push_back(static_cast<std::size_t>(i) * 3);
  return l;
}

Layout one_vector(int n) {
  Layout l;
  l.name = "one vector";
  MPI_Type_vector(n, 1, 2, MPI_INT, &l.type);
  l.count = 1;
  l.derived = true;
  for (int i = 0; i < n; ++i)
    l.place.push_back(static_cast<std::size_t>(i) * 2);
  return l;
}

// Same size, extent and memory as n ints, but visited backwards.
Layout backwards(int n) {
  Layout l;
  l.name = "hindexed, backwards";
  std::vector<int> lengths(static_cast<std::size_t>(n), 1);
  std::vector<MPI_Aint> places;
  for (int i = n - 1; i >= 0; --i) {
    places.push_back(static_cast<MPI_Aint>(i) * static_cast<MPI_Aint>(sizeof(int)));
    l.place.push_back(static_cast<std::size_t>(i));
  }
  MPI_Type_create_hindexed(n, lengths.data(), places.data(), MPI_INT, &l.type);
  l.count = 1;
  l.derived = true;
  return l;
}

// A struct of runs with gaps between them.
Layout runs(int n) {
  Layout l;
  l.name = "struct";
  const int first = n / 2;
  const int lengths[2] = {first, n - first};
  const MPI_Aint places[2] = {static_cast<MPI_Aint>((first + 3) * sizeof(int)), 0};
  const MPI_Datatype types[2] = {MPI_INT, MPI_INT};
  // The second run lies in front of the first.
  const int shift = n - first;
  const MPI_Aint moved[2] = {places[0] + static_cast<MPI_Aint>(shift * static_cast<int>(sizeof(int))), 0};
  MPI_Type_create_struct(2, lengths, moved, types, &l.type);
  for (int i = 0; i < first; ++i)
    l.place.push_back(static_cast<std::size_t>(first + 3 + shift + i));
  for (int i = 0; i < n - first; ++i)
    l.place.push_back(static_cast<std::size_t>(i));
  l.count = 1;
  l.derived = true;
  return l;
}

// Absolute addresses, used with MPI_BOTTOM.
Layout absolute(int n, int* memory) {
  Layout l = basic(n);
  l.name = "absolute addresses";
  MPI_Aint address = 0;
  MPI_Get_address(memory, &address);
  MPI_Type_create_hindexed(1, &n, &address, MPI_INT, &l.type);
  l.count = 1;
  l.derived = true;
  return l;
}

// Made by a function for large counts: MPICH tells what it is made of to such functions alone.
Layout large_counts(int n) {
#if MPI_VERSION >= 4
  Layout l = basic(n);
  l.name = "contiguous of contiguous, large counts";
  MPI_Datatype inner;
  MPI_Type_contiguous_c(n, MPI_INT, &inner);
  MPI_Type_contiguous(1, inner, &l.type);
  MPI_Type_free(&inner);
  l.count = 1;
  l.derived = true;
  return l;
#else
  return bytes(n);
#endif
}

// Of a type that the MPI has made once, and that is not the program's to free, nor predefined by a name.
Layout parametrised(int n) {
  Layout l = basic(n);
  l.name = "contiguous of MPI_Type_create_f90_integer";
  MPI_Datatype integer;
  MPI_Type_create_f90_integer(9, &integer);
  MPI_Type_contiguous(n, integer, &l.type);
  l.count = 1;
  l.derived = true;
  return l;
}

Layout vector_backwards(int n) {
  Layout l;
  l.name = "one vector, backwards";
  MPI_Type_vector(n, 1, -2, MPI_INT, &l.type);
  l.count = 1;
  l.derived = true;
  l.origin = static_cast<std::size_t>(n - 1) * 2 + 3;
  for (int i = 0; i < n; ++i)
    l.place.push_back(l.origin - static_cast<std::size_t>(i) * 2);
  return l;
}

// Not made of loops as vectors are.
Layout structs(int n) {
  Layout l;
  l.name = "structs with holes";
  const int length = 1;
  const MPI_Aint place = sizeof(int);
  const MPI_Datatype type = MPI_INT;
  MPI_Datatype one;
  MPI_Type_create_struct(1, &length, &place, &type, &one);
  MPI_Type_create_resized(one, 0, 3 * sizeof(int), &l.type);
  MPI_Type_free(&one);
  l.count = n;
  l.derived = true;
  for (int i = 0; i < n; ++i)
    l.place.push_back(static_cast<std::size_t>(i) * 3 + 1);
  return l;
}

Layout nested(int n) {
  Layout l;
  l.name = "contiguous of resized";
  MPI_Datatype apart;
  MPI_Type_create_resized(MPI_INT, 0, 4 * sizeof(int), &apart);
  MPI_Type_contiguous(n, apart, &l.type);
  MPI_Type_free(&apart);
  l.count = 1;
  l.derived = true;
  for (int i = 0; i < n; ++i)
    l.place.push_back(static_cast<std::size_t>(i) * 4);
  return l;
}

Layout column(int n) {
  Layout l;
  l.name = "column of a matrix";
  const int sizes[2] = {n, 3};
  const int parts[2] = {n, 1};
  const int starts[2] = {0, 1};
  MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &l.type);
  l.count = 1;
  l.derived = true;
  for (int i = 0; i < n; ++i)
    l.place.push_back(static_cast<std::size_t>(i) * 3 + 1);
  return l;
}

constexpr int kLayouts = 13;
constexpr int kOfOneSignature = 12;
Layout make_layout(int which, int n, int* memory) {
  switch (which) {
    case 0:
      return basic(n);
    case 1:
      return bytes(n);
    case 2:
      return strided(n);
    case 3:
      return one_vector(n);
    case 4:
      return backwards(n);
    case 5:
      return runs(n);
    case 6:
      return absolute(n, memory);
    case 7:
      return large_counts(n);
    case 8:
      return vector_backwards(n);
    case 9:
      return structs(n);
    case 10:
      return nested(n);
    case 11:
      return column(n);
    default:
      return parametrised(n);
  }
}

std::uint64_t broadcast(const job::Named& where, int root, int n, int which, std::uint64_t seed) {
  const int rank = job::rank_of(where.comm);
  std::vector<int> memory(static_cast<std::size_t>(n) * kRoom + 16, -7);
  Layout l = make_layout(which, n, memory.data());
  if (l.derived) MPI_Type_commit(&l.type);
  std::vector<int> expected = memory;
  job::Random random(seed);
  std::uint64_t hash = 0;
  for (int i = 0; i < n; ++i) {
    const int value = static_cast<int>(random.next() & 0x7fffffff);
    const std::size_t place = l.place[static_cast<std::size_t>(i)];
    expected[place] = value;
    hash = job::hash_bytes(hash, &value, sizeof value);
    if (rank == root) memory[place] = value;
  }
  void* buffer = which == 6 ? MPI_BOTTOM : memory.data() + l.origin;
  const int rc = MPI_Bcast(buffer, l.count, l.type, root, where.comm);
  if (rc != MPI_SUCCESS || memory != expected) {
    job::fail("bcast of %d ints from root %d on %s, here as %s: %s", n, root, where.name, l.name,
              rc != MPI_SUCCESS ? "error code" : "wrong data");
  }
  if (l.derived) MPI_Type_free(&l.type);
  return hash;
}

void run_on(const job::Named& where, std::uint64_t seed) {
  const int size = job::size_of(where.comm);
  const int rank = job::rank_of(where.comm);
  job::Random random(seed);
  // Of 64 KiB, too, as long as the parts are in which large ones travel.
  for (const int n : {1, 3, 257, 4096, 4097, 16'384, 16'385, 70'001}) {
    for (int root = 0; root < size; ++root) {
      const std::uint64_t data = random.next();
      if (n > 1000) {
        broadcast(where, root, n, 0, data);
        broadcast(where, root, n, 4, data + 2);
        broadcast(where, root, n, 1 + static_cast<int>(random.below(kLayouts - 1)), data + 1);
      }
      for (int same = 0; n <= 1000 && same < kLayouts; ++same)
        broadcast(where, root, n, same, data + static_cast<std::uint64_t>(same));
      // A different description on each rank.
      const int offset = static_cast<int>(random.below(kOfOneSignature));
      broadcast(where, root, n, (rank + offset) % kOfOneSignature, data);
    }
  }
}

// As many bytes as the host says that elements of each type have, and no more.
void every_type(MPI_Comm comm) {
  const MPI_Datatype types[] = {MPI_CHAR,
                                MPI_SIGNED_CHAR,
                                MPI_UNSIGNED_CHAR,
                                MPI_BYTE,
                                MPI_PACKED,
                                MPI_WCHAR,
                                MPI_SHORT,
                                MPI_UNSIGNED_SHORT,
                                MPI_INT,
                                MPI_UNSIGNED,
                                MPI_LONG,
                                MPI_UNSIGNED_LONG,
                                MPI_LONG_LONG,
                                MPI_UNSIGNED_LONG_LONG,
                                MPI_FLOAT,
                                MPI_DOUBLE,
                                MPI_LONG_DOUBLE,
                                MPI_INT8_T,
                                MPI_INT16_T,
                                MPI_INT32_T,
                                MPI_INT64_T,
                                MPI_UINT8_T,
                                MPI_UINT16_T,
                                MPI_UINT32_T,
                                MPI_UINT64_T,
                                MPI_AINT,
                                MPI_OFFSET,
                                MPI_COUNT,
                                MPI_C_BOOL,
                                MPI_C_FLOAT_COMPLEX,
                                MPI_C_DOUBLE_COMPLEX,
                                MPI_C_LONG_DOUBLE_COMPLEX,
                                MPI_INTEGER,
                                MPI_REAL,
                                MPI_DOUBLE_PRECISION,
                                MPI_COMPLEX};
  constexpr int kCount = 7;
  int number = 0;
  for (const MPI_Datatype type : types) {
    ++number;
    int size = 0;
    PMPI_Type_size(type, &size);
    const auto bytes = std::size_t{kCount} * static_cast<std::size_t>(size);
    std::vector<unsigned char> data(bytes + 64, 0);
    if (job::rank_of(comm) == 0) std::fill(data.begin(), data.end(), static_cast<unsigned char>(number));
    MPI_Bcast(data.data(), kCount, type, 0, comm);
    for (std::size_t i = 0; i < data.size(); ++i) {
      const int wanted = i < bytes || job::rank_of(comm) == 0 ? number : 0;
      if (data[i] != wanted) job::fail("bcast of predefined type %d: byte %zu of %zu", number, i, bytes);
    }
  }
}

// Pairs and types that reductions do not serve still travel in a bcast; and the large-count form.
void odd_types(MPI_Comm comm) {
  struct DoubleInt {
    double value;
    int place;
  };
  const int rank = job::rank_of(comm);
  DoubleInt pair[3] = {{1.5, 1}, {2.5, 2}, {3.5, 3}};
  if (rank != 0) std::fill(std::begin(pair), std::end(pair), DoubleInt{0, 0});
  MPI_Bcast(pair, 3, MPI_DOUBLE_INT, 0, comm);
  if (pair[2].value != 3.5 || pair[2].place != 3) job::fail("bcast of MPI_DOUBLE_INT");
  wchar_t wide[4] = {};
  if (rank == 0) std::memcpy(wide, L"abc", sizeof wide);
  MPI_Bcast(wide, 4, MPI_WCHAR, 0, comm);
  if (std::memcmp(wide, L"abc", sizeof wide) != 0) job::fail("bcast of MPI_WCHAR");
#if MPI_VERSION >= 4
  long many[9] = {};
  if (rank == 0) std::iota(std::begin(many), std::end(many), 5L);
  MPI_Bcast_c(many, 9, MPI_LONG, 0, comm);
  if (many[8] != 13) job::fail("MPI_Bcast_c");
  double sum = 0;
  const double one = 1;
  MPI_Allreduce_c(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
  if (sum != job::size_of(comm)) job::fail("MPI_Allreduce_c");
#endif
}

}  // namespace

int main(int argc, char** argv) {
  return job::run_on_all(argc, argv, [](const job::Named& where, std::uint64_t seed) {
    run_on(where, seed);
    every_type(where.comm);
    odd_types(where.comm);
  });
}
