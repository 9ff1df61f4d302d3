// A check of numbers on the command line.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

namespace heddle::bench {

// CLI::Range takes "nan".
inline CLI::Validator number_between(double least, double most) {
  return CLI::Validator(
      [least, most](const std::string& text) -> std::string {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most) return "";
        return fmt::format("{} is not a number from {:.9g} to {:.9g}", text, least, most);
      },
      "NUMBER");
}

}  // namespace heddle::bench
