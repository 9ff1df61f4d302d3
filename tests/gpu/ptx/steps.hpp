// What instructions do to a thread: the steps that operations.cpp gives names to.
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "halves.hpp"
#include "machine.hpp"

namespace heddle::test::ptx {

// ---- Slots: the lower bytes are a value of any type

template <typename T>
T get(const Lane& lane, std::uint32_t slot) {
  T value;
  std::memcpy(&value, &lane.at_slot(slot), sizeof value);
  return value;
}

// Wider reads see it extended, by its sign where it has one.
template <typename T>
void set(Lane& lane, std::uint32_t slot, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    lane.at_register(slot) = 0;
    std::memcpy(&lane.at_register(slot), &value, sizeof value);
  } else {
    lane.at_register(slot) = static_cast<std::uint64_t>(
        static_cast<std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>(value));
  }
}

template <typename T>
T source(const Lane& lane, const Instruction& i, unsigned n) {
  return get<T>(lane, i.slots[n]);
}

// GPUs do not keep what a NaN has in it.
template <typename T>
T without_payload(T value) {
  if constexpr (std::is_same_v<T, float>)
    return std::isnan(value) ? std::bit_cast<float>(0x7FFFFFFFU) : value;
  if constexpr (std::is_same_v<T, double>)
    return std::isnan(value) ? std::bit_cast<double>(0xFFF8000000000000U) : value;
  return value;
}

template <typename T, auto kFunction>
void unary(Lane& lane, const Instruction& i) {
  set<T>(lane, i.slots[0], kFunction(source<T>(lane, i, 1)));
}
template <typename T, auto kFunction>
void binary(Lane& lane, const Instruction& i) {
  set<T>(lane, i.slots[0], without_payload<T>(kFunction(source<T>(lane, i, 1), source<T>(lane, i, 2))));
}
template <typename T, auto kFunction>
void compare(Lane& lane, const Instruction& i) {
  set<std::uint32_t>(lane, i.slots[0], kFunction(source<T>(lane, i, 1), source<T>(lane, i, 2)) ? 1 : 0);
}

// ---- Arithmetic. Integers wrap around.

template <typename T, bool = std::is_integral_v<T>>
struct Wide {
  using type = std::uint64_t;
};
template <typename T>
struct Wide<T, false> {
  using type = T;
};
template <typename T>
typename Wide<T>::type wide(T value) {
  return static_cast<typename Wide<T>::type>(value);
}

constexpr auto kAdd = []<typename T>(T a, T b) { return static_cast<T>(wide(a) + wide(b)); };
constexpr auto kSubtract = []<typename T>(T a, T b) { return static_cast<T>(wide(a) - wide(b)); };
constexpr auto kMultiply = []<typename T>(T a, T b) { return static_cast<T>(wide(a) * wide(b)); };
// What comes of integers that are divided by zero is not said.
constexpr auto kDivide = []<typename T>(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return std::numeric_limits<T>::max();
  }
  return static_cast<T>(a / b);
};
constexpr auto kInverse = []<typename T>(T a) { return without_payload<T>(T{1} / a); };
constexpr auto kRemainder = []<typename T>(T a, T b) { return b == 0 ? a : static_cast<T>(a % b); };
// A NaN gives way, and -0 is less than +0.
constexpr auto kLeast = []<typename T>(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a == b) return std::signbit(a) ? a : b;
    if (std::isnan(a)) return b;
  }
  return b < a ? b : a;
};
constexpr auto kMost = []<typename T>(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a == b) return std::signbit(a) ? b : a;
    if (std::isnan(a)) return b;
  }
  return a < b ? b : a;
};
constexpr auto kAnd = []<typename T>(T a, T b) { return static_cast<T>(a & b); };
constexpr auto kOr = []<typename T>(T a, T b) { return static_cast<T>(a | b); };
constexpr auto kXor = []<typename T>(T a, T b) { return static_cast<T>(a ^ b); };
constexpr auto kNegate = []<typename T>(T a) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(0 - wide(a));
  return static_cast<T>(-a);
};
constexpr auto kMagnitude = []<typename T>(T a) { return std::abs(a); };
constexpr auto kNot = []<typename T>(T a) { return static_cast<T>(~a); };
constexpr auto kNotPredicate = [](std::uint32_t a) { return a ^ 1U; };
constexpr auto kOnes = [](std::uint32_t a) { return static_cast<std::uint32_t>(std::popcount(a)); };
// The sign of the first, all else of the second.
constexpr auto kCopySign = []<typename T>(T a, T b) { return std::copysign(b, a); };

