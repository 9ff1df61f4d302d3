#include "common/stats.hpp"

#include <algorithm>
#include <cmath>
#include <random>

namespace heddle::bench {
namespace {

std::vector<double> sorted(std::span<const double> values) {
  std::vector<double> copy(values.begin(), values.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

double median_of_scratch(std::vector<double>& values) {
  const std::size_t half = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half), values.end());
  if (values.size() % 2 == 1) return values[half];
  const double below = *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half));
  return (below + values[half]) / 2;
}

// At lag 1; 0 where nothing varies.
double autocorrelation(const std::vector<double>& values) {
  double mean = 0;
  for (const double value : values)
    mean += value / static_cast<double>(values.size());
  double square = 0;
  double product = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    square += (values[i] - mean) * (values[i] - mean);
    if (i > 0) product += (values[i] - mean) * (values[i - 1] - mean);
  }
  return square > 0 ? product / square : 0;
}

}  // namespace

double median(std::span<const double> values) {
  if (values.empty()) return 0;
  std::vector<double> copy(values.begin(), values.end());
  return median_of_scratch(copy);
}

Interval median_interval(std::span<const double> values) {
  if (values.empty()) return {};
  const std::vector<double> order = sorted(values);
  const std::size_t n = order.size();
  // Probability that fewer than k of n fair coins show heads, summed until it exceeds 2.5%.
  std::size_t k = 0;
  double below = 0;
  const auto coins = static_cast<double>(n);
  for (std::size_t i = 0; i < n / 2; ++i) {
    const auto heads = static_cast<double>(i);
    below += std::exp(std::lgamma(coins + 1) - std::lgamma(heads + 1) - std::lgamma(coins - heads + 1) -
                      coins * std::log(2.0));
    if (below > 0.025) break;
    k = i + 1;
  }
  const std::size_t index = k == 0 ? 0 : k - 1;
  return {order[index], order[n - 1 - index]};
}

std::size_t block_length(std::span<const double> a, std::span<const double> b) {
  constexpr double kMostCorrelated = 0.95;
  std::vector<double> logs[3];
  for (std::size_t i = 0; i < a.size(); ++i) {
    logs[0].push_back(std::log(a[i]));
    logs[1].push_back(std::log(b[i]));
    logs[2].push_back(logs[0].back() - logs[1].back());
  }
  const auto n = static_cast<double>(a.size());
  double rho = 0;
  for (const std::vector<double>& series : logs)
    rho = std::max(rho, autocorrelation(series));
  // Of few values it comes out too low by about this (M. G. Kendall, Biometrika 41, 1954).
  rho = std::min(rho + (1 + 3 * rho) / n, kMostCorrelated);
  const double best = std::cbrt(1.5 * n) * std::pow(2 * rho / (1 - rho * rho), 2.0 / 3.0);
  const double length = std::ceil(std::max(std::cbrt(n), best));
  return static_cast<std::size_t>(std::clamp(length, 1.0, std::max(n / 3, 1.0)));
}

std::vector<double> bootstrap_ratios(std::span<const double> a, std::span<const double> b, int resamples,
                                     std::uint64_t seed, std::size_t block) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<std::size_t> pick(0, a.size() - 1);
  std::vector<double> drawn_a(a.size());
  std::vector<double> drawn_b(a.size());
  std::vector<double> ratios;
  ratios.reserve(static_cast<std::size_t>(resamples));
  for (int resample = 0; resample < resamples; ++resample) {
    std::size_t round = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      round = i % block == 0 ? pick(random) : (round + 1) % a.size();
      drawn_a[i] = a[round];
      drawn_b[i] = b[round];
    }
    ratios.push_back(median_of_scratch(drawn_a) / median_of_scratch(drawn_b));
  }
  return ratios;
}

Interval central_interval(std::span<const double> values) {
  if (values.empty()) return {};
  const std::vector<double> order = sorted(values);
  const auto last = static_cast<double>(order.size() - 1);
  return {order[static_cast<std::size_t>(std::floor(0.025 * last))],
          order[static_cast<std::size_t>(std::ceil(0.975 * last))]};
}

double geometric_mean(std::span<const double> values) {
  if (values.empty()) return 0;
  double logs = 0;
  for (const double value : values)
    logs += std::log(value);
  return std::exp(logs / static_cast<double>(values.size()));
}

}  // namespace heddle::bench
