// MPI_Allreduce of every predefined type and operation against the host's own arithmetic (PMPI_Reduce_local
// in rank order), on several communicators, counts, alignments, in place and not; and the same bits on all
// ranks. Argument: the random seed.
#include <algorithm>

#include "folds.hpp"

namespace {

struct Case {
  const job::Named& where;
  const job::Type& type;
  const job::Operation& op;
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
  const std::vector<std::byte> expected = job::folded(c.type, c.op.handle, c.count, c.whole, c.seed, size);
  const std::vector<std::byte> mine =
      job::make_input(c.type, c.count, c.whole, c.seed + static_cast<std::uint64_t>(rank));
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
  if (rc != MPI_SUCCESS || !guarded || !kept || !job::equal(c.type, expected, result, c.whole, size)) {
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
  for (const job::Type& type : job::kTypes) {
    for (const job::Operation& op : job::kOperations) {
      if (!job::serves(type, op.handle) || (size > 2 && job::costs_the_host(type, op.handle))) continue;
      for (int again = 0; again < (size > 2 ? 1 : 2); ++again) {
        const bool real = type.kind == job::Kind::real || type.kind == job::Kind::complex;
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
      const Case c = {where, job::kTypes[type],    job::kOperations[random.below(4)],
                      count, random.below(2) == 0, random.below(8),
                      true,  random.next()};
      if (size > 2 && job::costs_the_host(c.type, c.op.handle)) continue;
      hash = hash * 31 + run_case(c);
    }
  }
  job::same_everywhere(hash, where.comm, where.name);
}

}  // namespace

int main(int argc, char** argv) {
  return job::run_on_all(argc, argv, run_on);
}
