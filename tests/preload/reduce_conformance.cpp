// MPI_Reduce of every predefined type and operation to every root, against the host's own arithmetic
// (PMPI_Reduce_local in rank order), on several communicators, counts, alignments, in place and not; buffers
// that a rank has no result in stay as they are. Arguments: the random seed, and, "domains", where ranks are.
#include <algorithm>

#include "folds.hpp"

namespace {

struct Case {
  const job::Named& where;
  const job::Type& type;
  const job::Operation& op;
  std::size_t count;
  int root;
  bool in_place;      // at the root
  bool null;          // what others pass as their output
  std::size_t shift;  // bytes that the buffers are off their alignment
  bool whole;
  std::uint64_t seed;
};

constexpr std::byte kGuard{0x5a};

bool is_untouched(const std::byte* from, const std::byte* to) {
  return std::all_of(from, to, [](std::byte b) { return b == kGuard; });
}

void run_case(const Case& c) {
  const int rank = job::rank_of(c.where.comm);
  const int size = job::size_of(c.where.comm);
  const bool is_root = rank == c.root;
  const std::vector<std::byte> mine =
      job::make_input(c.type, c.count, c.whole, c.seed + static_cast<std::uint64_t>(rank));
  std::vector<std::byte> in(mine.size() + 64, kGuard);
  std::vector<std::byte> out(mine.size() + 64, kGuard);
  std::byte* const result = out.data() + 16 + c.shift;
  const bool in_place = c.in_place && is_root;
  std::copy(mine.begin(), mine.end(), in_place ? result : in.data() + c.shift);
  const int rc =
      MPI_Reduce(in_place ? MPI_IN_PLACE : in.data() + c.shift, !is_root && c.null ? nullptr : result,
                 static_cast<int>(c.count), c.type.handle, c.op.handle, c.root, c.where.comm);
  const std::byte* const end = is_root ? result + mine.size() : result;
  const bool guarded = is_untouched(out.data(), result) && is_untouched(end, out.data() + out.size());
  const bool kept = in_place || std::equal(mine.begin(), mine.end(), in.data() + c.shift);
  const bool right =
      !is_root || job::equal(c.type, job::folded(c.type, c.op.handle, c.count, c.whole, c.seed, size), result,
                             c.whole, size);
  if (rc == MPI_SUCCESS && guarded && kept && right) return;
  job::fail("%s %s count %zu to %d on %s of %d%s%s, shifted by %zu: %s", c.type.name, c.op.name, c.count,
            c.root, c.where.name, size, c.in_place ? " in place" : "", c.whole ? "" : " (reals)", c.shift,
            rc != MPI_SUCCESS ? "error code"
            : !guarded        ? "wrote outside"
            : !kept           ? "input changed"
                              : "wrong result");
}

// Every pair once, with the rest drawn at random; larger ones to every root.
void run_on(const job::Named& where, std::uint64_t seed) {
  const auto size = static_cast<std::size_t>(job::size_of(where.comm));
  const std::size_t counts[] = {0, 1, size > 1 ? size - 1 : 1, 17, 1000, 1023};
  job::Random random(seed);
  const auto with = [&](const job::Type& type, const job::Operation& op, std::size_t count, int root,
                        bool whole) {
    const bool in_place = random.below(2) == 0;
    const bool null = random.below(2) == 0;
    run_case({where, type, op, count, root, in_place, null, random.below(3) * random.below(8), whole,
              random.next()});
  };
  for (const job::Type& type : job::kTypes) {
    for (const job::Operation& op : job::kOperations) {
      if (!job::serves(type, op.handle) || (size > 2 && job::costs_the_host(type, op.handle))) continue;
      const bool real = type.kind == job::Kind::real || type.kind == job::Kind::complex;
      const auto root = static_cast<int>(random.below(size));
      const std::size_t count = counts[random.below(6)];
      with(type, op, count, root, !real || random.below(2) == 0);
    }
  }
  for (const std::size_t count : {std::size_t{4097}, std::size_t{100'003}}) {
    for (std::size_t root = 0; root < size; ++root) {
      const job::Type& type = job::kTypes[std::size_t{12} + root % 2];  // float, double
      with(type, job::kOperations[random.below(4)], count, static_cast<int>(root), true);
    }
  }
  // Many in a row, of which all but the root may be ahead.
  for (int i = 0; i < 100; ++i) {
    int sum = -1;
    const int term = job::rank_of(where.comm) + i;
    const auto ranks = static_cast<int>(size);
    MPI_Reduce(&term, &sum, 1, MPI_INT, MPI_SUM, i / 30 % ranks, where.comm);
    const int expected = ranks * i + ranks * (ranks - 1) / 2;
    if (sum != (job::rank_of(where.comm) == i / 30 % ranks ? expected : -1))
      job::fail("number %d in a row on %s: %d", i, where.name, sum);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return job::run_on_all(argc, argv, run_on);
}
