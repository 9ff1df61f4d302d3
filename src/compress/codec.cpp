#include "compress/codec.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string>

#include "compress/kernels.hpp"

namespace heddle {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian, and memory is copied to it");

// In place of a scale: the bucket holds a value that is not finite.
constexpr std::uint32_t kNotFinite = 0x7FC00000U;

// Codes that are a byte each before they are packed; a multiple of 8.
constexpr std::size_t kBlock = 512;

// Of a codec with buckets: 2 levels + 1 codes in `bits` bits behind `header` bytes of scales.
struct Layout {
  unsigned bits = 0;
  std::uint32_t levels = 0;  // 0: sign
  std::size_t header = sizeof(float);

  std::size_t code_bytes(std::size_t n) const { return n / 8 * bits + (n % 8 * bits + 7) / 8; }
  std::size_t bytes(std::size_t n) const { return header + code_bytes(n); }
};

Layout layout_of(Codec codec) {
  switch (codec) {
    case Codec::qsgd8:
      return {8, 127};
    case Codec::qsgd4:
      return {4, 7};
    case Codec::qsgd2:
    case Codec::ternary:
      return {2, 1};
    case Codec::sign:
      return {1, 0, 2 * sizeof(float)};
    case Codec::exact:
    case Codec::f16:
    case Codec::bf16:
      break;
  }
  return {};
}

std::size_t bucket_length(const CodecSettings& settings, std::size_t n) {
  return settings.bucket == 0 ? n : std::min<std::size_t>(settings.bucket, n);
}

void store_scale(std::uint32_t scale, std::uint8_t* out) {
  std::memcpy(out, &scale, sizeof scale);
}

std::uint32_t load_scale(const std::uint8_t* in) {
  std::uint32_t scale = 0;
  std::memcpy(&scale, in, sizeof scale);
  return scale;
}

void quantise_block(const float* values, std::size_t n, float scale, std::uint32_t levels, std::uint64_t seed,
                    std::uint64_t position, std::uint8_t* codes) {
  while (n > 0) {
    // The key changes where the lower half of the position runs over.
    const auto low = static_cast<std::uint32_t>(position);
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(n, (std::uint64_t{1} << 32) - low));
    compress::quantise(values, count, scale, levels, random_key(seed, position), low, codes);
    values += count;
    codes += count;
    position += count;
    n -= count;
  }
}

void encode_levels(const Layout& layout, const float* values, std::size_t n, std::uint64_t seed,
                   std::uint64_t position, std::uint8_t* out) {
  const std::uint32_t largest = compress::largest_magnitude(values, n);
  const bool finite = largest < compress::kInfinityBits;
  store_scale(finite ? largest : kNotFinite, out);
  out += layout.header;
  std::uint8_t codes[kBlock];
  for (std::size_t at = 0; at < n; at += kBlock) {
    const std::size_t count = std::min(kBlock, n - at);
    std::uint8_t* to = out + layout.code_bytes(at);
    std::uint8_t* block = layout.bits == 8 ? to : codes;
    if (largest == 0 || !finite) {
      std::memset(block, static_cast<int>(layout.levels), count);
    } else {
      quantise_block(values + at, count, std::bit_cast<float>(largest), layout.levels, seed, position + at,
                     block);
    }
    if (layout.bits != 8) compress::pack(codes, count, layout.bits, to);
  }
}

void encode_signs(const Layout& layout, const float* values, std::size_t n, std::uint8_t* out) {
  if (compress::largest_magnitude(values, n) >= compress::kInfinityBits) {
    std::memset(out, 0, layout.bytes(n));
    store_scale(kNotFinite, out);
    store_scale(kNotFinite, out + sizeof(float));
    return;
  }
  const compress::SignSums sums = compress::split_signs(values, n, out + layout.header);
  const auto mean = [](double sum, std::size_t count) {
    return count == 0 ? 0.0F : static_cast<float>(sum / static_cast<double>(count));
  };
  const float positive = mean(sums.positive, n - sums.negatives);
  const float negative = mean(sums.negative, sums.negatives);
  std::memcpy(out, &positive, sizeof positive);
  std::memcpy(out + sizeof positive, &negative, sizeof negative);
}

