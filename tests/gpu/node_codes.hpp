// Allreduces through codecs in tests of ranks that are threads (node_codes_test.cpp): a rank's buffers, and
// what is right, made of the host's codecs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "compress/compression.hpp"
#include "cuda_memory.hpp"
#include "heddle/heddle_compress.h"
#include "host_sparse.hpp"
#include "node_ranks_of_threads.hpp"

namespace heddle::test {

using Vectors = std::vector<std::vector<float>>;  // of all ranks

// All ranks' side of it on the host, which each rank knows.
class Reference {
 public:
  Reference(int ranks, std::size_t n) : left_out_(static_cast<std::size_t>(ranks), std::vector<float>(n)) {}

  // The sum of one call, and what it leaves out. `call`: how many compressed allreduces the communicator has
  // had.
  std::vector<float> step(const char* method, std::uint64_t seed, std::uint64_t call, const Vectors& all) {
    gpu::Quantiser how = quantiser_of(parse_compression(method).value().codec);
    const std::uint64_t drawn = mix64(seed ^ mix64(call));
    std::vector<float> sum;
    for (std::size_t r = 0; r < all.size(); ++r) {
      how.seed = mix64(drawn + r);
      const HostCodes coded = host_quantise(how, 0, all[r], &left_out_[r]);
      if (r == 0) sum = coded.decoded;
      for (std::size_t i = 0; r > 0 && i < sum.size(); ++i)
        sum[i] += coded.decoded[i];
    }
    return sum;
  }
  std::vector<float>& left_out(int rank) { return left_out_[static_cast<std::size_t>(rank)]; }

 private:
  static gpu::Quantiser quantiser_of(const CodecSettings& how) {
    switch (how.codec) {
      case Codec::f16:
        return {16};
      case Codec::bf16:
        return {16, 0, 0, true};
      case Codec::qsgd8:
        return {8, how.bucket};
      case Codec::qsgd4:
        return {4, how.bucket};
      case Codec::sign:
        return {1, how.bucket};
      default:
        return {2, how.bucket};
    }
  }

  Vectors left_out_;
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  const auto bits = [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), bits);
}

inline Vectors gradients(int ranks, std::size_t n, int step) {
  Vectors all;
  for (int r = 0; r < ranks; ++r)
    all.push_back(gradient(n, r, step));
  return all;
}

// What served the last call.
inline std::string algorithm(heddle_comm_t comm) {
  heddle_sparse_stats stats = {};
  EXPECT_EQ(heddle_sparse_get_stats(comm, &stats), HEDDLE_OK);
  return stats.algorithm;
}

// A rank's buffers, residual and reference, from call to call.
class CodedSteps {
 public:
  // `shift`: values before the vectors.
  CodedSteps(Node& node, heddle_comm_t comm, int rank, int device, std::size_t n, std::size_t shift = 0)
      : node_(node),
        comm_(comm),
        rank_(rank),
        n_(n),
        shift_(shift),
        in_(*driver, kind_of(rank, 0), (n + shift) * sizeof(float), device),
        out_(*driver, kind_of(rank, 3), (n + shift) * sizeof(float), device),
        reference_(node.ranks(), n) {
    EXPECT_EQ(heddle_residual_create(n, &residual_), HEDDLE_OK);
  }
  CodedSteps(const CodedSteps&) = delete;
  CodedSteps& operator=(const CodedSteps&) = delete;
  ~CodedSteps() { heddle_residual_destroy(residual_); }

  // `call`: how many compressed allreduces there were before, which it adds to.
  void step(const char* method, std::uint64_t seed, std::uint64_t* call, const Vectors& all, bool keeps,
            bool in_place) {
    Reference nothing(node_.ranks(), n_);
    const std::vector<float> wanted = (keeps ? reference_ : nothing).step(method, seed, (*call)++, all);
    put(all, in_place);
    const int kernels = node_.counted("cuLaunchKernel",
                                      [&] { OK(give(method, seed, keeps ? residual_ : nullptr, in_place)); });
    EXPECT_GT(kernels, 0) << method;
    EXPECT_EQ(algorithm(comm_), "gpu");
    ASSERT_TRUE(same_bits(result(), wanted)) << method << " of " << n_ << " on rank " << rank_;
  }
  void put(const Vectors& all, bool in_place) const {
    const std::vector<float>& mine = all[static_cast<std::size_t>(rank_)];
    (in_place ? out_ : in_).put(mine.data(), n_ * sizeof(float), shift_ * sizeof(float));
  }
  heddle_status give(const char* method, std::uint64_t seed, heddle_residual_t residual, bool in_place,
                     std::optional<std::size_t> count = {}) const {
    return heddle_compressed_allreduce(
        in_place ? static_cast<const float*>(HEDDLE_IN_PLACE) : in_.as<float>() + shift_, out(),
        count.value_or(n_), method, seed, residual, comm_);
  }
  float* out() const { return out_.as<float>() + shift_; }
  std::vector<float> result() const {
    std::vector<float> got(n_);
    out_.get(got.data(), n_ * sizeof(float), shift_ * sizeof(float));
    return got;
  }
  void compare_residual() {
    ASSERT_TRUE(same_bits(left_out(), reference_.left_out(rank_)))
        << "what rank " << rank_ << " left out of " << n_;
  }
  // The values' address is asked for once; from then on they are there after every call.
  std::vector<float> left_out() {
    std::size_t count = n_;
    if (values_ == nullptr) {
      EXPECT_EQ(heddle_residual_values(residual_, &values_, &count), HEDDLE_OK);
    }
    EXPECT_EQ(count, n_);
    return {values_, values_ + n_};
  }
  heddle_residual_t residual() const { return residual_; }
  Reference& reference() { return reference_; }

 private:
  Node& node_;
  const heddle_comm_t comm_;
  const int rank_;
  const std::size_t n_;
  const std::size_t shift_;
  const TestMemory in_;
  const TestMemory out_;
  Reference reference_;
  heddle_residual_t residual_ = nullptr;
  float* values_ = nullptr;
};

}  // namespace heddle::test