constexpr auto kEqual = [](auto a, auto b) { return a == b; };
constexpr auto kUnequal = [](auto a, auto b) { return a != b; };
constexpr auto kLess = [](auto a, auto b) { return a < b; };
constexpr auto kAtMost = [](auto a, auto b) { return a <= b; };
constexpr auto kMore = [](auto a, auto b) { return a > b; };
constexpr auto kAtLeast = [](auto a, auto b) { return a >= b; };
constexpr auto kNotUnequal = [](auto a, auto b) { return !(a < b) && !(a > b); };
constexpr auto kNotMore = [](auto a, auto b) { return !(a > b); };
constexpr auto kNotLess = [](auto a, auto b) { return !(a < b); };
constexpr auto kNotAtMost = [](auto a, auto b) { return !(a <= b); };
constexpr auto kNumbers = [](auto a, auto b) { return !std::isunordered(a, b); };
constexpr auto kSomeNan = [](auto a, auto b) { return std::isunordered(a, b); };

template <typename T>
void shift_left(Lane& lane, const Instruction& i) {
  const auto by = source<std::uint32_t>(lane, i, 2);
  set<T>(lane, i.slots[0], by < 8 * sizeof(T) ? static_cast<T>(source<T>(lane, i, 1) << by) : T{0});
}
template <typename T>
void shift_right(Lane& lane, const Instruction& i) {
  const auto by = source<std::uint32_t>(lane, i, 2);
  const auto value = source<T>(lane, i, 1);
  const T rest = std::is_signed_v<T> && value < 0 ? static_cast<T>(-1) : T{0};
  set<T>(lane, i.slots[0], by < 8 * sizeof(T) ? static_cast<T>(value >> by) : rest);
}
template <typename T, typename Twice>
void multiply_wide(Lane& lane, const Instruction& i) {
  set<Twice>(lane, i.slots[0], static_cast<Twice>(Twice{source<T>(lane, i, 1)} * source<T>(lane, i, 2)));
}
template <typename T>
void multiply_add(Lane& lane, const Instruction& i) {
  set<T>(lane, i.slots[0],
         static_cast<T>(wide(source<T>(lane, i, 1)) * wide(source<T>(lane, i, 2)) +
                        wide(source<T>(lane, i, 3))));
}
// Rounded once.
template <typename T>
void fused(Lane& lane, const Instruction& i) {
  set<T>(lane, i.slots[0],
         without_payload<T>(std::fma(source<T>(lane, i, 1), source<T>(lane, i, 2), source<T>(lane, i, 3))));
}
// Two numbers of 16 bits in a word. The product is exact before it is rounded.
inline void multiply_halves(Lane& lane, const Instruction& i) {
  const auto a = source<std::uint32_t>(lane, i, 1);
  const auto b = source<std::uint32_t>(lane, i, 2);
  std::uint32_t word = 0;
  for (unsigned at = 0; at < 32; at += 16) {
    const float product = float_of_half(static_cast<std::uint16_t>(a >> at)) *
                          float_of_half(static_cast<std::uint16_t>(b >> at));
    word |= std::uint32_t{half_of_float(product)} << at;
  }
  set(lane, i.slots[0], word);
}
// a's lower bits into b, from a place on.
template <typename T>
void insert_bits(Lane& lane, const Instruction& i) {
  const auto place = source<std::uint32_t>(lane, i, 3) & 0xFFU;
  const auto bits = source<std::uint32_t>(lane, i, 4) & 0xFFU;
  constexpr unsigned kAll = 8 * sizeof(T);
  T mask = bits >= kAll ? ~T{0} : static_cast<T>((T{1} << bits) - 1);
  mask = place >= kAll ? T{0} : static_cast<T>(mask << place);
  const T shifted = place >= kAll ? T{0} : static_cast<T>(source<T>(lane, i, 1) << place);
  set<T>(lane, i.slots[0], static_cast<T>((source<T>(lane, i, 2) & ~mask) | (shifted & mask)));
}
// Those from a place on, with the highest of them in front where there is a sign.
template <typename T>
void extract_bits(Lane& lane, const Instruction& i) {
  const auto value = static_cast<std::int64_t>(source<T>(lane, i, 1));
  const unsigned place = source<std::uint32_t>(lane, i, 2) & 0xFFU;
  const unsigned bits = std::min(source<std::uint32_t>(lane, i, 3) & 0xFFU, 32U);
  const std::int64_t shifted = value >> std::min(place, 63U);
  const std::int64_t below = std::int64_t{1} << bits;
  std::int64_t extracted = shifted & (below - 1);
  if (std::is_signed_v<T> && bits > 0 && (extracted & below / 2) != 0) extracted -= below;
  set<T>(lane, i.slots[0], static_cast<T>(extracted));
}
// Four of the eight bytes of two words; a selector's highest bit takes the byte's sign for all of its bits.
inline void permute(Lane& lane, const Instruction& i) {
  const std::uint64_t both =
      source<std::uint32_t>(lane, i, 1) | std::uint64_t{source<std::uint32_t>(lane, i, 2)} << 32;
  const auto selectors = source<std::uint32_t>(lane, i, 3);
  std::uint32_t word = 0;
  for (unsigned b = 0; b < 4; ++b) {
    const unsigned selector = selectors >> 4 * b & 0xFU;
    std::uint32_t byte = both >> 8 * (selector & 7U) & 0xFFU;
    if ((selector & 8U) != 0) byte = (byte & 0x80U) != 0 ? 0xFFU : 0;
    word |= byte << 8 * b;
  }
  set(lane, i.slots[0], word);
}

