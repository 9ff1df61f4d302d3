// Compressed allreduces through libheddle.so.
#include "heddle/heddle_compress.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ranks.hpp"

namespace {

using heddle::testing_ranks::on_ranks;

bool message_has(const char* text) {
  return std::string(heddle_last_error()).find(text) != std::string::npos;
}

TEST(CompressApi, SumsWithinItsBound) {
  for (const char* method : {"fp16", "bf16", "qsgd:8", "qsgd:4:64", "onebit"}) {
    on_ranks(3, [method](heddle_comm_t comm, int rank) {
      constexpr std::size_t kCount = 2000;
      std::vector<float> in(kCount);
      std::vector<float> out(kCount);
      for (std::size_t i = 0; i < kCount; ++i)
        in[i] = std::sin(static_cast<float>(i) + static_cast<float>(rank));
      ASSERT_EQ(heddle_compressed_allreduce(in.data(), out.data(), kCount, method, 7, nullptr, comm),
                HEDDLE_OK)
          << heddle_last_error();
      double bound = 0;
      ASSERT_EQ(heddle_compression_error_bound(method, 3, 1.0, &bound), HEDDLE_OK);
      EXPECT_GT(bound, 0);
      for (std::size_t i = 0; i < kCount; ++i) {
        float exact = 0;
        for (int r = 0; r < 3; ++r)
          exact += std::sin(static_cast<float>(i) + static_cast<float>(r));
        ASSERT_LE(std::abs(out[i] - exact), bound + 1e-5) << method << " " << i;
      }
      std::vector<float> in_place = in;
      ASSERT_EQ(heddle_compressed_allreduce(static_cast<const float*>(HEDDLE_IN_PLACE), in_place.data(),
                                            kCount, method, 7, nullptr, comm),
                HEDDLE_OK);
    });
  }
}

// Their buffers may be null, on each rank as it likes.
TEST(CompressApi, SumsOfNothing) {
  ASSERT_EQ(::setenv("HEDDLE_TIMEOUT", "10", 1), 0);
  on_ranks(3, [](heddle_comm_t comm, int rank) {
    float something = 1;
    float* const there = rank == 0 ? nullptr : &something;
    const auto* in_place = static_cast<const float*>(HEDDLE_IN_PLACE);
    heddle_sparse in{};
    in.value_type = HEDDLE_FLOAT32;
    heddle_sparse out{};
    for (int round = 0; round < 3; ++round) {
      for (const char* method : {"topk:0.1", "topk-sampled:0.5", "randomk:0.1", "qsgd:4", "fp16"})
        ASSERT_EQ(heddle_compressed_allreduce(in_place, there, 0, method, 1, nullptr, comm), HEDDLE_OK)
            << method << ": " << heddle_last_error();
      ASSERT_EQ(heddle_sparse_allreduce_dense(&in, there, HEDDLE_SUM, comm), HEDDLE_OK)
          << heddle_last_error();
      ASSERT_EQ(heddle_sparse_allreduce(&in, &out, HEDDLE_SUM, comm), HEDDLE_OK) << heddle_last_error();
      EXPECT_EQ(out.count, 0U);
      ASSERT_EQ(heddle_sparse_allreduce_coded(&in, there, "qsgd:8", 1, nullptr, comm), HEDDLE_OK)
          << heddle_last_error();
    }
    EXPECT_EQ(something, 1);
  });
  ::unsetenv("HEDDLE_TIMEOUT");
}

TEST(CompressApi, ResidualsKeepWhatIsLeftOutAndCanBeSaved) {
  on_ranks(2, [](heddle_comm_t comm, int rank) {
    const std::vector<float> in{1, 2, 3, 40};
    std::vector<float> out(4);
    heddle_residual_t residual = nullptr;
    ASSERT_EQ(heddle_residual_create(4, &residual), HEDDLE_OK);
    ASSERT_EQ(heddle_compressed_allreduce(in.data(), out.data(), 4, "topk:0.25", 0, residual, comm),
              HEDDLE_OK)
        << heddle_last_error();
    EXPECT_EQ(out, (std::vector<float>{0, 0, 0, 80}));
    float* values = nullptr;
    std::size_t count = 0;
    ASSERT_EQ(heddle_residual_values(residual, &values, &count), HEDDLE_OK);
    EXPECT_EQ(std::vector<float>(values, values + count), (std::vector<float>{1, 2, 3, 0}));
    const std::string path =
        testing::TempDir() + "residual-" + std::to_string(getpid()) + "-" + std::to_string(rank);
    ASSERT_EQ(heddle_residual_save(residual, path.c_str()), HEDDLE_OK) << heddle_last_error();
    ASSERT_EQ(heddle_residual_destroy(residual), HEDDLE_OK);
    EXPECT_EQ(heddle_residual_load(path.c_str(), 5, &residual), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(residual, nullptr);
    ASSERT_EQ(heddle_residual_load(path.c_str(), 4, &residual), HEDDLE_OK) << heddle_last_error();
    const std::vector<float> zeros(4);
    ASSERT_EQ(heddle_compressed_allreduce(zeros.data(), out.data(), 4, "topk:0.25", 0, residual, comm),
              HEDDLE_OK);
    EXPECT_EQ(out, (std::vector<float>{0, 0, 6, 0})) << "the largest of what was left";
    std::remove(path.c_str());
    EXPECT_EQ(heddle_residual_destroy(residual), HEDDLE_OK);
  });
}

TEST(CompressApi, SumsOfSparseStreamsKeepTheirBound) {
  for (const char* method : {"fp16", "bf16", "qsgd:8", "qsgd:4:64", "terngrad", "onebit"}) {
    on_ranks(3, [method](heddle_comm_t comm, int rank) {
      constexpr std::size_t kDimension = 3000;
      std::vector<std::uint64_t> indices;
      std::vector<float> values;
      for (std::size_t i = static_cast<std::size_t>(rank); i < kDimension; i += 2) {
        indices.push_back(i);
        values.push_back(std::sin(static_cast<float>(i)));
      }
      heddle_sparse in{};
      in.dimension = kDimension;
      in.count = indices.size();
      in.index_type = HEDDLE_INDEX64;
      in.value_type = HEDDLE_FLOAT32;
      in.indices = indices.data();
      in.values = values.data();
      heddle_residual_t residual = nullptr;
      ASSERT_EQ(heddle_residual_create(kDimension, &residual), HEDDLE_OK);
      std::vector<float> out(kDimension, 99);
      const bool keeps = std::string(method) != "terngrad";
      ASSERT_EQ(heddle_sparse_allreduce_coded(&in, out.data(), method, 7, keeps ? residual : nullptr, comm),
                HEDDLE_OK)
          << heddle_last_error();
      double bound = 0;
      ASSERT_EQ(heddle_sparse_coded_error_bound(method, 3, 1.0, &bound), HEDDLE_OK);
      EXPECT_GT(bound, 0);
      float* kept = nullptr;
      std::size_t count = 0;
      ASSERT_EQ(heddle_residual_values(residual, &kept, &count), HEDDLE_OK);
      std::vector<float> all_kept(kDimension);
      ASSERT_EQ(heddle_allreduce(kept, all_kept.data(), count, HEDDLE_FLOAT32, HEDDLE_SUM, comm), HEDDLE_OK);
      for (std::size_t i = 0; i < kDimension; ++i) {
        const int ranks_with_it = i % 2 == 1 ? 1 : i == 0 ? 1 : 2;
        const float exact = static_cast<float>(ranks_with_it) * std::sin(static_cast<float>(i));
        ASSERT_LE(std::abs(out[i] - exact), bound + 1e-5) << method << " " << i;
        if (keeps) {
          ASSERT_NEAR(out[i] + all_kept[i], exact, 1e-5) << method << " " << i;
        }
      }
      EXPECT_EQ(heddle_residual_destroy(residual), HEDDLE_OK);
    });
  }
}

// Right after its end that can be told, as of other handles.
TEST(CompressApi, DestroyedResidualsAreRefused) {
  on_ranks(2, [](heddle_comm_t comm, int rank) {
    float value = 1;
    float result = 0;
    heddle_residual_t residual = nullptr;
    ASSERT_EQ(heddle_residual_create(1, &residual), HEDDLE_OK);
    heddle_residual_t gone = nullptr;
    ASSERT_EQ(heddle_residual_create(1, &gone), HEDDLE_OK);
    ASSERT_EQ(heddle_residual_destroy(gone), HEDDLE_OK);
    const auto refused = [](heddle_status status, const char* what) {
      EXPECT_EQ(status, HEDDLE_ERR_ARGUMENT) << what;
      EXPECT_TRUE(message_has(what)) << heddle_last_error() << ", not " << what;
    };
    const char* const what = "this is not a residual, or it has been destroyed";
    refused(heddle_residual_destroy(gone), what);
    refused(heddle_residual_save(gone, "/tmp/residual"), what);
    float* values = nullptr;
    std::size_t count = 0;
    refused(heddle_residual_values(gone, &values, &count), what);
    refused(heddle_residual_values(nullptr, &values, &count), "the residual is null");
    std::uint64_t bogus[8] = {};
    refused(heddle_residual_destroy(reinterpret_cast<heddle_residual_t>(bogus)), what);
    // The others are told.
    const char* const told = rank == 1 ? what : "rank 1 passed arguments that are refused";
    refused(heddle_compressed_allreduce(&value, &result, 1, "onebit", 0, rank == 1 ? gone : residual, comm),
            told);
    heddle_sparse in{};
    in.dimension = 1;
    in.value_type = HEDDLE_FLOAT32;
    refused(heddle_sparse_allreduce_coded(&in, &result, "onebit", 0, rank == 1 ? gone : residual, comm),
            told);
    EXPECT_EQ(heddle_barrier(comm), HEDDLE_OK);
    EXPECT_EQ(heddle_residual_destroy(residual), HEDDLE_OK);
  });
}

// More than any process has addresses for. Sanitizers end the process there, and clang's have no macro that
// says so.
TEST(CompressApi, AResidualTooLargeIsSaid) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
  GTEST_SKIP() << "under a sanitizer, perhaps";
#endif
  heddle_residual_t residual = nullptr;
  EXPECT_EQ(heddle_residual_create(std::size_t{1} << 48, &residual), HEDDLE_ERR_MEMORY);
  EXPECT_TRUE(message_has("no memory for a residual of 281474976710656 values")) << heddle_last_error();
  EXPECT_EQ(residual, nullptr);
}

// The last rank's alone; the others hear whose, and the communicator goes on.
TEST(CompressApi, TheMistakesOfOneRankAreToldToAll) {
  ASSERT_EQ(::setenv("HEDDLE_TIMEOUT", "10", 1), 0);
  on_ranks(3, [](heddle_comm_t comm, int rank) {
    const bool last = rank == 2;
    std::vector<float> vector(8, 1);
    std::vector<float> result(8);
    heddle_residual_t residual = nullptr;
    ASSERT_EQ(heddle_residual_create(8, &residual), HEDDLE_OK);
    heddle_residual_t small = nullptr;
    ASSERT_EQ(heddle_residual_create(7, &small), HEDDLE_OK);
    std::uint32_t indices[] = {1, 3};
    heddle_sparse in{};
    in.dimension = 8;
    in.count = 2;
    in.value_type = HEDDLE_FLOAT32;
    in.indices = indices;
    in.values = vector.data();
    const auto told = [&](heddle_status status, const char* own) {
      EXPECT_EQ(status, HEDDLE_ERR_ARGUMENT) << own;
      EXPECT_TRUE(message_has(last ? own : "rank 2 passed arguments that are refused"))
          << heddle_last_error() << ", not " << own;
      EXPECT_EQ(heddle_barrier(comm), HEDDLE_OK) << own;
    };
    const auto sum = [&](const char* method, float* to, heddle_residual_t kept) {
      return heddle_compressed_allreduce(vector.data(), to, 8, method, 1, kept, comm);
    };
    const auto coded = [&](const heddle_sparse& from, const char* method, float* to, heddle_residual_t kept) {
      return heddle_sparse_allreduce_coded(&from, to, method, 1, kept, comm);
    };
    float* const out = result.data();
    float* left = nullptr;
    std::size_t count = 0;
    ASSERT_EQ(heddle_residual_values(residual, &left, &count), HEDDLE_OK);
    for (const char* right : {"fp16", "topk:0.5", "randomk:0.5"}) {
      told(sum(last ? "fp17" : right, out, residual), "\"fp17\" is not a compression");
      told(sum(last ? nullptr : right, out, residual), "method is null");
      told(sum(right, last ? nullptr : out, residual), "recvbuf is null");
      told(sum(right, out, last ? small : residual), "the residual has 7 values and count is 8");
      told(sum(right, last ? left : out, residual), "recvbuf overlaps the values of the residual");
    }
    for (const char* loses : {"qsgd:2", "qsgd:2:64", "terngrad"}) {
      const std::string own = std::string(loses) + " loses as much as the largest value";
      told(sum(last ? loses : "qsgd:4", out, residual), own.c_str());
      told(coded(in, last ? loses : "qsgd:4", out, residual), own.c_str());
      EXPECT_EQ(sum(loses, out, nullptr), HEDDLE_OK) << heddle_last_error();
      EXPECT_EQ(coded(in, loses, out, nullptr), HEDDLE_OK) << heddle_last_error();
    }
    told(coded(in, last ? "fp17" : "fp16", out, residual), "\"fp17\" is not a compression");
    told(coded(in, last ? "topk:0.5" : "fp16", out, residual), "leaves values out");
    told(coded(in, "fp16", last ? nullptr : out, residual), "dense is null");
    told(coded(in, "fp16", last ? vector.data() : out, residual), "dense overlaps in->values");
    told(coded(in, "fp16", out, last ? small : residual), "the residual has 7 values and the dimension is 8");
    told(coded(in, "fp16", last ? left : out, residual), "dense overlaps the values of the residual");
    for (const heddle_dtype type : {HEDDLE_INT8, HEDDLE_FLOAT64}) {
      heddle_sparse other = in;
      if (last) other.value_type = type;
      told(coded(other, "fp16", out, residual), type == HEDDLE_INT8 ? "int8" : "float64");
    }
    heddle_sparse none = in;
    if (last) none.indices = nullptr;
    told(coded(none, "fp16", out, residual), "in->indices is null");
    EXPECT_EQ(sum("fp16", out, residual), HEDDLE_OK) << heddle_last_error();
    EXPECT_EQ(result, std::vector<float>(8, 3));
    EXPECT_EQ(heddle_residual_destroy(residual), HEDDLE_OK);
    EXPECT_EQ(heddle_residual_destroy(small), HEDDLE_OK);
  });
  ::unsetenv("HEDDLE_TIMEOUT");
}

TEST(CompressApi, WrongArgumentsOfCodedSumsAreNamed) {
  on_ranks(1, [](heddle_comm_t comm, int) {
    float dense[4] = {};
    const float values[] = {1, 2};
    std::uint32_t indices[] = {1, 3};
    heddle_sparse in{};
    in.dimension = 4;
    in.count = 2;
    in.value_type = HEDDLE_FLOAT32;
    in.indices = indices;
    in.values = const_cast<float*>(values);
    ASSERT_EQ(heddle_sparse_allreduce_coded(&in, dense, "qsgd:4", 0, nullptr, comm), HEDDLE_OK);
    EXPECT_EQ(std::vector<float>(dense, dense + 4), (std::vector<float>{0, 1, 0, 2})) << "exact on one rank";
    const auto refuses = [&](const char* method, float* to, const char* what) {
      EXPECT_EQ(heddle_sparse_allreduce_coded(&in, to, method, 0, nullptr, comm), HEDDLE_ERR_ARGUMENT);
      EXPECT_TRUE(message_has(what)) << heddle_last_error();
    };
    refuses("zip", dense, "\"zip\" is not a compression");
    refuses("topk:0.5", dense, "leaves values out");
    refuses("qsgd:8", nullptr, "dense is null");
    indices[1] = 1;
    refuses("qsgd:8", dense, "index");
    indices[1] = 4;
    refuses("qsgd:8", dense, "index");
    in.value_type = HEDDLE_INT32;
    refuses("qsgd:8", dense, "of float32, not int32");
    in.dimension = UINT64_MAX;
    in.index_type = HEDDLE_INDEX64;
    refuses("qsgd:8", dense, "more than memory can hold");
    EXPECT_EQ(heddle_sparse_allreduce_coded(nullptr, dense, "qsgd:8", 0, nullptr, comm), HEDDLE_ERR_ARGUMENT);
    double bound = 0;
    EXPECT_EQ(heddle_sparse_coded_error_bound("topk:0.1", 2, 1, &bound), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_sparse_coded_error_bound("qsgd:8", 0, 1, &bound), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_sparse_coded_error_bound("qsgd:8", 2, 1, nullptr), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_sparse_coded_error_bound("qsgd:8", 1, 1, &bound), HEDDLE_OK);
    EXPECT_EQ(bound, 0);
    EXPECT_EQ(heddle_sparse_coded_error_bound("terngrad", 4, 2, &bound), HEDDLE_OK);
    EXPECT_NEAR(bound, 8, 1e-4);
  });
}

TEST(CompressApi, WrongArgumentsAreNamed) {
  on_ranks(1, [](heddle_comm_t comm, int) {
    float value = 1;
    float result = 0;
    EXPECT_EQ(heddle_compressed_allreduce(&value, &result, 1, "zip", 0, nullptr, comm), HEDDLE_ERR_ARGUMENT);
    EXPECT_TRUE(message_has("\"zip\" is not a compression; there are fp16")) << heddle_last_error();
    EXPECT_EQ(heddle_compressed_allreduce(&value, &result, 1, nullptr, 0, nullptr, comm),
              HEDDLE_ERR_ARGUMENT);
    heddle_residual_t residual = nullptr;
    ASSERT_EQ(heddle_residual_create(2, &residual), HEDDLE_OK);
    EXPECT_EQ(heddle_compressed_allreduce(&value, &result, 1, "topk:0.5", 0, residual, comm),
              HEDDLE_ERR_ARGUMENT);
    EXPECT_TRUE(message_has("the residual has 2 values and count is 1"));
    EXPECT_EQ(heddle_residual_destroy(residual), HEDDLE_OK);
    EXPECT_EQ(heddle_residual_destroy(nullptr), HEDDLE_OK);
    EXPECT_EQ(heddle_residual_load("/no/such/file", 1, &residual), HEDDLE_ERR_SYSTEM);
    EXPECT_EQ(heddle_residual_create(SIZE_MAX, &residual), HEDDLE_ERR_ARGUMENT);
    EXPECT_EQ(heddle_residual_load("", 1, &residual), HEDDLE_ERR_ARGUMENT);
    EXPECT_TRUE(message_has("path is empty")) << heddle_last_error();
    double bound = 0;
    EXPECT_EQ(heddle_compression_error_bound("fp16", 0, 1, &bound), HEDDLE_ERR_ARGUMENT);
    EXPECT_TRUE(message_has("ranks is 0")) << heddle_last_error();
    EXPECT_EQ(heddle_compression_error_bound("fp16", 2, -1, &bound), HEDDLE_ERR_ARGUMENT);
    EXPECT_TRUE(message_has("largest is -1")) << heddle_last_error();
    EXPECT_EQ(heddle_compression_error_bound("fp16", 2, NAN, &bound), HEDDLE_ERR_ARGUMENT);
    EXPECT_TRUE(message_has("largest is nan")) << heddle_last_error();
    EXPECT_EQ(heddle_compression_error_bound("topk:0.1", 2, 1, &bound), HEDDLE_OK);
    EXPECT_TRUE(std::isinf(bound));
    EXPECT_EQ(heddle_compression_error_bound("qsgd:8", INT_MAX, 1, &bound), HEDDLE_OK);
    EXPECT_TRUE(std::isfinite(bound));
  });
}

}  // namespace
