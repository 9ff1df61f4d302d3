// How fast the ranks of a node sum floats on one GPU, and sparse vectors of floats, and such in codes of a
// byte, beside dense ones, as processes and as threads, in blocking calls and on streams, beside sums by
// images on the host (what a host MPI between two copies does, done by heddle's own shared memory) and beside
// the GPU's own copies, in the same run: node_speed LIBCUDA [--mib N] [--json FILE] [--mps], which adds to a
// file of fold_bandwidth's. --mps: processes alone, for where MPS serves them. On the double of CUDA's driver
// it shows that it works, and its figures mean nothing.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "goals.hpp"
#include "json_file.hpp"
#include "node_ranks.hpp"

namespace heddle::test {
namespace {

constexpr int kRanks = 2;
constexpr int kSamples = 21;
constexpr std::size_t kRows = 24;

struct Row {
  char what[64];
  std::size_t bytes;
  double gpu_us;
  double stream_us;  // on a stream, with waiting for it
  double staged_us;
};
// Of vectors of `n` floats, of which one in a hundred is sent, or all through a codec.
struct SparseRow {
  std::size_t n = 0;
  double dense_us = 0;
  double merged_us = 0;    // entries that are there already; the result is entries too
  double sparse_us = 0;    // the same with a dense result
  double largest_us = 0;   // those of largest magnitude
  double residual_us = 0;  // and what is left out kept, on the GPU
  double codes_us = 0;     // all of them, in a byte each; what is left out kept
};
// What rank 0 found, where the first process sees it.
struct Findings {
  double copy_gb_s = 0;  // read and written
  std::size_t count = 0;
  Row rows[kRows]{};
  SparseRow sparse;
};

class Bench {
 public:
  Bench(NodeRank& rank, std::size_t most)
      : rank_(rank), in_(rank.driver(), Memory::device, most), out_(rank.driver(), Memory::device, most) {
    rank.driver().call<PFN_cuStreamCreate_v2000>("cuStreamCreate", &stream_,
                                                 static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
    const std::vector<float> ones(most / sizeof(float), 1.0F);
    in_.put(ones.data(), most);
    out_.put(ones.data(), most);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() { rank_.driver().call<PFN_cuStreamDestroy_v4000>("cuStreamDestroy_v2", stream_); }
  bool begin() { return rank_.begin(out_.as<float>()); }
  // An idle GPU's clocks take a while to rise.
  void warm_up(std::size_t bytes) const;
  bool measure(const char* what, std::size_t bytes, Findings* findings);
  // Overwrites the input.
  bool measure_sparse(std::size_t n, Findings* findings);
  // Of the same with a sparse result; *us: how long it took.
  bool measure_merge(const gpu::Entries& entries, std::size_t n, double* us);
  double copy_gb_s(std::size_t bytes) const;

 private:
  // The median of what `sum` takes, in microseconds; negative: it failed.
  template <typename Sum>
  double time(const Sum& sum);
  bool is_right(std::size_t count) const;

  NodeRank& rank_;
  const TestMemory in_;
  const TestMemory out_;
  CUstream stream_ = nullptr;
};

template <typename Sum>
double Bench::time(const Sum& sum) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> samples;
  for (int i = 0; i < kSamples + 2; ++i) {
    rank_.barrier();
    const Clock::time_point begin = Clock::now();
    if (!sum()) return -1;
    if (i >= 2) samples.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::sort(samples.begin(), samples.end());
  return samples[kSamples / 2];
}

bool Bench::is_right(std::size_t count) const {
  std::vector<float> sums(count);
  out_.get(sums.data(), count * sizeof(float));
  return std::all_of(sums.begin(), sums.end(), [](float sum) { return sum == float{kRanks}; });
}

bool Bench::measure(const char* what, std::size_t bytes, Findings* findings) {
  const std::size_t count = bytes / sizeof(float);
  Row row = {};
  std::snprintf(row.what, sizeof row.what, "%s", what);
  row.bytes = bytes;
  row.gpu_us = time([&] {
    const Result<bool> served = rank_.path().allreduce(in_.data(), out_.data(), count, DType::f32, Op::sum);
    return served.ok() && served.value();
  });
  bool right = row.gpu_us >= 0 && is_right(count);
  const auto synchronise = rank_.driver().find<PFN_cuStreamSynchronize_v2000>("cuStreamSynchronize");
  row.stream_us = time([&] {
    const Status given =
        rank_.path().allreduce_on(rank_.gpu(), stream_, in_.data(), out_.data(), count, DType::f32, Op::sum);
    return synchronise(stream_) == CUDA_SUCCESS && given.ok();
  });
  right = right && row.stream_us >= 0 && is_right(count);
  row.staged_us = time([&] { return rank_.staged_sum(in_.as<float>(), out_.as<float>(), count).ok(); });
  right = right && row.staged_us >= 0 && is_right(count);
  if (!right) std::printf("  wrong: %s, %zu bytes\n", what, bytes);
  if (rank_.rank() == 0 && findings->count < kRows) findings->rows[findings->count++] = row;
  return right;
}

// One entry in each hundred places, somewhere.
std::vector<std::uint32_t> one_in_a_hundred(std::size_t n, int rank) {
  std::vector<std::uint32_t> indices(n / 100);
  for (std::size_t i = 0; i < indices.size(); ++i)
    indices[i] = static_cast<std::uint32_t>(100 * i + (37 * i + 13 * static_cast<std::size_t>(rank)) % 100);
  return indices;
}

// About normal, none of them 0.
std::vector<float> bell(std::size_t n) {
  std::vector<float> values(n);
  std::uint32_t drawn = 1;
  for (float& value : values) {
    value = 1e-3F;
    for (int i = 0; i < 4; ++i) {
      drawn = drawn * 1664525U + 1013904223U;
      value += static_cast<float>(drawn >> 8) * 0x1p-24F - 0.5F;
    }
  }
  return values;
}

bool Bench::measure_merge(const gpu::Entries& entries, std::size_t n, double* us) {
  const std::size_t most = kRanks * entries.count;
  const TestMemory indices(rank_.driver(), Memory::device, most * sizeof(std::uint32_t));
  const TestMemory values(rank_.driver(), Memory::device, most * sizeof(float));
  const DeviceMerge merge{entries, DType::f32, Op::sum, n, {indices.data(), values.data(), most, false}};
  DeviceTraffic traffic;
  DeviceMerged merged;
  *us = time([&] {
    const Result<bool> served = rank_.path().sparse_merge(merge, n, &traffic, &merged);
    return served.ok() && served.value() && merged.is_placed;
  });
  std::vector<float> sums(std::min(merged.entries.count, most));
  values.get(sums.data(), sums.size() * sizeof(float));
  const double sum = std::accumulate(sums.begin(), sums.end(), 0.0);
  return *us >= 0 && sum == static_cast<double>(most);
}

bool Bench::measure_sparse(std::size_t n, Findings* findings) {
  const std::size_t count = n / 100;
  const TestMemory indices(rank_.driver(), Memory::device, count * sizeof(std::uint32_t));
  const TestMemory values(rank_.driver(), Memory::device, count * sizeof(float));
  indices.put(one_in_a_hundred(n, rank_.rank()).data(), count * sizeof(std::uint32_t));
  values.put(std::vector<float>(count, 1.0F).data(), count * sizeof(float));
  const auto serve = [](const Result<bool>& served) { return served.ok() && served.value(); };
  DeviceTraffic traffic;
  SparseRow row;
  row.n = n;
  row.dense_us =
      time([&] { return serve(rank_.path().allreduce(in_.data(), out_.data(), n, DType::f32, Op::sum)); });
  const DeviceEntries entries{
      {indices.data(), values.data(), count, false}, DType::f32, Op::sum, out_.data(), n};
  row.sparse_us = time([&] { return serve(rank_.path().sparse_sum(entries, n, &traffic)); });
  const bool merged = measure_merge(entries.in, n, &row.merged_us);
  std::vector<float> sums(n);
  out_.get(sums.data(), n * sizeof(float));
  const double sum = std::accumulate(sums.begin(), sums.end(), 0.0);
  bool right =
      merged && row.dense_us >= 0 && row.sparse_us >= 0 && sum == static_cast<double>(kRanks * count);

  in_.put(bell(n).data(), n * sizeof(float));
  PlacedResidual residual{Residual(n)};
  for (PlacedResidual* kept : {static_cast<PlacedResidual*>(nullptr), &residual}) {
    const DeviceLargest largest{in_.as<float>(), out_.as<float>(), n, count, kept};
    const double us = time([&] { return serve(rank_.path().largest_sum(largest, n, &traffic)); });
    (kept == nullptr ? row.largest_us : row.residual_us) = us;
    right = right && us >= 0;
  }
  const CodecSettings in_bytes{Codec::qsgd8, 1024, static_cast<std::uint64_t>(rank_.rank())};
  row.codes_us = time([&] {
    return serve(
        rank_.path().coded_sum({in_.as<float>(), out_.as<float>(), n, in_bytes, &residual}, n, &traffic));
  });
  right = right && row.codes_us >= 0;
  if (!right) std::printf("  wrong: sparse sums of %zu\n", n);
  if (rank_.rank() == 0) findings->sparse = row;
  return right;
}

void Bench::warm_up(std::size_t bytes) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  while (std::chrono::steady_clock::now() < end)
    copy_gb_s(bytes);
}

// Of one rank, while the others wait.
double Bench::copy_gb_s(std::size_t bytes) const {
  constexpr int kTimes = 20;
  const TestDriver& driver = rank_.driver();
  const auto from = reinterpret_cast<CUdeviceptr>(in_.data());
  const auto to = reinterpret_cast<CUdeviceptr>(out_.data());
  CUevent events[2];
  for (CUevent& event : events)
    driver.call<PFN_cuEventCreate_v2000>("cuEventCreate", &event, 0U);
  for (int i = -3; i < kTimes; ++i) {
    if (i == 0) driver.call<PFN_cuEventRecord_v2000>("cuEventRecord", events[0], CU_STREAM_LEGACY);
    driver.call<PFN_cuMemcpyDtoDAsync_v3020>("cuMemcpyDtoDAsync_v2", to, from, bytes, CU_STREAM_LEGACY);
  }
  driver.call<PFN_cuEventRecord_v2000>("cuEventRecord", events[1], CU_STREAM_LEGACY);
  driver.call<PFN_cuEventSynchronize_v2000>("cuEventSynchronize", events[1]);
  float milliseconds = 0;
  driver.call<PFN_cuEventElapsedTime_v2000>("cuEventElapsedTime", &milliseconds, events[0], events[1]);
  for (CUevent event : events)
    driver.call<PFN_cuEventDestroy_v4000>("cuEventDestroy_v2", event);
  return 2.0 * kTimes * static_cast<double>(bytes) / static_cast<double>(milliseconds) / 1e6;
}

// Of `ranks` the bytes that must be read and written: by threads everybody's input and output; by processes
// the way through the scratch as well, and everybody reads all.
double bytes_moved(const Row& row, bool threads) {
  const double n = static_cast<double>(row.bytes) * kRanks;
  return threads ? 2 * n : (2 + kRanks + 1) * n;
}

double bound_us(const Row& row, const Findings& findings, bool threads) {
  return bytes_moved(row, threads) / findings.copy_gb_s / 1e3;
}

void print(const char* title, const Findings& findings, bool threads) {
  if (findings.count == 0) {
    std::printf("%s: not measured\n", title);
    return;
  }
  std::printf(
      "%s, sum of float32, us (median of %d); the GPU's own copy of the longest: %.0f GB/s read and "
      "written\n",
      title, kSamples, findings.copy_gb_s);
  for (std::size_t i = 0; i < findings.count; ++i) {
    const Row& row = findings.rows[i];
    std::printf(
        "  %-28s %10zu B %10.1f by the GPU, %10.1f on a stream, %10.1f by the host (%.1f times); %.2f and "
        "%.2f "
        "times its bytes at the copy's speed\n",
        row.what, row.bytes, row.gpu_us, row.stream_us, row.staged_us, row.staged_us / row.gpu_us,
        row.gpu_us / bound_us(row, findings, threads), row.stream_us / bound_us(row, findings, threads));
  }
  const SparseRow& s = findings.sparse;
  std::printf(
      "  1%% of %zu floats: dense %.1f, sparse %.1f, sparse with a dense result %.1f, the largest %.1f, with "
      "a "
      "residual %.1f; all in a byte each, with a residual, %.1f (%.2f times as long as dense)\n",
      s.n, s.dense_us, s.merged_us, s.sparse_us, s.largest_us, s.residual_us, s.codes_us,
      s.codes_us / s.dense_us);
}

std::string json_of(const Findings& findings, bool threads) {
  std::string text;
  char line[256];
  for (std::size_t i = 0; i < findings.count; ++i) {
    const Row& row = findings.rows[i];
    std::snprintf(
        line, sizeof line,
        R"({"what": "%s", "ranks": %d, "bytes": %zu, "gpu_us": %.2f, "stream_us": %.2f, "staged_us": %.2f, "bytes_bound_us": %.2f})",
        row.what, kRanks, row.bytes, row.gpu_us, row.stream_us, row.staged_us,
        bound_us(row, findings, threads));
    text += std::string(text.empty() ? "" : ",\n    ") + line;
  }
  return text;
}

std::string sparse_json_of(const char* what, const SparseRow& row) {
  char line[320];
  std::snprintf(
      line, sizeof line,
      R"({"what": "%s", "ranks": %d, "elements": %zu, "density": 0.01, "dense_us": %.2f, "merged_us": %.2f, "sparse_us": %.2f, "largest_us": %.2f, "residual_us": %.2f, "qsgd8_us": %.2f})",
      what, kRanks, row.n, row.dense_us, row.merged_us, row.sparse_us, row.largest_us, row.residual_us,
      row.codes_us);
  return line;
}

// Sparse vectors are so on all sides. Whatever there is: processes may not reach each other's memory.
void print_goals(const Findings& processes, const Findings& threads, const char* where) {
  char what[112];
  if (threads.count > 0) {
    const Row& small = threads.rows[0];
    const Row& longest = threads.rows[threads.count - 1];
    const double bound = bound_us(longest, threads, true);
    std::snprintf(what, sizeof what, "two threads, %zu B on a stream, waited for, us", small.bytes);
    print_goal(what, small.stream_us, "under 12", small.stream_us < 12);
    for (const bool on_stream : {false, true}) {
      const double times = (on_stream ? longest.stream_us : longest.gpu_us) / bound;
      std::snprintf(what, sizeof what, "two threads, %zu B%s, over the bytes bound", longest.bytes,
                    on_stream ? " on a stream" : "");
      print_goal(what, times, "up to 1.5", times <= 1.5);
    }
  }
  // With the scratch that they have by default: the rows of other sizes come later.
  for (std::size_t i = 0; i < processes.count; ++i) {
    const Row& row = processes.rows[i];
    if (i + 1 < processes.count && row.bytes < processes.rows[i + 1].bytes) continue;
    std::snprintf(what, sizeof what, "two processes%s, %zu B, times faster than staged", where, row.bytes);
    print_goal(what, row.staged_us / row.gpu_us, "5.9 or more", row.staged_us >= 5.9 * row.gpu_us);
    break;
  }
  for (const Findings* one : {&processes, &threads}) {
    if (one->sparse.n == 0) continue;
    std::snprintf(what, sizeof what, "two %s%s, 1%% of %zu, times faster than dense",
                  one == &threads ? "threads" : "processes", where, one->sparse.n);
    print_goal(what, one->sparse.dense_us / one->sparse.merged_us, "3 or more",
               one->sparse.dense_us >= 3 * one->sparse.merged_us);
  }
}

class Shared {
 public:
  Shared() {
    void* const at =
        mmap(nullptr, sizeof(Findings), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) std::abort();
    findings_ = new (at) Findings;
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { munmap(findings_, sizeof(Findings)); }
  Findings* operator->() const { return findings_; }
  Findings* get() const { return findings_; }

 private:
  Findings* findings_;
};

bool measure_all(NodeRank& rank, std::size_t bytes, const char* what, bool longest_alone,
                 Findings* findings) {
  Bench bench(rank, bytes);
  if (!bench.begin()) return false;
  bench.warm_up(bytes);
  bool right = true;
  for (std::size_t size = 8; size < bytes && !longest_alone; size *= 32)
    right = bench.measure(what, size, findings) && right;
  right = bench.measure(what, bytes, findings) && right;
  if (rank.rank() == 0) findings->copy_gb_s = bench.copy_gb_s(bytes);
  rank.barrier();
  if (!longest_alone) right = bench.measure_sparse(bytes / sizeof(float), findings) && right;
  return right;
}

bool write(const char* json, const Findings& processes, const Findings& threads, bool mps) {
  std::string rows = json_of(processes, false);
  std::string sparse = sparse_json_of("processes", processes.sparse);
  if (!mps) {
    rows += ",\n    " + json_of(threads, true);
    sparse += ",\n    " + sparse_json_of("threads", threads.sparse);
  }
  return add_to_json(json, mps ? "node_mps" : "node", rows) &&
         add_to_json(json, mps ? "node_sparse_mps" : "node_sparse", sparse);
}

int run(int argc, char** argv) {
  std::size_t bytes = std::size_t{64} << 20;
  const char* json = nullptr;
  const bool mps = std::strcmp(argv[argc - 1], "--mps") == 0;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--mib") == 0)
      bytes = static_cast<std::size_t>(std::atof(argv[i + 1]) * 0x1p20) / 4096 * 4096;
    if (std::strcmp(argv[i], "--json") == 0) json = argv[i + 1];
  }
  bool right = true;
  const Shared processes;
  // By the default's size of scratch, and for the longest vector by others.
  for (const std::size_t scratch : {bytes, bytes / 4, 2 * bytes}) {
    char what[64];
    std::snprintf(what, sizeof what, "processes, scratch %.4g MiB", static_cast<double>(scratch) / 0x1p20);
    right = on_processes(argv[1], kRanks, scratch,
                         [&](NodeRank& rank) {
                           return measure_all(rank, bytes, what, scratch != bytes, processes.get());
                         }) &&
            right;
  }
  print("Two processes", *processes.get(), false);
  const Shared threads;
  if (!mps) {
    right = on_threads(
                argv[1], kRanks, bytes,
                [&](NodeRank& rank) { return measure_all(rank, bytes, "threads", false, threads.get()); }) &&
            right;
    print("Two threads", *threads.get(), true);
  }
  print_goals(*processes.get(), *threads.get(), mps ? " under MPS" : "");
  if (json != nullptr && !write(json, *processes.get(), *threads.get(), mps)) {
    std::printf("cannot write to %s\n", json);
    return 1;
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  return argc < 2 ? 2 : heddle::test::run(argc, argv);
}
