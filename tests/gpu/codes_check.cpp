// Codes of vectors on a GPU against the host's (host_sparse.hpp), bit for bit: what vectors and what was left
// out of them before become, and sums of what codes of one vector and of many stand for; all widths of codes,
// lengths of buckets, alignments, numbers that are none, and that nothing beside the results changes.
// codes_check LIBCUDA [--short | --shorter], as sparse_check.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "cuda_memory.hpp"
#include "device_image.hpp"
#include "fold_data.hpp"
#include "gpu/sparse_kernels.hpp"
#include "host_fold.hpp"
#include "host_sparse.hpp"
#include "loaded_driver.hpp"

namespace heddle::test {
namespace {

// Of values that share a scale, and of those that have none.
constexpr gpu::Quantiser kCodecs[] = {{8}, {4}, {2}, {1}, {16}, {16, 0, 0, true}};

const char* name_of(const gpu::Quantiser& how) {
  return how.is_bf16 ? "bf16" : how.bits == 16 ? "f16" : how.bits == 1 ? "signs" : "levels";
}

std::vector<float> as_floats(const Bytes& data) {
  std::vector<float> values(data.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), data.data(), data.size());
  return values;
}

class Checker {
 public:
  explicit Checker(const char* path) : cuda_(path), driver_(loaded_driver(path)), kernels_(driver_) {
    cuda_.set_current(cuda_.primary(0));
    driver_.DeviceGetAttribute(&multiprocessors_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
    char name[256] = "";
    driver_.DeviceGetName(name, sizeof name, 0);
    std::printf("codes on %s, against the host's (%s)\n", name, host_sparse_name());
  }
  bool quantise(const gpu::Quantiser& how, const Bytes& data, std::size_t offset, std::uint64_t position);
  // Of vectors of equal lengths. `apart`: the codes of each where they like, else all at their alignment.
  bool sum(const gpu::Quantiser& how, const std::vector<Bytes>& vectors, std::size_t offset,
           bool apart = true);
  std::size_t cases() const { return cases_; }
  std::size_t multiprocessors() const { return static_cast<std::size_t>(multiprocessors_); }

 private:
  float* floats_at(std::size_t place) const { return reinterpret_cast<float*>(memory_.at(place)); }
  std::uint64_t* word_at(std::size_t place) const {
    return reinterpret_cast<std::uint64_t*>(memory_.at(place));
  }

  TestDriver cuda_;
  gpu::Driver driver_;
  gpu::SparseKernels kernels_;
  int multiprocessors_ = 0;
  DeviceImage memory_{cuda_};
  std::size_t cases_ = 0;
};

void set(Bytes& image, std::size_t place, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(&image[place], from, bytes);
}

// Twice, so that the second time there is something that the first has left out; with that, and nothing kept;
// and without.
bool Checker::quantise(const gpu::Quantiser& how, const Bytes& data, std::size_t offset,
                       std::uint64_t position) {
  const std::vector<float> gradient = as_floats(data);
  const std::size_t n = gradient.size();
  std::vector<float> residual(n);
  bool right = true;
  for (int round = 0; round < 4; ++round) {
    ++cases_;
    const bool keeps = round < 2;
    const bool adds = round < 3;
    const std::vector<float> before = residual;
    const HostCodes want = host_quantise(how, position, gradient, adds ? &residual : nullptr);
    if (!keeps) residual = before;
    Layout layout;
    const std::size_t at_gradient =
        layout.take(data.size() + offset * sizeof(float)) + offset * sizeof(float);
    const std::size_t at_residual = layout.take(data.size());
    const std::size_t at_codes = layout.take(want.codes.size() + offset) + offset;
    Bytes image(layout.end(), kMark);
    set(image, at_gradient, data.data(), data.size());
    set(image, at_residual, before.data(), data.size());
    memory_.put(image);
    const Status status = kernels_.quantise(
        gpu::default_stream(), how, floats_at(at_gradient), adds ? floats_at(at_residual) : nullptr,
        keeps ? floats_at(at_residual) : nullptr, n, position, memory_.at(at_codes));
    set(image, at_residual, residual.data(), data.size());
    set(image, at_codes, want.codes.data(), want.codes.size());
    if (status.ok() && memory_.get(image.size()) == image) continue;
    std::printf("  wrong: quantise to %s of %u bits, %zu values, buckets of %zu, offset %zu %s\n",
                name_of(how), how.bits, n, static_cast<std::size_t>(how.bucket), offset,
                status.message().c_str());
    right = false;
  }
  return right;
}

bool Checker::sum(const gpu::Quantiser& how, const std::vector<Bytes>& vectors, std::size_t offset,
                  bool apart) {
  ++cases_;
  const std::size_t bytes = vectors[0].size();
  const std::size_t n = bytes / sizeof(float);
  Layout layout;
  const std::size_t at_sum = layout.take(bytes + offset * sizeof(float)) + offset * sizeof(float);
  const std::size_t at_bad = layout.take(sizeof(std::uint64_t));
  std::vector<HostCodes> coded;
  std::vector<std::size_t> places;
  for (const Bytes& vector : vectors) {
    std::vector<float> residual(n);
    gpu::Quantiser own = how;
    own.seed += coded.size();
    coded.push_back(host_quantise(own, 0, as_floats(vector), &residual));
    const std::size_t shift = apart ? (offset + coded.size()) % 5 : 0;
    places.push_back(layout.take(coded.back().codes.size() + shift) + shift);
  }
  Bytes image(layout.end(), kMark);
  std::memset(&image[at_bad], 0, sizeof(std::uint64_t));
  std::vector<const void*> codes;
  std::vector<const void*> decoded;
  for (std::size_t k = 0; k < coded.size(); ++k) {
    set(image, places[k], coded[k].codes.data(), coded[k].codes.size());
    decoded.push_back(coded[k].decoded.data());
  }
  memory_.put(image);
  for (const std::size_t place : places)
    codes.push_back(memory_.at(place));
  const Status status =
      kernels_.dequantise(gpu::default_stream(), how, codes, n, floats_at(at_sum), word_at(at_bad));
  std::vector<float> want = coded[0].decoded;
  if (n > 0 && decoded.size() > 1) host_fold(DType::f32, Op::sum, want.data(), decoded, n);
  set(image, at_sum, want.data(), bytes);
  if (status.ok() && memory_.get(image.size()) == image) return true;
  std::printf("  wrong: a sum of %zu vectors, %s of %u bits, %zu values, buckets of %zu, offset %zu %s\n",
              vectors.size(), name_of(how), how.bits, n, static_cast<std::size_t>(how.bucket), offset,
              status.message().c_str());
  return false;
}

bool check_quantise(Checker& checker, std::mt19937_64& random, std::size_t most) {
  bool right = true;
  std::size_t turn = 0;
  for (gpu::Quantiser how : kCodecs) {
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{1024}, most}) {
      for (const std::uint64_t bucket : {0U, 1U, 7U, 512U, 1024U, 1030U, 4096U}) {
        for (const Kind kind : {Kind::normal, Kind::wild, Kind::mostly_zero, Kind::falling}) {
          if (bucket < 512 && n >= 1024 && kind != Kind::wild) continue;
          if (how.bits == 16 && bucket > 1) continue;  // which it does not look at
          how.bucket = bucket;
          how.seed = turn;
          // The lower half of a position runs over in the first four values.
          const std::uint64_t position = turn % 3 == 0 ? (std::uint64_t{1} << 32) - 1 - turn / 3 % 3 : turn;
          right = checker.quantise(how, floats(kind, n, random), turn % 4, position) && right;
          ++turn;
        }
      }
    }
  }
  return right;
}

