// The standard headers that most files of a large library include, compiled once for all of them where a
// build wants that (b_pch).
#ifndef HEDDLE_PCH_LIBRARY_HPP  // a compiler warns of a #pragma once in what it compiles by itself
#define HEDDLE_PCH_LIBRARY_HPP

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#endif
