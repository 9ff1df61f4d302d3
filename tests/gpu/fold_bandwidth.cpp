// How fast folds on a GPU are beside its own copies, in the same run: bytes read and written in a second.
// fold_bandwidth LIBCUDA [--mib N]...
// [--json FILE] [--once], the last for a profiler. On a double of the driver it shows that it works, and its
// figures mean nothing.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>

#include "goals.hpp"
#include "gpu/kernels.hpp"
#include "loaded_driver.hpp"
#include "timing.hpp"

namespace heddle::test {
namespace {

class Bench {
 public:
  explicit Bench(const char* path)
      : cuda_(path), driver_(loaded_driver(path)), context_(cuda_.primary(0)), kernels_(driver_) {
    cuda_.set_current(context_);
    driver_.DeviceGetName(name_, sizeof name_, 0);
  }
  const char* name() const { return name_; }
  bool measure(std::size_t bytes, std::vector<Work>* all, bool once);

 private:
  Work copy(const std::vector<void*>& buffers, std::size_t bytes);
  Work fold(const char* name, DType type, Op op, const std::vector<void*>& inputs,
            const std::vector<void*>& outputs, std::size_t bytes);

  TestDriver cuda_;
  gpu::Driver driver_;
  CUcontext context_;
  gpu::Kernels kernels_;
  char name_[256] = "";
};

Work Bench::copy(const std::vector<void*>& buffers, std::size_t bytes) {
  const auto to = reinterpret_cast<CUdeviceptr>(buffers[2]);
  const auto from = reinterpret_cast<CUdeviceptr>(buffers[0]);
  return {"copy by the driver", 2.0 * static_cast<double>(bytes), [this, to, from, bytes] {
            cuda_.call<PFN_cuMemcpyDtoDAsync_v3020>("cuMemcpyDtoDAsync_v2", to, from, bytes,
                                                    gpu::default_stream());
            return Status();
          }};
}

Work Bench::fold(const char* name, DType type, Op op, const std::vector<void*>& inputs,
                 const std::vector<void*>& outputs, std::size_t bytes) {
  const auto moved = static_cast<double>((inputs.size() + outputs.size()) * bytes);
  return {name, moved, [this, type, op, inputs, outputs, count = bytes / dtype_size(type)] {
            const std::vector<const void*> from(inputs.begin(), inputs.end());
            return kernels_.fold(gpu::default_stream(), type, op, from, outputs, count);
          }};
}

bool Bench::measure(std::size_t bytes, std::vector<Work>* all, bool once) {
  constexpr std::size_t kBuffers = 9;
  const TestMemory memory(cuda_, Memory::device, kBuffers * (bytes + 256));
  std::vector<void*> b;
  for (std::size_t k = 0; k < kBuffers; ++k)
    b.push_back(memory.as<char>() + k * (bytes + 256));
  // Zeros may go faster than what programs add. The upper bit of exponents is 0 in every byte, so that there
  // is no NaN, and no sum is infinite, in any type: folds of those are slower.
  std::vector<std::uint32_t> data((bytes + 256) / sizeof(std::uint32_t) + 1);
  std::minstd_rand random(7);
  for (std::uint32_t& word : data)
    word = static_cast<std::uint32_t>(random()) << 1 & 0xBFBFBFBFU;
  for (std::size_t k = 0; k < kBuffers; ++k)
    memory.put(data.data(), bytes + 256, k * (bytes + 256));
  void* const apart = static_cast<char*>(b[1]) + 4;
  *all = {copy(b, bytes),
          fold("copy by a kernel", DType::f32, Op::sum, {b[0]}, {b[2]}, bytes),
          fold("sum float32, 2 to 1", DType::f32, Op::sum, {b[0], b[1]}, {b[2]}, bytes),
          fold("sum float32, 2 in place", DType::f32, Op::sum, {b[0], b[1]}, {b[0]}, bytes),
          fold("sum float32, 2 to 2", DType::f32, Op::sum, {b[0], b[1]}, {b[0], b[2]}, bytes),
          fold("sum float32, 8 to 1", DType::f32, Op::sum, {b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]},
               {b[8]}, bytes),
          fold("sum float32, 2 to 1, apart", DType::f32, Op::sum, {b[0], apart}, {b[2]}, bytes),
          fold("max float32, 2 to 1", DType::f32, Op::max, {b[0], b[1]}, {b[2]}, bytes),
          fold("sum float64, 2 to 1", DType::f64, Op::sum, {b[0], b[1]}, {b[2]}, bytes),
          fold("sum float16, 2 to 1", DType::f16, Op::sum, {b[0], b[1]}, {b[2]}, bytes),
          fold("sum float16, 8 to 1", DType::f16, Op::sum, {b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]},
               {b[8]}, bytes),
          fold("sum bfloat16, 2 to 1", DType::bf16, Op::sum, {b[0], b[1]}, {b[2]}, bytes),
          fold("sum float8_e4m3, 2 to 1", DType::e4m3, Op::sum, {b[0], b[1]}, {b[2]}, bytes),
          fold("sum float8_e5m2, 2 to 1", DType::e5m2, Op::sum, {b[0], b[1]}, {b[2]}, bytes),
          fold("sum int8, 2 to 1", DType::i8, Op::sum, {b[0], b[1]}, {b[2]}, bytes),
          fold("max int8, 2 to 1", DType::i8, Op::max, {b[0], b[1]}, {b[2]}, bytes)};
  Timing timing(cuda_, driver_);
  return once ? timing.once(*all) : timing.measure(all);
}

