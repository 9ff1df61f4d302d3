// Rates of the codecs, selections and the residual on one core. Not a test: it prints a table and judges
// nothing.
//
//   compress_bench [milliseconds per figure]
//
// Figures are 10^9 values a second: of a vector that stays in the cache (64 KiB), and of one of 64 MiB.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "compress/codec.hpp"
#include "compress/residual.hpp"
#include "compress/select.hpp"
#include "engine/kernels/kernels.hpp"

namespace heddle::bench {
namespace {

using Clock = std::chrono::steady_clock;

// The best of many calls, in 10^9 values a second.
template <class Call>
double rate(std::size_t n, double budget_ms, Call call) {
  const std::size_t batch = std::max<std::size_t>(1, (std::size_t{1} << 18) / n);
  double best_s = 1e300;
  const auto start = Clock::now();
  do {
    const auto begin = Clock::now();
    for (std::size_t i = 0; i < batch; ++i)
      call();
    const std::chrono::duration<double> took = Clock::now() - begin;
    best_s = std::min(best_s, took.count() / static_cast<double>(batch));
  } while (std::chrono::duration<double, std::milli>(Clock::now() - start).count() < budget_ms);
  return static_cast<double>(n) / best_s * 1e-9;
}

// Close to normally distributed, with all magnitudes different enough.
std::vector<float> gradient(std::size_t n) {
  std::vector<float> values(n);
  std::uint64_t state = 1;
  for (float& value : values) {
    double sum = 0;
    for (int i = 0; i < 4; ++i) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      sum += static_cast<double>(state >> 11) * 0x1p-53 - 0.5;
    }
    value = static_cast<float>(sum * 1e-3);
  }
  return values;
}

constexpr std::size_t kCached = std::size_t{1} << 14;
constexpr std::size_t kLong = std::size_t{1} << 24;

void codecs(double budget_ms) {
  const std::vector<float> values = gradient(kLong);
  std::vector<float> decoded(kLong);
  std::vector<std::byte> bytes(kLong * sizeof(float));
  std::printf("%-10s%10s%10s%10s%10s%10s\n", "codec", "bits", "encode", "64 MiB", "decode", "64 MiB");
  for (int codec = 0; codec < kCodecCount; ++codec) {
    const CodecSettings settings{static_cast<Codec>(codec), 1024, 1};
    double rates[4] = {};
    for (int size = 0; size < 2; ++size) {
      const std::size_t n = size == 0 ? kCached : kLong;
      const std::span<const std::byte> coded(bytes.data(), coded_bytes(settings, n));
      rates[size] = rate(n, budget_ms, [&] { encode(settings, values.data(), n, 0, bytes.data()); });
      rates[size + 2] = rate(n, budget_ms, [&] {
        if (!decode(settings, coded, decoded.data(), n).ok()) std::abort();
      });
    }
    std::printf("%-10s%10.2f%10.2f%10.2f%10.2f%10.2f\n", codec_name(settings.codec),
                static_cast<double>(coded_bytes(settings, kLong)) * 8 / kLong, rates[0], rates[1], rates[2],
                rates[3]);
  }
}

void selections(double budget_ms) {
  const std::vector<float> values = gradient(kLong);
  std::vector<float> rising(kLong);
  for (std::size_t i = 0; i < kLong; ++i)
    rising[i] = 1.0F + static_cast<float>(i);
  const std::vector<float> equal(kLong, 1.0F);
  std::printf("\n%-26s%10s%10s%10s\n", "selection of 2^24", "0.1%", "1%", "10%");
  const auto line = [&](const char* name, auto select) {
    std::printf("%-26s", name);
    for (const std::size_t part : {1000, 100, 10})
      std::printf("%10.2f", rate(kLong, budget_ms, [&] { select(kLong / part); }));
    std::printf("\n");
  };
  line("top_k", [&](std::size_t k) { top_k(values.data(), kLong, k); });
  line("top_k, all equal", [&](std::size_t k) { top_k(equal.data(), kLong, k); });
  line("top_k, rising", [&](std::size_t k) { top_k(rising.data(), kLong, k); });
  line("top_k_sampled", [&](std::size_t k) { top_k_sampled(values.data(), kLong, k, 1); });
  line("top_k_sampled, all equal", [&](std::size_t k) { top_k_sampled(equal.data(), kLong, k, 1); });
  line("random_k", [&](std::size_t k) { random_k(kLong, k, 1); });
}

void residuals(double budget_ms) {
  const std::vector<float> values = gradient(kLong);
  std::vector<float> out(kLong);
  Residual residual(kLong);
  const SelectedEntries sent = top_k(values.data(), kLong, kLong / 100);
  std::printf("\n%-26s%10s\n", "residual of 2^24", "rate");
  std::printf("%-26s%10.2f\n", "compensate",
              rate(kLong, budget_ms, [&] { residual.compensate(values.data(), out.data()); }));
  std::printf("%-26s%10.2f\n", "keep, of a selection", rate(kLong, budget_ms, [&] {
                if (!residual.keep(values.data(), sent.indices).ok()) std::abort();
              }));
  std::printf("%-26s%10.2f\n", "keep, of a codec",
              rate(kLong, budget_ms, [&] { residual.keep(values.data(), out.data()); }));
  std::printf("%-26s%10.2f\n", "serialise", rate(kLong, budget_ms, [&] { residual.serialise(); }));
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) {
  const double budget_ms = argc > 1 ? std::atof(argv[1]) : 300;
  std::printf("instruction set %s; 10^9 values a second\n\n", heddle::fold_target());
  heddle::bench::codecs(budget_ms);
  heddle::bench::selections(budget_ms);
  heddle::bench::residuals(budget_ms);
  return 0;
}
