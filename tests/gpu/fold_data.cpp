#include "fold_data.hpp"

#include <cstring>

namespace heddle::test {
namespace {

template <typename T>
void put(Bytes& bytes, std::size_t index, T value) {
  std::memcpy(&bytes[index * sizeof value], &value, sizeof value);
}

void put_number(DType part, Bytes& bytes, std::size_t index, std::mt19937_64& random) {
  const std::uint64_t bits = random();
  // Of either sign, between 1/32 and 8, so that products of eight stay within a half's range mostly.
  const auto number =
      static_cast<float>((bits % 4 == 0 ? -1.0 : 1.0) * static_cast<double>(bits % 1021 + 4) / 128);
  switch (part) {
    case DType::f16:
      return put(bytes, index, float_to_f16(number));
    case DType::bf16:
      return put(bytes, index, float_to_bf16(number));
    case DType::e4m3:
      return put(bytes, index, float_to_e4m3(number));
    case DType::e5m2:
      return put(bytes, index, float_to_e5m2(number));
    case DType::f32:
      return put(bytes, index, number + static_cast<float>(bits >> 40) * 0x1p-24F);
    case DType::f64:
      return put(bytes, index, number + static_cast<double>(bits >> 12) * 0x1p-52);
    default:
      std::memcpy(&bytes[index * dtype_size(part)], &bits, dtype_size(part));
  }
}

void put_nan(DType part, Bytes& bytes, std::size_t index, std::mt19937_64& random) {
  const std::uint64_t bits = random();
  switch (part) {
    case DType::f16:
      return put(bytes, index, static_cast<std::uint16_t>(bits | 0x7C01U));
    case DType::bf16:
      return put(bytes, index, static_cast<std::uint16_t>(bits | 0x7F81U));
    case DType::e4m3:
      return put(bytes, index, static_cast<std::uint8_t>(bits | 0x7FU));
    case DType::e5m2:
      return put(bytes, index, static_cast<std::uint8_t>(bits | 0x7DU));
    case DType::f32:
      return put(bytes, index, static_cast<std::uint32_t>(bits | 0x7F800001U));
    case DType::f64:
      return put(bytes, index, bits | 0x7FF0000000000001U);
    default:
      return;
  }
}

}  // namespace

DType part_of(DType type) {
  if (type == DType::c32) return DType::f32;
  if (type == DType::c64) return DType::f64;
  return type;
}

Bytes calm_elements(DType type, std::size_t count, std::mt19937_64& random) {
  const DType part = part_of(type);
  Bytes bytes(count * dtype_size(type));
  for (std::size_t i = 0; i < bytes.size() / dtype_size(part); ++i)
    put_number(part, bytes, i, random);
  return bytes;
}

Bytes wild_elements(DType type, std::size_t count, std::mt19937_64& random) {
  const DType part = part_of(type);
  Bytes bytes = random_elements(type, count, random);
  for (std::size_t i = 0; i < bytes.size() / dtype_size(part); ++i) {
    if (random() % 64 == 0) put_nan(part, bytes, i, random);
  }
  return bytes;
}

bool same_elements(DType type, const std::uint8_t* got, const std::uint8_t* want, std::size_t count,
                   bool any_nan) {
  if (std::memcmp(got, want, count * dtype_size(type)) == 0) return true;
  if (!any_nan) return false;
  const DType part = part_of(type);
  for (std::size_t i = 0; i < count * dtype_size(type) / dtype_size(part); ++i) {
    if (!same_element(part, got, want, i)) return false;
  }
  return true;
}

Bytes floats(Kind kind, std::size_t n, std::mt19937_64& random) {
  if (kind == Kind::wild && n > 0) return wild_elements(DType::f32, n, random);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    float& value = values[i];
    if (kind == Kind::normal) value = normal(random);
    if (kind == Kind::few_values) value = static_cast<float>(static_cast<int>(random() % 7) - 3) / 8;
    if (kind == Kind::one_value) value = random() % 2 != 0 ? 1.5F : -1.5F;
    if (kind == Kind::mostly_zero) value = random() % 300 == 0 ? normal(random) : -0.0F;
    if (kind == Kind::falling) value = 1.0F / static_cast<float>(i + 1);
  }
  Bytes data(n * sizeof(float));
  if (n > 0) std::memcpy(data.data(), values.data(), data.size());
  return data;
}

}  // namespace heddle::test
