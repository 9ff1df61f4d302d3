// HEDDLE_REPRODUCIBLE: an element's sum is the same wherever it stands in a vector, however long that is, in
// calls and in requests.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "communicator/party.hpp"

namespace heddle::test {
namespace {

// Of all magnitudes, so that each order of additions gives other bits: `sign`, exponents from `least` on, and
// all of the mantissa.
template <typename Bits>
std::vector<Bits> mixed(std::size_t count, int rank, int mantissa, Bits least) {
  std::vector<Bits> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t random =
        (i * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(rank)) * 0xbf58476d1ce4e5b9U;
    const auto exponent = static_cast<Bits>(least + (random >> 40) % 8);
    const auto sign = static_cast<Bits>((random >> 50 & 1) << (8 * sizeof(Bits) - 1));
    const auto digits = static_cast<Bits>((random >> 12) & ((std::uint64_t{1} << mantissa) - 1));
    all[i] = static_cast<Bits>(sign | static_cast<Bits>(exponent << mantissa) | digits);
  }
  return all;
}

// A type of floats, by its bits.
template <typename Bits>
struct Floats {
  DType type;
  int mantissa;
  Bits least;

  std::vector<Bits> summed(Communicator& comm, std::size_t first, std::size_t count, bool by_request) const {
    const std::vector<Bits> all = mixed<Bits>(first + count, comm.rank(), mantissa, least);
    const std::vector<Bits> in(all.begin() + static_cast<std::ptrdiff_t>(first), all.end());
    std::vector<Bits> out(count);
    Status status;
    if (by_request) {
      auto request = comm.allreduce_request(in.data(), out.data(), count, type, Op::sum);
      EXPECT_TRUE(request.ok()) << request.status().message();
      if (!request.ok()) return out;
      status = request.value()->start();
      if (status.ok()) status = request.value()->wait();
    } else {
      status = comm.allreduce(in.data(), out.data(), count, type, Op::sum);
    }
    EXPECT_TRUE(status.ok()) << status.message();
    return out;
  }

  void check(Communicator& comm, bool requests) const {
    constexpr std::size_t kLong = 600'000;
    const std::vector<Bits> whole = summed(comm, 0, kLong, false);
    for (const std::size_t count :
         {std::size_t{1}, std::size_t{37}, std::size_t{5'000}, std::size_t{90'000}}) {
      for (const std::size_t first : {std::size_t{0}, std::size_t{1'001}, kLong - count}) {
        for (const bool by_request : {false, true}) {
          if (by_request && !requests) continue;
          const std::vector<Bits> part = summed(comm, first, count, by_request);
          EXPECT_EQ(std::memcmp(part.data(), whole.data() + first, count * sizeof(Bits)), 0)
              << count << " elements of " << dtype_name(type) << " from " << first << " on"
              << (by_request ? ", by a request" : "");
        }
      }
    }
  }
};

TEST(Reproducible, TheSameBitsForAnyLengthPlaceAndKindOfCall) {
  Config config = quiet();
  config.reproducible = true;
  for (const std::vector<std::uint64_t>& nodes : std::vector<std::vector<std::uint64_t>>{
           {0, 1, 2, 3, 4}, {0, 0, 0, 1, 1, 2}, {0, 1, 0, 1, 2}, {0, 0, 0, 0, 0, 0}}) {
    Party party(nodes);
    party.run(config, [&](Rank&, Communicator& comm) {
      // Requests round numbers of 16 bits after each rank of a node; where there are three and others send
      // for them, that is once more.
      const TopologyView& t = comm.topology();
      const bool alike = t.nodes() == 1 || t.members(0).size() < 3;
      Floats<std::uint32_t>{DType::f32, 23, 120}.check(comm, true);
      Floats<std::uint16_t>{DType::f16, 10, 12}.check(comm, alike);
      Floats<std::uint16_t>{DType::bf16, 7, 120}.check(comm, alike);
    });
  }
}

TEST(Reproducible, MustBeWantedByAll) {
  Party party({0, 0, 1});
  for (const Status& status : party.outcomes([](int rank) {
         Config config = quiet();
         config.reproducible = rank == 1;
         return config;
       }))
    EXPECT_NE(status.message().find("HEDDLE_REPRODUCIBLE differs between rank 0 and rank 1"),
              std::string::npos)
        << status.message();
}

}  // namespace
}  // namespace heddle::test
