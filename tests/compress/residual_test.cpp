// What is kept, what is not, and the file.
#include "compress/residual.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "compress/codec.hpp"
#include "samples.hpp"

namespace heddle {
namespace {

using test::kInfinity;
using test::kNan;

std::vector<float> all(const Residual& residual) {
  return {residual.values().begin(), residual.values().end()};
}

Residual holding(const std::vector<float>& values) {
  Residual residual(values.size());
  std::copy(values.begin(), values.end(), residual.values().begin());
  return residual;
}

Status put_back(Residual& residual, const std::vector<std::uint32_t>& indices,
                const std::vector<float>& values) {
  return residual.put_back(
      {residual.size(), indices.size(), IndexType::u32, DType::f32, indices.data(), values.data()});
}

Indices at(std::vector<std::uint32_t> indices) {
  Indices result;
  result.narrow = std::move(indices);
  return result;
}

TEST(Residual, KeepsWhatASelectionLeaves) {
  Residual residual = holding({1, 2, 3, 4});
  std::vector<float> out(4);
  const std::vector<float> gradient = {10, 20, 30, 40};
  residual.compensate(gradient.data(), out.data());
  EXPECT_EQ(out, (std::vector<float>{11, 22, 33, 44}));
  ASSERT_TRUE(residual.keep(out.data(), at({1, 3})).ok());
  EXPECT_EQ(all(residual), (std::vector<float>{11, 0, 33, 0}));
  ASSERT_TRUE(put_back(residual, {3, 0}, {44, -1}).ok());
  EXPECT_EQ(all(residual), (std::vector<float>{10, 0, 33, 44}));
}

TEST(Residual, KeepsWhatACodecLoses) {
  Residual residual(3);
  const std::vector<float> compensated = {1, -2, 3};
  const std::vector<float> sent = {0.5F, -3, 3};
  residual.keep(compensated.data(), sent.data());
  EXPECT_EQ(all(residual), (std::vector<float>{0.5F, 1, 0}));
}

TEST(Residual, WhatIsNotFiniteIsNotKept) {
  const std::vector<float> compensated = {kNan, kInfinity, -kInfinity, 5, 6};
  Residual residual(5);
  ASSERT_TRUE(residual.keep(compensated.data(), at({4})).ok());
  EXPECT_EQ(all(residual), (std::vector<float>{0, 0, 0, 5, 0}));
  // A value can also be lost to its neighbours (a bucket that is not finite) or to its own size (f16).
  const std::vector<float> sent = {kNan, kInfinity, 0, kInfinity, kNan};
  residual.keep(compensated.data(), sent.data());
  EXPECT_EQ(all(residual), (std::vector<float>{0, 0, 0, 0, 0}));
  residual = holding({3e38F, 1});
  ASSERT_TRUE(put_back(residual, {0, 1}, {3e38F, kNan}).ok());
  EXPECT_EQ(all(residual), (std::vector<float>{0, 0}));
}

TEST(Residual, WrongIndicesChangeNothing) {
  Residual residual = holding({1, 2});
  const std::vector<float> compensated = {5, 6};
  Status status = residual.keep(compensated.data(), at({0, 2}));
  EXPECT_EQ(status.message(), "index 2 is not less than the size of the residual, 2");
  status = put_back(residual, {0, 7}, {1, 1});
  EXPECT_EQ(status.message(), "index 7 is not less than the size of the residual, 2");
  EXPECT_EQ(all(residual), (std::vector<float>{1, 2}));
}

TEST(ResidualBytes, ComeBack) {
  for (const std::size_t n : test::kSizes) {
    const Residual residual = holding(test::sample(test::Kind::any_bits, n, n));
    const auto bytes = residual.serialise();
    ASSERT_EQ(bytes.size(), 24 + 4 * n);
    const auto back = Residual::parse(bytes);
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(back->serialise(), bytes);
  }
}

// A file of one version must be readable by the next.
TEST(ResidualBytes, AreThoseOfTheFormat) {
  const auto bytes = holding({1, -2.5F, 0}).serialise();
  std::string text;
  for (const std::byte b : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(b));
    text += two;
  }
  EXPECT_EQ(text, "4844525301000000030000000000000023aab7968cc9a0d30000803f000020c000000000");
}

void refuses(std::vector<std::byte> bytes, const std::string& because) {
  const auto back = Residual::parse(bytes);
  ASSERT_FALSE(back.ok()) << because;
  EXPECT_NE(back.status().message().find(because), std::string::npos) << back.status().message();
}

TEST(ResidualBytes, DamageIsNamed) {
  const auto good = holding({1, 2, 3, 4, 5}).serialise();
  refuses({}, "0 bytes are less than its header");
  refuses({good.begin(), good.begin() + 23}, "23 bytes are less than its header");
  auto bytes = good;
  bytes[0] = std::byte{'X'};
  refuses(bytes, "it begins with other bytes than HDRS");
  bytes = good;
  bytes[4] = std::byte{2};
  refuses(bytes, "version 2 is unknown here");
  bytes = good;
  bytes.pop_back();
  refuses(bytes, "for 5 values it has 19 bytes");
  bytes.resize(bytes.size() + 5);
  refuses(bytes, "for 5 values it has 24 bytes");
  bytes = good;
  bytes.push_back(std::byte{0});
  refuses(bytes, "for 5 values it has 21 bytes");
  bytes = good;
  bytes[15] = std::byte{0x40};  // 2^62 values more: their bytes would not fit 64 bits
  refuses(bytes, "values it has 20 bytes");
  refuses(holding({1, kNan}).serialise(), "value 1 is not finite");
  for (std::size_t i = 0; i < good.size(); ++i) {
    bytes = good;
    bytes[i] ^= std::byte{0x10};
    EXPECT_FALSE(Residual::parse(bytes).ok()) << "byte " << i;
  }
}

class ResidualFile : public ::testing::Test {
 protected:
  ResidualFile()
      : folder_(std::filesystem::temp_directory_path() / ("heddle-residual-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~ResidualFile() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ / name; }
  std::size_t files() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      count += static_cast<std::size_t>(entry.exists());
    return count;
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(ResidualFile, ComesBackAndReplacesTheOldOne) {
  for (const std::size_t n : {100000, 3, 0}) {
    const Residual residual = holding(test::sample(test::Kind::gradient, n, n));
    const Status saved = residual.save(path("r"));
    ASSERT_TRUE(saved.ok()) << saved.message();
    const auto back = Residual::load(path("r"), n);
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(all(back.value()), all(residual));
    EXPECT_EQ(files(), 1U);
  }
}

TEST_F(ResidualFile, FailuresNameThePath) {
  const auto message = [](const auto& result) {
    return result.ok() ? "no failure" : result.status().message();
  };
  EXPECT_NE(message(Residual::load(path("none"))).find(path("none") + ": No such file"), std::string::npos);
  EXPECT_EQ(message(Residual::load(path("."))), path(".") + " is not a file");
  ASSERT_TRUE(Residual(4).save(path("four")).ok());
  EXPECT_EQ(message(Residual::load(path("four"), 5)),
            path("four") + ": a residual of 4 values, where 5 are wanted");
  std::filesystem::resize_file(path("four"), 30);
  EXPECT_EQ(message(Residual::load(path("four"))),
            path("four") + ": not a residual: for 4 values it has 6 bytes");
  std::ofstream(path("foreign")) << "something else that is long enough";
  EXPECT_EQ(message(Residual::load(path("foreign"))),
            path("foreign") + ": not a residual: it begins with other bytes than HDRS");
  EXPECT_FALSE(Residual(4).save(path("missing/folder")).ok());
  // What cannot be put in place leaves nothing behind.
  std::filesystem::create_directories(path("taken/by"));
  EXPECT_FALSE(Residual(4).save(path("taken")).ok());
  EXPECT_EQ(files(), 3U);
}

TEST_F(ResidualFile, WhatIsThereStaysWhatItIs) {
  const auto message = [](const Status& status) { return status.ok() ? "no failure" : status.message(); };
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(message(Residual(4).save(path("fifo"))), path("fifo") + " is something else than a file");
  EXPECT_EQ(std::filesystem::status(path("fifo")).type(), std::filesystem::file_type::fifo);
  EXPECT_EQ(message(Residual::load(path("fifo")).status()), path("fifo") + " is not a file");
  // Through a link, by a relative path, to what is there and to what is not yet.
  ASSERT_TRUE(Residual(4).save(path("file")).ok());
  for (const char* target : {"file", "new"}) {
    const std::string link = path(std::string("link to ") + target);
    std::filesystem::create_symlink(target, link);
    ASSERT_TRUE(Residual(5).save(link).ok());
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    EXPECT_TRUE(Residual::load(path(target), 5).ok());
  }
  std::filesystem::create_symlink("round", path("round"));
  EXPECT_NE(message(Residual(4).save(path("round"))).find(path("round") + ": Too many"), std::string::npos);
  EXPECT_EQ(message(Residual(4).save(path("missing/folder"))),
            path("missing/folder") + " cannot be written: No such file or directory (errno 2)");
}

TEST_F(ResidualFile, WhatCouldNotBeLoadedIsNotSaved) {
  ASSERT_TRUE(Residual(2).save(path("r")).ok());
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    const Status saved = holding({1, bad}).save(path("r"));
    EXPECT_EQ(saved.code(), Code::invalid_argument);
    EXPECT_EQ(saved.message().find(path("r") + ": value 1 of the residual is not finite"), 0U)
        << saved.message();
  }
  EXPECT_TRUE(Residual::load(path("r"), 2).ok()) << "the old one is still there";
}

}  // namespace
}  // namespace heddle
