// Running a test with each instruction set that the kernels are compiled for and this processor has.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/kernels/kernels.hpp"

namespace heddle::test {

// Makes lookups choose `target` until the end of the scope. Lookups of other threads are affected too.
class ScopedTarget {
 public:
  explicit ScopedTarget(std::int64_t target) { hwy::GetChosenTarget().Update(target); }
  ~ScopedTarget() { hwy::GetChosenTarget().Update(hwy::SupportedTargets()); }
  ScopedTarget(const ScopedTarget&) = delete;
  ScopedTarget& operator=(const ScopedTarget&) = delete;
};

inline std::vector<std::int64_t> runnable_targets() {
  std::vector<std::int64_t> targets;
  for (std::int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    const std::int64_t target = rest & -rest;
    const ScopedTarget scope(target);
    // Where the kernels lack the target, the lookup falls back to another one.
    if (std::string(fold_target()) == hwy::TargetName(target)) targets.push_back(target);
  }
  return targets;
}

// What tests of one each are called.
inline std::string target_name(const testing::TestParamInfo<std::int64_t>& target) {
  return hwy::TargetName(target.param);
}

}  // namespace heddle::test
