// Modules for networks are looked for, and looked at before they are used.
#include "setup/network_module.hpp"

#include <gtest/gtest.h>

#include <string>

namespace heddle {
namespace {

TEST(NetworkModules, OfAnotherBuildAreRefused) {
  const auto opened = open_network("ucx", HEDDLE_OTHER_BUILD, {});
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), Code::unsupported);
  EXPECT_NE(opened.status().message().find("is of another version or build of heddle"), std::string::npos)
      << opened.status().message();
  EXPECT_EQ(open_network("none", HEDDLE_OTHER_BUILD, {}).status().message(),
            "libheddle_network_none.so is not in " HEDDLE_OTHER_BUILD " (HEDDLE_MODULES)");
}

}  // namespace
}  // namespace heddle
