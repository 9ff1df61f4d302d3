// MPI_Bcast from every root, with basic and derived datatypes, and with different datatypes of one signature
// on different ranks, which MPI allows and which tells whether packed bytes are what travels.
#include <algorithm>
#include <numeric>

#include "layouts.hpp"

namespace {

std::uint64_t broadcast(const job::Named& where, int root, int n, int which, std::uint64_t seed) {
  const int rank = job::rank_of(where.comm);
  std::vector<int> memory(static_cast<std::size_t>(n) * job::kRoom + 16, -7);
  job::Layout l = job::make_layout(which, n, memory.data());
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
  void* const buffer = job::buffer_of(l, which, memory.data());
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
        broadcast(where, root, n, 1 + static_cast<int>(random.below(job::kLayouts - 1)), data + 1);
      }
      for (int same = 0; n <= 1000 && same < job::kLayouts; ++same)
        broadcast(where, root, n, same, data + static_cast<std::uint64_t>(same));
      // A different description on each rank.
      const int offset = static_cast<int>(random.below(job::kOfOneSignature));
      broadcast(where, root, n, (rank + offset) % job::kOfOneSignature, data);
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