template <typename T>
void move(Lane& lane, const Instruction& i) {
  set<T>(lane, i.slots[0], source<T>(lane, i, 1));
}
template <typename T>
void choose(Lane& lane, const Instruction& i) {
  set<T>(lane, i.slots[0], source<T>(lane, i, (source<std::uint32_t>(lane, i, 3) & 1U) != 0 ? 1 : 2));
}
template <typename Whole, typename Half>
void pack(Lane& lane, const Instruction& i) {
  set<Whole>(
      lane, i.slots[0],
      static_cast<Whole>(source<Half>(lane, i, 1) | Whole{source<Half>(lane, i, 2)} << 8 * sizeof(Half)));
}
template <typename Whole, typename Half>
void unpack(Lane& lane, const Instruction& i) {
  const auto whole = source<Whole>(lane, i, 2);
  set<Half>(lane, i.slots[0], static_cast<Half>(whole));
  set<Half>(lane, i.slots[1], static_cast<Half>(whole >> 8 * sizeof(Half)));
}

// ---- Conversions

template <typename To, typename From>
void convert(Lane& lane, const Instruction& i) {
  set<To>(lane, i.slots[0], without_payload<To>(static_cast<To>(source<From>(lane, i, 1))));
}
// Towards zero; what is out of range becomes the end of it, and a NaN 0.
inline void truncate(Lane& lane, const Instruction& i) {
  const auto value = source<float>(lane, i, 1);
  std::uint32_t whole = 0;
  if (value >= 4294967296.0F)
    whole = 0xFFFFFFFFU;
  else if (value > 0)
    whole = static_cast<std::uint32_t>(value);
  set(lane, i.slots[0], whole);
}
inline void from_half(Lane& lane, const Instruction& i) {
  set(lane, i.slots[0], without_payload(float_of_half(source<std::uint16_t>(lane, i, 1))));
}
inline void to_half(Lane& lane, const Instruction& i) {
  set(lane, i.slots[0], half_of_float(source<float>(lane, i, 1)));
}
inline void to_half_towards_zero(Lane& lane, const Instruction& i) {
  set(lane, i.slots[0], half_towards_zero(source<float>(lane, i, 1)));
}

