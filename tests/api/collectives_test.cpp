// Blocking collectives through libheddle.so, ranks as threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "heddle/heddle.hpp"
#include "ranks.hpp"
#include "support/expected_fold.hpp"

namespace {

using heddle::testing_ranks::expected;
using heddle::testing_ranks::on_ranks;
using heddle::testing_ranks::value;

const std::vector<std::size_t> kCounts = {0, 1, 3, 7, 64, 1000, 4099, 70'001};

class Ranks : public testing::TestWithParam<int> {};

template <typename T>
void check_allreduce(int size, const std::vector<heddle_op>& ops) {
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    for (const std::size_t count : kCounts) {
      for (const heddle_op op : ops) {
        std::vector<T> in(count);
        for (std::size_t i = 0; i < count; ++i)
          in[i] = static_cast<T>(value(rank, i));
        std::vector<T> out(count, static_cast<T>(99));
        const heddle_dtype dtype = heddle::api::dtype_of<T>::value;
        ASSERT_EQ(heddle_allreduce(in.data(), out.data(), count, dtype, op, comm), HEDDLE_OK)
            << heddle_last_error();
        ASSERT_EQ(heddle_allreduce(HEDDLE_IN_PLACE, in.data(), count, dtype, op, comm), HEDDLE_OK);
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(out[i], expected<T>(op, size, i)) << "op " << op << ", count " << count << ", at " << i;
          ASSERT_EQ(in[i], out[i]) << "in place, op " << op << ", count " << count << ", at " << i;
        }
      }
    }
  });
}

const std::vector<heddle_op> kArithmetic = {HEDDLE_SUM, HEDDLE_PROD, HEDDLE_MIN, HEDDLE_MAX};

TEST_P(Ranks, AllreduceFloat) {
  check_allreduce<float>(GetParam(), kArithmetic);
}
TEST_P(Ranks, AllreduceDouble) {
  check_allreduce<double>(GetParam(), kArithmetic);
}
TEST_P(Ranks, AllreduceLongDouble) {
  check_allreduce<long double>(GetParam(), {HEDDLE_SUM});
}
TEST_P(Ranks, AllreduceComplex) {
  check_allreduce<std::complex<double>>(GetParam(), {HEDDLE_SUM, HEDDLE_PROD});
}
TEST_P(Ranks, AllreduceByte) {
  check_allreduce<std::int8_t>(GetParam(), kArithmetic);
}
TEST_P(Ranks, AllreduceInt) {
  check_allreduce<std::int32_t>(GetParam(), {HEDDLE_SUM, HEDDLE_MAX, HEDDLE_BAND, HEDDLE_BOR, HEDDLE_BXOR});
}
TEST_P(Ranks, AllreduceUnsignedLong) {
  check_allreduce<std::uint64_t>(GetParam(), {HEDDLE_SUM, HEDDLE_BXOR});
}

// Rounding depends on the order of the sum; the bits must not depend on the rank.
TEST_P(Ranks, SameBitsOnEveryRank) {
  const int size = GetParam();
  for (const std::size_t count : {std::size_t{5}, std::size_t{999}, std::size_t{50'001}}) {
    std::vector<std::vector<float>> results(static_cast<std::size_t>(size));
    on_ranks(size, [&](heddle_comm_t comm, int rank) {
      std::vector<float> in(count);
      for (std::size_t i = 0; i < count; ++i) {
        in[i] = std::sin(static_cast<float>(i) + 0.1F * static_cast<float>(rank)) *
                std::pow(10.F, static_cast<float>(rank));
      }
      std::vector<float>& out = results[static_cast<std::size_t>(rank)];
      out.resize(count);
      ASSERT_EQ(heddle_allreduce(in.data(), out.data(), count, HEDDLE_FLOAT32, HEDDLE_SUM, comm), HEDDLE_OK);
    });
    for (const std::vector<float>& result : results) {
      ASSERT_EQ(std::memcmp(result.data(), results[0].data(), count * sizeof(float)), 0) << count;
    }
  }
}

TEST_P(Ranks, BcastFromEveryRoot) {
  const int size = GetParam();
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{5000}, std::size_t{300'007}}) {
      for (int root = 0; root < size; ++root) {
        std::vector<unsigned char> data(bytes, 0xee);
        const auto byte = [&](std::size_t i) {
          return static_cast<unsigned char>(i * 7 + static_cast<std::size_t>(root));
        };
        for (std::size_t i = 0; rank == root && i < bytes; ++i)
          data[i] = byte(i);
        ASSERT_EQ(heddle_bcast(data.data(), bytes, root, comm), HEDDLE_OK) << heddle_last_error();
        for (std::size_t i = 0; i < bytes; ++i)
          ASSERT_EQ(data[i], byte(i)) << bytes << " bytes, root " << root;
      }
    }
  });
}

