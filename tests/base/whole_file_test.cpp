#include "base/whole_file.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
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

TEST_F(WholeFile, IsReadWhole) {
  for (const std::size_t bytes : {0, 1, 4096, 100'000}) {
    const std::string text(bytes, 'x');
    ASSERT_TRUE(replace_file(path, text).ok());
    EXPECT_EQ(read_file(path).value(), text);
    EXPECT_EQ(read_file(path, bytes).value(), text) << "as much as it may";
  }
  // Of a size that it does not tell.
  ASSERT_EQ(fs::file_size("/proc/self/status"), 0U);
  EXPECT_GT(read_file("/proc/self/status").value().size(), 100U);
}

TEST_F(WholeFile, WhatCannotBeReadIsNamed) {
  ASSERT_TRUE(replace_file(path, "text").ok());
  ASSERT_EQ(mkfifo((folder + "/pipe").c_str(), 0600), 0);
  EXPECT_EQ(read_file(path, 3).status().message(), path + " is larger than 3 bytes");
  fs::resize_file(path, std::uintmax_t{1} << 42);  // of holes
  EXPECT_EQ(read_file(path, 3).status().message(), path + " is larger than 3 bytes");
  EXPECT_EQ(read_file(folder).status().message(), folder + " is not a file");
  EXPECT_EQ(read_file(folder + "/pipe").status().message(), folder + "/pipe is not a file");
  EXPECT_EQ(read_file(path + "s").status().message(), path + "s: No such file or directory (errno 2)");
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
