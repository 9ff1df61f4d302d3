// The C++ face: owning handles, spans, exceptions.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <complex>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heddle/heddle.hpp"
#include "heddle/heddle_sparse.hpp"
#include "ranks.hpp"

namespace {

namespace api = heddle::api;
using heddle::testing_ranks::Meeting;
using heddle::testing_ranks::on_threads;

static_assert(api::dtype_of<signed char>::value == HEDDLE_INT8);
static_assert(api::dtype_of<char>::value == HEDDLE_INT8 || api::dtype_of<char>::value == HEDDLE_UINT8);
static_assert(api::dtype_of<unsigned short>::value == HEDDLE_UINT16);
static_assert(api::dtype_of<int>::value == HEDDLE_INT32);
static_assert(api::dtype_of<long long>::value == HEDDLE_INT64);
static_assert(api::dtype_of<unsigned long>::value == HEDDLE_UINT64);
static_assert(api::dtype_of<std::complex<float>>::value == HEDDLE_COMPLEX_FLOAT);
static_assert(!std::is_copy_constructible_v<api::Comm> && std::is_nothrow_move_constructible_v<api::Comm>);
static_assert(!std::is_copy_constructible_v<api::Request> &&
              std::is_nothrow_move_constructible_v<api::Request>);

static_assert(api::is_sparse_value<float> && api::is_sparse_value<std::int64_t>);
static_assert(!api::is_sparse_value<std::int8_t> && !api::is_sparse_value<unsigned> &&
              !api::is_sparse_value<std::complex<float>>);

void on_comms(int size, const std::function<void(api::Comm&)>& body) {
  Meeting meeting(size);
  on_threads(size, [&](int rank) {
    api::Comm comm =
        api::Comm::from_allgather(rank, size, [&](const void* mine, void* all, std::size_t bytes) {
          meeting.allgather(rank, mine, all, bytes);
          return 0;
        });
    body(comm);
  });
}

int alone(const void* mine, void* all, std::size_t bytes) {
  std::memcpy(all, mine, bytes);
  return 0;
}

TEST(Face, AFunctionGathers) {
  EXPECT_EQ(api::Comm::from_allgather(0, 1, alone).size(), 1);
  EXPECT_EQ(api::Comm::from_allgather(0, 1, &alone).size(), 1);
}

template <typename R>
concept MayBeBroadcast = requires(const api::Comm& comm, R&& data) {
  comm.bcast(std::forward<R>(data));
};
template <typename In, typename Out>
concept MayBeReduced = requires(const api::Comm& comm, In&& in, Out&& out) {
  comm.allreduce(std::forward<In>(in), std::forward<Out>(out));
};
using Vector = std::vector<float>;
static_assert(MayBeBroadcast<Vector&> && MayBeBroadcast<std::span<float>> && MayBeBroadcast<float (&)[3]>);
static_assert(!MayBeBroadcast<const Vector&> && !MayBeBroadcast<Vector>, "const, or gone");
static_assert(MayBeReduced<Vector&, Vector&> && MayBeReduced<const Vector&, std::span<float>> &&
              MayBeReduced<std::span<const float>, Vector&> &&
              MayBeReduced<std::array<float, 3>&, float (&)[3]>);
static_assert(!MayBeReduced<Vector&, const Vector&> && !MayBeReduced<Vector&, Vector> &&
              !MayBeReduced<Vector, Vector&>);

// As people have them.
TEST(Face, BuffersAreAnyContiguousRange) {
  on_comms(2, [](const api::Comm& comm) {
    Vector in(4, 1);
    std::array<float, 4> out{};
    comm.allreduce(in, out);
    EXPECT_EQ(out[3], 2);
    float plain[4] = {1, 2, 3, 4};
    comm.allreduce_in_place(plain);
    EXPECT_EQ(plain[3], 8);
    comm.iallreduce(out, in).wait();
    EXPECT_EQ(in[0], 4);
    comm.bcast(in, 1);
    if (comm.rank() == 0) comm.send(in, 1);
    if (comm.rank() == 1) comm.recv(plain, 0);
    EXPECT_EQ(plain[2], comm.rank() == 0 ? 6 : 4);
  });
}

TEST(Face, EveryCollective) {
  on_comms(3, [](api::Comm& comm) {
    const int rank = comm.rank();
    ASSERT_EQ(comm.size(), 3);
    const std::vector<float> in(10, static_cast<float>(rank));
    std::vector<float> out(10);
    comm.allreduce(std::span<const float>(in), std::span(out));
    EXPECT_EQ(out, std::vector<float>(10, 3));
    comm.allreduce_in_place(std::span(out), api::Op::max);
    EXPECT_EQ(out, std::vector<float>(10, 3));
    EXPECT_EQ(comm.allreduce_value(rank, api::Op::max), 2);
    int root_only = rank == 1 ? 7 : 0;
    comm.bcast(std::span(&root_only, 1), 1);
    EXPECT_EQ(root_only, 7);
    std::vector<float> reduced(rank == 2 ? 10 : 0);
    comm.reduce(in, reduced, api::Op::sum, 2);
    EXPECT_EQ(reduced, std::vector<float>(rank == 2 ? 10 : 0, 3.0F));
    comm.ireduce(in, reduced, api::Op::max, 2).wait();
    EXPECT_EQ(reduced, std::vector<float>(rank == 2 ? 10 : 0, 2.0F));
    std::vector<float> both = in;
    comm.reduce_in_place(both, api::Op::sum, 1);
    EXPECT_EQ(both, rank == 1 ? std::vector<float>(10, 3) : in);
    EXPECT_THROW(comm.reduce(in, both, api::Op::sum, 3), api::Error);
    const int mine[2] = {10 * rank, 10 * rank + 1};
    const std::vector<int> gathered = {0, 1, 10, 11, 20, 21};
    std::vector<int> all(6);
    comm.allgather(mine, all);
    EXPECT_EQ(all, gathered);
    all.assign(6, -1);
    std::copy_n(mine, 2, all.begin() + 2 * rank);
    comm.allgather_in_place(all);
    EXPECT_EQ(all, gathered);
    all.assign(6, -1);
    comm.iallgather(mine, all).wait();
    EXPECT_EQ(all, gathered);
    all.assign(6, -1);
    api::Request gather = comm.allgather_init(std::span<const int>(mine), std::span(all));
    gather.start();
    gather.wait();
    EXPECT_EQ(all, gathered);
    EXPECT_STREQ(comm.allgather_algorithm(8), "team");
    comm.barrier();
    if (rank == 0) comm.send(std::span<const float>(in), 1);
    if (rank == 1) comm.recv(std::span(out), 0);
  });
}

// On one rank alone: nothing is sent.
TEST(Face, GatheredSizesMustFit) {
  on_comms(3, [](api::Comm& comm) {
    const std::vector<int> in(2);
    std::vector<int> seven(7);
    std::vector<int> three(3);
    const auto says = [](const std::string& text, const auto& call) {
      try {
        call();
        ADD_FAILURE() << "served, and not: " << text;
      } catch (const api::Error& e) {
        EXPECT_EQ(e.status(), HEDDLE_ERR_ARGUMENT);
        EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
      }
    };
    const std::string odd = "7 elements are not as many of each of 3 ranks";
    const std::string other = "in has 2 elements, out 3 for 3 ranks";
    if (comm.rank() == 0) {
      says(odd, [&] { comm.allgather(in, seven); });
      says(odd, [&] { comm.allgather_in_place(seven); });
      says(odd, [&] { auto request = comm.iallgather(in, seven); });
      says(odd, [&] { auto request = comm.allgather_init(in, seven); });
      says(other, [&] { comm.allgather(in, three); });
      says(other, [&] { auto request = comm.iallgather(in, three); });
      says(other, [&] { auto request = comm.allgather_init(in, three); });
    }
    std::vector<int> all(6, -1);
    comm.allgather(in, all);
    EXPECT_EQ(all, std::vector<int>(6));
  });
}

TEST(Face, RequestsFinishWhenTheyGo) {
  on_comms(2, [](api::Comm& comm) {
    std::vector<int> data(1000, comm.rank());
    { const api::Request request = comm.iallreduce_in_place(std::span(data)); }
    EXPECT_EQ(data, std::vector<int>(1000, 1));
    api::Request persistent = comm.bcast_init(std::span(data), 0);
    persistent.start();
    while (!persistent.test())
      continue;
    api::Request moved = std::move(persistent);
    moved.start();
    moved.wait();
    comm.ibarrier().wait();
    api::Request barrier = comm.barrier_init();
    api::Request sum = comm.allreduce_in_place_init(std::span(data));
    for (const int wanted : {2, 4}) {
      barrier.start();
      barrier.wait();
      sum.start();
      sum.wait();
      EXPECT_EQ(data, std::vector<int>(1000, wanted));
    }
  });
}

TEST(Face, RequestsAreWaitedForTogether) {
  on_comms(2, [](api::Comm& comm) {
    std::vector<std::vector<int>> data(3, std::vector<int>(100, 1));
    std::vector<api::Request> requests(1);
    for (std::vector<int>& each : data)
      requests.push_back(comm.iallreduce_in_place(each));
    api::Request::wait_all(requests);
    for (const std::vector<int>& each : data)
      EXPECT_EQ(each, std::vector<int>(100, 2));
    for (const api::Request& each : requests)
      EXPECT_EQ(each.handle(), nullptr);
    api::Request once = comm.ibarrier();
    once.wait();
    try {
      once.start();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const api::Error& error) {
      EXPECT_NE(std::string(error.what()).find("one that is not persistent"), std::string::npos)
          << error.what();
    }
  });
}

// The first failure is thrown, and what comes after it is complete all the same.
TEST(Face, WaitingForAllThrowsTheFirstFailure) {
  on_comms(1, [](api::Comm& comm) {
    std::uint32_t index = 1;
    float value = 1;
    const heddle_sparse in{9, 1, HEDDLE_INDEX32, HEDDLE_FLOAT32, &index, &value, 1, nullptr, nullptr};
    heddle_sparse out{};
    heddle_request_t handle = nullptr;
    api::check(heddle_isparse_allreduce(&in, &out, HEDDLE_SUM, comm.handle(), &handle));
    std::vector<int> data{7};
    std::vector<int> result(1);
    std::array<api::Request, 3> requests{comm.ibarrier(), api::Request(handle),
                                         comm.iallreduce(data, result)};
    try {
      api::Request::wait_all(requests);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const api::Error& error) {
      EXPECT_EQ(error.status(), HEDDLE_ERR_CAPACITY) << error.what();
      EXPECT_NE(std::string(error.what()).find("heddle_sparse_fetch"), std::string::npos) << error.what();
    }
    EXPECT_EQ(result[0], 7);
    EXPECT_EQ(requests[2].handle(), nullptr);
  });
}

TEST(Face, AlgorithmsHaveNames) {
  on_comms(2, [](const api::Comm& comm) {
    EXPECT_GT(std::strlen(comm.allreduce_algorithm<float>(1000)), 0U);
    EXPECT_GT(std::strlen(comm.bcast_algorithm(1000)), 0U);
    EXPECT_THROW(comm.allreduce_algorithm<float>(1000, api::Op::band), api::Error);
  });
}

template <typename V>
concept MayBeUnderWay = requires(const api::Comm& comm, V&& vector) {
  api::isparse_allreduce(comm, std::forward<V>(vector));
  api::sparse_allreduce_init(comm, std::forward<V>(vector));
};
using Sparse = api::SparseVector<float>;
static_assert(MayBeUnderWay<Sparse&> && MayBeUnderWay<const Sparse&>);
static_assert(!MayBeUnderWay<Sparse> && !MayBeUnderWay<const Sparse>, "gone");

TEST(Face, SparseRequests) {
  on_comms(3, [](api::Comm& comm) {
    const auto rank = static_cast<std::uint32_t>(comm.rank());
    Sparse mine{100, {1, 10 + rank}, {1, 2}};
    mine.check_contract();
    api::SparseRequest<float> once = api::isparse_allreduce(comm, mine);
    while (!once.test())
      continue;
    EXPECT_EQ(once.result().dimension, 100U);
    EXPECT_EQ(once.result().indices, (std::vector<std::uint32_t>{1, 10, 11, 12}));
    EXPECT_EQ(once.result().values, (std::vector<float>{3, 2, 2, 2}));
    EXPECT_EQ(api::sparse_stats(comm).result_entries, 4U);
    EXPECT_EQ(api::isparse_allreduce(comm, mine, api::Op::max).wait().values,
              (std::vector<float>{1, 2, 2, 2}));

    api::SparseRequest<float> again = api::sparse_allreduce_init(comm, mine);
    once = std::move(again);
    for (int start = 1; start < 4; ++start) {
      mine.values[0] = static_cast<float>(start);
      once.start();
      EXPECT_EQ(once.wait().values, (std::vector<float>{3.0F * static_cast<float>(start), 2, 2, 2}));
    }
    once.start();  // waited for by the destructor

    Sparse wrong{10, {3, 3}, {1, 1}};
    EXPECT_THROW(wrong.check_contract(), api::Error);
    EXPECT_THROW(api::isparse_allreduce(comm, wrong).wait(), api::Error);
    wrong.values.pop_back();
    EXPECT_THROW(static_cast<void>(api::isparse_allreduce(comm, wrong)), api::Error);
  });
}

TEST(Face, MemoryThatAllRanksReach) {
  on_comms(3, [](api::Comm& comm) {
    constexpr std::size_t kCount = 200'000;
    auto in = comm.alloc<float>(kCount);
    auto out = comm.alloc<float>(kCount);
    EXPECT_EQ(in[kCount - 1], 0.0F);
    for (int round = 0; round < 3; ++round) {
      std::fill_n(in.get(), kCount, static_cast<float>(comm.rank() + round));
      comm.allreduce(std::span<const float>(in.get(), kCount), std::span(out.get(), kCount));
      EXPECT_EQ(std::vector<float>(out.get(), out.get() + kCount),
                std::vector<float>(kCount, static_cast<float>(3 + 3 * round)));
      comm.allreduce_in_place(std::span(in.get(), kCount), api::Op::max);
      EXPECT_EQ(std::vector<float>(in.get(), in.get() + kCount),
                std::vector<float>(kCount, static_cast<float>(2 + round)));
    }
    // One rank of the three with memory of its own.
    std::vector<float> ordinary(kCount, 1);
    std::fill_n(in.get(), kCount, 1.0F);
    comm.allreduce_in_place(std::span(comm.rank() == 1 ? ordinary.data() : in.get(), kCount));
    EXPECT_EQ((comm.rank() == 1 ? ordinary.data() : in.get())[kCount / 2], 3.0F);
    EXPECT_THROW(comm.alloc<double>(static_cast<std::size_t>(-1) / 4), api::Error);
  });
}

TEST(Face, SparseVectorsAndCompressedSums) {
  on_comms(2, [](api::Comm& comm) {
    const auto rank = static_cast<std::uint32_t>(comm.rank());
    api::SparseVector<float> mine{1000, {5 + rank, 3, 5 + rank}, {1, 2, 3}};
    mine.sort();
    const api::SparseVector<float> sum = api::sparse_allreduce(comm, mine);
    EXPECT_EQ(sum.dimension, 1000U);
    EXPECT_EQ(sum.indices, (std::vector<std::uint32_t>{3, 5, 6}));
    EXPECT_EQ(sum.values, (std::vector<float>{4, 4, 4}));
    const api::SparseVector<double, std::uint64_t> wide{
        std::uint64_t{1} << 50, {std::uint64_t{1} << 49}, {1.5}};
    EXPECT_EQ(api::sparse_allreduce(comm, wide, api::Op::max).values, std::vector<double>{1.5});
    api::SparseVector<float> uneven{10, {1, 2}, {1}};
    EXPECT_THROW(uneven.sort(), api::Error);

    std::vector<int> zeros(5000);
    zeros[rank] = 7;
    api::mostly_zero_allreduce(comm, std::span(zeros));
    EXPECT_EQ(zeros[0] + zeros[1], 14);

    api::Residual residual(3);
    std::vector<float> data{1, 2, 3};
    api::compressed_allreduce(comm, std::span(data), "topk:0.3", &residual);
    EXPECT_EQ(data, (std::vector<float>{0, 0, 6}));
    EXPECT_EQ(residual.values()[1], 2.0F);
    EXPECT_THROW(api::compressed_allreduce(comm, std::span(data), "zip"), api::Error);

    const std::vector<float> in{1, 2, 3};
    api::compressed_allreduce(comm, in, data, "fp16");
    EXPECT_EQ(data, (std::vector<float>{2, 4, 6}));
    EXPECT_EQ(api::Residual(0).values().size(), 0U);
    EXPECT_GT(api::compression_error_bound("qsgd:4", 2, 3), 0);
    EXPECT_GT(api::sparse_coded_error_bound("qsgd:4", 2, 3), 0);
    EXPECT_THROW(api::compression_error_bound("qsgd:4", 0, 3), api::Error);

    std::vector<float> dense(1000);
    api::coded_sparse_allreduce(comm, mine, std::span(dense), "fp16");
    EXPECT_EQ(dense[3] + dense[5] + dense[6], 12);
    const float by_codes = dense[5];
    std::fill(dense.begin(), dense.end(), 1.0F);
    api::sparse_allreduce_dense(comm, mine, dense);
    EXPECT_EQ(dense[3] + dense[5] + dense[6], 12);
    EXPECT_EQ(dense[5], by_codes);
    EXPECT_EQ(dense[0], 0);
    EXPECT_THROW(api::coded_sparse_allreduce(comm, mine, std::span(data), "fp16"), api::Error);
  });
}

// What the face refuses itself the others hear of as well, and the communicator goes on.
TEST(Face, OneRanksMistakesAreToldToAll) {
  ASSERT_EQ(::setenv("HEDDLE_TIMEOUT", "10", 1), 0);
  on_comms(2, [](api::Comm& comm) {
    const bool wrong = comm.rank() == 1;
    api::SparseVector<float> uneven{10, {1, 2}, {1, 1}};
    if (wrong) uneven.values.pop_back();
    std::vector<float> dense(10);
    std::vector<float> small(wrong ? 9 : 10);
    const auto told = [&](const auto& call, const std::string& own) {
      try {
        call();
        ADD_FAILURE() << own;
      } catch (const api::Error& error) {
        EXPECT_EQ(error.status(), HEDDLE_ERR_ARGUMENT) << error.what();
        const std::string wanted = wrong ? own : "rank 1 passed arguments that are refused";
        EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos) << error.what();
      }
      EXPECT_NO_THROW(comm.barrier()) << own;
    };
    told([&] { api::sparse_allreduce(comm, uneven); }, "2 indices, but 1 values");
    told([&] { api::coded_sparse_allreduce(comm, uneven, std::span(dense), "fp16"); },
         "2 indices, but 1 values");
    const api::SparseVector<float> good{10, {1, 2}, {1, 1}};
    told([&] { api::coded_sparse_allreduce(comm, good, std::span(small), "fp16"); }, "room for 9 elements");
    told([&] { api::sparse_allreduce_dense(comm, good, small); }, "room for 9 elements");
    told([&] { api::compressed_allreduce(comm, dense, small, "fp16"); }, "in has 10 elements, out has 9");
  });
  ::unsetenv("HEDDLE_TIMEOUT");
}

TEST(Face, FailuresAreThrown) {
  on_comms(2, [](api::Comm& comm) {
    std::vector<int> data(4);
    try {
      comm.bcast(std::span(data), 9);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const api::Error& error) {
      EXPECT_EQ(error.status(), HEDDLE_ERR_ARGUMENT);
      EXPECT_NE(std::string(error.what()).find("root 9"), std::string::npos) << error.what();
    }
    std::vector<int> shorter(3);
    EXPECT_THROW(comm.allreduce(std::span<const int>(data), std::span(shorter)), api::Error);
    EXPECT_THROW(comm.allreduce_in_place(std::span<float>(), api::Op::band), api::Error);
  });
}

TEST(Face, CommsMove) {
  on_comms(2, [](api::Comm& comm) {
    api::Comm other = std::move(comm);
    EXPECT_EQ(comm.handle(), nullptr);  // NOLINT(bugprone-use-after-move): what is left is defined
    EXPECT_EQ(other.allreduce_value(1), 2);
    EXPECT_THROW(comm.barrier(), api::Error);
  });
}

}  // namespace
