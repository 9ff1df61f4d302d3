// One line per event on standard error: "heddle[rank] level: text". Written with one write(2), so that lines
// of different ranks do not mix. Thread-safe. A value, not a global: whoever has a Config has a Log.
#pragma once

#include <string_view>

#include "base/config.hpp"

namespace heddle {

class Log {
 public:
  explicit Log(LogLevel level = LogLevel::warn, int rank = -1) : level_(level), rank_(rank) {}
  bool wants(LogLevel level) const { return level <= level_ && level_ != LogLevel::none; }
  void line(LogLevel level, std::string_view text) const;
  void error(std::string_view text) const { line(LogLevel::error, text); }
  void warn(std::string_view text) const { line(LogLevel::warn, text); }
  void info(std::string_view text) const { line(LogLevel::info, text); }
  void debug(std::string_view text) const { line(LogLevel::debug, text); }

 private:
  LogLevel level_;
  int rank_;
};

}  // namespace heddle