// Every kind of float that 16 bits round: all exponents and signs, ties, what is just beside them, the
// largest and the smallest ones, NaNs of any payload.
bool check_halves(Checker& checker) {
  std::vector<std::uint32_t> all;
  for (std::uint32_t upper = 0; upper < 0x10000; upper += 0x40) {
    for (const std::uint32_t more : {0U, 1U, 0x10U, 0x20U})
      for (const std::uint32_t lower :
           {0U, 1U, 0x0FFFU, 0x1000U, 0x1001U, 0x3000U, 0x7FFFU, 0x8000U, 0x8001U})
        all.push_back((upper | more) << 16 | lower);
  }
  Bytes data(all.size() * sizeof all[0]);
  std::memcpy(data.data(), all.data(), data.size());
  bool right = true;
  for (const gpu::Quantiser& how : {kCodecs[4], kCodecs[5]})
    right = checker.quantise(how, data, 0, 0) && checker.sum(how, {data}, 1) && right;
  return right;
}

// Means of signs that another order of adding would round otherwise: halfway between two floats, but for what
// is in the last bit of a double.
bool check_means(Checker& checker) {
  bool right = true;
  const auto means = [&](std::vector<float> values) {
    for (const float sign : {1.0F, -1.0F}) {
      for (float& value : values)
        value = sign * (value != 0 ? value : 0x1p-100F);
      Bytes data(values.size() * sizeof(float));
      std::memcpy(data.data(), values.data(), data.size());
      right = checker.quantise({1, 0, 0}, data, 0, 0) && right;
    }
  };
  constexpr float kLittle = 0x1p-29F;
  // Beside each other, and behind each other in one sum.
  means({0x1p24F, 0, kLittle, 0, 1, 0, kLittle, 0});
  means({0, 0x1p24F, 0, kLittle, 0, 1, 0, kLittle});
  means({0x1p24F, kLittle, 0, 0, 1, kLittle, 0, 0});
  std::vector<float> rows(32);
  rows[0] = rows[8] = kLittle;
  rows[16] = 0x1p24F;
  rows[4] = 1;
  means(rows);
  return right;
}

