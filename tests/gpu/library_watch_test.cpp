// The watch for a library that is loaded late; the arguments are libraries to load.
#include "gpu/library_watch.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace heddle::gpu {
namespace {

namespace fs = std::filesystem;
std::vector<std::string> libraries;

// A copy of a library under a name of its own.
class Copy {
 public:
  explicit Copy(const std::string& name)
      : path_(fs::temp_directory_path() / (std::to_string(getpid()) + "-" + name) / name) {
    fs::create_directories(path_.parent_path());
    fs::copy_file(libraries.at(0), path_, fs::copy_options::overwrite_existing);
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  ~Copy() { fs::remove_all(path_.parent_path()); }
  void* load() const {
    void* handle = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(handle, nullptr) << dlerror();
    return handle;
  }
  bool is_loaded() const {
    void* handle = dlopen(path_.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (handle != nullptr) dlclose(handle);
    return handle != nullptr;
  }

 private:
  fs::path path_;
};

TEST(LibraryWatch, FindsWhatWasThereBefore) {
  void* handle = dlopen(libraries.at(1).c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(handle, nullptr);
  LibraryWatch watch("libwatched1.so");
  EXPECT_TRUE(watch.loaded());
  EXPECT_TRUE(watch.loaded());
  EXPECT_EQ(watch.handle(), handle);
}

TEST(LibraryWatch, FindsWhatComesLater) {
  LibraryWatch watch("libwatched2.so");
  EXPECT_FALSE(watch.loaded());
  EXPECT_FALSE(watch.loaded());
  void* other = dlopen(libraries.at(3).c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(other, nullptr);
  EXPECT_FALSE(watch.loaded());
  void* handle = dlopen(libraries.at(2).c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(handle, nullptr);
  EXPECT_TRUE(watch.loaded());
  // It stays.
  dlclose(handle);
  EXPECT_TRUE(watch.loaded());
  EXPECT_NE(dlsym(watch.handle(), "watched_number"), nullptr);
}

TEST(LibraryWatch, SeesThroughComingAndGoing) {
  LibraryWatch watch("libmine.so");
  const Copy mine("libmine.so");
  for (int i = 0; i < 10; ++i) {
    const Copy copy("libpassing" + std::to_string(i) + ".so");
    void* handle = copy.load();
    if (i % 2 == 0) {
      EXPECT_FALSE(watch.loaded());
    }
    dlclose(handle);
    EXPECT_FALSE(watch.loaded());
  }
  mine.load();
  EXPECT_TRUE(watch.loaded());
}

// More libraries than may be kept: it goes on seeing, and keeps no more.
TEST(LibraryWatch, KeepsABoundedNumber) {
  LibraryWatch watch("liblast.so");
  int kept = 0;
  for (int i = 0; i < LibraryWatch::kMostKept + 40; ++i) {
    const std::string name = "libone" + std::to_string(i) + ".so";
    const Copy copy(name);
    void* handle = copy.load();
    EXPECT_FALSE(watch.loaded());
    dlclose(handle);
    if (copy.is_loaded()) ++kept;
  }
  EXPECT_GT(kept, LibraryWatch::kMostKept / 2) << "the bound was not reached: nothing was tested";
  EXPECT_LE(kept, LibraryWatch::kMostKept);
  const Copy last("liblast.so");
  EXPECT_FALSE(watch.loaded());
  last.load();
  EXPECT_TRUE(watch.loaded());
}

TEST(LibraryWatch, StopsAndNeverStarts) {
  LibraryWatch none(nullptr);
  EXPECT_FALSE(none.loaded());
  LibraryWatch stopped("libwatched1.so");
  stopped.stop();
  EXPECT_FALSE(stopped.loaded());
}

// While libraries come and go in one thread, others look.
TEST(LibraryWatch, ManyThreads) {
  LibraryWatch watch("libthreads.so");
  std::atomic<bool> end{false};
  std::atomic<int> found{0};
  std::vector<std::thread> lookers;
  for (int t = 0; t < 3; ++t) {
    lookers.emplace_back([&] {
      while (!watch.loaded() && !end.load()) {
      }
      found += watch.loaded() ? 1 : 0;
    });
  }
  for (int i = 0; i < 60; ++i) {
    const Copy copy("libpass" + std::to_string(i) + ".so");
    dlclose(copy.load());
  }
  EXPECT_FALSE(watch.loaded());
  const Copy wanted("libthreads.so");
  wanted.load();
  EXPECT_TRUE(watch.loaded());
  for (int i = 0; i < 200 && found < 3; ++i)
    usleep(10'000);
  end = true;
  for (std::thread& looker : lookers)
    looker.join();
  EXPECT_EQ(found, 3);
}

}  // namespace
}  // namespace heddle::gpu

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i)
    heddle::gpu::libraries.emplace_back(argv[i]);
  return RUN_ALL_TESTS();
}
