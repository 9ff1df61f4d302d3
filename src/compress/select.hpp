// Which entries of a dense f32 vector to send. Indices come sorted and each once, in 32 bits where the vector
// has at most 2^32 entries. Pure functions: the same arguments give the same entries on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle {

// One of the two arrays, by the length of the vector.
struct Indices {
  bool is_wide = false;
  std::vector<std::uint32_t> narrow;
  std::vector<std::uint64_t> wide;

  std::size_t size() const { return is_wide ? wide.size() : narrow.size(); }
  std::uint64_t operator[](std::size_t i) const { return is_wide ? wide[i] : narrow[i]; }
};

struct SelectedEntries {
  Indices indices;
  std::vector<float> values;
};

// The k entries of largest magnitude, exactly; of equal ones those with lower indices. A NaN counts as larger
// than infinity, all NaNs as equal. Zeros are never taken, so that fewer than k may come.
//
// One pass over the vector keeps what is above a threshold in room for 2k + 1,024 entries. A sample sets the
// threshold. When the room is full, it is cut to its k largest, found by a radix select on the bits of the
// magnitudes (as in J. Zhang, A. Naruse, X. Li, Y. Wang, "Parallel Top-K Algorithms on GPU: A Comprehensive
// Study and New Methods", SC'23), and the threshold rises above the least of them. When fewer than k were
// above the sample's threshold, a second pass starts without one. Time is linear in n whatever the values.
SelectedEntries top_k(const float* values, std::size_t n, std::size_t k);

// About the k entries of largest magnitude: those above a threshold that is estimated from a sample (Y. Lin,
// S. Han, H. Mao, Y. Wang, W. Dally, "Deep Gradient Compression: Reducing the Communication Bandwidth for
// Distributed Training", ICLR 2018). From k/2 to 3k/2 come, namely all that are not below some magnitude, or
// else exactly those of top_k(): where more than 3k/2 are above the threshold, where fewer than k/2 are, and
// where k is so small a part of n that a sample says little.
SelectedEntries top_k_sampled(const float* values, std::size_t n, std::size_t k, std::uint64_t seed);

// k different positions below n, each set of k as likely as any other; all n where k >= n. Every rank that
// has the seed draws the same ones, so that indices need not be sent (R. Floyd's algorithm: J. Bentley, R.
// Floyd, "A Sample of Brilliance", Communications of the ACM 30(9), 1987). Memory for k positions.
Indices random_k(std::uint64_t n, std::size_t k, std::uint64_t seed);

// The values at these indices.
std::vector<float> gather(const float* values, const Indices& indices);

}  // namespace heddle
