// The command line of the training job.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstring>
#include <string>
#include <system_error>

namespace train {

struct Options {
  int epochs = 40;
  int hidden = 448;  // neurons in each of the two hidden layers
  int batch = 16;    // samples in a step, over all ranks together
  std::uint64_t seed = 1;
  double rate = 0.02;  // step size of the gradient descent
  std::string data;    // a CSV file; empty: the one beside the program, or else drawn digits
  bool help = false;
};

inline const char* usage() {
  return "usage: train_digits [--epochs N] [--hidden N] [--batch N] [--rate X] [--seed N] [--data "
         "FILE|drawn]\n"
         "  --epochs N   passes over the training samples (default 40)\n"
         "  --hidden N   neurons in each hidden layer (default 448: gradients of 0.9 MiB)\n"
         "  --batch N    samples in a step over all ranks (default 16)\n"
         "  --rate X     learning rate (default 0.02; momentum is 0.9)\n"
         "  --seed N     seed of the first weights and of the order of samples (default 1)\n"
         "  --data FILE  64 grey values 0 to 16 and the digit per line, separated by commas, as in UCI's "
         "optdigits;\n"
         "               'drawn' draws digits instead of reading any (default: digits.csv where the "
         "examples' data\n"
         "               lies, or else 'drawn')\n";
}

template <typename T>
bool parse_number(const char* text, T low, T high, T& value) {
  const char* end = text + std::strlen(text);
  T parsed{};
  const auto [stop, error] = std::from_chars(text, end, parsed);
  if (error != std::errc{} || stop != end || !(parsed >= low && parsed <= high)) return false;
  value = parsed;
  return true;
}

// Reads the command line into `options`; on failure `problem` names the argument at fault.
inline bool parse_options(int argc, char** argv, Options& options, std::string& problem) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      options.help = true;
      return true;
    }
    const bool known = name == "--epochs" || name == "--hidden" || name == "--batch" || name == "--seed" ||
                       name == "--rate" || name == "--data";
    if (!known) {
      problem = "unknown argument '" + name + "'";
      return false;
    }
    if (i + 1 == argc) {
      problem = name + " needs a value";
      return false;
    }
    const char* text = argv[++i];
    bool good = true;
    if (name == "--epochs") good = parse_number(text, 1, 1'000'000, options.epochs);
    if (name == "--hidden") good = parse_number(text, 1, 8192, options.hidden);
    if (name == "--batch") good = parse_number(text, 1, 65536, options.batch);
    if (name == "--seed") good = parse_number<std::uint64_t>(text, 0, UINT64_MAX, options.seed);
    if (name == "--rate") good = parse_number(text, 1e-9, 10.0, options.rate);
    if (name == "--data") options.data = text;
    if (!good) {
      problem = name + " " + text + ": not a number in range";
      return false;
    }
  }
  return true;
}

}  // namespace train
