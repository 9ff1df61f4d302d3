// Compressed sums by both communicators of each rank (local_ranks.hpp), one after the other, with a residual
// for each.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "device/placed_residual.hpp"
#include "local_ranks.hpp"

namespace heddle::test {

inline constexpr std::size_t kCount = heddle::LocalGpu::kFrom / sizeof(float) + 1'001;
inline constexpr std::size_t kBytes = kCount * sizeof(float);

inline Status compress(heddle_comm& comm, const char* method, const float* in, float* out, std::size_t count,
                       PlacedResidual* residual) {
  CompressedJob job;
  job.in = in;
  job.out = out;
  job.count = count;
  job.how = heddle::parse_compression(method).value();
  job.how.codec.seed = 5;
  return heddle::edge::compressed_anywhere(comm, job, residual);
}

// A vector and its result, and a residual for each communicator.
class CompressedSteps {
 public:
  CompressedSteps(LocalSeat& seat, Memory in, Memory out, std::size_t count = kCount, std::size_t shift = 0,
                  int device = 0)
      : seat_(seat),
        count_(count),
        shift_(shift),
        in_(*driver, in, bytes() + shift, device),
        out_(*driver, out, bytes() + shift, device),
        mine_(Residual(count)),
        wanted_(Residual(count)) {}

  Outcome own(const char* method, const std::vector<float>& values, bool keeps, bool in_place) {
    fill(values, in_place);
    return seat_.on_own(call(method, keeps ? &mine_ : nullptr, in_place), out_, bytes() + shift_);
  }
  Outcome by_images(const char* method, const std::vector<float>& values, bool keeps, bool in_place) {
    fill(values, in_place);
    return seat_.by_images(call(method, keeps ? &wanted_ : nullptr, in_place), out_, bytes() + shift_);
  }
  // One call both ways, which must give the same.
  Compared step(const char* method, const std::vector<float>& values, bool keeps, bool in_place) {
    Compared both;
    both.wanted = by_images(method, values, keeps, in_place);
    both.got = own(method, values, keeps, in_place);
    expect_same(both.got, both.wanted,
                std::string(method) + (keeps ? ", residual" : "") + (in_place ? ", in place" : ""));
    EXPECT_EQ(both.wanted.traffic.kernels, 0);
    return both;
  }
  void compare_residuals() {
    heddle::Result<Residual*> mine = mine_.on_host();
    heddle::Result<Residual*> wanted = wanted_.on_host();
    ASSERT_TRUE(mine.ok() && wanted.ok());
    EXPECT_EQ(std::memcmp(mine.value()->values().data(), wanted.value()->values().data(), bytes()), 0)
        << "what rank " << seat_.rank() << " left out";
  }
  // Values that are looked at are what they were before compare_residuals() had them fetched.
  void compare_shown(const Residual& shown) {
    const std::vector<float> seen(shown.values().begin(), shown.values().end());
    compare_residuals();
    EXPECT_TRUE(std::ranges::equal(seen, shown.values()));
    EXPECT_TRUE(std::ranges::any_of(seen, [](float one) { return one != 0; }));
  }
  void expect_residual(const std::vector<float>& values) {
    heddle::Result<Residual*> mine = mine_.on_host();
    ASSERT_TRUE(mine.ok());
    EXPECT_TRUE(std::ranges::equal(mine.value()->values(), values));
  }
  void fill_residuals(float value) {
    for (PlacedResidual* residual : {&mine_, &wanted_}) {
      heddle::Result<Residual*> values = residual->on_host();
      ASSERT_TRUE(values.ok());
      std::ranges::fill(values.value()->values(), value);
    }
  }
  LocalSeat& seat() const { return seat_; }
  std::size_t count() const { return count_; }
  PlacedResidual& residual() { return mine_; }
  const TestMemory& in() const { return in_; }
  const TestMemory& out() const { return out_; }

 private:
  std::size_t bytes() const { return count_ * sizeof(float); }
  void fill(const std::vector<float>& values, bool in_place) const {
    const std::vector<char> dirt(bytes() + shift_, 0x5A);
    out_.put(dirt.data(), dirt.size());
    (in_place ? out_ : in_).put(values.data(), bytes(), shift_);
  }
  LocalSeat::Call call(const char* method, PlacedResidual* residual, bool in_place) const {
    return [=, this](heddle_comm& comm) {
      auto* const out = reinterpret_cast<float*>(out_.as<char>() + shift_);
      const auto* const in = in_place ? out : reinterpret_cast<const float*>(in_.as<char>() + shift_);
      return compress(comm, method, in, out, count_, residual);
    };
  }

  LocalSeat& seat_;
  const std::size_t count_;
  const std::size_t shift_;
  const TestMemory in_;
  const TestMemory out_;
  PlacedResidual mine_;
  PlacedResidual wanted_;
};

// A sum in place in a context of its own, which is destroyed then, with the residual that lay there.
inline void sum_in_a_context_that_goes(LocalSeat& seat, const char* method, const std::vector<float>& values,
                                       PlacedResidual* residual) {
  CUcontext context = nullptr;
  driver->call<PFN_cuCtxCreate_v3020>("cuCtxCreate_v2", &context, 0U, CUdevice{0});
  driver->set_current(nullptr);
  TestMemory there(*driver, Memory::device, kBytes, 0, context);
  there.put(values.data(), kBytes);
  ASSERT_TRUE(
      compress(seat.own(), method, there.as<float>(), there.as<float>(), values.size(), residual).ok());
  driver->call<PFN_cuCtxDestroy_v4000>("cuCtxDestroy_v2", context);
  there.forget();
}

}  // namespace heddle::test
