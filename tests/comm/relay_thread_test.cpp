// The host's half of collectives on streams, by itself: here the test is the stream.
#include "comm/relay_thread.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace heddle {
namespace {

// Sums across, that triple.
class Triples final : public Across {
 public:
  int rank() const override { return 0; }
  int lanes() const override { return 2; }
  Status largest(std::span<std::uint64_t> /*words*/) override { return {}; }
  Status start_sum(std::size_t /*slot*/, void* data, std::size_t count, DType /*type*/, Op /*op*/,
                   LocalWork* /*local*/) override {
    counts.push_back(count);
    for (std::size_t i = 0; i < count; ++i)
      static_cast<std::int32_t*>(data)[i] *= 3;
    return {};
  }
  Status start_bcast(std::size_t /*slot*/, void* /*data*/, std::size_t /*bytes*/, int /*root*/,
                     LocalWork* /*local*/) override {
    return {};
  }
  Status finish(std::size_t /*slot*/) override {
    ++finished;
    return {};
  }
  Status progress() override { return {}; }
  Transport* network() override { return nullptr; }
  Result<std::size_t> scratch_for(std::size_t /*bytes*/) override { return std::size_t{0}; }

  std::vector<std::size_t> counts;  // of elements
  int finished = 0;
};

// One rank alone, whose sums double; or fail.
class Doubles final : public HostCollectives {
 public:
  Doubles(bool fails, Across* across) : fails_(fails), across_(across) {}
  Across* across() override { return across_; }
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
  Across* const across_;
};

constexpr std::size_t kPiece = 512;  // bytes

class Relay {
 public:
  explicit Relay(bool fails, Across* across = nullptr)
      : memory_(RelayRing::kSlots * kPiece / 4, 7),
        ring_{reinterpret_cast<std::byte*>(memory_.data()), kPiece},
        thread_(std::make_unique<Doubles>(fails, across), ring_, words_) {}
  void give(std::uint32_t first, std::size_t bytes, std::optional<SharesPieces> shares = {}) {
    RelayCall call;
    call.shares = shares;
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

// The shares of a rank in the second place on its node, of which the last piece has none; then a call as before. All ranks make the same calls, also without a share.
TEST(RelayThread, SumsSharesAcross) {
  Triples across;
  Relay relay(false, &across);
  SharesLayout layout;
  layout.lanes = 2;
  layout.share = kPiece;
  relay.give(0, 2 * 2 * kPiece + 8, SharesPieces(layout, 1, 2 * 2 * kPiece + 8));
  relay.give(3, 8);
  relay.arrive(3);
  ASSERT_TRUE(relay.goes_on(3));
  EXPECT_EQ(across.counts, (std::vector<std::size_t>{kPiece / 4, kPiece / 4, 0}));
  EXPECT_EQ(across.finished, 3);
  EXPECT_EQ(relay.at(0), 21);
  EXPECT_EQ(relay.at(kPiece / 4), 21);     // the second slot
  EXPECT_EQ(relay.at(2 * kPiece / 4), 7);  // the third has nothing of this rank's
  relay.arrive(4);
  ASSERT_TRUE(relay.goes_on(4));
  EXPECT_EQ(relay.at(3 * kPiece / 4), 14);
  EXPECT_TRUE(relay.thread().lost().ok());
}

// Ranks that have no places on nodes cannot, and no stream waits for it.
TEST(RelayThread, SharesWithoutPlaces) {
  Relay relay(false);
  SharesLayout layout;
  layout.share = kPiece;
  relay.give(0, kPiece, SharesPieces(layout, 0, kPiece));
  relay.arrive(1);
  ASSERT_TRUE(relay.goes_on(1));
  EXPECT_EQ(relay.thread().lost().code(), Code::internal);
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