Status complaint(Codec codec, const std::string& what) {
  return Status(Code::invalid_argument, std::string(codec_name(codec)) + ": " + what);
}

// Where a bucket is in its run, for what is said of it.
struct Place {
  Codec codec;
  std::size_t bucket;
  std::size_t first;  // value
};

Status check_scale(const Place& place, std::uint32_t scale) {
  if (scale < compress::kInfinityBits || scale == kNotFinite) return {};
  return complaint(place.codec, "bucket " + std::to_string(place.bucket) + " has the scale " +
                                    std::to_string(std::bit_cast<float>(scale)) +
                                    ", which is neither a finite number from 0 up nor the mark of a bucket "
                                    "that is not finite");
}

Status check_padding(const Place& place, const Layout& layout, std::size_t n, const std::uint8_t* codes) {
  const std::size_t used = n % 8 * layout.bits % 8;
  if (used == 0 || codes[layout.code_bytes(n) - 1] >> used == 0) return {};
  return complaint(place.codec,
                   "bits behind the last code of bucket " + std::to_string(place.bucket) + " are not 0");
}

Status decode_levels(const Place& place, const Layout& layout, const std::uint8_t* in, float* values,
                     std::size_t n) {
  const std::uint32_t scale = load_scale(in);
  HEDDLE_TRY(check_scale(place, scale));
  const std::uint8_t* from = in + layout.header;
  HEDDLE_TRY(check_padding(place, layout, n, from));
  std::uint8_t unpacked[kBlock];
  for (std::size_t at = 0; at < n; at += kBlock) {
    const std::size_t count = std::min(kBlock, n - at);
    const std::uint8_t* codes = from + layout.code_bytes(at);
    if (layout.bits != 8) {
      compress::unpack(codes, count, layout.bits, unpacked);
      codes = unpacked;
    }
    const std::uint32_t largest =
        compress::dequantise(codes, count, std::bit_cast<float>(scale), layout.levels, values + at);
    if (largest <= 2 * layout.levels) continue;
    const auto bad = static_cast<std::size_t>(std::find(codes, codes + count, largest) - codes);
    return complaint(place.codec, "value " + std::to_string(place.first + at + bad) + " has the code " +
                                      std::to_string(largest) + "; they go up to " +
                                      std::to_string(2 * layout.levels));
  }
  return {};
}

Status decode_signs(const Place& place, const Layout& layout, const std::uint8_t* in, float* values,
                    std::size_t n) {
  const std::uint32_t positive = load_scale(in);
  const std::uint32_t negative = load_scale(in + sizeof(float));
  HEDDLE_TRY(check_scale(place, positive));
  HEDDLE_TRY(check_scale(place, negative));
  if ((positive == kNotFinite) != (negative == kNotFinite))
    return complaint(place.codec,
                     "bucket " + std::to_string(place.bucket) + " marks one of its two scales as not finite");
  HEDDLE_TRY(check_padding(place, layout, n, in + layout.header));
  compress::join_signs(in + layout.header, n, std::bit_cast<float>(positive), std::bit_cast<float>(negative),
                       values);
  return {};
}

// A sum that is too large for a float is infinite, and its bucket means nothing.
double quantised_bound(Codec codec, double max) {
  constexpr double kInfinite = 0x1.FFFFFFp127;
  if (max >= kInfinite) return std::numeric_limits<double>::infinity();
  if (codec == Codec::sign) return max;
  return max / layout_of(codec).levels + 0x1p-21 * max + 0x1p-149;
}

// Of a type where half a unit in the last place of 1 is `relative`, subnormals are `spacing` apart, and what
// is not below `infinity` rounds to that.
double rounded_bound(double max, double relative, double spacing, double infinity) {
  if (max >= infinity) return std::numeric_limits<double>::infinity();
  return std::max(max * relative, spacing / 2);
}

}  // namespace

