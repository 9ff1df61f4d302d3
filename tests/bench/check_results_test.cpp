// -c: right results are told from wrong ones, in a job of one rank.
#include "common/check_results.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "common/buffers.hpp"
#include "in_a_job.hpp"

namespace heddle::bench {
namespace {

// One rank's library, which spoils one element if told to.
class FakeSide : public Side {
 public:
  explicit FakeSide(std::size_t width, bool spoil) : width_(width), spoil_(spoil) {}
  const char* name() const override { return "fake"; }
  void allreduce(const void* send, void* receive, std::size_t count) override {
    std::memcpy(receive, send, count * width_);
    spoil(receive, count);
  }
  void reduce(const void* send, void* receive, std::size_t count, int) override {
    allreduce(send, receive, count);
  }
  void bcast(void* buffer, std::size_t count, int) override { spoil(buffer, count); }
  void allgather(const void* send, void* receive, std::size_t count) override {
    if (send != in_place()) return allreduce(send, receive, count);
    spoil(receive, count);
  }
  void barrier() override {}
  void start_allreduce(const void* send, void* receive, std::size_t count) override {
    open_ = [=, this] { allreduce(send, receive, count); };
  }
  void start_bcast(void* buffer, std::size_t count, int root) override {
    open_ = [=, this] { bcast(buffer, count, root); };
  }
  bool test() override { return false; }
  void finish() override { open_(); }
  void send(const void*, std::size_t, int) override {}
  void receive(void*, std::size_t, int) override {}
  // As if rank 1 had sent, whose bytes, of 1 to 11, are 3 further than this rank's; spoiled: one message
  // twice.
  void exchange(std::span<void* const> out, std::span<void* const> in, std::size_t count, int) override {
    for (std::size_t i = 0; i < in.size(); ++i) {
      const auto* from = static_cast<const signed char*>(out[spoil_ && i == 1 ? 2 : i]);
      std::transform(from, from + count, static_cast<signed char*>(in[i]),
                     [](int value) { return static_cast<signed char>((value - 1 + 3) % 11 + 1); });
    }
  }
  std::string algorithm(Kind, std::size_t) override { return "-"; }

 private:
  void spoil(void* buffer, std::size_t count) const {
    if (spoil_) static_cast<unsigned char*>(buffer)[count * width_ - 1] ^= 0x40;  // in the last element
  }
  std::size_t width_;
  bool spoil_;
  std::function<void()> open_;
};

// Uses what is sent as scratch.
class ScratchSide final : public FakeSide {
 public:
  using FakeSide::FakeSide;
  void reduce(const void* send, void* receive, std::size_t count, int root) override {
    FakeSide::reduce(send, receive, count, root);
    std::memset(const_cast<void*>(send), 0, 1);
  }
  void allgather(const void* send, void* receive, std::size_t count) override {
    FakeSide::allgather(send, receive, count);
    std::memset(const_cast<void*>(send), 0, 1);
  }
};

// Leaves one byte of the result as it was.
class ForgetfulSide final : public FakeSide {
 public:
  explicit ForgetfulSide(std::size_t forgotten) : FakeSide(1, false), forgotten_(forgotten) {}
  void allgather(const void* send, void* receive, std::size_t count) override {
    auto* const bytes = static_cast<signed char*>(receive);
    const signed char before = bytes[forgotten_];
    FakeSide::allgather(send, receive, count);
    bytes[forgotten_] = before;
  }

 private:
  std::size_t forgotten_;
};

// Sums in place whatever it is told to send.
class InPlaceSide final : public FakeSide {
 public:
  InPlaceSide() : FakeSide(sizeof(float), false) {}
  void allreduce(const void*, void*, std::size_t) override {}
  void allgather(const void*, void*, std::size_t) override {}
};

TEST_F(InAJob, ValidationInPlaceSendsWhatLiesThere) {
  constexpr std::size_t kBytes = 800;
  BufferPool send(0, kBytes, Dtype::float32);
  BufferPool receive(0, kBytes, Dtype::float32);
  InPlaceSide side;
  for (const Kind kind : {Kind::allreduce, Kind::allgather}) {
    EXPECT_TRUE(collective_is_right(*job, side, kind, Dtype::float32, kBytes, send, nullptr));
    EXPECT_FALSE(collective_is_right(*job, side, kind, Dtype::float32, kBytes, send, &receive));
  }
}

TEST_F(InAJob, ValidationTellsRightFromWrong) {
  constexpr std::size_t kBytes = 1000 * 8;
  for (const Dtype dtype : {Dtype::int8, Dtype::int32, Dtype::float32, Dtype::float64}) {
    BufferPool send(0, kBytes, dtype);
    BufferPool receive(0, kBytes, dtype);
    FakeSide good(size_of(dtype), false);
    FakeSide bad(size_of(dtype), true);
    for (const Kind kind :
         {Kind::allreduce, Kind::reduce, Kind::bcast, Kind::allgather, Kind::iallreduce, Kind::ibcast}) {
      EXPECT_TRUE(collective_is_right(*job, good, kind, dtype, kBytes, send, &receive)) << mpi_name(dtype);
      EXPECT_FALSE(collective_is_right(*job, bad, kind, dtype, kBytes, send, &receive)) << mpi_name(dtype);
    }
    EXPECT_FALSE(collective_is_right(*job, bad, Kind::allgather, dtype, kBytes, send, nullptr))
        << mpi_name(dtype);
  }
}

TEST_F(InAJob, ValidationLooksAtTheInput) {
  constexpr std::size_t kBytes = 4;
  BufferPool send(0, kBytes, Dtype::int8);
  BufferPool receive(0, kBytes, Dtype::int8);
  ScratchSide side(1, false);
  for (const Kind kind : {Kind::reduce, Kind::allgather})
    EXPECT_FALSE(collective_is_right(*job, side, kind, Dtype::int8, kBytes, send, &receive));
}

// What was there before is like nothing that a rank gives.
TEST_F(InAJob, ValidationOfAnAllgatherMissesNoByte) {
  constexpr std::size_t kBytes = 127;
  BufferPool send(0, kBytes, Dtype::int8);
  BufferPool receive(0, kBytes, Dtype::int8);
  for (std::size_t i = 0; i < kBytes; ++i) {
    ForgetfulSide side(i);
    EXPECT_FALSE(collective_is_right(*job, side, Kind::allgather, Dtype::int8, kBytes, send, &receive)) << i;
  }
}

TEST_F(InAJob, ValidationOfAWindowTellsMessagesApart) {
  constexpr std::size_t kBytes = 1000;
  BufferPool send(1 << 20, kBytes, Dtype::int8);
  BufferPool receive(1 << 20, kBytes, Dtype::int8);
  FakeSide good(1, false);
  FakeSide bad(1, true);
  EXPECT_TRUE(window_is_right(*job, good, Dtype::int8, kBytes, 64, true, send, receive));
  EXPECT_FALSE(window_is_right(*job, bad, Dtype::int8, kBytes, 64, true, send, receive));
}

}  // namespace
}  // namespace heddle::bench
