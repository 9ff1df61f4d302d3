// What the verifier says, for tests of it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "schedule/verifier.hpp"

namespace heddle::test {

// What verify says of `build` on ranks that are each on their own node.
inline std::string verdict(std::int32_t size, const std::function<Schedule(std::int32_t rank)>& build) {
  return verify(TopologyView::flat(size), build).message();
}

inline void expect_complaint(const std::string& got, const std::string& part) {
  EXPECT_NE(got.find(part), std::string::npos)
      << "verify said: \"" << got << "\", expected it to say: " << part;
}

}  // namespace heddle::test
