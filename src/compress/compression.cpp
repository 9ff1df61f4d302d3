#include "compress/compression.hpp"

#include <array>
#include <charconv>
#include <optional>

#include <fmt/format.h>

namespace heddle {
namespace {

struct Row {
  std::string_view name;
  Compression::Method method;
  Codec codec;
};
using Method = Compression::Method;
constexpr std::array kRows = {
    Row{"fp16", Method::codec, Codec::f16},
    Row{"bf16", Method::codec, Codec::bf16},
    Row{"qsgd:8", Method::codec, Codec::qsgd8},
    Row{"qsgd:4", Method::codec, Codec::qsgd4},
    Row{"qsgd:2", Method::codec, Codec::qsgd2},
    Row{"terngrad", Method::codec, Codec::ternary},
    Row{"onebit", Method::codec, Codec::sign},
    Row{"topk", Method::top_k, Codec::exact},
    Row{"topk-sampled", Method::top_k_sampled, Codec::exact},
    Row{"randomk", Method::random_k, Codec::exact},
};

bool has_buckets(const Row& row) {
  return row.method == Method::codec && row.codec != Codec::f16 && row.codec != Codec::bf16;
}

template <typename Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// `rest`: what comes after the name and a colon.
std::optional<Compression> read(const Row& row, std::string_view rest, bool has_rest) {
  Compression compression{row.method, {row.codec}};
  if (row.method != Method::codec) {
    const std::optional<double> fraction = number_in<double>(rest);
    if (!fraction || !(*fraction > 0 && *fraction <= 1)) return std::nullopt;
    compression.fraction = *fraction;
  } else if (has_rest) {
    const std::optional<std::uint32_t> bucket = number_in<std::uint32_t>(rest);
    if (!has_buckets(row) || !bucket || *bucket == 0 || *bucket > 1U << 20) return std::nullopt;
    compression.codec.bucket = *bucket;
  }
  return compression;
}

}  // namespace

Result<Compression> parse_compression(std::string_view text) {
  for (const Row& row : kRows) {
    if (!text.starts_with(row.name)) continue;
    const std::string_view rest = text.substr(row.name.size());
    if (!rest.empty() && rest[0] != ':') continue;
    if (const auto compression = read(row, rest.empty() ? rest : rest.substr(1), !rest.empty()))
      return *compression;
  }
  return Status(Code::invalid_argument,
                fmt::format("\"{}\" is not a compression; there are fp16, bf16, qsgd:8, qsgd:4, qsgd:2, "
                            "terngrad, onebit (those from qsgd "
                            "on with \":BUCKET\", 1 to 1048576, if wanted), and topk, topk-sampled, randomk, "
                            "each with \":FRACTION\" of the "
                            "entries, more than 0 and at most 1",
                            text));
}

std::string compression_complaint(const std::string& value) {
  if (value.empty()) return {};
  const Result<Compression> how = parse_compression(value);
  return how.ok() ? std::string() : "HEDDLE_COMPRESS=" + how.status().message() + "; nothing is compressed";
}

bool gains_from_residual(const Compression& compression) {
  const Codec codec = compression.codec.codec;
  // These lose no more than a sum in half precision would: no memory for that.
  return codec != Codec::f16 && codec != Codec::bf16 && settles_with_residual(compression);
}

bool settles_with_residual(const Compression& compression) {
  return compression.codec.codec != Codec::qsgd2 && compression.codec.codec != Codec::ternary;
}

std::string compression_name(const Compression& compression) {
  for (const Row& row : kRows) {
    if (row.method != compression.method || row.codec != compression.codec.codec) continue;
    if (row.method != Method::codec) return fmt::format("{}:{}", row.name, compression.fraction);
    const bool usual = !has_buckets(row) || compression.codec.bucket == CodecSettings{}.bucket;
    return usual ? std::string(row.name) : fmt::format("{}:{}", row.name, compression.codec.bucket);
  }
  return codec_name(compression.codec.codec);
}

}  // namespace heddle
