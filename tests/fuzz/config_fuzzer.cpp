// The environment is whatever a user's shell has: no text may crash the parser or leave a value out of
// bounds.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/config_rows.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // NUL separates variables, as it does in a real environment.
  std::vector<std::string> environment(1);
  for (std::size_t i = 0; i < size; ++i) {
    if (data[i] == 0) {
      environment.emplace_back();
    } else {
      environment.back().push_back(static_cast<char>(data[i]));
    }
  }
  // Half the strings become values of known variables, so that the fuzzer need not guess the names.
  const auto rows = heddle::config_rows();
  for (std::size_t i = 0; i < environment.size(); i += 2) {
    environment[i] = std::string(rows[i / 2 % rows.size()].variable.name) + "=" + environment[i];
  }
  const heddle::ParsedConfig parsed = heddle::parse_config(environment);
  if (parsed.config.slot_bytes != 0 && parsed.config.slot_bytes < 4096) std::abort();
  if (parsed.config.slot_bytes > (std::size_t{64} << 20)) std::abort();
  if (parsed.config.timeout.count() < 0 || parsed.config.warn_after.count() < 0) std::abort();
  return 0;
}
