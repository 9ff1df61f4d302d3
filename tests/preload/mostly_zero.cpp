// Sums of vectors that are mostly zeros, and of others, large and small: the bits must be the host's, -0, NaN
// and infinities included (two ranks: there is one order only). Argument: "lossy" where HEDDLE_COMPRESS=fp16
// is set: then float32 sums of 64 KiB and more are near, and all others exact.
#include <bit>
#include <cmath>
#include <random>
#include <type_traits>

#include "job.hpp"

namespace {

template <typename T>
void fill(std::vector<T>& values, double density, bool special, std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(0, 1);
  const T specials[] = {static_cast<T>(-0.0), static_cast<T>(NAN), static_cast<T>(INFINITY),
                        static_cast<T>(-INFINITY)};
  for (T& value : values) {
    value = uniform(random) < density ? static_cast<T>(std::floor(uniform(random) * 2000 - 1000)) : T();
    if (special && uniform(random) < density / 4) value = specials[random() % 4];
  }
}

template <typename T>
bool same(T a, T b) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  return std::bit_cast<Bits>(a) == std::bit_cast<Bits>(b) ||
         (std::isnan(static_cast<double>(a)) && std::isnan(static_cast<double>(b)));
}

template <typename T>
void check(MPI_Datatype type, const char* name, std::size_t count, double density, bool special, bool near,
           std::uint64_t seed) {
  std::mt19937_64 random(seed * 100 + static_cast<std::uint64_t>(job::rank_of(MPI_COMM_WORLD)));
  std::vector<T> mine(count);
  fill(mine, density, special, random);
  std::vector<T> expected(count);
  PMPI_Allreduce(mine.data(), expected.data(), static_cast<int>(count), type, MPI_SUM, MPI_COMM_WORLD);
  std::vector<T> apart(count, T(99));
  MPI_Allreduce(mine.data(), apart.data(), static_cast<int>(count), type, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, mine.data(), static_cast<int>(count), type, MPI_SUM, MPI_COMM_WORLD);
  for (std::size_t i = 0; i < count; ++i) {
    const bool right =
        near ? std::abs(static_cast<double>(apart[i]) - static_cast<double>(expected[i])) <= 2 &&
                   same(apart[i], mine[i])
             : same(apart[i], expected[i]) && same(mine[i], expected[i]);
    if (!right)
      job::fail("%s, %zu of density %g, element %zu: %g and %g instead of %g", name, count, density, i,
                static_cast<double>(apart[i]), static_cast<double>(mine[i]),
                static_cast<double>(expected[i]));
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const bool lossy = argc > 1 && std::strcmp(argv[1], "lossy") == 0;
  std::uint64_t seed = 0;
  for (int round = 0; round < 6; ++round) {
    for (const std::size_t count : {std::size_t{100}, std::size_t{16'384}, std::size_t{300'001}}) {
      for (const double density : {0.0, 0.001, 0.02, 1.0}) {
        const bool special = round % 2 == 1 && !lossy;
        check<float>(MPI_FLOAT, "float", count, density, special, lossy && count * 4 >= 65'536, ++seed);
        check<double>(MPI_DOUBLE, "double", count, density, special, false, ++seed);
        check<int>(MPI_INT, "int", count, density, false, false, ++seed);
      }
    }
  }
  if (job::served_by(0, 8, MPI_COMM_WORLD) == "host") job::fail("left to the host");
  if (job::rank_of(MPI_COMM_WORLD) == 0) std::puts("mostly_zero done");
  MPI_Finalize();
  return 0;
}
