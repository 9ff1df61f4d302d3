#include "sparse/bandwidth.hpp"

#include <cstdint>
#include <numeric>
#include <vector>

#include "common/pacing.hpp"
#include "common/stats.hpp"
#include "heddle/heddle_sparse.h"

namespace heddle::bench {
namespace {

constexpr std::size_t kMessageBytes = std::size_t{16} << 20;
constexpr int kWindow = 4;
constexpr int kLeastWindows = 5;
constexpr int kMostWindows = 200;

class Wire {
 public:
  Wire(const Job& job, heddle_comm_t comm)
      : job_(job), comm_(comm), last_(job.size() - 1), message_(ends() ? kMessageBytes : 1, 1) {}

  // Seconds, as rank 0 sees them; ranks in between have no part.
  double window() {
    const double start = now();
    for (int i = 0; i < kWindow && ends(); ++i)
      check(job_.leads() ? heddle_send(message_.data(), kMessageBytes, last_, comm_)
                         : heddle_recv(message_.data(), kMessageBytes, 0, comm_));
    if (job_.leads()) check(heddle_recv(&answer_, 1, last_, comm_));
    if (job_.rank() == last_) check(heddle_send(&answer_, 1, 0, comm_));
    return now() - start;
  }

  // Rank 0's number on all ranks.
  double shared(double value) {
    check(heddle_bcast(&value, sizeof value, 0, comm_));
    return value;
  }

 private:
  bool ends() const { return job_.leads() || job_.rank() == job_.size() - 1; }
  void check(heddle_status status) const {
    if (status != HEDDLE_OK) job_.abort(std::string("--wire: ") + heddle_last_error());
  }

  const Job& job_;
  heddle_comm_t comm_;
  int last_;
  std::vector<char> message_;
  char answer_ = 0;
};

}  // namespace

double measure_wire(const Job& job, heddle_comm_t comm, double seconds) {
  Wire wire(job, comm);
  wire.window();
  const long windows = calls_within(seconds, wire.shared(wire.window()), kLeastWindows, kMostWindows);
  std::vector<double> times;
  for (long i = 0; i < windows; ++i)
    times.push_back(wire.window());
  return wire.shared(kMessageBytes * kWindow / median(times));
}

// heddle does not tell; but a message that says where entries lie is shorter than their values.
bool streams_are_sent(const Job& job, heddle_comm_t comm) {
  constexpr std::size_t kEntries = 16384;  // few enough for streams, of so many elements
  constexpr std::uint64_t kDimension = std::uint64_t{1} << 24;
  constexpr std::size_t kLeastSent = kEntries * sizeof(float) / 2;
  std::vector<std::uint32_t> indices(kEntries);
  std::iota(indices.begin(), indices.end(), 0U);
  std::vector<float> values(kEntries, 1.F);
  std::vector<std::uint32_t> sum_indices(kEntries);
  std::vector<float> sum_values(kEntries);
  const heddle_sparse in{kDimension,    kEntries, HEDDLE_INDEX32, HEDDLE_FLOAT32, indices.data(),
                         values.data(), 0,        nullptr,        nullptr};
  heddle_sparse sum{kDimension,        0,        HEDDLE_INDEX32, HEDDLE_FLOAT32, sum_indices.data(),
                    sum_values.data(), kEntries, nullptr,        nullptr};
  heddle_sparse_stats stats{};
  heddle_status status = heddle_sparse_allreduce(&in, &sum, HEDDLE_SUM, comm);
  if (status == HEDDLE_OK) status = heddle_sparse_get_stats(comm, &stats);
  if (status != HEDDLE_OK) job.abort(std::string("heddle_sparse_allreduce: ") + heddle_last_error());
  // Half of them at the least, where two ranks sum a half each. Nothing where all go as one vector, of which
  // none are counted.
  return job.maximum(static_cast<double>(stats.bytes_sent)) >= static_cast<double>(kLeastSent);
}

}  // namespace heddle::bench
