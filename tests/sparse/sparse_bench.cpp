// Speed of the sparse kernels beside a plain merge and a copy. Not a test: it prints tables and judges
// nothing.
//
//   sparse_bench [milliseconds per figure]
//
// Figures are million entries a second, the entries of all inputs counted: medians of repeated runs on fresh
// output.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "sparse/convert.hpp"
#include "sparse/merge.hpp"
#include "sparse/threaded_fold.hpp"
#include "sparse/wire.hpp"

namespace heddle::bench {
namespace {

using Clock = std::chrono::steady_clock;

double budget_ms = 60;

// Median nanoseconds of one call.
template <class Call>
double median_ns(Call call) {
  call();
  std::vector<double> times;
  const auto start = Clock::now();
  do {
    const auto before = Clock::now();
    call();
    times.push_back(std::chrono::duration<double, std::nano>(Clock::now() - before).count());
  } while (std::chrono::duration<double, std::milli>(Clock::now() - start).count() < budget_ms ||
           times.size() < 3);
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

// Geometric gaps, or runs of 64 with gaps between them so that the density is the same.
template <typename Index>
std::vector<Index> pattern(std::uint64_t dimension, double density, bool clustered, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Index> indices;
  const std::uint64_t run = clustered ? 64 : 1;
  const double start = density / (static_cast<double>(run) * (1 - density) + density);
  std::geometric_distribution<std::uint64_t> gap(std::min(start, 1.0));
  std::uint64_t at = density < 1 ? gap(random) : 0;
  while (at < dimension) {
    for (std::uint64_t k = 0; k < run && at < dimension; ++k)
      indices.push_back(static_cast<Index>(at++));
    if (density < 1) at += gap(random);
  }
  return indices;
}

template <typename Index, typename Value>
struct Stream {
  std::vector<Index> indices;
  std::vector<Value> values;
  SparseView view(std::uint64_t dimension, DType type) const {
    return {dimension, indices.size(), sizeof(Index) == 4 ? IndexType::u32 : IndexType::u64,
            type,      indices.data(), values.data()};
  }
};

// The merge that one would write down first.
template <typename Index, typename Value>
std::size_t plain_merge(const Stream<Index, Value>& a, const Stream<Index, Value>& b, Index* indices,
                        Value* values) {
  const std::size_t a_end = a.indices.size();
  const std::size_t b_end = b.indices.size();
  std::size_t i = 0;
  std::size_t j = 0;
  std::size_t out = 0;
  while (i < a_end && j < b_end) {
    const Index left = a.indices[i];
    const Index right = b.indices[j];
    if (left < right) {
      indices[out] = left;
      values[out++] = a.values[i++];
    } else if (right < left) {
      indices[out] = right;
      values[out++] = b.values[j++];
    } else {
      indices[out] = left;
      values[out++] = static_cast<Value>(a.values[i++] + b.values[j++]);
    }
  }
  for (; i < a_end; ++i, ++out) {
    indices[out] = a.indices[i];
    values[out] = a.values[i];
  }
  for (; j < b_end; ++j, ++out) {
    indices[out] = b.indices[j];
    values[out] = b.values[j];
  }
  return out;
}

template <typename Index, typename Value>
void fold_row(DType type, std::uint64_t dimension, double density, bool clustered, std::size_t count) {
  std::vector<Stream<Index, Value>> streams(count);
  std::vector<SparseView> views;
  std::size_t entries = 0;
  for (std::size_t k = 0; k < count; ++k) {
    streams[k].indices = pattern<Index>(dimension, density, clustered, k + 1);
    streams[k].values.assign(streams[k].indices.size(), Value{1});
    views.push_back(streams[k].view(dimension, type));
    entries += streams[k].indices.size();
  }
  std::vector<Index> indices(entries);
  std::vector<Value> values(entries);
  const auto rate = [&](double ns) { return static_cast<double>(entries) / ns * 1e3; };
  const double fold = rate(median_ns([&] { fold_sparse(views, Op::sum, indices.data(), values.data()); }));
  ThreadedFold threaded({-1});
  const double two = rate(median_ns([&] { threaded.fold(views, Op::sum, indices.data(), values.data()); }));
  std::printf("%8.3f  %-9s %3zu %10zu %10.0f%10.0f", density * 100, clustered ? "clustered" : "uniform",
              count, entries, fold, two);
  if (count == 2) {
    std::printf("%10.0f",
                rate(median_ns([&] { plain_merge(streams[0], streams[1], indices.data(), values.data()); })));
  } else {
    std::printf("%10s", "");
  }
  const double copy = rate(median_ns([&] {
    std::size_t at = 0;
    for (const auto& stream : streams) {
      std::memcpy(indices.data() + at, stream.indices.data(), stream.indices.size() * sizeof(Index));
      std::memcpy(values.data() + at, stream.values.data(), stream.values.size() * sizeof(Value));
      at += stream.indices.size();
    }
  }));
  std::printf("%10.0f\n", copy);
  std::fflush(stdout);
}

template <typename Index, typename Value>
void fold_table(const char* name, DType type, const std::vector<std::size_t>& counts,
                const std::vector<double>& percents) {
  std::printf("\nfold_sparse, sum, %s\n%8s  %-9s %3s %10s %10s%10s%10s%10s\n", name, "density", "pattern",
              "n", "entries", "fold", "2 threads", "plain", "copy");
  for (const bool clustered : {false, true}) {
    for (const std::size_t count : counts) {
      for (const double percent : percents) {
        // As many indices as hold some hundred thousand entries of each stream.
        const auto dimension = static_cast<std::uint64_t>(
            std::clamp(5e5 / percent * 100 / static_cast<double>(count) * 2, 4e6, 4e9));
        fold_row<Index, Value>(type, dimension, percent / 100, clustered, count);
      }
    }
  }
}

// Chunks of 4096 entries, as they are sent: choosing the form and writing, then reading; and dense vectors of
// 16 Mi elements.
void wire_row(double density, bool clustered) {
  constexpr std::size_t kChunk = 4096;
  const auto dimension = static_cast<std::uint64_t>(400'000 / density);
  Stream<std::uint32_t, float> stream;
  stream.indices = pattern<std::uint32_t>(dimension, density, clustered, 1);
  stream.values.assign(stream.indices.size(), 1.0F);
  const SparseView view = stream.view(dimension, DType::f32);
  const auto entries = static_cast<double>(view.count);
  std::vector<std::vector<std::byte>> chunks;
  std::vector<ChunkRange> ranges;
  for (std::size_t at = 0; at < view.count; at += kChunk) {
    const std::size_t end = std::min(at + kChunk, view.count);
    ranges.push_back(
        {stream.indices[at], stream.indices[end - 1] + std::uint64_t{1} - stream.indices[at], at, end});
  }
  chunks.resize(ranges.size());
  const double encode = median_ns([&] {
    for (std::size_t k = 0; k < ranges.size(); ++k) {
      chunks[k].clear();
      encode_chunk(view, ranges[k], smallest_encoding(view, ranges[k]), chunks[k]);
    }
  });
  std::vector<std::uint32_t> indices(kChunk);
  const double decode = median_ns([&] {
    for (const auto& bytes : chunks) {
      const auto chunk = parse_chunk(bytes, dimension);
      if (!chunk.ok() || !unpack_indices(chunk.value(), IndexType::u32, indices.data()).ok()) std::abort();
    }
  });
  std::vector<float> dense(dimension);
  const double there = median_ns([&] { scatter(view, 0, dense.data()); });
  std::vector<std::uint32_t> taken(view.count);
  std::vector<float> values(view.count);
  const double take = median_ns([&] {
    take_nonzero(dense.data(), 0, dimension, DType::f32, IndexType::u32, taken.data(), values.data());
  });
  const double count = median_ns([&] { count_nonzero(dense.data(), dimension, DType::f32); });
  const double sample = median_ns([&] { sampled_density(dense.data(), dimension, DType::f32, 256); });
  const auto bytes = static_cast<double>(dimension * sizeof(float));
  std::printf("%8.3f  %-9s %-7s %8.0f %8.0f %8.0f %8.0f %10.1f %10.1f %10.1f\n", density * 100,
              clustered ? "clustered" : "uniform", encoding_name(parse_chunk(chunks[0], dimension)->encoding),
              entries / encode * 1e3, entries / decode * 1e3, entries / there * 1e3, entries / take * 1e3,
              bytes / take, bytes / count, sample / 1e3);
  std::fflush(stdout);
}

void wire_table(const std::vector<double>& percents) {
  std::printf(
      "\nu32 and f32; dense vectors: GB/s of the vector\n%8s  %-9s %-7s %8s %8s %8s %8s %10s %10s %10s\n",
      "density", "pattern", "form", "encode", "decode", "scatter", "take", "take GB/s", "count GB/s",
      "sample us");
  for (const bool clustered : {false, true})
    for (const double percent : percents)
      wire_row(percent / 100, clustered);
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) {
  using namespace heddle;
  using namespace heddle::bench;
  if (argc > 1) budget_ms = std::atof(argv[1]);
  if (budget_ms <= 0) {
    std::fprintf(stderr, "sparse_bench: \"%s\" is not a positive number of milliseconds\n", argv[1]);
    return 2;
  }
  const std::vector<double> percents{0.01, 0.1, 0.78, 3, 10, 30, 100};
  wire_table({0.1, 0.78, 3, 10, 50, 100});
  fold_table<std::uint32_t, float>("u32 and f32", DType::f32, {2, 4, 16}, percents);
  fold_table<std::uint32_t, double>("u32 and f64", DType::f64, {2}, {0.1, 0.78, 10, 100});
  fold_table<std::uint64_t, float>("u64 and f32", DType::f32, {2}, {0.1, 0.78, 10, 100});
  fold_table<std::uint32_t, std::uint16_t>("u32 and bf16", DType::bf16, {2}, {0.1, 0.78, 10, 100});
  fold_table<std::uint32_t, std::uint16_t>("u32 and f16", DType::f16, {2}, {0.1, 0.78, 10, 100});
  return 0;
}
