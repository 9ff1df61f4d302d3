// Selections and scatters on a GPU against the host's (host_sparse.hpp), bit for bit: every type and width of
// index, alignments, densities, ties, numbers that are none, room that is too little, vectors of many
// launches, and that nothing beside the results changes. sparse_check LIBCUDA
// [--short]; the driver may be CUDA's or its double. A program of its own, as fold_check is.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "cuda_memory.hpp"
#include "device_image.hpp"
#include "fold_data.hpp"
#include "gpu/kernels/digits.hpp"
#include "gpu/sparse_kernels.hpp"
#include "host_fold.hpp"
#include "host_sparse.hpp"
#include "loaded_driver.hpp"

namespace heddle::test {
namespace {

constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i32, DType::i64};

class Checker {
 public:
  // `tiles`: of a launch.
  Checker(const char* path, std::uint64_t tiles, std::size_t sampled_from = gpu::SparseKernels::kSampledFrom)
      : cuda_(path),
        driver_(loaded_driver(path)),
        context_(cuda_.primary(0)),
        kernels_(driver_, tiles, sampled_from) {
    cuda_.set_current(context_);
    driver_.DeviceGetAttribute(&multiprocessors_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
    char name[256] = "";
    driver_.DeviceGetName(name, sizeof name, 0);
    std::printf("selections on %s, at most %llu tiles a launch, against the host's (%s)\n", name,
                static_cast<unsigned long long>(tiles), host_sparse_name());
  }
  bool nonzero(DType type, const Bytes& data, std::size_t offset, std::size_t room, bool wide);
  bool magnitudes(const Bytes& data, std::size_t offset, float threshold, bool wide);
  bool top_k(const Bytes& data, std::size_t offset, std::size_t k, bool wide);
  bool scatter(DType type, const Bytes& dense, const std::vector<std::uint64_t>& indices, const Bytes& values,
               bool wide);
  std::size_t cases() const { return cases_; }
  std::size_t multiprocessors() const { return static_cast<std::size_t>(multiprocessors_); }

 private:
  // On the device, behind each other with margins: what is read, indices, values and the count.
  struct Places {
    std::size_t data;
    std::size_t indices;
    std::size_t values;
    std::size_t count;
    std::size_t end;
  };
  template <class Start>
  bool select(std::size_t width, const Bytes& data, std::size_t offset, std::size_t room, bool wide,
              const HostEntries& want, std::size_t workspace, Start start);
  void* workspace(std::size_t bytes);
  char* at(std::size_t place) const { return memory_.at(place); }

  TestDriver cuda_;
  gpu::Driver driver_;
  CUcontext context_;
  gpu::SparseKernels kernels_;
  int multiprocessors_ = 0;
  DeviceImage memory_{cuda_};
  std::unique_ptr<TestMemory> workspace_;
  std::size_t workspace_bytes_ = 0;
  std::size_t cases_ = 0;
};

// Prepared once, and then as the selection before left it.
void* Checker::workspace(std::size_t bytes) {
  if (bytes > workspace_bytes_) {
    workspace_ = nullptr;
    workspace_ = std::make_unique<TestMemory>(cuda_, Memory::device, bytes);
    workspace_bytes_ = bytes;
    const std::vector<std::uint8_t> dirt(bytes, kMark);
    workspace_->put(dirt.data(), bytes);
    if (!kernels_.prepare(gpu::default_stream(), workspace_->data()).ok()) std::abort();
  }
  return workspace_->data();
}

void store_index(std::uint8_t* to, std::uint64_t index, bool wide) {
  const auto narrow = static_cast<std::uint32_t>(index);
  if (wide) {
    std::memcpy(to, &index, sizeof index);
  } else {
    std::memcpy(to, &narrow, sizeof narrow);
  }
}

template <class Start>
bool Checker::select(std::size_t width, const Bytes& data, std::size_t offset, std::size_t room, bool wide,
                     const HostEntries& want, std::size_t workspace_bytes, Start start) {
  ++cases_;
  const std::size_t index_bytes = wide ? 8 : 4;
  Places places{};
  places.data = kMargin + offset * width;
  places.indices = rounded(places.data + data.size() + kMargin) + kMargin;
  places.values = rounded(places.indices + room * index_bytes + kMargin) + kMargin;
  places.count = rounded(places.values + room * width + kMargin) + kMargin;
  places.end = places.count + 8 + kMargin;
  Bytes image(places.end, kMark);
  if (!data.empty()) std::memcpy(&image[places.data], data.data(), data.size());
  void* const work = workspace(workspace_bytes);
  memory_.put(image);
  const gpu::Selected to{at(places.indices), at(places.values), room,
                         reinterpret_cast<std::uint64_t*>(at(places.count)), wide};
  const Status status = start(at(places.data), to, work);
  if (!status.ok()) {
    std::printf("%s\n", status.message().c_str());
    return false;
  }
  const std::uint64_t count = want.indices.size();
  std::memcpy(&image[places.count], &count, sizeof count);
  for (std::size_t i = 0; i < std::min<std::size_t>(count, room); ++i)
    store_index(&image[places.indices + i * index_bytes], want.indices[i], wide);
  const std::size_t taken = std::min<std::size_t>(count, room) * width;
  if (taken > 0) std::memcpy(&image[places.values], want.values.data(), taken);
  return memory_.get(image.size()) == image;
}

bool Checker::nonzero(DType type, const Bytes& data, std::size_t offset, std::size_t room, bool wide) {
  const std::size_t width = dtype_size(type);
  const std::size_t n = data.size() / width;
  const HostEntries want = host_nonzero(type, data.data(), n);
  if (select(width, data, offset, std::min(room, want.indices.size()), wide, want,
             gpu::SparseKernels::workspace_bytes(),
             [&](const char* from, const gpu::Selected& to, void* work) {
               return kernels_.select_nonzero(gpu::default_stream(), type, from, n, to, work);
             }))
    return true;
  std::printf("  wrong: nonzero %s, %zu elements, offset %zu, room %zu, %d bits\n", dtype_name(type), n,
              offset, room, wide ? 64 : 32);
  return false;
}

bool Checker::magnitudes(const Bytes& data, std::size_t offset, float threshold, bool wide) {
  const std::size_t n = data.size() / sizeof(float);
  std::vector<float> values(n);
  if (n > 0) std::memcpy(values.data(), data.data(), data.size());
  const HostEntries want =
      host_magnitudes(values.data(), n, std::bit_cast<std::uint32_t>(threshold) & 0x7FFFFFFFU);
  if (select(sizeof(float), data, offset, want.indices.size(), wide, want,
             gpu::SparseKernels::workspace_bytes(),
             [&](const char* from, const gpu::Selected& to, void* work) {
               return kernels_.select_magnitudes(gpu::default_stream(), reinterpret_cast<const float*>(from),
                                                 n, threshold, to, work);
             }))
    return true;
  std::printf("  wrong: magnitudes from %g, %zu elements, offset %zu\n", static_cast<double>(threshold), n,
              offset);
  return false;
}

bool Checker::top_k(const Bytes& data, std::size_t offset, std::size_t k, bool wide) {
  const std::size_t n = data.size() / sizeof(float);
  std::vector<float> values(n);
  if (n > 0) std::memcpy(values.data(), data.data(), data.size());
  const HostEntries want = host_top_k(values.data(), n, k);
  const std::size_t bytes = gpu::SparseKernels::top_k_workspace_bytes(n, k, wide);
  if (select(sizeof(float), data, offset, want.indices.size(), wide, want, bytes,
             [&](const char* from, const gpu::Selected& to, void* work) {
               return kernels_.top_k(gpu::default_stream(), reinterpret_cast<const float*>(from), n, k, to,
                                     work, bytes);
             }))
    return true;
  std::printf("  wrong: the %zu largest of %zu, offset %zu, %d bits\n", k, n, offset, wide ? 64 : 32);
  return false;
}

// The entries' values into the dense form, which is what the host's sum of the two is, or the value.
bool Checker::scatter(DType type, const Bytes& dense, const std::vector<std::uint64_t>& indices,
                      const Bytes& values, bool wide) {
  const std::size_t width = dtype_size(type);
  const std::size_t index_bytes = wide ? 8 : 4;
  bool right = true;
  for (const bool adds : {false, true}) {
    ++cases_;
    const std::size_t at_indices = rounded(dense.size() + 2 * kMargin) + kMargin;
    const std::size_t at_values = rounded(at_indices + indices.size() * index_bytes + kMargin) + kMargin;
    const std::size_t at_count = rounded(at_values + values.size() + kMargin) + kMargin;
    // Sometimes it is the device that knows how many there are.
    const bool is_told = !adds && cases_ % 3 == 0;
    const std::uint64_t count = is_told ? indices.size() / 2 : indices.size();
    Bytes image(at_count + sizeof count + kMargin, kMark);
    std::memcpy(&image[at_count], &count, sizeof count);
    if (!dense.empty()) std::memcpy(&image[kMargin], dense.data(), dense.size());
    for (std::size_t i = 0; i < indices.size(); ++i)
      store_index(&image[at_indices + i * index_bytes], indices[i], wide);
    if (!values.empty()) std::memcpy(&image[at_values], values.data(), values.size());
    memory_.put(image);
    const gpu::Entries entries{at(at_indices), at(at_values), indices.size(), wide};
    const auto* const told = is_told ? reinterpret_cast<const std::uint64_t*>(at(at_count)) : nullptr;
    const std::size_t dimension = dense.size() / width;
    const Status status =
        adds ? kernels_.scatter_add(gpu::default_stream(), type, entries, at(kMargin), dimension)
             : kernels_.scatter(gpu::default_stream(), type, {entries, told}, at(kMargin), dimension);
    for (std::size_t i = 0; i < count; ++i) {
      if (indices[i] >= dimension) continue;
      std::uint8_t* const to = &image[kMargin + indices[i] * width];
      if (adds) host_fold(type, Op::sum, to, {to, &values[i * width]}, 1);
      if (!adds) std::memcpy(to, &values[i * width], width);
    }
    if (status.ok() && memory_.get(image.size()) == image) continue;
    std::printf("  wrong: %s of %s, %zu entries of %zu, %d bits %s\n", adds ? "scatter_add" : "scatter",
                dtype_name(type), indices.size(), dimension, wide ? 64 : 32, status.message().c_str());
    right = false;
  }
  return right;
}

// ---- Data

// One in `one_in` is what it is, the others are zeros; nothing where that is 0.
Bytes thinned(DType type, std::size_t n, std::size_t one_in, std::mt19937_64& random) {
  Bytes data = n > 0 ? wild_elements(type, n, random) : Bytes();
  const std::size_t width = dtype_size(type);
  for (std::size_t i = 0; i < n; ++i)
    if (one_in == 0 || random() % one_in != 0) std::memset(&data[i * width], 0, width);
  return data;
}

// ---- What is checked

constexpr std::size_t kTile = 4096;  // values of f32
// From here on a little of everything is enough.
constexpr std::size_t kLong = 10 * kTile;

std::vector<std::size_t> lengths(bool brief) {
  std::vector<std::size_t> all = {0, 1, 3, 4, 5, 257, kTile, 2 * kTile + 5, 40 * kTile + 17};
  if (!brief) all.insert(all.end(), {2, 7, 8, 9, 1023, kTile - 1, kTile + 1, 3 * kTile});
  return all;
}

bool check_nonzero(Checker& checker, std::mt19937_64& random, bool brief) {
  bool right = true;
  for (const DType type : kTypes) {
    std::size_t turn = 0;
    for (const std::size_t n : lengths(brief)) {
      for (const std::size_t one_in : {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{100}}) {
        if (n > kLong && one_in < 3) continue;
        const Bytes data = thinned(type, n, one_in, random);
        const std::size_t room = turn % 5 == 4 ? n / 2 : n;
        right = checker.nonzero(type, data, turn % 9, room, turn % 2 != 0) && right;
        ++turn;
      }
    }
  }
  return right;
}

bool check_magnitudes(Checker& checker, std::mt19937_64& random, bool brief) {
  bool right = true;
  std::size_t turn = 0;
  // All values, wherever a row of them ends: zeros too.
  for (std::size_t n = 1; n < 70; ++n)
    right = checker.magnitudes(floats(Kind::zeros, n, random), n % 7, 0, false) && right;
  for (const std::size_t n : lengths(brief)) {
    for (const float threshold : {0.0F, 1e-40F, 1.5F, -1.5F, std::numeric_limits<float>::infinity()}) {
      for (const Kind kind : {Kind::normal, Kind::wild, Kind::one_value}) {
        if (n > kLong && kind != Kind::normal) continue;
        right = checker.magnitudes(floats(kind, n, random), turn % 5, threshold, turn % 2 != 0) && right;
        ++turn;
      }
    }
  }
  return right;
}

bool check_top_k(Checker& checker, std::mt19937_64& random, bool brief) {
  bool right = true;
  std::size_t turn = 0;
  for (const std::size_t n : lengths(brief)) {
    for (int kind = 0; kind < kKinds; ++kind) {
      if (n > kLong && kind > static_cast<int>(Kind::one_value)) continue;
      const Bytes data = floats(static_cast<Kind>(kind), n, random);
      for (const std::size_t k : {std::size_t{0}, std::size_t{1}, n / 100, n / 3, n, n + 7}) {
        if (n > kLong && k != n / 100) continue;
        right = checker.top_k(data, turn % 5, k, turn % 2 != 0) && right;
        ++turn;
      }
    }
  }
  return right;
}

// One value where a sample looks, in the first `looked_at` of its pieces, another where it does not, in
// vectors of a normal distribution.
Bytes misleading(std::size_t n, std::uint32_t looked_at, float there, float elsewhere,
                 std::mt19937_64& random) {
  Bytes data = floats(Kind::normal, n, random);
  std::vector<float> values(n);
  std::memcpy(values.data(), data.data(), data.size());
  for (float& value : values)
    value *= elsewhere;
  for (std::uint32_t j = 0; j < looked_at; ++j) {
    const std::size_t piece = gpu::kernels::sampled_piece(j, n / 8);
    std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(8 * piece), 8, there);
  }
  std::memcpy(data.data(), values.data(), data.size());
  return data;
}

// Long enough to be sampled by a checker that samples what it may.
bool check_sampled(Checker& checker, std::mt19937_64& random) {
  constexpr std::size_t kCount = 40 * kTile + 17;
  bool right = true;
  std::size_t turn = 0;
  for (int kind = 0; kind < kKinds; ++kind) {
    const Bytes data = floats(static_cast<Kind>(kind), kCount, random);
    for (const std::size_t k : {std::size_t{1}, kCount / 1000, kCount / 100, kCount / 10, kCount / 8}) {
      right = checker.top_k(data, turn % 9, k, turn % 2 != 0) && right;
      ++turn;
    }
  }
  // From what the sample has on there are too few: about as many as in the sample itself are large.
  right = checker.top_k(misleading(kCount, 1300, 100, 1, random), 0, kCount / 8, false) && right;
  // There are too many, and all of them.
  constexpr std::uint32_t kAll = gpu::kernels::kSampledPieces;
  right = checker.top_k(misleading(kCount, kAll, 1e-6F, 1, random), 0, kCount / 100, false) && right;
  right = checker.top_k(misleading(kCount, kAll, 0, 1, random), 0, kCount / 100, true) && right;
  // All that are not zero, of which there are fewer than k, and some more.
  right = checker.top_k(misleading(kCount, kAll, 0, 0, random), 0, kCount / 100, false) && right;
  right = checker.top_k(misleading(kCount, 100, 1, 0, random), 0, 801, false) && right;
  right = checker.top_k(misleading(kCount, 100, 1, 0, random), 0, 799, false) && right;
  return right;
}

bool check_scatter(Checker& checker, std::mt19937_64& random, bool brief) {
  bool right = true;
  for (const DType type : kTypes) {
    for (const std::size_t n : lengths(brief)) {
      for (const std::size_t one_in : {std::size_t{1}, std::size_t{5}}) {
        if (n > kLong && one_in == 1) continue;
        std::vector<std::uint64_t> indices;
        for (std::size_t i = 0; i < n; ++i)
          if (random() % one_in == 0) indices.push_back(i);
        if (n % 2 != 0) indices.insert(indices.end(), {n, n + 7});  // which are passed over
        const Bytes dense = n > 0 ? wild_elements(type, n, random) : Bytes();
        const Bytes values = indices.empty() ? Bytes() : wild_elements(type, indices.size(), random);
        right = checker.scatter(type, dense, indices, values, one_in != 1) && right;
      }
    }
  }
  return right;
}

// More tiles than blocks run at once, and blocks that wait for each other.
bool check_large(Checker& checker, std::mt19937_64& random) {
  const std::size_t n = checker.multiprocessors() * kTile * 21 + 1003;
  bool right = checker.nonzero(DType::f32, thinned(DType::f32, n, 100, random), 1, n, false);
  right = checker.nonzero(DType::f32, thinned(DType::f32, n, 1, random), 0, n, false) && right;
  // Two tiles for each block, and a third for some, of all the batches that there may be.
  const std::size_t longer = checker.multiprocessors() * kTile * 69 + 2005;
  right = checker.nonzero(DType::f32, thinned(DType::f32, longer, 50, random), 2, longer, false) && right;
  for (const Kind kind : {Kind::normal, Kind::few_values, Kind::one_value, Kind::mostly_zero})
    right = checker.top_k(floats(kind, n, random), 3, n / 100, false) && right;
  return right;
}

bool check_all(Checker& checker, bool brief, bool large) {
  std::mt19937_64 random(11);
  bool right = say("nonzero", check_nonzero(checker, random, brief));
  right = say("magnitudes", check_magnitudes(checker, random, brief)) && right;
  right = say("the k largest", check_top_k(checker, random, brief)) && right;
  right = say("scatter, scatter_add", check_scatter(checker, random, brief)) && right;
  if (large) right = say("large vectors", check_large(checker, random)) && right;
  std::printf("  %zu cases\n", checker.cases());
  return right;
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  using heddle::test::Checker;
  if (argc < 2) return 2;
  const bool brief = argc > 2 && std::strcmp(argv[2], "--short") == 0;
  Checker checker(argv[1], heddle::gpu::kernels::kMostTiles);
  const bool right = heddle::test::check_all(checker, brief, !brief);
  // Many launches for one selection.
  Checker little(argv[1], 3);
  const bool in_parts = heddle::test::check_all(little, true, false);
  // Vectors that are sampled.
  Checker sampling(argv[1], brief ? 3 : heddle::gpu::kernels::kMostTiles,
                   heddle::gpu::kernels::kLeastSampledFrom);
  std::mt19937_64 random(12);
  const bool sampled =
      heddle::test::say("the k largest, by a sample", heddle::test::check_sampled(sampling, random));
  return right && in_parts && sampled ? 0 : 1;
}
