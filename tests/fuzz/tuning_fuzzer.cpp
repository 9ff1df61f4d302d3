// A tuning file may be anything: it yields rules that can be used, or a status with a sentence.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "select/selector.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto tuning = heddle::parse_tuning(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!tuning.ok()) {
    if (tuning.status().message().empty()) std::abort();
    return 0;
  }
  for (const heddle::TuningRule& rule : tuning->rules) {
    if (rule.algorithm == nullptr || rule.shape.radix < 2 || rule.shape.chunks < 1) std::abort();
  }
  return 0;
}
