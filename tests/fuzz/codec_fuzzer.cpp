// Codes and residuals may be anything: they are refused with a sentence, or they keep their promises.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "compress/codec.hpp"
#include "compress/residual.hpp"

using namespace heddle;

namespace {

void demand(bool holds) {
  if (!holds) std::abort();
}

void decode_any(std::span<const std::byte> bytes) {
  if (bytes.size() < 4) return;
  const CodecSettings settings{static_cast<Codec>(static_cast<std::uint8_t>(bytes[0]) % (kCodecCount + 1)),
                               static_cast<std::uint32_t>(bytes[1]), 1};
  const std::size_t n = static_cast<std::size_t>(bytes[2]) + 256 * (static_cast<std::size_t>(bytes[3]) % 8);
  bytes = bytes.subspan(4);
  // Mostly of the right length, so that what is behind that check is reached as well.
  std::vector<std::byte> coded(bytes.begin(), bytes.end());
  if (n % 8 != 7) coded.resize(coded_bytes(settings, n));
  std::vector<float> values(n);
  const Status status = decode(settings, coded, values.data(), n);
  if (!status.ok()) {
    demand(!status.message().empty());
    return;
  }
  demand(coded.size() == coded_bytes(settings, n));
  encode(settings, values.data(), n, 0, coded.data());
  std::vector<float> again(n);
  demand(decode(settings, coded, again.data(), n).ok());
  for (std::size_t i = 0; i < n; ++i)
    demand(!std::isnan(values[i]) || std::isnan(again[i]));
}

void parse_any(std::span<const std::byte> bytes) {
  const auto residual = Residual::parse(bytes);
  if (!residual.ok()) {
    demand(!residual.status().message().empty());
    return;
  }
  const auto again = residual->serialise();
  demand(again.size() == bytes.size() && std::memcmp(again.data(), bytes.data(), bytes.size()) == 0);
}

// Whatever is kept, one changed byte is noticed.
void damage_one(std::span<const std::byte> bytes) {
  if (bytes.size() < 3) return;
  Residual residual((bytes.size() - 3) / sizeof(float));
  if (residual.size() > 0)
    std::memcpy(residual.values().data(), bytes.data() + 3, residual.size() * sizeof(float));
  auto damaged = residual.serialise();
  parse_any(damaged);
  const std::size_t at =
      (static_cast<std::size_t>(bytes[0]) + 256 * static_cast<std::size_t>(bytes[1])) % damaged.size();
  damaged[at] ^= bytes[2];
  demand(bytes[2] == std::byte{0} || !Residual::parse(damaged).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  decode_any(bytes);
  parse_any(bytes);
  damage_one(bytes);
  return 0;
}
