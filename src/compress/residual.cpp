#include "compress/residual.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/whole_file.hpp"
#include "compress/random.hpp"

namespace heddle {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the file is little-endian, and memory is copied to it");

constexpr std::uint32_t kInfinityBits = 0x7F800000U;

bool is_finite(float value) {
  return (std::bit_cast<std::uint32_t>(value) & kInfinityBits) != kInfinityBits;
}
float finite_or_zero(float value) {
  return is_finite(value) ? value : 0.0F;
}

// In front of the values, in the file.
struct Header {
  char magic[4] = {'H', 'D', 'R', 'S'};
  std::uint32_t version = 1;
  std::uint64_t count = 0;
  std::uint64_t checksum = 0;
};
static_assert(sizeof(Header) == 24);

std::uint64_t checksum_of(std::uint64_t count, std::span<const std::byte> payload) {
  std::uint64_t hash = mix64(count);
  std::size_t at = 0;
  for (; at + 8 <= payload.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, payload.data() + at, 8);
    hash = mix64(hash ^ word);
  }
  std::uint64_t rest = 0;
  if (at < payload.size()) std::memcpy(&rest, payload.data() + at, payload.size() - at);
  return mix64(hash ^ rest);
}

Status damaged(const std::string& what) {
  return Status(Code::invalid_argument, "not a residual: " + what);
}

}  // namespace

void Residual::compensate(const float* gradient, float* out) const {
  for (std::size_t i = 0; i < values_.size(); ++i)
    out[i] = gradient[i] + values_[i];
}

Status Residual::keep(const float* compensated, const Indices& sent) {
  for (std::size_t i = 0; i < sent.size(); ++i)
    if (sent[i] >= values_.size()) return has_no(sent[i]);
  for (std::size_t i = 0; i < values_.size(); ++i)
    values_[i] = finite_or_zero(compensated[i]);
  for (std::size_t i = 0; i < sent.size(); ++i)
    values_[sent[i]] = 0;
  return {};
}

void Residual::keep(const float* compensated, const float* decoded) {
  for (std::size_t i = 0; i < values_.size(); ++i)
    values_[i] = finite_or_zero(compensated[i] - decoded[i]);
}

Status Residual::put_back(const SparseView& entries) {
  for (std::size_t i = 0; i < entries.count; ++i)
    if (entries.index(i) >= values_.size()) return has_no(entries.index(i));
  const auto* const values = static_cast<const float*>(entries.values);
  for (std::size_t i = 0; i < entries.count; ++i) {
    float& value = values_[entries.index(i)];
    value = finite_or_zero(value + values[i]);
  }
  return {};
}

void Residual::add(std::span<const float> values) {
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const float sum = values_[i] + values[i];
    if (is_finite(sum)) values_[i] = sum;
  }
}

Status Residual::has_no(std::uint64_t index) const {
  return Status(Code::invalid_argument, "index " + std::to_string(index) +
                                            " is not less than the size of the residual, " +
                                            std::to_string(values_.size()));
}

std::vector<std::byte> Residual::serialise() const {
  const auto payload = std::as_bytes(std::span(values_));
  Header header;
  header.count = values_.size();
  header.checksum = checksum_of(header.count, payload);
  std::vector<std::byte> bytes(sizeof header + payload.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!payload.empty()) std::memcpy(bytes.data() + sizeof header, payload.data(), payload.size());
  return bytes;
}

Result<Residual> Residual::parse(std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < sizeof header)
    return damaged(std::to_string(bytes.size()) + " bytes are less than its header");
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto payload = bytes.subspan(sizeof header);
  if (std::memcmp(header.magic, Header().magic, sizeof header.magic) != 0)
    return damaged("it begins with other bytes than HDRS");
  if (header.version != Header().version)
    return damaged("version " + std::to_string(header.version) + " is unknown here");
  if (header.count != payload.size() / sizeof(float) || payload.size() % sizeof(float) != 0)
    return damaged("for " + std::to_string(header.count) + " values it has " +
                   std::to_string(payload.size()) + " bytes");
  if (header.checksum != checksum_of(header.count, payload))
    return damaged("its checksum is another than that of its values");
  Residual residual(payload.size() / sizeof(float));
  if (!payload.empty()) std::memcpy(residual.values_.data(), payload.data(), payload.size());
  const auto bad = std::find_if_not(residual.values_.begin(), residual.values_.end(), is_finite);
  if (bad != residual.values_.end())
    return damaged("value " + std::to_string(bad - residual.values_.begin()) + " is not finite");
  return residual;
}

Status Residual::save(const std::string& path) const {
  const auto bad = std::find_if_not(values_.begin(), values_.end(), is_finite);
  if (bad != values_.end())
    return Status(Code::invalid_argument, path + ": value " + std::to_string(bad - values_.begin()) +
                                              " of the residual is not finite, and could not be loaded; "
                                              "nothing was written");
  const std::vector<std::byte> bytes = serialise();
  return replace_file(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                      Kept::through_power_cuts);
}

Result<Residual> Residual::load(const std::string& path) {
  const Result<std::string> bytes = read_file(path);
  if (!bytes.ok()) return bytes.status();
  Result<Residual> residual = parse(std::as_bytes(std::span(bytes.value())));
  if (residual.ok()) return residual;
  return Status(residual.status().code(), path + ": " + residual.status().message());
}

Result<Residual> Residual::load(const std::string& path, std::size_t expected_size) {
  Result<Residual> residual = load(path);
  if (!residual.ok() || residual->size() == expected_size) return residual;
  return Status(Code::invalid_argument, path + ": a residual of " + std::to_string(residual->size()) +
                                            " values, where " + std::to_string(expected_size) +
                                            " are wanted");
}

}  // namespace heddle
