// What the command lines of all programs have in common: how options look in --help and in the manual, that
// the last one counts where one is given twice, and what is said where an argument is none.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace heddle::tools {

class HelpLines final : public CLI::Formatter {
 public:
  // CLI11's own lines say a value's type twice ("INT:INT in [1 - 256]"), and what an option needs, which the
  // descriptions say.
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    const std::string type = option->get_type_name();
    std::string text = " " + type.substr(type.find(':') + 1);
    if (!option->get_default_str().empty()) text += " (default " + option->get_default_str() + ")";
    return text;
  }

  // Two blanks, or a line's end, before the description: help2man takes what follows a single one for more of
  // the option.
  std::string make_option(const CLI::Option* option, bool positional) const override {
    std::string text = "  " + make_option_name(option, positional) + make_option_opts(option);
    const std::size_t width = get_column_width();
    text += text.size() + 2 <= width ? std::string(width - text.size(), ' ') : "\n" + std::string(width, ' ');
    return text + make_option_desc(option) + "\n";
  }
};

// What is wrong with a command line.
inline std::string failure(const CLI::App& app, const CLI::Error& error) {
  if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::ExtrasError)) return error.what();
  std::string text = "not expected:";  // CLI11 has them from the last to the first
  for (const std::string& argument : app.remaining())
    text += " " + argument;
  return text;
}

// Before options are added.
inline void prepare_command_line(CLI::App& app) {
  app.formatter(std::make_shared<HelpLines>());
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.failure_message([](const CLI::App* failed, const CLI::Error& error) {
    return failure(*failed, error) + "; see --help\n";
  });
}

}  // namespace heddle::tools
