// How fast selections, scatters and merges on a GPU are beside one read of the vector, in the same run:
// sparse_bandwidth LIBCUDA [--mib N]... [--json FILE] [--once], which adds to a file of fold_bandwidth's. One
// read is what a fold of the vector's eight parts to one moves in a second, or the driver's copy, whichever
// is more. On a double of the driver it shows that it works, and its figures mean nothing.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>

#include "goals.hpp"
#include "gpu/kernels.hpp"
#include "gpu/sparse_kernels.hpp"
#include "json_file.hpp"
#include "loaded_driver.hpp"
#include "timing.hpp"

namespace heddle::test {
namespace {

// Values of a normal distribution, by the inverse of its tail: sorted by nothing, and quick to make. One in
// `one_in`, the others are zeros.
std::vector<float> normal_values(std::size_t n, std::size_t one_in) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  std::vector<float> some(65536);
  for (float& value : some)
    value = normal(random);
  for (float& value : values) {
    const auto drawn = static_cast<std::uint32_t>(random());
    // Not the same values again and again: the lower bits of the mantissa differ.
    const float part = static_cast<float>(random() & 0xFFFFU) * 0x1p-20F;
    if (one_in == 1 || random() % one_in == 0) value = some[drawn >> 16] * (1 + part);
  }
  return values;
}

class Bench {
 public:
  explicit Bench(const char* path)
      : cuda_(path),
        driver_(loaded_driver(path)),
        context_(cuda_.primary(0)),
        kernels_(driver_),
        sparse_(driver_) {
    cuda_.set_current(context_);
    driver_.DeviceGetName(name_, sizeof name_, 0);
  }
  const char* name() const { return name_; }
  bool measure(std::size_t n, std::vector<Work>* all, bool once);

 private:
  // Vectors of n values.
  struct Vectors {
    float* normal;
    float* one_in_100;
    float* one_in_2;  // as gradients are where units do nothing
    float* equal;
    float* out;          // of a copy, a fold, a scatter
    const void* deltas;  // codes of indices, each 100 behind the one before it; n / 100 bytes
  };
  std::vector<Work> reads(const Vectors& v, std::size_t n);
  std::vector<Work> selections(const Vectors& v, std::size_t n, const gpu::Selected& to, void* workspace,
                               std::size_t bytes);
  std::vector<Work> entries(const Vectors& v, std::size_t n, const gpu::Selected& to, void* workspace);

