#include "highway_itself.hpp"

#include <hwy/targets.h>

extern "C" {

__attribute__((visibility("default"))) std::int64_t highways_supported_targets() {
  return hwy::SupportedTargets();
}

__attribute__((visibility("default"))) const void* highways_chosen_target() {
  return &hwy::GetChosenTarget();
}
}
