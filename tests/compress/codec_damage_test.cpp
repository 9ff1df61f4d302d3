// Bytes that no encoder wrote: refused with a sentence, or decoded to something, but never more than that.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "compress/codec.hpp"
#include "kernels/guarded_buffer.hpp"
#include "samples.hpp"

namespace heddle {
namespace {

using Bytes = std::vector<std::byte>;

Bytes encoded(const CodecSettings& settings, std::size_t n) {
  const auto values = test::sample(test::Kind::uniform, n, 3);
  Bytes bytes(coded_bytes(settings, n));
  encode(settings, values.data(), n, 0, bytes.data());
  return bytes;
}

void refuses(const CodecSettings& settings, const Bytes& bytes, std::size_t n, const std::string& because) {
  std::vector<float> values(n);
  const Status status = decode(settings, bytes, values.data(), n);
  ASSERT_FALSE(status.ok()) << "expected: " << because;
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find(because), std::string::npos) << status.message();
}

void set_scale(Bytes& bytes, std::size_t at, float scale) {
  std::memcpy(bytes.data() + at, &scale, sizeof scale);
}

TEST(DamagedCodes, Length) {
  for (int codec = 0; codec < kCodecCount; ++codec) {
    const CodecSettings settings{static_cast<Codec>(codec), 100};
    Bytes bytes = encoded(settings, 250);
    bytes.pop_back();
    refuses(settings, bytes, 250, "250 values take " + std::to_string(bytes.size() + 1) + " bytes, not");
    bytes.resize(bytes.size() + 2);
    refuses(settings, bytes, 250, "bytes, not " + std::to_string(bytes.size()));
    refuses(settings, {}, 1, "1 values take");
    refuses(settings, Bytes(1), 0, "0 values take 0 bytes, not 1");
  }
}

TEST(DamagedCodes, Scales) {
  for (const Codec codec : {Codec::qsgd8, Codec::qsgd4, Codec::qsgd2, Codec::ternary, Codec::sign}) {
    const CodecSettings settings{codec, 100};
    const std::size_t second = coded_bytes(settings, 100);
    for (const float scale : {-1.0F, -0.0F, INFINITY, -INFINITY, -NAN}) {
      Bytes bytes = encoded(settings, 250);
      set_scale(bytes, second, scale);
      refuses(settings, bytes, 250, "bucket 1 has the scale");
    }
    Bytes bytes = encoded(settings, 250);
    const std::uint32_t other_nan = 0x7FC00001;
    std::memcpy(bytes.data() + second, &other_nan, 4);
    refuses(settings, bytes, 250, "mark of a bucket");
  }
  const CodecSettings sign{Codec::sign, 100};
  for (const std::size_t at : {0, 4}) {
    Bytes bytes = encoded(sign, 100);
    set_scale(bytes, at, NAN);
    refuses(sign, bytes, 100, "bucket 0 marks one of its two scales");
  }
  Bytes bytes = encoded(sign, 100);
  set_scale(bytes, 4, -3);
  refuses(sign, bytes, 100, "bucket 0 has the scale -3");
}

TEST(DamagedCodes, CodesOutOfRange) {
  Bytes bytes = encoded({Codec::qsgd8, 100}, 250);
  bytes[104 + 4 + 17] = std::byte{255};
  refuses({Codec::qsgd8, 100}, bytes, 250, "qsgd8: value 117 has the code 255; they go up to 254");
  bytes = encoded({Codec::qsgd8, 0}, 2001);
  bytes.back() = std::byte{255};
  refuses({Codec::qsgd8, 0}, bytes, 2001, "value 2000 has the code 255");
  bytes = encoded({Codec::qsgd4, 100}, 250);
  bytes[4 + 25] |= std::byte{0xF0};
  refuses({Codec::qsgd4, 100}, bytes, 250, "value 51 has the code 15; they go up to 14");
  for (const Codec codec : {Codec::qsgd2, Codec::ternary}) {
    bytes = encoded({codec, 100}, 250);
    bytes[4 + 24] |= std::byte{0b11000000};
    refuses({codec, 100}, bytes, 250, "value 99 has the code 3; they go up to 2");
  }
}

TEST(DamagedCodes, Padding) {
  for (const Codec codec : {Codec::qsgd4, Codec::qsgd2, Codec::ternary, Codec::sign}) {
    Bytes bytes = encoded({codec, 101}, 202);
    bytes.back() |= std::byte{0x80};
    refuses({codec, 101}, bytes, 202, "bits behind the last code of bucket 1 are not 0");
  }
}

TEST(DamagedCodes, UnknownCodec) {
  refuses({static_cast<Codec>(8), 10}, {}, 0, "there is no codec 8");
}

// Whatever the bytes: nothing beyond the values is written, and a refusal says why.
TEST(DamagedCodes, AnyBytesAreSafe) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 4000; ++trial) {
    const CodecSettings settings{static_cast<Codec>(random() % kCodecCount),
                                 static_cast<std::uint32_t>(random() % 40), 0};
    const std::size_t n = random() % 100;
    Bytes bytes = encoded(settings, n);
    const std::uint64_t changes = random() % 4;
    for (std::uint64_t i = 0; i < changes && !bytes.empty(); ++i)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    test::GuardedBuffer out(n * sizeof(float));
    auto* values = reinterpret_cast<float*>(out.place(n * sizeof(float), 4 * (trial % 3)));
    const Status status = decode(settings, bytes, values, n);
    ASSERT_TRUE(out.surroundings_intact());
    ASSERT_TRUE(status.ok() || status.message().size() > 20);
    ASSERT_TRUE(status.ok() || changes > 0);
  }
}

}  // namespace
}  // namespace heddle
