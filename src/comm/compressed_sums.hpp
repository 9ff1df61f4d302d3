// Sums that may lose precision: through a codec, or of some entries, with error feedback.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/recently_used.hpp"
#include "base/status.hpp"
#include "comm/communicator.hpp"
#include "compress/coded_run.hpp"
#include "compress/coded_streams.hpp"
#include "select/catalog.hpp"

namespace heddle {

class CommunicatorImpl;

// A part of CommunicatorImpl, in whose turn every call is.
class CompressedSums {
 public:
  explicit CompressedSums(CommunicatorImpl& comm) : comm_(comm) {}

  Status sum(const CompressedJob& job);
  Status sum_streams(const CodedSparseJob& job);

  // What this rank draws in the next call.
  std::uint64_t codec_seed(std::uint64_t seed) const;
  // That was a call.
  void note() { ++calls_; }
  CodedPlan plan(std::size_t count, const CodecSettings& settings) {
    return coded_run().plan(count, settings);
  }

 private:
  Status sum_aligned(const CompressedJob& job);
  Status agree_on(const CompressedJob& job);
  std::uint64_t call_seed(std::uint64_t seed) const;
  Status run_coded(const CompressedJob& job, const float* in, std::uint64_t seed);
  Choice coding(bool of_streams) const;
  CodedRun& coded_run();
  Status run_selected(const CompressedJob& job, const float* in, std::uint64_t seed);
  Status exchange_selected(const CompressedJob& job, const Result<SparseView>& entries);
  Status run_random(const CompressedJob& job, const float* in, std::uint64_t seed);

  CommunicatorImpl& comm_;
  static constexpr std::size_t kMostRuns = 4;  // each has memory for its vector
  RecentlyUsed<const Schedule*, std::unique_ptr<CodedRun>> coded_{kMostRuns};
  RecentlyUsed<const Schedule*, std::unique_ptr<CodedStreams>> coded_streams_{kMostRuns};
  std::vector<float> compensated_;
  std::vector<float> lost_;  // in this call: the residual changes with sums that are complete alone
  std::uint64_t calls_ = 0;  // so far: a part of their seeds
};

}  // namespace heddle
