// HEDDLE_CHECK=2: which results pass for the host's, on a host that is one rank and claims to be four, whose
// results are changed here.
#include "interpose/backend/host_results.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <functional>
#include <initializer_list>
#include <limits>
#include <new>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "host.hpp"
#include "support/failing_allocations.hpp"

namespace heddle::backend {
namespace {

constexpr int kRanks = 4;
int other_rank = -1;    // that has found something
int flipped_bcast = 0;  // which of those to come, from 1 on
int host_calls = 0;

HostMpi host() {
  HostMpi mpi = test::host();
  mpi.Allreduce = [](const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    ++host_calls;
    const int rc = PMPI_Allreduce(in, out, count, type, op, comm);
    if (op == MPI_MAX && type == MPI_INT && in == MPI_IN_PLACE && other_rank >= 0)
      *static_cast<int*>(out) = other_rank;
    return rc;
  };
  mpi.Bcast = [](void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    ++host_calls;
    if (--flipped_bcast == 0) static_cast<unsigned char*>(buffer)[count - 1] ^= 0x40U;
    return PMPI_Bcast(buffer, count, type, root, comm);
  };
  return mpi;
}

class HostResultsTest : public testing::Test {
 protected:
  ~HostResultsTest() override {
    other_rank = -1;
    flipped_bcast = 0;
  }

  // What is said of `out`, where the one rank has `in`.
  template <typename T>
  std::string said(DType type, MPI_Datatype host_type, Op op, MPI_Op host_op, const std::vector<T>& in,
                   const std::vector<T>& out) {
    const RepeatedSum sum{in.data(), out.data(), in.size(), type, op, host_type, host_op};
    HostResults results(mpi_, MPI_COMM_SELF, 0, kRanks);
    results.make_room(sum);
    return results.allreduce(sum).message();
  }
  template <typename T>
  std::string sum(DType type, MPI_Datatype host_type, T in, T out) {
    return said<T>(type, host_type, Op::sum, MPI_SUM, {in}, {out});
  }