// Scales on both sides of where divisions go by products (kernels/division.hpp), with values of every size
// below them, in whole groups.
bool check_scales(Checker& checker, std::mt19937_64& random) {
  bool right = true;
  for (const int exponent : {-149, -126, -65, -64, -1, 0, 63, 64, 65, 127}) {
    for (const float mantissa : {1.0F, 1.0F + 0x1p-23F, 1.75F, 2.0F - 0x1p-23F}) {
      const float scale = std::ldexp(mantissa, exponent);
      std::vector<float> values(1028);
      for (float& value : values) {
        const float part = static_cast<float>(random() & 0xFFFFFFU) * 0x1p-24F;
        value = std::ldexp(random() % 2 == 0 ? part : -part, -static_cast<int>(random() % 40)) * scale;
        if (random() % 8 == 0) value = random() % 2 == 0 ? 0.0F : -0.0F;
      }
      values[random() % 1024] = -scale;
      Bytes data(values.size() * sizeof(float));
      std::memcpy(data.data(), values.data(), data.size());
      for (const unsigned bits : {8U, 4U, 2U})
        right = checker.quantise({bits, 1024, 7}, data, 0, 12) && right;
    }
  }
  return right;
}

// Of what is not finite there is much in wild numbers, and sums of others run over.
bool check_sum(Checker& checker, std::mt19937_64& random, std::size_t most) {
  bool right = true;
  std::size_t turn = 0;
  const auto sum = [&](gpu::Quantiser how, std::size_t n, std::uint64_t bucket, std::size_t vectors) {
    std::vector<Bytes> all;
    for (std::size_t k = 0; k < vectors; ++k)
      all.push_back(floats(turn % 3 == k % 3 ? Kind::wild : Kind::normal, n, random));
    how.bucket = bucket;
    how.seed = turn;
    right = checker.sum(how, all, turn % 4) && checker.sum(how, all, 0, false) && right;
    ++turn;
  };
  for (const gpu::Quantiser& how : kCodecs) {
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{7}, most}) {
      for (const std::uint64_t bucket : {0U, 1U, 3U, 4U, 7U, 100U, 512U, 516U, 1024U, 1030U, 4096U}) {
        for (const std::size_t vectors : {1, 2, 3})
          if (how.bits < 16 || bucket < 2) sum(how, n, bucket, vectors);
      }
    }
    sum(how, std::min<std::size_t>(most, 5'003), 1024, 64);
    sum(how, std::min<std::size_t>(most, 5'003), 12, 64);
  }
  return right;
}

// Vectors that end within the last of the groups, or of the strips of them, that are taken at once.
bool check_ends(Checker& checker, std::mt19937_64& random) {
  bool right = true;
  for (const unsigned bits : {8U, 4U, 2U, 1U}) {
    for (const std::size_t n : {511, 512, 513, 1023, 1025, 1535, 1536})
      for (const std::uint64_t bucket : {0U, 512U, 1024U})
        right = checker.quantise({bits, bucket, n}, floats(Kind::normal, n, random), 0, 0) && right;
  }
  return right;
}

// More buckets than blocks run at once.
bool check_large(Checker& checker, std::mt19937_64& random) {
  const std::size_t n = checker.multiprocessors() * 16 * 1024 * 2 + 1003;
  bool right = true;
  for (const std::uint64_t bucket : {100U, 1024U}) {
    right = checker.sum({8, bucket, 1}, {floats(Kind::normal, n, random), floats(Kind::wild, n, random)}, 0,
                        false) &&
            right;
    for (const unsigned bits : {16U, 8U, 1U})
      right = checker.quantise({bits, bucket, 1}, floats(Kind::normal, n, random), 0, 0) && right;
  }
  return right;
}

}  // namespace
}  // namespace heddle::test

int main(int argc, char** argv) {
  using namespace heddle::test;
  if (argc < 2) return 2;
  const bool shorter = argc > 2 && std::strcmp(argv[2], "--shorter") == 0;
  const bool brief = shorter || (argc > 2 && std::strcmp(argv[2], "--short") == 0);
  std::mt19937_64 random(11);
  Checker checker(argv[1]);
  const std::size_t most = shorter ? 1'203 : 20'003;
  bool right = say("quantise", check_quantise(checker, random, most));
  right = say("ends of vectors", check_ends(checker, random)) && right;
  right = say("scales of all sizes", check_scales(checker, random)) && right;
  right = say("halves of all kinds", check_halves(checker)) && right;
  right = say("means of signs", check_means(checker)) && right;
  right = say("dequantise, and sums of it", check_sum(checker, random, most)) && right;
  if (!brief) right = say("large vectors", check_large(checker, random)) && right;
  std::printf("  %zu cases\n", checker.cases());
  return right ? 0 : 1;
}
