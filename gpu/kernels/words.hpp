// Elements of 8 and 16 bits by whole words, several at once, as long as they are numbers. For each element that has it:
//   decode   what the elements of a word are, the first one lowest
//   encode   the word of such values; without kRounds they are elements, which need no rounding
// Where `is_odd` gets set there may be a NaN or an infinity, and what comes out means nothing. Where it does not, the bits are those of the element's own
// decode and encode (elements.hpp), which look after NaN's payload. Of a NaN decode makes some NaN, or sets `is_odd`.
#pragma once

#include <cstdint>

#include "gpu/kernels/elements.hpp"
#include "gpu/kernels/portable.hpp"

namespace heddle::gpu::kernels {

template <class Element>
struct Words {
  static constexpr bool kAny = false;
};

template <>
struct Words<Half> {
  static constexpr bool kAny = true;
  HEDDLE_HOST_DEVICE static void decode(std::uint32_t word, float* values, bool& /*is_odd*/) {
    values[0] = Half::widen(static_cast<std::uint16_t>(word));
    values[1] = Half::widen(static_cast<std::uint16_t>(word >> 16));
  }
  template <bool kRounds>
  HEDDLE_HOST_DEVICE static std::uint32_t encode(const float* values, bool& is_odd) {
    is_odd |= is_nan(values[0]) | is_nan(values[1]);
    return Half::narrow(values[0]) | std::uint32_t{Half::narrow(values[1])} << 16;
  }
};

}  // namespace heddle::gpu::kernels
