#pragma once

#include <algorithm>
#include <cstddef>

namespace heddle {

// Of a container's values, of which there is one at least; where their number is even, the upper of the two
// in the middle.
template <typename Values>
typename Values::value_type median(Values values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace heddle