const char* codec_name(Codec codec) {
  constexpr const char* kNames[kCodecCount] = {"exact", "f16",   "bf16",    "qsgd8",
                                               "qsgd4", "qsgd2", "ternary", "sign"};
  return static_cast<int>(codec) < kCodecCount ? kNames[static_cast<int>(codec)] : "unknown codec";
}

std::size_t coded_bytes(const CodecSettings& settings, std::size_t n) {
  if (settings.codec == Codec::exact) return n * sizeof(float);
  const Layout layout = layout_of(settings.codec);
  if (layout.bits == 0) return n * 2;
  if (n == 0) return 0;
  const std::size_t bucket = bucket_length(settings, n);
  return n / bucket * layout.bytes(bucket) + (n % bucket == 0 ? 0 : layout.bytes(n % bucket));
}

void encode(const CodecSettings& settings, const float* values, std::size_t n, std::uint64_t stream_position,
            std::byte* out) {
  if (n == 0) return;
  auto* to = reinterpret_cast<std::uint8_t*>(out);
  if (settings.codec == Codec::exact) {
    std::memcpy(to, values, n * sizeof(float));
  } else if (settings.codec == Codec::f16) {
    compress::to_f16(values, n, to);
  } else if (settings.codec == Codec::bf16) {
    compress::to_bf16(values, n, to);
  } else {
    const Layout layout = layout_of(settings.codec);
    const std::size_t bucket = bucket_length(settings, n);
    for (std::size_t at = 0; at < n; at += bucket) {
      const std::size_t count = std::min(bucket, n - at);
      if (layout.levels == 0) {
        encode_signs(layout, values + at, count, to);
      } else {
        encode_levels(layout, values + at, count, settings.seed, stream_position + at, to);
      }
      to += layout.bytes(count);
    }
  }
}

Status decode(const CodecSettings& settings, std::span<const std::byte> in, float* values, std::size_t n) {
  if (static_cast<int>(settings.codec) >= kCodecCount)
    return Status(Code::invalid_argument,
                  "there is no codec " + std::to_string(static_cast<int>(settings.codec)));
  if (in.size() != coded_bytes(settings, n))
    return complaint(settings.codec, std::to_string(n) + " values take " +
                                         std::to_string(coded_bytes(settings, n)) + " bytes, not " +
                                         std::to_string(in.size()));
  if (n == 0) return {};
  const auto* from = reinterpret_cast<const std::uint8_t*>(in.data());
  if (settings.codec == Codec::exact) {
    std::memcpy(values, from, n * sizeof(float));
  } else if (settings.codec == Codec::f16) {
    compress::from_f16(from, n, values);
  } else if (settings.codec == Codec::bf16) {
    compress::from_bf16(from, n, values);
  } else {
    const Layout layout = layout_of(settings.codec);
    const std::size_t bucket = bucket_length(settings, n);
    for (std::size_t at = 0; at < n; at += bucket) {
      const std::size_t count = std::min(bucket, n - at);
      const Place place{settings.codec, at / bucket, at};
      HEDDLE_TRY(layout.levels == 0 ? decode_signs(place, layout, from, values + at, count)
                                    : decode_levels(place, layout, from, values + at, count));
      from += layout.bytes(count);
    }
  }
  return {};
}

double error_bound(const CodecSettings& settings, double max_magnitude) {
  switch (settings.codec) {
    case Codec::exact:
      return 0;
    case Codec::f16:
      return rounded_bound(max_magnitude, 0x1p-11, 0x1p-24, 65520);
    case Codec::bf16:
      return rounded_bound(max_magnitude, 0x1p-8, 0x1p-133, 0x1.FFp127);
    default:
      return quantised_bound(settings.codec, max_magnitude);
  }
}

}  // namespace heddle