// ---- Memory

enum class Space { global, shared, local, parameter };

template <typename T, Space kSpace>
void load(Lane& lane, const Instruction& i) {
  const std::uint64_t at = source<std::uint64_t>(lane, i, i.width) + static_cast<std::uint64_t>(i.offset);
  Machine& machine = *lane.block->machine;
  const std::size_t bytes = sizeof(T) * i.width;
  const std::byte* from = nullptr;
  if constexpr (kSpace == Space::global) from = machine.global(lane, at, bytes);
  if constexpr (kSpace == Space::shared)
    from = machine.shared(lane, static_cast<std::uint32_t>(at), bytes, Access::read);
  if constexpr (kSpace == Space::local) from = machine.local(lane, at, bytes);
  if constexpr (kSpace == Space::parameter) from = machine.parameter(lane, at, bytes);
  for (unsigned k = 0; k < i.width; ++k) {
    T value;
    std::memcpy(&value, from + k * sizeof value, sizeof value);
    set<T>(lane, i.slots[k], value);
  }
}

template <typename T, Space kSpace>
void store(Lane& lane, const Instruction& i) {
  const std::uint64_t at = source<std::uint64_t>(lane, i, 0) + static_cast<std::uint64_t>(i.offset);
  Machine& machine = *lane.block->machine;
  const std::size_t bytes = sizeof(T) * i.width;
  std::byte* to = nullptr;
  if constexpr (kSpace == Space::global) to = machine.global(lane, at, bytes);
  if constexpr (kSpace == Space::shared)
    to = machine.shared(lane, static_cast<std::uint32_t>(at), bytes, Access::write);
  if constexpr (kSpace == Space::local) to = machine.local(lane, at, bytes);
  for (unsigned k = 0; k < i.width; ++k) {
    const auto value = source<T>(lane, i, 1 + k);
    std::memcpy(to + k * sizeof value, &value, sizeof value);
  }
}

template <typename T, Space kSpace>
void atomic_add(Lane& lane, const Instruction& i) {
  const std::uint64_t at = source<std::uint64_t>(lane, i, 1) + static_cast<std::uint64_t>(i.offset);
  Machine& machine = *lane.block->machine;
  std::byte* word = kSpace == Space::shared
                        ? machine.shared(lane, static_cast<std::uint32_t>(at), sizeof(T), Access::atomic)
                        : machine.global(lane, at, sizeof(T));
  T before;
  std::memcpy(&before, word, sizeof before);
  const T after = before + source<T>(lane, i, 2);
  std::memcpy(word, &after, sizeof after);
  set<T>(lane, i.slots[0], before);
}

// A GPU would not mind memory that is not there; who means what he asks for asks for none.
inline void look_at(Lane& lane, const Instruction& i) {
  const std::uint64_t at = source<std::uint64_t>(lane, i, 0) + static_cast<std::uint64_t>(i.offset);
  lane.block->machine->global(lane, at, 1);
}
inline void read_clock(Lane& lane, const Instruction& i) {
  set<std::uint64_t>(lane, i.slots[0],
                     static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                                std::chrono::nanoseconds(1)));
}
inline void nothing(Lane& /*lane*/, const Instruction& /*instruction*/) {}

}  // namespace heddle::test::ptx
