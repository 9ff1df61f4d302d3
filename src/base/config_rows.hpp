// The table of all HEDDLE_* variables: what each is, and how its value is read.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/config.hpp"

namespace heddle {

// For docs and heddle-info.
struct ConfigVariable {
  std::string_view name;
  std::string_view values;
  std::string_view fallback;
  std::string_view meaning;
};

struct ConfigRow {
  ConfigVariable variable;
  // Sets what the value, which is not empty, stands for. Else says what is wrong with it, to follow its
  // quotation ("is not a number of seconds").
  std::string (*set)(std::string_view value, Config& config);
};

std::span<const ConfigRow> config_rows();

}  // namespace heddle
