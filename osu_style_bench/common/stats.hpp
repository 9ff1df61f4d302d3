// Medians, their confidence intervals and ratios of medians: no assumption of a normal distribution anywhere,
// because times of collectives have none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace heddle::bench {

struct Interval {
  double low = 0;
  double high = 0;
};

// The median; the mean of the middle two if their number is even. 0 of no values.
double median(std::span<const double> values);

// A 95% confidence interval of the median from order statistics: the k-th smallest and k-th largest value,
// with the largest k for which the binomial distribution (n, 1/2) leaves at most 5% outside. Holds for any
// continuous distribution of independent values (H. A. David, H. N. Nagaraja, Order Statistics, 2003,
// section 7.1). With fewer than six values no such k exists: then it is the whole range, which covers less
// than 95%.
Interval median_interval(std::span<const double> values);

// Ratios median(a)/median(b) of `resamples` bootstrap samples that draw rounds (a[i], b[i]) as pairs, with
// replacement (B. Efron, The Annals of Statistics 7(1), 1979), in drawing order. Pairs, because the two
// values of a round were measured right after each other and share the machine's mood. Sizes of `a` and `b`
// are equal and not 0.
std::vector<double> bootstrap_ratios(std::span<const double> a, std::span<const double> b, int resamples,
                                     std::uint64_t seed);

// The 2.5% and 97.5% quantiles.
Interval central_interval(std::span<const double> values);

// The geometric mean of positive values; 0 of no values.
double geometric_mean(std::span<const double> values);

}  // namespace heddle::bench
