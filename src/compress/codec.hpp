// Codecs for runs of f32 values that may lose precision: what a gradient is sent as. docs/compression.md has
// the bytes.
//
// All are pure functions: the same values, settings and position give the same bytes, and the same bytes the
// same values, on every machine and instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.hpp"

namespace heddle {

enum class Codec : std::uint8_t {
  exact,  // the f32 values themselves
  // Rounded to nearest even; what is too large becomes infinity; a NaN stays one.
  f16,
  bf16,
  // D. Alistarh, D. Grubic, J. Li, R. Tomioka, M. Vojnovic, "QSGD: Communication-Efficient SGD via Gradient
  // Quantization and Encoding", NeurIPS 2017, with 8, 4 and 2 bits a value. The magnitude is one of s + 1
  // evenly spaced levels from 0 to the bucket's scale, s = 127, 7, 1, rounded up or down at random so that
  // the mean is the value. The scale is the largest magnitude in the bucket, not its 2-norm as in the paper's
  // analysis: then the error is at most scale / s. Codes have a fixed width, without the paper's Elias
  // coding.
  qsgd8,
  qsgd4,
  qsgd2,
  // W. Wen, C. Xu, F. Yan, C. Wu, Y. Wang, Y. Chen, H. Li, "TernGrad: Ternary Gradients to Reduce
  // Communication in Distributed Deep Learning", NeurIPS 2017: -1, 0 or 1 times the largest magnitude, at
  // random so that the mean is the value. No clipping of outliers. With that scale qsgd2 is the same rule,
  // and gives the same bytes.
  ternary,
  // F. Seide, H. Fu, J. Droppo, G. Li, D. Yu, "1-Bit Stochastic Gradient Descent and its Application to
  // Data-Parallel Distributed Training of Speech DNNs", Interspeech 2014: one bit a value, which decodes as
  // the mean of the bucket's values from 0 up or as that of the negative ones. Not random and not unbiased:
  // for use with a Residual.
  sign,
};
inline constexpr int kCodecCount = 8;
const char* codec_name(Codec codec);

struct CodecSettings {
  Codec codec = Codec::exact;
  std::uint32_t bucket = 1024;  // values that share a scale; 0: the whole run
  std::uint64_t seed = 0;       // of the stochastic rounding
};

// Exactly what encode() writes for n values.
std::size_t coded_bytes(const CodecSettings& settings, std::size_t n);

// Writes coded_bytes() bytes, for which `out` needs no alignment. How the value at values[i] is rounded
// depends on the seed and `stream_position` + i: a vector that is encoded in parts, each a whole number of
// buckets but the last, gives the same codes as in one piece.
//
// qsgd, ternary, sign: a bucket with a NaN or an infinity decodes as NaN altogether, so that a gradient that
// is not finite stays visible. The other codecs keep such values in their place. A bucket of zeros gives
// zeros.
void encode(const CodecSettings& settings, const float* values, std::size_t n, std::uint64_t stream_position,
            std::byte* out);

// The n values that `in` was encoded from, as well as the codec keeps them. Whatever the bytes are:
// `invalid_argument` and what is wrong with them, with anything in `values`, or n values that encode() could
// have meant.
Status decode(const CodecSettings& settings, std::span<const std::byte> in, float* values, std::size_t n);

// The largest |decoded - value| of any one value, where no magnitude in its bucket is above max_magnitude
// (finite, from 0 up).
//   exact           0
//   f16, bf16       max 2^-11 or max 2^-8, and half the spacing of subnormals at the least; infinity where
//                   max rounds to that
//   qsgd, ternary   max / s, and 2^-21 max for the arithmetic in f32
//   sign            max: no better for a single value
double error_bound(const CodecSettings& settings, double max_magnitude);

}  // namespace heddle