template <typename T>
void check_reduce(int size, const std::vector<heddle_op>& ops) {
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    const heddle_dtype dtype = heddle::api::dtype_of<T>::value;
    for (const std::size_t count : kCounts) {
      for (int root = 0; root < size; ++root) {
        const heddle_op op = ops[(count + static_cast<std::size_t>(root)) % ops.size()];
        std::vector<T> in(count);
        for (std::size_t i = 0; i < count; ++i)
          in[i] = static_cast<T>(value(rank, i));
        const std::vector<T> kept = in;
        std::vector<T> out(count, static_cast<T>(99));
        ASSERT_EQ(heddle_reduce(in.data(), rank == root ? out.data() : nullptr, count, dtype, op, root, comm),
                  HEDDLE_OK)
            << heddle_last_error();
        ASSERT_EQ(in, kept) << "root " << root;
        const bool is_root = rank == root;
        ASSERT_EQ(heddle_reduce(is_root ? HEDDLE_IN_PLACE : in.data(), is_root ? in.data() : nullptr, count,
                                dtype, op, root, comm),
                  HEDDLE_OK);
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(out[i], is_root ? expected<T>(op, size, i) : static_cast<T>(99))
              << "op " << op << ", count " << count << ", root " << root << ", at " << i;
          ASSERT_EQ(in[i], is_root ? out[i] : kept[i])
              << "in place, op " << op << ", count " << count << ", root " << root << ", at " << i;
        }
      }
    }
  });
}

TEST_P(Ranks, ReduceDouble) {
  check_reduce<double>(GetParam(), kArithmetic);
}
TEST_P(Ranks, ReduceByte) {
  check_reduce<std::int8_t>(GetParam(), kArithmetic);
}
TEST_P(Ranks, ReduceInt) {
  check_reduce<std::int32_t>(GetParam(), {HEDDLE_SUM, HEDDLE_MAX, HEDDLE_BAND, HEDDLE_BOR, HEDDLE_BXOR});
}

unsigned char byte_of(int rank, std::size_t i) {
  return static_cast<unsigned char>(i * 7 + static_cast<std::size_t>(rank) * 31 + i / 251);
}

// Buffers begin `shift` bytes behind an aligned place, and what is around them stays.
void check_allgather(heddle_comm_t comm, int size, int rank, std::size_t bytes, std::size_t shift) {
  SCOPED_TRACE(testing::Message() << bytes << " bytes of each of " << size << " ranks, from " << shift);
  const auto ranks = static_cast<std::size_t>(size);
  std::vector<unsigned char> in(shift + bytes + 1, 0xee);
  for (std::size_t i = 0; i < bytes; ++i)
    in[shift + i] = byte_of(rank, i);
  const std::vector<unsigned char> kept = in;
  std::vector<unsigned char> expected(shift + ranks * bytes + 1, 0xdd);
  for (int r = 0; r < size; ++r) {
    for (std::size_t i = 0; i < bytes; ++i)
      expected[shift + static_cast<std::size_t>(r) * bytes + i] = byte_of(r, i);
  }
  std::vector<unsigned char> out(expected.size(), 0xdd);
  ASSERT_EQ(heddle_allgather(in.data() + shift, out.data() + shift, bytes, comm), HEDDLE_OK)
      << heddle_last_error();
  ASSERT_TRUE(out == expected);
  ASSERT_TRUE(in == kept) << "the input was changed";
  out.assign(out.size(), 0xdd);
  std::copy_n(in.begin() + static_cast<std::ptrdiff_t>(shift), bytes,
              out.begin() + static_cast<std::ptrdiff_t>(shift + static_cast<std::size_t>(rank) * bytes));
  ASSERT_EQ(heddle_allgather(HEDDLE_IN_PLACE, out.data() + shift, bytes, comm), HEDDLE_OK)
      << heddle_last_error();
  ASSERT_TRUE(out == expected) << "in place";
}

TEST_P(Ranks, AllgatherOfEverySize) {
  const int size = GetParam();
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    for (const std::size_t bytes : {0, 1, 7, 56, 57, 1000, 4099, 70'001, 1'500'003}) {
      for (const std::size_t shift : {0, 3})
        ASSERT_NO_FATAL_FAILURE(check_allgather(comm, size, rank, bytes, shift));
    }
    ASSERT_EQ(heddle_allgather(nullptr, nullptr, 0, comm), HEDDLE_OK) << "nothing";
  });
}

