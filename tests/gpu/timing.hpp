// How the programs that measure kernels do it: some kinds of work by turns, so that what the machine does
// meanwhile meets all, each timed by events on the default stream.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "cuda_memory.hpp"
#include "gpu/driver.hpp"

namespace heddle::test {

inline constexpr std::chrono::milliseconds kWarmUp{300};
inline constexpr int kSamples = 31;
inline constexpr int kRepeats = 8;  // in one sample
// Of 31 samples in order, between these two the median lies with a probability of 97%.
inline constexpr int kLow = 9;
inline constexpr int kHigh = 21;

struct Work {
  std::string name;
  double bytes;  // that one of it counts for
  std::function<Status()> start;
  std::vector<double> samples{};  // GB/s

  double at(int rank) const { return samples[static_cast<std::size_t>(rank)]; }
  double median() const { return at(kSamples / 2); }
};

class Timing {
 public:
  // Both outlive this; the calling thread has a current context.
  Timing(const TestDriver& cuda, const gpu::Driver& driver) : cuda_(cuda), driver_(driver) {
    cuda_.call<PFN_cuEventCreate_v2000>("cuEventCreate", &begin_, 0U);
    cuda_.call<PFN_cuEventCreate_v2000>("cuEventCreate", &end_, 0U);
  }
  Timing(const Timing&) = delete;
  Timing& operator=(const Timing&) = delete;
  ~Timing() {
    driver_.EventDestroy(begin_);
    driver_.EventDestroy(end_);
  }

  // Each a single time, for a profiler. False, with the reason told, where one cannot be started.
  bool once(const std::vector<Work>& all) {
    for (const Work& work : all) {
      if (!start(work)) return false;
    }
    driver_.EventRecord(end_, gpu::default_stream());
    driver_.EventSynchronize(end_);
    return true;
  }
  // Likewise.
  bool measure(std::vector<Work>* all) {
    // Kernels are loaded, and an idle GPU's clocks take a while to rise.
    const auto warm = Clock::now() + kWarmUp;
    do {
      if (!round(all)) return false;
    } while (Clock::now() < warm);
    for (Work& work : *all)
      work.samples.clear();
    for (int i = 0; i < kSamples; ++i) {
      if (!round(all)) return false;
    }
    for (Work& work : *all)
      std::sort(work.samples.begin(), work.samples.end());
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool round(std::vector<Work>* all) {
    return std::all_of(all->begin(), all->end(), [this](Work& work) { return sample(&work); });
  }
  static bool start(const Work& work) {
    const Status status = work.start();
    if (!status.ok()) std::fprintf(stderr, "%s: %s\n", work.name.c_str(), status.message().c_str());
    return status.ok();
  }
  bool sample(Work* work) {
    driver_.EventRecord(begin_, gpu::default_stream());
    for (int i = 0; i < kRepeats; ++i) {
      if (!start(*work)) return false;
    }
    driver_.EventRecord(end_, gpu::default_stream());
    driver_.EventSynchronize(end_);
    float milliseconds = 0;
    cuda_.call<PFN_cuEventElapsedTime_v2000>("cuEventElapsedTime", &milliseconds, begin_, end_);
    work->samples.push_back(work->bytes * kRepeats / static_cast<double>(milliseconds) / 1e6);
    return true;
  }

  const TestDriver& cuda_;
  const gpu::Driver& driver_;
  CUevent begin_ = nullptr;
  CUevent end_ = nullptr;
};

// Names have nothing in them that JSON would want escaped.
inline std::string json_of(std::size_t bytes, const std::vector<Work>& all) {
  std::string text;
  char line[256];
  for (const Work& work : all) {
    std::snprintf(line, sizeof line,
                  R"({"bytes": %zu, "what": "%s", "gb_s": %.2f, "low": %.2f, "high": %.2f})", bytes,
                  work.name.c_str(), work.median(), work.at(kLow), work.at(kHigh));
    text += std::string(text.empty() ? "" : ",\n    ") + line;
  }
  return text;
}

}  // namespace heddle::test