  TestDriver cuda_;
  gpu::Driver driver_;
  CUcontext context_;
  gpu::Kernels kernels_;
  gpu::SparseKernels sparse_;
  char name_[256] = "";
};

std::vector<Work> Bench::reads(const Vectors& v, std::size_t n) {
  const std::size_t bytes = n * sizeof(float);
  const auto copy = [this, v, bytes] {
    cuda_.call<PFN_cuMemcpyDtoDAsync_v3020>("cuMemcpyDtoDAsync_v2", reinterpret_cast<CUdeviceptr>(v.out),
                                            reinterpret_cast<CUdeviceptr>(v.normal), bytes,
                                            gpu::default_stream());
    return Status();
  };
  const auto fold = [this, v, n] {
    std::vector<const void*> parts;
    for (std::size_t part = 0; part < 8; ++part)
      parts.push_back(v.normal + part * (n / 8));
    void* const outputs[] = {v.out};
    return kernels_.fold(gpu::default_stream(), DType::f32, Op::sum, parts, outputs, n / 8);
  };
  return {{"copy by the driver", 2.0 * static_cast<double>(bytes), copy},
          {"fold of eight parts to one", 9.0 / 8.0 * static_cast<double>(bytes), fold}};
}

std::vector<Work> Bench::selections(const Vectors& v, std::size_t n, const gpu::Selected& to, void* workspace,
                                    std::size_t bytes) {
  const auto all = static_cast<double>(n * sizeof(float));
  CUstream stream = gpu::default_stream();
  const auto nonzero = [=, this](const float* from) {
    return [=, this] { return sparse_.select_nonzero(stream, DType::f32, from, n, to, workspace); };
  };
  const auto from = [=, this](float threshold) {
    return [=, this] { return sparse_.select_magnitudes(stream, v.normal, n, threshold, to, workspace); };
  };
  const auto largest = [=, this](const float* values, std::size_t k) {
    return [=, this] { return sparse_.top_k(stream, values, n, k, to, workspace, bytes); };
  };
  // Two reads, a write, and a byte or less for each value.
  const gpu::Quantiser in_bytes{8, 1024, 1};
  const gpu::Quantiser in_pairs{2, 1024, 1};
  const gpu::Quantiser in_bits{1, 1024, 1};
  const gpu::Quantiser in_halves{16};
  const auto quantise = [=, this](const gpu::Quantiser& how) {
    return [=, this] { return sparse_.quantise(stream, how, v.one_in_2, v.out, v.out, n, 0, to.values); };
  };
  // What the quantisation before left, with itself: from memory its codes come once.
  const auto dequantise = [=, this] {
    const void* const codes[] = {to.values, to.values};
    return sparse_.dequantise(stream, in_bytes, codes, n, v.out, to.count + 1);
  };
  return {{"quantise, 8 bits, residual", 3.25 * all, quantise(in_bytes)},
          {"dequantise, add two, 8 bits", 1.25 * all, dequantise},
          {"quantise, 2 bits, residual", 3.0625 * all, quantise(in_pairs)},
          {"quantise, 1 bit, residual", (3 + 1.0 / 32) * all, quantise(in_bits)},
          {"quantise, f16, residual", 3.5 * all, quantise(in_halves)},
          {"nonzero, 1%", all, nonzero(v.one_in_100)},
          {"nonzero, all", all, nonzero(v.normal)},
          {"magnitudes, 1%", all, from(2.576F)},
          {"magnitudes, 0.1%", all, from(3.29F)},
          {"magnitudes, none", all, from(1e30F)},
          {"the largest 0.1%", all, largest(v.normal, n / 1000)},
          {"the largest 10%", all, largest(v.normal, n / 10)},
          {"the largest 1% of equals", all, largest(v.equal, n / 100)},
          {"the largest 1%", all, largest(v.normal, n / 100)}};
}

// Of entries that the selection before left: one in a hundred.
std::vector<Work> Bench::entries(const Vectors& v, std::size_t n, const gpu::Selected& to, void* workspace) {
  CUstream stream = gpu::default_stream();
  const std::size_t scattered = n / 100;
  const gpu::Entries given{to.indices, to.values, scattered, false};
  const double moved = static_cast<double>(scattered) * 16;
  // With itself.
  const gpu::Room merged{v.out, v.out + n / 2, n / 2, false};
  // Their indices as bits and as deltas, of which one in four has two bytes; moved: indices and codes.
  const gpu::IndexRange whole{0, n};
  const auto listed = static_cast<double>(scattered);
  const double in_bitmap = listed * 4 + static_cast<double>(n) / 8;
  const gpu::Room back{v.out + n / 2, nullptr, scattered, false};
  return {{"scatter, 1%", moved * 3 / 4,
           [=, this] { return sparse_.scatter(stream, DType::f32, {given}, v.out, n); }},
          {"scatter_add, 1%", moved,
           [=, this] { return sparse_.scatter_add(stream, DType::f32, given, v.out, n); }},
          {"spread, 1%", moved / 2 + static_cast<double>(n) * 4,
           [=, this] {
             void* const dense[] = {v.out};
             return sparse_.spread(stream, DType::f32, {given}, true, nullptr, dense, n);
           }},
          {"merge, 1% and 1%", static_cast<double>(scattered) * 24,
           [=, this] {
             return sparse_.merge(stream, DType::f32, Op::sum, {given}, {given}, n, std::span(&merged, 1),
                                  {to.count, to.count + 1}, workspace);
           }},
          {"indices to bits, 1%", in_bitmap,
           [=, this] { return sparse_.pack_bitmap(stream, given, whole, v.out); }},
          {"bits to indices, 1%", in_bitmap,
           [=, this] { return sparse_.unpack_bitmap(stream, v.out, whole, back, to.count + 1, workspace); }},
          {"indices to deltas, 1%", listed * 5.28,
           [=, this] { return sparse_.pack_delta(stream, given, whole, v.out, n, to.count + 1, workspace); }},
          {"deltas to indices, 1%", listed * 5, [=, this] {
             return sparse_.unpack_delta(stream, v.deltas, scattered, whole, back, to.count + 1, workspace);
           }}};
}

bool Bench::measure(std::size_t n, std::vector<Work>* all, bool once) {
  const std::size_t bytes = n * sizeof(float);
  const TestMemory memory(cuda_, Memory::device, 5 * bytes);
  const std::size_t workspace_bytes = gpu::SparseKernels::top_k_workspace_bytes(n, n / 10, false);
  const TestMemory workspace(cuda_, Memory::device, workspace_bytes);
  const TestMemory indices(cuda_, Memory::device, n * 4);
  const TestMemory values(cuda_, Memory::device, n * 4);
  const TestMemory count(cuda_, Memory::device, 16);  // and whether entries are broken
  const TestMemory deltas(cuda_, Memory::device, n / 100);
  deltas.put(std::vector<unsigned char>(n / 100, 99).data(), n / 100);
  const Vectors v{memory.as<float>(),         memory.as<float>() + n,     memory.as<float>() + 4 * n,
                  memory.as<float>() + 2 * n, memory.as<float>() + 3 * n, deltas.data()};
  memory.put(normal_values(n, 1).data(), bytes);
  memory.put(normal_values(n, 100).data(), bytes, bytes);
  memory.put(std::vector<float>(n, 1.0F).data(), bytes, 2 * bytes);
  memory.put(std::vector<float>(n, 0.0F).data(), bytes, 3 * bytes);
  memory.put(normal_values(n, 2).data(), bytes, 4 * bytes);
  const gpu::Selected to{indices.data(), values.data(), n, count.as<std::uint64_t>(), false};
  if (!sparse_.prepare(gpu::default_stream(), workspace.data()).ok()) return false;

  *all = reads(v, n);
  for (Work& work : selections(v, n, to, workspace.data(), workspace_bytes))
    all->push_back(std::move(work));
  for (Work& work : entries(v, n, to, workspace.data()))
    all->push_back(std::move(work));
  Timing timing(cuda_, driver_);
  return once ? timing.once(*all) : timing.measure(all);
}

double read_of(const std::vector<Work>& all) {
  return std::max(all[0].median(), all[1].median());
}

void print_goals(std::size_t bytes, const std::vector<Work>& all) {
  const double read = read_of(all);
  for (const Work& work : all) {
    char what[96];
    std::snprintf(what, sizeof what, "%s, %.4g MiB", work.name.c_str(), static_cast<double>(bytes) / 0x1p20);
    const std::string name = what;
    const double share = work.median() / read;
    if (work.name == "nonzero, 1%" || work.name == "magnitudes, 1%" || work.name == "magnitudes, 0.1%")
      print_goal((name + ", over one read").c_str(), share, "0.85 or more", share >= 0.85);
    // As was asked, of 2^24 values.
    if (work.name.starts_with("the largest 0.1%") || work.name == "the largest 1%")
      print_goal((name + ", times of one read").c_str(), 1 / share, "up to 3", share >= 1.0 / 3);
    if (work.name.starts_with("quantise"))
      print_goal((name + ", its bytes over the driver's copy").c_str(), work.median() / all[0].median(),
                 "0.8 or more", work.median() >= 0.8 * all[0].median());
  }
}

void print(std::size_t bytes, const std::vector<Work>& all) {
  const double read = read_of(all);
  std::printf(
      "vectors of %.4g MiB: GB/s of the vector, or moved, median of %d (95%% confidence); times of one "
      "read\n",
      static_cast<double>(bytes) / 0x1p20, kSamples);
  for (const Work& work : all) {
    const double times = static_cast<double>(bytes) / work.bytes * read / work.median();
    std::printf("  %-28s %8.1f (%.1f to %.1f)", work.name.c_str(), work.median(), work.at(kLow),
                work.at(kHigh));
    // Scatters and merges do not read the vector, and quantisation moves more than that.
    if (work.bytes == static_cast<double>(bytes)) std::printf(" %6.2f", times);
    std::printf("\n");
  }
}

int run(int argc, char** argv) {
  std::vector<std::size_t> sizes;
  const char* json = nullptr;
  const bool once = std::strcmp(argv[argc - 1], "--once") == 0;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--mib") == 0)
      sizes.push_back(static_cast<std::size_t>(std::atof(argv[i + 1]) * 0x1p20) / 128 * 128);
    if (std::strcmp(argv[i], "--json") == 0) json = argv[i + 1];
  }
  if (sizes.empty()) sizes = {std::size_t{64} << 20, std::size_t{256} << 20};
  Bench bench(argv[1]);
  std::printf("%s\n", bench.name());
  std::string results;
  for (const std::size_t bytes : sizes) {
    std::vector<Work> all;
    if (!bench.measure(bytes / sizeof(float), &all, once)) return 1;
    if (once) continue;
    print(bytes, all);
    print_goals(bytes, all);
    results += (results.empty() ? "" : ",\n    ") + json_of(bytes, all);
  }
  return json == nullptr || add_to_json(json, "sparse", results) ? 0 : 1;
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  return argc < 2 ? 2 : heddle::test::run(argc, argv);
}