// By messages, also where the ranks share memory.
TEST_P(Ranks, AllgatherByEveryAlgorithmOfMessages) {
  const int size = GetParam();
  for (const char* algorithm : {"recursive_doubling", "bruck", "ring"}) {
    SCOPED_TRACE(algorithm);
    ASSERT_EQ(::setenv("HEDDLE_ALGORITHM", (std::string("allgather:") + algorithm).c_str(), 1), 0);
    on_ranks(size, [&](heddle_comm_t comm, int rank) {
      const char* name = nullptr;
      ASSERT_EQ(heddle_allgather_algorithm(1000, comm, &name), HEDDLE_OK) << heddle_last_error();
      EXPECT_STREQ(name, size == 1 ? "self" : algorithm);
      for (const std::size_t bytes : {0, 1, 1000, 70'001})
        ASSERT_NO_FATAL_FAILURE(check_allgather(comm, size, rank, bytes, 1));
    });
  }
  ::unsetenv("HEDDLE_ALGORITHM");
}

TEST_P(Ranks, NobodyLeavesABarrierBeforeTheLastEnters) {
  const int size = GetParam();
  std::atomic<int> entered{0};
  on_ranks(size, [&](heddle_comm_t comm, int) {
    for (int round = 1; round <= 20; ++round) {
      ++entered;
      ASSERT_EQ(heddle_barrier(comm), HEDDLE_OK) << heddle_last_error();
      ASSERT_GE(entered.load(), size * round);
    }
  });
}

TEST_P(Ranks, MessagesGoAroundARing) {
  const int size = GetParam();
  if (size == 1) return;
  on_ranks(size, [&](heddle_comm_t comm, int rank) {
    const int to = (rank + 1) % size;
    const int from = (rank + size - 1) % size;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, std::size_t{200'000}}) {
      std::vector<char> mine(bytes, static_cast<char>('a' + rank));
      std::vector<char> got(bytes, '?');
      // Rank 0 sends first and the others receive first: no ring of blocking sends.
      if (rank == 0) {
        ASSERT_EQ(heddle_send(mine.data(), bytes, to, comm), HEDDLE_OK) << heddle_last_error();
      }
      ASSERT_EQ(heddle_recv(got.data(), bytes, from, comm), HEDDLE_OK) << heddle_last_error();
      if (rank != 0) {
        ASSERT_EQ(heddle_send(mine.data(), bytes, to, comm), HEDDLE_OK) << heddle_last_error();
      }
      ASSERT_EQ(got, std::vector<char>(bytes, static_cast<char>('a' + from)));
    }
  });
}

TEST_P(Ranks, AlgorithmsHaveNames) {
  on_ranks(GetParam(), [&](heddle_comm_t comm, int) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{1} << 20}) {
      const char* name = nullptr;
      ASSERT_EQ(heddle_allreduce_algorithm(count, HEDDLE_FLOAT32, HEDDLE_SUM, comm, &name), HEDDLE_OK);
      ASSERT_NE(name, nullptr);
      EXPECT_NE(std::string(name), "none");
      ASSERT_EQ(heddle_bcast_algorithm(count, comm, &name), HEDDLE_OK);
      EXPECT_NE(std::string(name), "none");
      ASSERT_EQ(heddle_allgather_algorithm(count, comm, &name), HEDDLE_OK);
      EXPECT_NE(std::string(name), "none");
    }
  });
}

TEST_P(Ranks, ManyCommunicatorsSideBySide) {
  on_ranks(GetParam(), [&](heddle_comm_t outer, int rank) {
    std::vector<heddle_comm_t> comms(4);
    // The outer communicator carries the allgather of the inner ones.
    const auto gather = [](const void* mine, void* all, std::size_t bytes, void* context) -> int {
      auto* comm = static_cast<heddle_comm_t>(context);
      int size = 0;
      int me = 0;
      if (heddle_comm_size(comm, &size) != HEDDLE_OK || heddle_comm_rank(comm, &me) != HEDDLE_OK) return 1;
      for (int r = 0; r < size; ++r) {
        char* place = static_cast<char*>(all) + static_cast<std::size_t>(r) * bytes;
        if (r == me) std::memcpy(place, mine, bytes);
        if (heddle_bcast(place, bytes, r, comm) != HEDDLE_OK) return 1;
      }
      return 0;
    };
    int size = 0;
    ASSERT_EQ(heddle_comm_size(outer, &size), HEDDLE_OK);
    for (heddle_comm_t& comm : comms) {
      ASSERT_EQ(heddle_comm_create(rank, size, gather, outer, nullptr, &comm), HEDDLE_OK)
          << heddle_last_error();
    }
    for (heddle_comm_t comm : comms) {
      int sum = 1;
      ASSERT_EQ(heddle_allreduce(HEDDLE_IN_PLACE, &sum, 1, HEDDLE_INT32, HEDDLE_SUM, comm), HEDDLE_OK);
      EXPECT_EQ(sum, size);
    }
    for (heddle_comm_t comm : comms)
      EXPECT_EQ(heddle_comm_destroy(comm), HEDDLE_OK);
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, Ranks, testing::Range(1, 9));

}  // namespace
