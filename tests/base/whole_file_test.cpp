#include "base/whole_file.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace heddle {
namespace {

namespace fs = std::filesystem;

class WholeFile : public ::testing::Test {
 protected:
  WholeFile() {
    char name[] = "/tmp/heddle-file-XXXXXX";
    folder = mkdtemp(name);
    path = folder + "/file";
  }
  ~WholeFile() override {
    std::error_code error;
    fs::remove_all(folder, error);
  }
  std::string content() const {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::ptrdiff_t files() const { return std::distance(fs::directory_iterator(folder), {}); }

  std::string folder;
  std::string path;
};

TEST_F(WholeFile, IsThereOrReplaced) {
  ASSERT_TRUE(replace_file(path, "one").ok());
  EXPECT_EQ(content(), "one");
  ASSERT_TRUE(can_replace_file(path).ok());
  EXPECT_EQ(content(), "one") << "asking changes nothing";
  ASSERT_TRUE(replace_file(path, "two").ok());
  EXPECT_EQ(content(), "two");
  EXPECT_EQ(files(), 1);
}

TEST_F(WholeFile, AskingLeavesNothing) {
  ASSERT_TRUE(can_replace_file(path).ok());
  EXPECT_EQ(files(), 0);
}

TEST_F(WholeFile, LinksAreFollowed) {
  fs::create_directory(folder + "/there");
  fs::create_symlink("there/target", path);
  for (const char* text : {"one", "two"}) {
    ASSERT_TRUE(can_replace_file(path).ok());
    ASSERT_TRUE(replace_file(path, text, Kept::through_power_cuts).ok());
    EXPECT_EQ(content(), text);
    EXPECT_TRUE(fs::is_symlink(path));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder + "/there"), {}), 1);
  }
  EXPECT_EQ(files(), 2);
}

// Each writes beside the file, and under a name of its own.
TEST_F(WholeFile, ThreadsDoNotMixTheirs) {
  const std::string texts[] = {std::string(100'000, 'a'), std::string(50'000, 'b')};
  std::vector<std::thread> threads;
  for (const std::string& text : texts)
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i)
        EXPECT_TRUE(replace_file(path, text).ok());
    });
  for (int i = 0; i < 100; ++i) {
    const std::string seen = content();
    EXPECT_TRUE(seen.empty() || seen == texts[0] || seen == texts[1]) << seen.size();
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(files(), 1);
}

TEST_F(WholeFile, WhatIsInTheWayIsNamed) {
  for (const std::string& wrong : {folder + "/no/file", folder, std::string("/dev/null")}) {
    for (const Status& status : {can_replace_file(wrong), replace_file(wrong, "text")}) {
      EXPECT_FALSE(status.ok()) << wrong;
      EXPECT_NE(status.message().find(wrong), std::string::npos) << status.message();
    }
  }
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(files(), 0);
}

}  // namespace
}  // namespace heddle