  const HostMpi mpi_ = host();
  long allocations_ = 0;
};

TEST_F(HostResultsTest, IntegersAreEqual) {
  std::vector<int> in(70000, 7);
  std::vector<int> out = in;
  EXPECT_EQ(said(DType::i32, MPI_INT, Op::sum, MPI_SUM, in, out), "");
  out[69999] = 8;
  EXPECT_EQ(said(DType::i32, MPI_INT, Op::sum, MPI_SUM, in, out),
            "HEDDLE_CHECK=2: element 69999 of 70000 is 8, and by the host MPI 7");
  out[3] = -1;
  EXPECT_EQ(said(DType::i32, MPI_INT, Op::bxor, MPI_BXOR, in, out),
            "HEDDLE_CHECK=2: element 3 of 70000 is -1, and by the host MPI 7");
  EXPECT_EQ(said<std::int8_t>(DType::i8, MPI_INT8_T, Op::min, MPI_MIN, {1, 2}, {1, 3}),
            "HEDDLE_CHECK=2: element 1 of 2 is 3, and by the host MPI 2");
}

// Of four ranks: 6 u sum|x|.
TEST_F(HostResultsTest, SumsMayDifferByTheirRounding) {
  constexpr float kStep = std::numeric_limits<float>::epsilon();
  EXPECT_EQ(sum(DType::f32, MPI_FLOAT, 1.0F, 1.0F + 3 * kStep), "");
  EXPECT_EQ(sum(DType::f32, MPI_FLOAT, 1.0F, 1.0F + 4 * kStep),
            "HEDDLE_CHECK=2: element 0 of 1 is 1.0000005, and by the host MPI 1");
  EXPECT_EQ(sum(DType::f32, MPI_FLOAT, -1.0F, -1.0F - 3 * kStep), "");
  constexpr double kSmall = std::numeric_limits<double>::epsilon();
  EXPECT_EQ(sum(DType::f64, MPI_DOUBLE, 1.0, 1.0 + 3 * kSmall), "");
  EXPECT_NE(sum(DType::f64, MPI_DOUBLE, 1.0, 1.0 + 4 * kSmall), "");
  constexpr long double kSmallest = std::numeric_limits<long double>::epsilon();
  EXPECT_EQ(sum(DType::f80, MPI_LONG_DOUBLE, 1.0L, 1.0L + 3 * kSmallest), "");
  EXPECT_NE(sum(DType::f80, MPI_LONG_DOUBLE, 1.0L, 1.0L + 4 * kSmallest), "");
  EXPECT_EQ(sum(DType::f80, MPI_LONG_DOUBLE, 1e-4000L, 1e-4000L * (1 + 3 * kSmallest)), "");
  using Complex = std::complex<float>;
  EXPECT_EQ(sum(DType::c32, MPI_C_FLOAT_COMPLEX, Complex(1, 1), Complex(1 + 4 * kStep, 1)), "");
  EXPECT_EQ(sum(DType::c32, MPI_C_FLOAT_COMPLEX, Complex(1, 1), Complex(1, 1.5)),
            "HEDDLE_CHECK=2: element 0 of 1 is (1, 1.5), and by the host MPI (1, 1)");
}

TEST_F(HostResultsTest, WhatIsNoFiniteNumberHasToComeFromOne) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kMost = std::numeric_limits<float>::max();
  EXPECT_NE(sum(DType::f32, MPI_FLOAT, 1.0F, kNan), "");
  EXPECT_NE(sum(DType::f32, MPI_FLOAT, 1.0F, kInfinity), "");
  EXPECT_EQ(sum(DType::f32, MPI_FLOAT, kNan, 1.0F), "");
  EXPECT_EQ(sum(DType::f32, MPI_FLOAT, kInfinity, kNan), "");
  EXPECT_EQ(sum(DType::f32, MPI_FLOAT, kMost, kInfinity), "");
  EXPECT_EQ(said<float>(DType::f32, MPI_FLOAT, Op::max, MPI_MAX, {kNan}, {1}), "");
  EXPECT_NE(said<float>(DType::f32, MPI_FLOAT, Op::max, MPI_MAX, {1}, {kNan}), "");
  EXPECT_NE(said<float>(DType::f32, MPI_FLOAT, Op::max, MPI_MAX, {kInfinity}, {1}), "");
}

TEST_F(HostResultsTest, MinimaOfRealsAreEqualButForTheSignOfZero) {
  EXPECT_EQ(said<float>(DType::f32, MPI_FLOAT, Op::min, MPI_MIN, {0.0F}, {-0.0F}), "");
  EXPECT_NE(said<float>(DType::f32, MPI_FLOAT, Op::min, MPI_MIN, {1}, {std::nextafter(1.0F, 2.0F)}), "");
}

TEST_F(HostResultsTest, ProductsMayDifferByTheirRounding) {
  constexpr double kStep = std::numeric_limits<double>::epsilon();
  const auto product = [this](double in, double out) {
    return said<double>(DType::f64, MPI_DOUBLE, Op::prod, MPI_PROD, {in}, {out});
  };
  EXPECT_EQ(product(3.0, 3 * (1 + 5 * kStep)), "");
  EXPECT_NE(product(3.0, 3 * (1 + 9 * kStep)), "");
  EXPECT_EQ(product(1e-3, 1e-3 * (1 + 5 * kStep)), "");
  EXPECT_NE(product(1e-3, 1e-3 * (1 + 9 * kStep)), "");
  // Where partial products may leave the range nothing is known.
  EXPECT_EQ(product(1e-300, 5.0), "");
  EXPECT_EQ(product(1.5e308, 5.0), "");
}

TEST_F(HostResultsTest, AnotherRanksFindIsToldHere) {
  other_rank = 2;
  EXPECT_EQ(sum(DType::i32, MPI_INT, 1, 1),
            "HEDDLE_CHECK=2: rank 2 has another result than the host MPI gives");
}

TEST_F(HostResultsTest, BitsAreThoseOfRankZero) {
  flipped_bcast = 1;
  EXPECT_EQ(sum(DType::i32, MPI_INT, 1, 1), "HEDDLE_CHECK=2: the result has other bits here than on rank 0");
}

TEST_F(HostResultsTest, BytesOfABcastAreTheRoots) {
  const std::vector<unsigned char> data(200000, 5);
  HostResults results(mpi_, MPI_COMM_SELF, 0, kRanks);
  results.make_room(data.size());
  EXPECT_EQ(results.bcast(data.data(), data.size(), 0).message(), "");
  flipped_bcast = 2;
  EXPECT_EQ(results.bcast(data.data(), data.size(), 0).message(),
            "HEDDLE_CHECK=2: element 131071 of 200000 is byte 0x05, and by the host MPI 0x45");
}

// Or else the others would wait in the host's next one.
TEST_F(HostResultsTest, WhoRunsOutOfMemoryMakesAllCallsOfTheHost) {
  const std::vector<float> in(70000, 1);
  std::vector<float> other = in;
  other[69999] = 2;
  const std::vector<unsigned char> bytes(200000, 5);
  const auto make_sum = [&](const std::vector<float>& out, Op op) {
    const RepeatedSum sum{
        in.data(), out.data(), in.size(), DType::f32, op, MPI_FLOAT, op == Op::sum ? MPI_SUM : MPI_PROD};
    HostResults results(mpi_, MPI_COMM_SELF, 0, kRanks);
    results.make_room(sum);
    heddle::test::allocations_left = allocations_;
    return results.allreduce(sum);
  };
  const auto make_bcast = [&] {
    HostResults results(mpi_, MPI_COMM_SELF, 0, kRanks);
    results.make_room(bytes.size());
    heddle::test::allocations_left = allocations_;
    return results.bcast(bytes.data(), bytes.size(), 0);
  };
  for (const auto& [flipped, calls, call] :
       std::initializer_list<std::tuple<int, int, std::function<Status()>>>{
           {0, 7, [&] { return make_sum(in, Op::sum); }},
           {0, 7, [&] { return make_sum(in, Op::prod); }},
           {0, 5, [&] { return make_sum(other, Op::sum); }},
           {1, 7, [&] { return make_sum(in, Op::sum); }},  // other bits than those of rank 0
           {0, 5, make_bcast},
           {2, 5, make_bcast}}) {
    bool ran_out = true;
    for (allocations_ = 0; ran_out; ++allocations_) {
      flipped_bcast = flipped;
      host_calls = 0;
      try {
        static_cast<void>(call());
      } catch (const std::bad_alloc&) {
      }
      ran_out = std::exchange(heddle::test::allocations_left, -1) < 0;
      EXPECT_EQ(host_calls, calls) << allocations_ << " allocations";
    }
  }
}

}  // namespace
}  // namespace heddle::backend
