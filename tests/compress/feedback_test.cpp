// Error feedback does what it is for: nothing is lost for ever, and descent arrives where it otherwise would
// not.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "compress/codec.hpp"
#include "compress/residual.hpp"
#include "compress/select.hpp"
#include "samples.hpp"

namespace heddle {
namespace {

// Two workers minimise |x - 1|^2 / 2 together. Their data differ in 1% of the coordinates, by more than
// anything else and with opposite signs, so that what each finds most important cancels.
class Workers {
 public:
  static constexpr std::size_t kSize = 1000;
  static constexpr std::size_t kSent = 10;

  explicit Workers(bool with_feedback)
      : with_feedback_(with_feedback), residuals_(2, Residual(kSize)), x_(kSize, 0.0F) {}

  void step(float rate) {
    std::vector<float> total(kSize, 0.0F);
    for (int worker = 0; worker < 2; ++worker) {
      std::vector<float> gradient(kSize);
      for (std::size_t i = 0; i < kSize; ++i)
        gradient[i] = x_[i] - 1 + (i % 100 == 0 ? worker == 0 ? 5.0F : -5.0F : 0.0F);
      Residual& residual = residuals_[static_cast<std::size_t>(worker)];
      if (with_feedback_) residual.compensate(gradient.data(), gradient.data());
      const SelectedEntries sent = top_k(gradient.data(), kSize, kSent);
      if (with_feedback_) {
        ASSERT_TRUE(residual.keep(gradient.data(), sent.indices).ok());
      }
      for (std::size_t i = 0; i < sent.values.size(); ++i)
        total[sent.indices[i]] += sent.values[i];
    }
    for (std::size_t i = 0; i < kSize; ++i)
      x_[i] -= rate * total[i] / 2;
  }

  double loss() const {
    double sum = 0;
    for (const float x : x_)
      sum += (static_cast<double>(x) - 1) * (static_cast<double>(x) - 1) / 2;
    return sum / kSize;
  }

 private:
  bool with_feedback_;
  std::vector<Residual> residuals_;
  std::vector<float> x_;
};

double loss_after(int steps, bool with_feedback) {
  Workers workers(with_feedback);
  for (int i = 0; i < steps; ++i)
    workers.step(0.002F);
  return workers.loss();
}

TEST(Feedback, DescentArrivesOnlyWithIt) {
  EXPECT_GT(loss_after(6000, false), 0.48);  // of 0.5 at the start
  EXPECT_LT(loss_after(6000, true), 1e-3);
}

// What was sent and what is left make up what went in.
TEST(Feedback, NothingIsLost) {
  constexpr std::size_t kSize = 3000;
  constexpr int kSteps = 50;
  for (int codec = 0; codec < kCodecCount; ++codec) {
    std::vector<double> went_in(kSize);
    std::vector<double> came_out(kSize);
    std::vector<float> compensated(kSize);
    std::vector<float> decoded(kSize);
    Residual residual(kSize);
    for (int step = 0; step < kSteps; ++step) {
      const CodecSettings settings{static_cast<Codec>(codec), 512, static_cast<std::uint64_t>(step)};
      std::vector<std::byte> bytes(coded_bytes(settings, kSize));
      const auto gradient = test::sample(test::Kind::uniform, kSize, static_cast<std::uint64_t>(step));
      residual.compensate(gradient.data(), compensated.data());
      encode(settings, compensated.data(), kSize, 0, bytes.data());
      ASSERT_TRUE(decode(settings, bytes, decoded.data(), kSize).ok());
      residual.keep(compensated.data(), decoded.data());
      for (std::size_t i = 0; i < kSize; ++i) {
        went_in[i] += static_cast<double>(gradient[i]);
        came_out[i] += static_cast<double>(decoded[i]);
      }
    }
    for (std::size_t i = 0; i < kSize; ++i)
      ASSERT_NEAR(went_in[i], came_out[i] + static_cast<double>(residual.values()[i]), 1e-3)
          << codec_name(static_cast<Codec>(codec));
  }
}

// One NaN is seen once.
TEST(Feedback, ANanPassesThrough) {
  const CodecSettings settings{Codec::qsgd4, 100, 1};
  std::vector<float> values(200, 0.25F);
  std::vector<float> decoded(200);
  std::vector<std::byte> bytes(coded_bytes(settings, 200));
  Residual residual(200);
  for (int step = 0; step < 2; ++step) {
    values[150] = step == 0 ? NAN : 0.25F;
    residual.compensate(values.data(), values.data());
    encode(settings, values.data(), 200, 0, bytes.data());
    ASSERT_TRUE(decode(settings, bytes, decoded.data(), 200).ok());
    residual.keep(values.data(), decoded.data());
    EXPECT_EQ(std::isnan(decoded[150]), step == 0);
    EXPECT_EQ(std::isnan(decoded[120]), step == 0);
    EXPECT_FALSE(std::isnan(decoded[50]));
  }
}

}  // namespace
}  // namespace heddle
