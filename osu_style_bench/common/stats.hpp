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
// continuous distribution of independent values, and is too narrow where they depend on each other (H. A.
// David, H. N. Nagaraja, Order Statistics, 2003, section 7.1). With fewer than six values no such k exists:
// then it is the whole range, which covers less than 95%.
Interval median_interval(std::span<const double> values);

// How many rounds in a row a bootstrap draws at once: n^(1/3), and more where one round is like the one
// before. That is the length which makes the error of the estimated variance least (D. N. Politis, H. White,
// Econometric Reviews 23(1), 2004, and the correction of 28(4), 2009), with the autocorrelations of an AR(1)
// series: the strongest at lag 1 of log a, log b and their difference. A third of the rounds at most.
std::size_t block_length(std::span<const double> a, std::span<const double> b);

// Ratios median(a)/median(b) of `resamples` bootstrap samples that draw rounds (a[i], b[i]) as pairs, with
// replacement (B. Efron, The Annals of Statistics 7(1), 1979), in drawing order. Pairs, because the two
// values of a round were measured right after each other and share the machine's mood; and `block` rounds in
// a row, the first after the last (circular: Politis and Romano, 1992), because that mood lasts. Sizes of `a`
// and `b` are equal and not 0.
std::vector<double> bootstrap_ratios(std::span<const double> a, std::span<const double> b, int resamples,
                                     std::uint64_t seed, std::size_t block);

// The 2.5% and 97.5% quantiles.
Interval central_interval(std::span<const double> values);

// The geometric mean of positive values; 0 of no values.
double geometric_mean(std::span<const double> values);

}  // namespace heddle::bench
