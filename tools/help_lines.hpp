// How options look in --help and in the manual.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace heddle::tools {

// CLI11's own lines say a value's type twice ("INT:INT in [1 - 256]"), and what an option needs, which the
// descriptions say.
class HelpLines final : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    const std::string type = option->get_type_name();
    std::string text = " " + type.substr(type.find(':') + 1);
    if (!option->get_default_str().empty()) text += " (default " + option->get_default_str() + ")";
    return text;
  }
};

inline void use_help_lines(CLI::App& app) {
  app.formatter(std::make_shared<HelpLines>());
}

}  // namespace heddle::tools
