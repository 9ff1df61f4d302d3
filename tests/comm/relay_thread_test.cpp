// The host's half of collectives on streams, by itself: here the test is the stream.
#include "comm/relay_thread.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace heddle {
namespace {

// One rank alone, whose sums double; or fail.
class Doubles final : public HostCollectives {
 public:
  explicit Doubles(bool fails) : fails_(fails) {}
  int rank() const override { return 0; }
  Status allreduce(const void* /*in*/, void* out, std::size_t count, DType /*type*/, Op /*op*/) override {
    if (fails_) return Status(Code::peer_failed, "rank 1 is gone");
    for (std::size_t i = 0; i < count; ++i)
      static_cast<std::int32_t*>(out)[i] *= 2;
    return {};
  }
  Status bcast(void* /*buffer*/, std::size_t /*bytes*/, int /*root*/) override { return {}; }

 private:
  const bool fails_;
};

constexpr std::size_t kPiece = 64;  // bytes

class Relay {
 public:
  explicit Relay(bool fails)
      : memory_(RelayRing::kSlots * kPiece / 4, 7),
        ring_{reinterpret_cast<std::byte*>(memory_.data()), kPiece},
        thread_(std::make_unique<Doubles>(fails), ring_, words_) {}
  void give(std::uint32_t first, std::size_t bytes) {
    RelayCall call;
    call.type = DType::i32;
    call.first = first;
    call.bytes = bytes;
    thread_.give(call);
  }
  void arrive(std::uint32_t number) { std::atomic_ref(words_.arrived).store(number); }
  // Whether the stream goes on past the piece before that number.
  bool goes_on(std::uint32_t number) {
    for (int i = 0; i < 5000; ++i) {
      if (static_cast<std::int32_t>(std::atomic_ref(words_.done).load() - number) >= 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  std::int32_t at(std::size_t i) const { return memory_[i]; }
  RelayThread& thread() { return thread_; }

 private:
  std::vector<std::int32_t> memory_;
  RelayWords words_;
  RelayRing ring_;
  RelayThread thread_;
};

TEST(RelayThread, DoesWhatHasArrived) {
  Relay relay(false);
  relay.give(0, kPiece + 8);
  relay.arrive(2);
  ASSERT_TRUE(relay.goes_on(2));
  EXPECT_EQ(relay.at(0), 14);
  EXPECT_EQ(relay.at(kPiece / 4 + 1), 14);  // the last of that call
  EXPECT_EQ(relay.at(kPiece / 4 + 2), 7);
  EXPECT_TRUE(relay.thread().lost().ok());
}

// Also what is given after the collectives have failed, which the caller may not have noticed.
TEST(RelayThread, AfterAFailureNoStreamWaits) {
  Relay relay(true);
  relay.give(0, 3 * kPiece);
  relay.give(3, kPiece);
  relay.arrive(1);
  ASSERT_TRUE(relay.goes_on(4));
  EXPECT_EQ(relay.thread().lost().code(), Code::peer_failed);
  relay.give(4, 2 * kPiece);
  EXPECT_TRUE(relay.goes_on(6));
}

}  // namespace
}  // namespace heddle