void print(std::size_t bytes, const std::vector<Work>& all) {
  std::printf(
      "vectors of %.4g MiB: GB/s read and written, median of %d (95%% confidence), share of the driver's "
      "copy\n",
      static_cast<double>(bytes) / 0x1p20, kSamples);
  for (const Work& work : all)
    std::printf("  %-28s %8.1f (%.1f to %.1f) %6.1f %%\n", work.name.c_str(), work.median(), work.at(kLow),
                work.at(kHigh), 100 * work.median() / all[0].median());
}

// Folds whose vectors lie alike, at the speed of the driver's copy.
void print_goals(std::size_t bytes, const std::vector<Work>& all) {
  const auto is_fold = [](const Work& work) {
    return work.name.find("to") != std::string::npos && work.name.find("apart") == std::string::npos;
  };
  const Work* slowest = nullptr;
  for (const Work& work : all) {
    if (is_fold(work) && (slowest == nullptr || work.median() < slowest->median())) slowest = &work;
  }
  const auto print = [&](const char* which, const Work& work) {
    char what[96];
    std::snprintf(what, sizeof what, "%s%s, %.4g MiB, over the driver's copy", which, work.name.c_str(),
                  static_cast<double>(bytes) / 0x1p20);
    const double share = work.median() / all[0].median();
    print_goal(what, share, "0.9 or more", share >= 0.9);
  };
  print("", all[2]);
  print("the slowest fold: ", *slowest);
}

bool write_json(const char* path, const char* device, const std::string& results) {
  char date[32] = "";
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) return false;
  std::fprintf(
      file,
      "{\n  \"device\": \"%s\",\n  \"date\": \"%s\",\n  \"samples\": %d,\n  \"folds\": [\n    %s\n  ]\n}\n",
      device, date, kSamples, results.c_str());
  return std::fclose(file) == 0;
}

int run(int argc, char** argv) {
  std::vector<std::size_t> sizes;
  const char* json = nullptr;
  const bool once = std::strcmp(argv[argc - 1], "--once") == 0;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--mib") == 0)
      sizes.push_back(static_cast<std::size_t>(std::atof(argv[i + 1]) * 0x1p20));
    if (std::strcmp(argv[i], "--json") == 0) json = argv[i + 1];
  }
  if (sizes.empty()) sizes = {std::size_t{64} << 20, std::size_t{256} << 20};
  Bench bench(argv[1]);
  std::printf("%s\n", bench.name());
  std::string results;
  for (const std::size_t bytes : sizes) {
    std::vector<Work> all;
    if (!bench.measure(bytes, &all, once)) return 1;
    if (once) continue;
    print(bytes, all);
    print_goals(bytes, all);
    results += (results.empty() ? "" : ",\n    ") + json_of(bytes, all);
  }
  return json == nullptr || write_json(json, bench.name(), results) ? 0 : 1;
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  return argc < 2 ? 2 : heddle::test::run(argc, argv);
}
