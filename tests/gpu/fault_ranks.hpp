// What the files of gpu_fault_test share: ranks that are processes and have a device each, on the double of
// CUDA's driver, and make each other's calls fail.
#pragma once

#include <cstddef>
#include <cstdio>
#include <initializer_list>
#include <string>

#include "cuda_streams.hpp"
#include "node_ranks.hpp"

namespace heddle::test {

inline const char* library = nullptr;

inline constexpr unsigned kLongest = 30;  // seconds
inline constexpr DeviceLimits kExchanging{std::size_t{4} << 20, std::size_t{64} << 10};

// These calls of this process's fail from now on; or no more.
inline void fail_calls(const NodeRank& rank, bool fails, std::initializer_list<const char*> names,
                       int error = CUDA_ERROR_ILLEGAL_ADDRESS) {
  const auto fail = rank.driver().find<void (*)(const char*, int, int)>("fake_cuda_fail");
  for (const char* name : names)
    fail(name, fails ? error : 0, fails ? 1 << 30 : 0);
}

inline bool expect(bool right, const NodeRank& rank, const std::string& what) {
  if (!right) std::printf("rank %d: %s\n", rank.rank(), what.c_str());
  return right;
}

// By three ranks' GPUs.
inline bool sum_is_right(NodeRank& rank, const TestWords& words) {
  words.set(rank.rank() + 1);
  const Result<bool> served =
      rank.path().allreduce(words.at(), words.at(), words.count(), DType::i32, Op::sum);
  const bool right = served.ok() && served.value() && words.value() == 6;
  return expect(right, rank, "a blocking sum is wrong: " + served.status().message());
}

inline Status sum_on(NodeRank& rank, const TestStream& stream, const TestWords& words) {
  return rank.path().allreduce_on(rank.gpu(), stream.get(), words.at(), words.at(), words.count(), DType::i32,
                                  Op::sum);
}

// `on`: blocking calls go by the GPUs all the same.
inline bool is_refused(NodeRank& rank, const Status& status, bool on) {
  return expect(status.code() == Code::unsupported && rank.path().on() == on, rank,
                "not refused as wanted: " + status.message());
}

}  // namespace heddle::test
