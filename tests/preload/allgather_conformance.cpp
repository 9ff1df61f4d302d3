// MPI_Allgather of many lengths, with basic and derived datatypes that differ from rank to rank and between
// what is sent and what comes, in place and not, on several communicators. What lies between the elements
// that come stays as it is.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "layouts.hpp"

namespace {

constexpr int kInPlace = -1;  // instead of a layout to send
constexpr int kBefore = -7;   // what memory holds

int value_of(std::uint64_t seed, int rank, int i) {
  return static_cast<int>(
      (seed * 2654435761U + static_cast<std::uint64_t>(rank) * 40503U + static_cast<std::uint64_t>(i) * 97U) &
      0x7fffffffU);
}

// A layout with a committed type, in memory of its own.
class Ints {
 public:
  Ints(int which, int n, int parts)
      : which_(which),
        memory_(static_cast<std::size_t>(n) * static_cast<std::size_t>(parts) * job::kRoom + 16, kBefore),
        layout_(job::make_layout(which, n, memory_.data())) {
    if (layout_.derived) MPI_Type_commit(&layout_.type);
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    MPI_Type_get_extent(layout_.type, &lower, &extent);
    part_ = static_cast<std::size_t>(layout_.count * extent) / sizeof(int);
  }
  Ints(const Ints&) = delete;
  Ints& operator=(const Ints&) = delete;
  ~Ints() {
    if (layout_.derived) MPI_Type_free(&layout_.type);
  }

  void set(int part, std::uint64_t seed) { put(memory_, part, seed, part); }
  void set_first(std::uint64_t seed, int rank) { put(memory_, 0, seed, rank); }
  // Whether nothing but these elements has changed: those of all parts.
  bool holds_all(std::uint64_t seed, int parts) const {
    std::vector<int> expected(memory_.size(), kBefore);
    for (int part = 0; part < parts; ++part)
      put(expected, part, seed, part);
    return memory_ == expected;
  }
  void* buffer() { return job::buffer_of(layout_, which_, memory_.data()); }
  const job::Layout& layout() const { return layout_; }

 private:
  void put(std::vector<int>& into, int part, std::uint64_t seed, int rank) const {
    for (std::size_t i = 0; i < layout_.place.size(); ++i)
      into[static_cast<std::size_t>(part) * part_ + layout_.place[i]] =
          value_of(seed, rank, static_cast<int>(i));
  }

  int which_;
  std::vector<int> memory_;
  job::Layout layout_;
  std::size_t part_ = 0;  // ints from one part to the next
};

void gather(const job::Named& where, int n, int sent, int came, std::uint64_t seed) {
  const int rank = job::rank_of(where.comm);
  const int size = job::size_of(where.comm);
  Ints all(came, n, size);
  int rc = MPI_SUCCESS;
  const job::Layout& to = all.layout();
  if (sent == kInPlace) {
    all.set(rank, seed);
    // What is given then means nothing.
    rc = MPI_Allgather(MPI_IN_PLACE, n % 2 == 0 ? 0 : -1, MPI_DATATYPE_NULL, all.buffer(), to.count, to.type,
                       where.comm);
  } else {
    Ints mine(sent, n, 1);
    mine.set_first(seed, rank);
    const job::Layout& from = mine.layout();
    rc = MPI_Allgather(mine.buffer(), from.count, from.type, all.buffer(), to.count, to.type, where.comm);
  }
  if (rc == MPI_SUCCESS && all.holds_all(seed, size)) return;
  job::fail("allgather of %d ints of each on %s of %d, sent as layout %d, here as %s: %s", n, where.name,
            size, sent, to.name, rc != MPI_SUCCESS ? "error code" : "wrong data");
}

void run_on(const job::Named& where, std::uint64_t seed) {
  const int rank = job::rank_of(where.comm);
  job::Random shared(seed);
  job::Random own(seed + static_cast<std::uint64_t>(rank) + 1);
  const auto any = [&] { return static_cast<int>(own.below(job::kOfOneSignature)); };
  for (const int n : {1, 2, 13, 14, 15, 257, 1024, 4096, 4097, 16'385, 40'001}) {
    const std::uint64_t data = shared.next();
    gather(where, n, 0, 0, data);
    gather(where, n, kInPlace, 0, data + 1);
    for (int which = 1; n <= 257 && which < job::kOfOneSignature; ++which) {
      gather(where, n, which, 0, data + 2);
      gather(where, n, 0, which, data + 3);
      gather(where, n, kInPlace, which, data + 4);
    }
    // Others on each rank.
    for (int i = 0; i < 3; ++i)
      gather(where, n, own.below(4) == 0 ? kInPlace : any(), any(), data + 5);
  }
}

// Bytes of any alignment, as others of the same length; a type that no reduction serves; large counts.
void odd_ones(MPI_Comm comm) {
  const int rank = job::rank_of(comm);
  const auto size = static_cast<std::size_t>(job::size_of(comm));
  for (const std::size_t n : {1U, 3U, 55U, 57U, 4095U, 70'000U}) {
    std::vector<unsigned char> mine(n + 3, static_cast<unsigned char>(rank + 1));
    std::vector<unsigned char> all(n * size + 3, 0xee);
    MPI_Allgather(mine.data() + 1, static_cast<int>(n), MPI_BYTE, all.data() + 3, static_cast<int>(n),
                  MPI_CHAR, comm);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i] != (i < 3 ? 0xee : (i - 3) / n + 1)) job::fail("allgather of %zu bytes: byte %zu", n, i);
    }
  }
  struct DoubleInt {
    double value;
    int place;
  };
  const DoubleInt pair{rank + 0.5, rank};
  std::vector<DoubleInt> pairs(size);
  MPI_Allgather(&pair, 1, MPI_DOUBLE_INT, pairs.data(), 1, MPI_DOUBLE_INT, comm);
  for (std::size_t r = 0; r < size; ++r) {
    if (pairs[r].value != static_cast<double>(r) + 0.5 || pairs[r].place != static_cast<int>(r))
      job::fail("allgather of MPI_DOUBLE_INT, of rank %zu", r);
  }
#if MPI_VERSION >= 4
  const long number = rank + 5;
  std::vector<long> numbers(size);
  MPI_Allgather_c(&number, 1, MPI_LONG, numbers.data(), 1, MPI_LONG, comm);
  if (numbers.back() != static_cast<long>(size) + 4) job::fail("MPI_Allgather_c");
#endif
}

}  // namespace

int main(int argc, char** argv) {
  return job::run_on_all(argc, argv, [](const job::Named& where, std::uint64_t seed) {
    run_on(where, seed);
    odd_ones(where.comm);
  });
}
