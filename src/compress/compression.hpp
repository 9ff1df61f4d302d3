// What a caller asks for when an allreduce may lose precision.
#pragma once

#include <string>
#include <string_view>

#include "base/status.hpp"
#include "compress/codec.hpp"

namespace heddle {

struct Compression {
  enum class Method : std::uint8_t { codec, top_k, top_k_sampled, random_k };
  Method method = Method::codec;
  CodecSettings codec;     // of the method `codec`; its seed is that of all methods
  double fraction = 0.01;  // of the entries: the others
};

// "fp16", "bf16"; "qsgd:8", "qsgd:4", "qsgd:2", "terngrad", "onebit", each with an optional bucket
// ("qsgd:4:512"; "onebit:256"); "topk:FRACTION", "topk-sampled:FRACTION", "randomk:FRACTION" (0 < FRACTION <=
// 1). The status names what is wrong and what there is.
Result<Compression> parse_compression(std::string_view text);
// What is wrong with HEDDLE_COMPRESS, in one line; empty where nothing is, or it is not set.
std::string compression_complaint(const std::string& value);
// Whether what is lost should come back in the next sum: where it is something, and adding it makes the next
// loss no larger for ever (docs/compression.md).
bool gains_from_residual(const Compression& compression);
// Whether what is left out settles where it always comes back: it does not where each sum loses as much as
// the largest value, residual included.
bool settles_with_residual(const Compression& compression);
// Such a text.
std::string compression_name(const Compression& compression);

}  // namespace heddle
