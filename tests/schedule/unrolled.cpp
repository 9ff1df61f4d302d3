#include "unrolled.hpp"

#include <cstddef>

namespace heddle::test {

std::vector<Flat> unroll(const Schedule& s) {
  std::vector<Flat> program;
  for (std::size_t i = 0; i < s.steps.size(); ++i) {
    const Step& head = s.steps[i];
    if (head.kind != StepKind::repeat) {
      program.push_back({head, head.chunk, head.unit});
      continue;
    }
    if (head.peer < 1 || i + static_cast<std::size_t>(head.peer) >= s.steps.size()) throw Wrong{"bad repeat"};
    if (head.count > 1000) throw Wrong{"endless repeat"};
    const auto stride = static_cast<std::int32_t>(head.chunk);
    for (std::uint32_t k = 0; k < head.count; ++k) {
      for (std::size_t j = i + 1; j <= i + static_cast<std::size_t>(head.peer); ++j) {
        Flat flat{s.steps[j], s.steps[j].chunk, s.steps[j].unit};
        if (flat.step.kind == StepKind::repeat) throw Wrong{"nested repeat"};
        if ((flat.step.flags & kFixed) == 0) {
          for (std::uint32_t n = 0; n < k; ++n) {
            const std::int64_t chunks = s.chunks;
            const std::int64_t next = (std::int64_t{flat.chunk} + stride) % chunks;
            flat.chunk = static_cast<std::uint32_t>(next < 0 ? next + chunks : next);
          }
        }
        if ((flat.step.flags & kRotate) != 0 && s.scratch_units != 0)
          flat.unit = (flat.unit + k) % s.scratch_units;
        program.push_back(flat);
      }
    }
    i += static_cast<std::size_t>(head.peer);
  }
  return program;
}

}  // namespace heddle::test
