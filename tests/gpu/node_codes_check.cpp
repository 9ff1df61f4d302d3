#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "host_sparse.hpp"
#include "node_sparse_check.hpp"

namespace heddle::test {
namespace {

struct CodedSum {
  Codec codec;
  gpu::Quantiser as;  // which is the same
  std::size_t n;
};

// Of each rank its own.
std::uint64_t seed_of(int rank, int step) {
  return 1'000U * static_cast<unsigned>(step) + static_cast<unsigned>(rank);
}

bool check_case(NodeRank& rank, const CodedSum& c) {
  const TestMemory both(rank.driver(), Memory::device, c.n * sizeof(float));
  PlacedResidual residual{Residual(c.n)};
  std::vector<std::vector<float>> left_out(static_cast<std::size_t>(rank.size()), std::vector<float>(c.n));
  bool right = true;
  for (int step = 0; step < 3; ++step) {
    std::vector<float> wanted(c.n);
    for (int r = 0; r < rank.size(); ++r) {
      gpu::Quantiser how = c.as;
      how.seed = seed_of(r, step);
      const HostCodes coded =
          host_quantise(how, 0, gradient_of(r, c.n, step), &left_out[static_cast<std::size_t>(r)]);
      for (std::size_t i = 0; i < c.n; ++i)
        wanted[i] = r == 0 ? coded.decoded[i] : wanted[i] + coded.decoded[i];
    }
    both.put(gradient_of(rank.rank(), c.n, step).data(), c.n * sizeof(float));
    const CodecSettings how{c.codec, static_cast<std::uint32_t>(c.as.bucket), seed_of(rank.rank(), step)};
    DeviceTraffic traffic;
    const Result<bool> served =
        rank.path().coded_sum({both.as<float>(), both.as<float>(), c.n, how, &residual}, c.n, &traffic);
    right = say(rank, "a sum of codes", c.n, served, holds(both, wanted)) && right;
  }
  const Result<Residual*> values = residual.on_host();
  const std::vector<float>& mine = left_out[static_cast<std::size_t>(rank.rank())];
  const bool same =
      values.ok() && std::memcmp(values.value()->values().data(), mine.data(), c.n * sizeof(float)) == 0;
  if (!same) std::printf("  wrong: rank %d, what codes of %zu values left out\n", rank.rank(), c.n);
  return right && same;
}

}  // namespace

bool check_codes(NodeRank& rank) {
  bool right = true;
  // The last has more codes than half of the scratch has room for.
  for (const CodedSum& c :
       {CodedSum{Codec::qsgd4, {4}, 1'001}, CodedSum{Codec::ternary, {2, 100}, 100'003},
        CodedSum{Codec::sign, {1}, 100'003}, CodedSum{Codec::bf16, {16, 1024, 0, true}, 100'003},
        CodedSum{Codec::f16, {16}, 700'001}, CodedSum{Codec::qsgd8, {8}, 700'001}})
    right = check_case(rank, c) && right;
  return right;
}

bool check_overwritten_codes(NodeRank& rank) {
  constexpr std::size_t kCount = 5'000;
  const TestMemory both(rank.driver(), Memory::device, kCount * sizeof(float));
  if (!rank.begin(both.as<float>())) return false;
  // The second meeting carries where everybody's codes lie, behind a verdict.
  int meetings = 0;
  rank.before_meeting = [&](std::span<const std::uint64_t> words) {
    if (++meetings != 2 || rank.rank() != 1) return;
    const std::uint32_t no_scale = 0xFFFFFFFFU;
    rank.driver().put(static_cast<CUdeviceptr>(words[2]), &no_scale, sizeof no_scale);
  };
  DeviceTraffic traffic;
  const Result<bool> served = rank.path().coded_sum(
      {both.as<float>(), both.as<float>(), kCount, {Codec::qsgd8, 1024, 1}, nullptr}, 1, &traffic);
  rank.before_meeting = nullptr;
  const bool right = !served.ok() && served.status().code() == Code::internal &&
                     served.status().message().find("overwritten") != std::string::npos && !rank.path().on();
  if (!right) std::printf("  wrong: rank %d, codes that were overwritten\n", rank.rank());
  return right;
}

}  // namespace heddle::test
